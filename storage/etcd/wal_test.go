package etcd

import (
	"fmt"
	"strings"
	"testing"
)

// TestWALBound: the WAL of few but large writes is shortened, though etcd would make no snapshot yet, and what was written is
// there after a restart.
func TestWALBound(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{DataDir: dir})
	value := strings.Repeat("x", 1<<20)
	const writes = 2 * maxWALFiles * segmentBytes >> 20
	for i := range writes {
		if _, err := s.Client.Put(t.Context(), "k", fmt.Sprint(i, value)); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "the WAL has no more files than its bound", func() bool {
		names, err := s.dir.walFiles()
		if err != nil {
			t.Fatal(err)
		}
		return len(names) <= maxWALFiles
	})
	if rev := s.Local.KV().Rev(); rev != 1+writes {
		t.Errorf("the revision is %d after %d writes", rev, writes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Options{DataDir: dir})
	res, err := s.Client.Get(t.Context(), "k")
	if err != nil || string(res.Kvs[0].Value) != fmt.Sprint(writes-1, value) {
		t.Errorf("after a restart the last write isn't there: %v", err)
	}
}

func TestWALBoundOfDisk(t *testing.T) {
	for _, c := range []struct {
		disk int64
		full bool
		want int
	}{{64 << 20, false, minWALFiles}, {640 << 20, false, 5}, {1 << 40, false, maxWALFiles}, {1 << 40, true, minWALFiles}} {
		if got := walBound(&roomState{disk: diskSpace{total: c.disk}, full: c.full}); got != c.want {
			t.Errorf("on a disk of %d MiB the WAL may have %d files, want %d", c.disk>>20, got, c.want)
		}
	}
}
