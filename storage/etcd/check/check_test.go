package check

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written returns a data directory in which an etcd has written a few keys, and its cluster's id.
func written(t testing.TB) Directory {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.LogLevel = "panic"
	cfg.ListenClientUrls, cfg.ListenPeerUrls, cfg.AdvertiseClientUrls = nil, nil, nil
	cfg.TickMs, cfg.ElectionMs = 10, 50
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	<-e.Server.ReadyNotify()
	for _, key := range []string{"a", "b", "c"} {
		put := pb.PutRequest{Key: []byte(key), Value: []byte(strings.Repeat(key, 50))}
		if _, err := e.Server.Put(t.Context(), &put); err != nil {
			t.Fatal(err)
		}
	}
	return Directory{Path: cfg.Dir, ClusterID: uint64(e.Server.Cluster().ID())}
}

// smallFiles returns a small real log and database.
func smallFiles(t testing.TB) (log, db []byte) {
	t.Helper()
	d := written(t)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.TrimRight(b, "\x00")
	}
	logs, err := filepath.Glob(filepath.Join(d.wal(), "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	db = read(d.db())
	return read(logs[0]), append(db, make([]byte, -len(db)&4095)...)
}

// A directory that was closed is sound, a seal is compared once, and what it covers is located.
func TestSeal(t *testing.T) {
	d := written(t)
	log := slog.New(slog.DiscardHandler)
	opens := func() uint64 {
		t.Helper()
		commit, err := d.Open(log)
		if err != nil || commit < 3 {
			t.Fatalf("opened with entry %d and error %v", commit, err)
		}
		return commit
	}
	seals := func() {
		t.Helper()
		if err := Seal(d.Path); err != nil {
			t.Fatal(err)
		}
	}
	flip := func() {
		t.Helper()
		f, err := os.OpenFile(d.db(), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		var b [1]byte
		at := info.Size() - 1
		if _, err := f.ReadAt(b[:], at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 1
		if _, err := f.WriteAt(b[:], at); err != nil {
			t.Fatal(err)
		}
	}

	commit := opens()
	seals()
	if again := opens(); again != commit {
		t.Errorf("the last committed entry is %d, and was %d", again, commit)
	}
	flip() // in a value or in unused bytes: the tree is as it was
	opens()
	seals()
	flip()
	var broken *damage
	for range 2 {
		if _, err := d.Open(log); !errors.As(err, &broken) || broken.file != d.db() || broken.offset != 0 {
			t.Fatalf("error %v, want damage of the database at 0", err)
		}
	}
	flip()
	opens()
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
