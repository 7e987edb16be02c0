package etcd

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"go.uber.org/zap"
)

func TestLogger(t *testing.T) {
	var out strings.Builder
	var failures []error
	lg := newLogger(slog.New(slog.NewTextHandler(&out, nil)), func(err error) { failures = append(failures, err) }, func() {})
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

// smallFiles returns a small real log and database.
func smallFiles(f testing.TB) (log, db []byte) {
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
	log, _ := smallFiles(f)
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
		committedAfter(b, end)
	})
}

// A mapped file that shrinks while it's read faults: that is an error, as an unreadable sector's.
func TestFault(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	read := func() (err error) {
		defer catchFault(debug.SetPanicOnFault(true), name, &err)
		b, unmap, err := mapFile(name)
		if err != nil {
			return err
		}
		defer unmap()
		if err := os.Truncate(name, 0); err != nil {
			return err
		}
		allZero(b)
		return nil
	}
	var d *damage
	if err := read(); !errors.As(err, &d) || d.file != name {
		t.Errorf("got %v", err)
	}
}

// Wherever a bit of a database is flipped, the walk neither panics nor faults nor loops, and names a page.
func TestWalkFlipped(t *testing.T) {
	_, db := smallFiles(t)
	meta, err := readMeta(db)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 2 * meta.pageSize; at < uint64(meta.bytes()); at++ {
		for _, bit := range []byte{0x01, 0x80} {
			db[at] ^= bit
			found += walkBytes(t, db, meta)
			db[at] ^= bit
		}
	}
	if found < 100 || walkBytes(t, db, meta) != 0 {
		t.Errorf("%d flips were noticed", found)
	}
}

// walkBytes walks a database in memory; it returns 1 if that found damage.
func walkBytes(t *testing.T, b []byte, meta dbMeta) int {
	t.Helper()
	w := dbWalk{b: b, meta: meta, seen: make([]bool, meta.pages)}
	err := w.tree(meta.root, nil, nil, w.rootElement)
	if err == nil {
		return 0
	}
	if err.page >= meta.pages {
		t.Fatalf("page %d of %d: %s", err.page, meta.pages, err.what)
	}
	return 1
}

func FuzzDatabase(f *testing.F) {
	_, db := smallFiles(f)
	f.Add(db, 0, byte(0))
	f.Add(db[:4096], 4100, byte(1))
	f.Add([]byte("short"), 2, byte(1))
	f.Fuzz(func(t *testing.T, b []byte, at int, flip byte) {
		if len(b) == 0 {
			return
		}
		meta, err := readMeta(b)
		if err != nil || uint64(len(b)) < uint64(meta.bytes()) {
			return
		}
		b = bytes.Clone(b)
		b[uint(at)%uint(len(b))] ^= flip
		walkBytes(t, b, meta)
	})
}
