package etcd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	var out strings.Builder
	var failures []error
	lg := newLogger(slog.New(slog.NewTextHandler(&out, nil)), func(err error) { failures = append(failures, err) })
	lg = lg.Named("raft").With(zap.Int("member", 7))
	lg.Info("quiet")
	lg.Warn("slow fdatasync", zap.String("took", "2s"))
	lg.Error("odd", zap.Error(errors.New("why")))
	lg.Warn("Running http and grpc server on single port. This is not recommended for production.")
	for _, want := range []string{`level=WARN msg="etcd: slow fdatasync" member=7 took=2s`, `level=ERROR msg="etcd: odd" error=why member=7`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, &out)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Errorf("%d lines: %s", n, &out)
	}
	for _, end := range []func(){
		func() { lg.Fatal("failed to save", zap.Error(os.ErrClosed)) },
		func() { lg.Panic("unexpected", zap.String("path", "/x")) },
		func() { lg.Sugar().Panicf("tocommit(%d)", 5) },
	} {
		done := make(chan bool, 1)
		go func() {
			defer close(done)
			end()
			done <- true
		}()
		if <-done {
			t.Error("the goroutine went on")
		}
	}
	want := []string{"failed to save: file already closed", "unexpected path=/x", "tocommit(5)"}
	for i, err := range failures {
		if err.Error() != want[i] {
			t.Errorf("failure %d: %q, want %q", i, err, want[i])
		}
	}
	if !errors.Is(failures[0], os.ErrClosed) {
		t.Error("the cause is lost")
	}
}

// seedFiles returns a small real log and database.
func seedFiles(f *testing.F) (log, db []byte) {
	f.Helper()
	dir := f.TempDir()
	s, err := Open(f.Context(), Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		f.Fatal(err)
	}
	for _, key := range []string{"a", "b", "c"} {
		if _, err := s.Client.Put(f.Context(), key, strings.Repeat(key, 50)); err != nil {
			f.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		return bytes.TrimRight(b, "\x00")
	}
	logs, err := filepath.Glob(filepath.Join(s.dir.wal(), "*.wal"))
	if err != nil || len(logs) != 1 {
		f.Fatal(logs, err)
	}
	db = read(s.dir.db())
	return read(logs[0]), append(db, make([]byte, -len(db)&4095)...)
}

// Whatever a log file holds, reading it neither panics nor loops, and ends within it.
func FuzzLog(f *testing.F) {
	log, _ := seedFiles(f)
	f.Add(log)
	f.Add(append(bytes.Clone(log), 1, 2, 3))
	f.Add([]byte{})
	f.Add(make([]byte, 1000))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r walReader
		end, err := r.records(b)
		if err == nil || end < 0 || end > len(b) {
			t.Fatalf("ended at %d of %d with %v", end, len(b), err)
		}
		tornAt(b, end, err)
	})
}

// Whatever a database file holds, walking it neither panics, faults nor loops.
func FuzzDatabase(f *testing.F) {
	_, db := seedFiles(f)
	f.Add(db, 0, byte(0))
	for _, at := range []int{20, 40, 2*4096 + 8, 3 * 4096, 3*4096 + 17, 4*4096 + 20} {
		f.Add(db, at, byte(0x40))
	}
	path := filepath.Join(f.TempDir(), "db")
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if b = bytes.Clone(b); len(b) > 0 {
			b[uint(at)%uint(len(b))] ^= flip
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openDB(path)
		if err != nil {
			return
		}
		defer file.Close()
		if _, err := file.walk(); err != nil {
			var d *damage
			if !errors.As(err, &d) || d.offset < 0 || d.offset > int64(len(b)) {
				t.Fatalf("not a place in the file: %v", err)
			}
		}
	})
}
