package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// open opens a server and closes it when the test ends.
func open(t testing.TB, o etcd.Options) *etcd.Server {
	t.Helper()
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, err := etcd.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t testing.TB, s *etcd.Server) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func put(t testing.TB, s *etcd.Server, key, value string) int64 {
	t.Helper()
	res, err := s.Client.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return res.Header.Revision
}

func get(t testing.TB, s *etcd.Server, key string) string {
	t.Helper()
	res, err := s.Client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Kvs) == 0 {
		return ""
	}
	return string(res.Kvs[0].Value)
}

// logBuffer is a log that a test can read while it's written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	// A preallocated file's blank end costs nothing on disk.
	err := os.WriteFile(path, []byte(strings.TrimRight(content, "\x00")), 0o600)
	if err = errors.Join(err, os.Truncate(path, int64(len(content)))); err != nil {
		t.Fatal(err)
	}
}

// files returns path and content of every file below dir.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		found[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

const markerFile = "apiserver-lite.json"

func TestOpenRefuses(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string) etcd.Options // dir exists and is empty
		want    string
	}{
		{"a file", func(t *testing.T, dir string) etcd.Options {
			write(t, dir+"/f", "")
			return etcd.Options{DataDir: dir + "/f"}
		}, "is a file"},
		{"below a file", func(t *testing.T, dir string) etcd.Options {
			write(t, dir+"/f", "")
			return etcd.Options{DataDir: dir + "/f/sub"}
		}, "not a directory"},
		{"where nobody can write", func(t *testing.T, dir string) etcd.Options {
			return etcd.Options{DataDir: "/proc/apiserver-lite"}
		}, "can't be made"},
		{"where nobody can write, ephemeral", func(t *testing.T, dir string) etcd.Options {
			return etcd.Options{DataDir: "/proc/apiserver-lite", Ephemeral: true}
		}, "can't be made"},
		{"a marker that is a directory", func(t *testing.T, dir string) etcd.Options {
			if err := os.Mkdir(filepath.Join(dir, markerFile), 0o700); err != nil {
				t.Fatal(err)
			}
			return etcd.Options{DataDir: dir}
		}, "has something else than a file in the place of"},
		{"foreign", func(t *testing.T, dir string) etcd.Options {
			write(t, dir+"/notes.txt", "mine")
			return etcd.Options{DataDir: dir}
		}, "holds something else"},
		{"another program's etcd", func(t *testing.T, dir string) etcd.Options {
			write(t, dir+"/member/snap/db", "data")
			return etcd.Options{DataDir: dir}
		}, "holds something else"},
		{"a newer layout", func(t *testing.T, dir string) etcd.Options {
			write(t, filepath.Join(dir, markerFile), `{"layout":7,"id":"x"}`)
			return etcd.Options{DataDir: dir}
		}, "has layout 7, made by a newer version"},
		{"a damaged marker beside data", func(t *testing.T, dir string) etcd.Options {
			write(t, filepath.Join(dir, markerFile), "%%%")
			write(t, dir+"/member/snap/db", "data")
			return etcd.Options{DataDir: dir}
		}, markerFile + " is damaged"},
		{"locked", func(t *testing.T, dir string) etcd.Options {
			open(t, etcd.Options{DataDir: dir})
			return etcd.Options{DataDir: dir}
		}, fmt.Sprintf("is locked by pid %d (this process)", os.Getpid())},
		{"negative history", func(t *testing.T, dir string) etcd.Options {
			return etcd.Options{DataDir: dir, History: -1}
		}, "history of -1ns"},
		{"no quota to speak of", func(t *testing.T, dir string) etcd.Options {
			return etcd.Options{DataDir: dir, QuotaBytes: 1}
		}, "quota of 1 bytes"},
		{"history over the quota", func(t *testing.T, dir string) etcd.Options {
			return etcd.Options{DataDir: dir, QuotaBytes: 32 << 20, HistoryBytes: 32 << 20}
		}, "over a quarter of the quota"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			o := tt.prepare(t, dir)
			o.Log = slog.New(slog.DiscardHandler)
			before := files(t, dir)
			s, err := etcd.Open(t.Context(), o)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if msg := err.Error(); !strings.Contains(msg, tt.want) || strings.Contains(msg, "\n") {
				t.Errorf("got %q, want one line with %q", msg, tt.want)
			}
			if tt.name == "locked" {
				return // its files move
			}
			after := files(t, dir)
			delete(after, "pid") // may be written before the marker is read
			if !maps.Equal(after, before) {
				t.Errorf("files changed from %q to %q", before, after)
			}
		})
	}
}

func TestLockedByAnotherProcess(t *testing.T) {
	dir := t.TempDir()
	p := startChild(t, "hold", dir)
	p.waitOpen(t)
	_, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir})
	if want := fmt.Sprintf("is locked by pid %d:", p.cmd.Process.Pid); err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("got %v, want %q", err, want)
	}
	p.kill(t)
	p.cmd.Wait()
	put(t, open(t, etcd.Options{DataDir: dir}), "k", "v")
}

func TestOpenAccepts(t *testing.T) {
	tests := []struct {
		name    string
		prepare func(t *testing.T, dir string) // dir doesn't exist
	}{
		{"missing", func(t *testing.T, dir string) {}},
		{"empty and open to all", func(t *testing.T, dir string) {
			if err := errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)); err != nil {
				t.Fatal(err)
			}
		}},
		{"a new file system", func(t *testing.T, dir string) { write(t, dir+"/lost+found/x", "") }},
		{"killed before the marker was written", func(t *testing.T, dir string) { write(t, filepath.Join(dir, markerFile), "") }},
		{"killed while the marker was written", func(t *testing.T, dir string) { write(t, filepath.Join(dir, markerFile), `{"layo`) }},
		{"killed before the database was made", func(t *testing.T, dir string) {
			halfMade(t, dir)
			write(t, dir+"/member/snap/db", "")
		}},
		{"killed while the database was made", func(t *testing.T, dir string) {
			halfMade(t, dir)
			write(t, dir+"/member/snap/db", strings.Repeat("x", 5000))
		}},
		{"killed before the log was made", func(t *testing.T, dir string) {
			halfMade(t, dir)
			write(t, dir+"/member/wal.tmp/0000000000000000-0000000000000000.wal", "")
		}},
		{"killed before the log had an entry", func(t *testing.T, dir string) {
			halfMade(t, dir)
			write(t, dir+"/member/wal/0000000000000000-0000000000000000.wal", strings.Repeat("\x00", 8<<20))
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			old := syscall.Umask(0) // nothing here may rely on it
			defer syscall.Umask(old)
			dir := filepath.Join(t.TempDir(), "a", "b")
			if err := os.Mkdir(filepath.Dir(dir), 0o700); err != nil {
				t.Fatal(err)
			}
			tt.prepare(t, dir)
			for i := range 3 {
				s := open(t, etcd.Options{DataDir: dir})
				key := fmt.Sprint("k", i)
				put(t, s, key, "v")
				if get(t, s, "k0") != "v" {
					t.Error("what was written is gone")
				}
				closeServer(t, s)
			}
			checkModes(t, dir)
		})
	}
}

// halfMade leaves what every first start leaves before etcd makes its files.
func halfMade(t *testing.T, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, markerFile), `{"layout":1,"id":"x"}`)
}

func checkModes(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if info, err := e.Info(); err != nil || info.Mode().Perm()&0o077 != 0 && e.Name() != "lost+found" {
			t.Errorf("%s has mode %v (%v)", path, info.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestEphemeral(t *testing.T) {
	base := t.TempDir()
	write(t, base+"/data/notes.txt", "mine")
	write(t, base+"/data/apiserver-lite-ephemeral-file", "mine too")
	before := files(t, base)

	live := open(t, etcd.Options{DataDir: base + "/data", Ephemeral: true})
	p := startChild(t, "ephemeral", base+"/data")
	left := p.waitOpen(t)
	p.kill(t)
	p.cmd.Wait()
	if _, err := os.Stat(left); err != nil {
		t.Fatal(err)
	}

	s := open(t, etcd.Options{DataDir: base + "/data", Ephemeral: true})
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what the killed server left is there: %v", err)
	}
	put(t, s, "k", "v")
	put(t, live, "k", "other")
	if get(t, s, "k") != "v" {
		t.Error("two ephemeral servers share data")
	}
	if filepath.Dir(s.Dir()) != base+"/data" {
		t.Errorf("it is in %s", s.Dir())
	}
	checkModes(t, s.Dir())
	closeServer(t, s)
	closeServer(t, live)
	if after := files(t, base); !maps.Equal(after, before) {
		t.Errorf("files changed from %q to %q", before, after)
	}

	t.Run("a directory that is missing", func(t *testing.T) {
		s := open(t, etcd.Options{DataDir: base + "/new", Ephemeral: true})
		put(t, s, "k", "v")
	})
	t.Run("the system's temporary directory", func(t *testing.T) {
		t.Setenv("TMPDIR", t.TempDir())
		s := open(t, etcd.Options{Ephemeral: true})
		if filepath.Dir(s.Dir()) != os.TempDir() {
			t.Errorf("it is in %s", s.Dir())
		}
		closeServer(t, s)
		if _, err := os.Stat(s.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("it is still there: %v", err)
		}
	})
}

func TestManyServers(t *testing.T) {
	before := listening(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			o := etcd.Options{DataDir: t.TempDir(), Ephemeral: i%2 == 0, Log: slog.New(slog.DiscardHandler)}
			s, err := etcd.Open(t.Context(), o)
			if err != nil {
				t.Error(err)
				return
			}
			for j := range 20 {
				if res, err := s.Client.Put(t.Context(), "k", fmt.Sprint(i)); err != nil || res.Header.Revision != int64(j+2) {
					t.Errorf("server %d, write %d: %v, %v", i, j, res, err)
				}
			}
			if sockets := listening(t); sockets != before {
				t.Errorf("%d sockets are open, %d were before", sockets, before)
			}
			if err := s.Health(); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// listening counts the process's sockets: an embedded etcd that opened one would be anybody's.
func listening(t *testing.T) int {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, fd := range fds {
		if to, _ := os.Readlink("/proc/self/fd/" + fd.Name()); strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n
}

func TestClose(t *testing.T) {
	s := open(t, etcd.Options{DataDir: t.TempDir()})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { closeServer(t, s) })
	}
	wg.Wait()
	closeServer(t, s)
	if err := s.Health(); err == nil {
		t.Error("a closed store is healthy")
	}
	if err := s.Err(); err != nil {
		t.Error("Close counts as failure:", err)
	}
	if _, err := s.Client.Put(t.Context(), "k", "v"); err == nil {
		t.Error("a closed store took a write")
	}
}

func TestOpenCanceled(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := etcd.Open(ctx, etcd.Options{DataDir: dir}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	put(t, open(t, etcd.Options{DataDir: dir}), "k", "v")
}

func TestValueSize(t *testing.T) {
	s := open(t, etcd.Options{Ephemeral: true, DataDir: t.TempDir()})
	tests := []struct {
		name string
		size int
		want error
	}{
		{"the largest", etcd.MaxValueBytes, nil},
		{"too large", etcd.MaxValueBytes + 65<<10, rpctypes.ErrRequestTooLarge},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			key := "/registry/" + strings.Repeat("n", 600)
			_, err := s.Client.Txn(t.Context()).
				If(clientv3.Compare(clientv3.ModRevision(key), "=", 0), clientv3.Compare(clientv3.ModRevision("/registry/ns"), "=", 0)).
				Then(clientv3.OpPut(key, strings.Repeat("v", tt.size))).Commit()
			if !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A restart leads as soon as raft has the log, which is longer than what etcd keeps of it in memory.
func TestRestartsReplay(t *testing.T) {
	dir := t.TempDir()
	for round := range 15 {
		s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if got, want := get(t, s, "k"), strings.Repeat("v", round); got != want {
			t.Errorf("round %d: %q, want %q", round, got, want)
		}
		for range 120 {
			put(t, s, "other", "v")
		}
		put(t, s, "k", strings.Repeat("v", round+1))
		closeServer(t, s)
	}
}
