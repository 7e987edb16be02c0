package etcd

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// TestForget: the database's pages are out of the process's memory, and what is read from them again is what was written, also while the keeper
// takes them out all the time.
func TestForget(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{DataDir: dir})
	value := strings.Repeat("x", 100<<10)
	for i := range 40 {
		if _, err := s.Client.Put(t.Context(), fmt.Sprintf("/k%02d", i), fmt.Sprint(i, value)); err != nil {
			t.Fatal(err)
		}
	}
	s.keeper.database.commit()
	read := func() {
		found, err := s.Local.KV().Range(t.Context(), []byte("/k"), []byte("/l"), mvcc.RangeOptions{})
		if err != nil || len(found.KVs) != 40 {
			t.Errorf("%v, %v", found, err)
			return
		}
		for i, kv := range found.KVs {
			if string(kv.Value) != fmt.Sprint(i, value) {
				t.Errorf("%s has another value", kv.Key)
			}
		}
	}
	read()
	before := mappedOf(t, dir)
	if before < 4000 {
		t.Fatalf("%d kB of the database are in memory after all of it was read", before)
	}
	soon(t, "the keeper takes the database's pages out", func() bool { return mappedOf(t, dir) < before/4 }) // a read of etcd's may bring some back
	var others sync.WaitGroup
	for range 2 {
		others.Go(func() {
			for range 20 {
				read()
			}
		})
	}
	others.Go(func() {
		for range 3 {
			if err := s.keeper.database.rewrite(); err != nil {
				t.Error(err)
			}
		}
	})
	for range 20 {
		if err := s.keeper.database.forget(); err != nil {
			t.Error(err)
		}
	}
	others.Wait()
	read()
}

// mappedOf returns how much of a directory's database is in the process's memory, in kB.
func mappedOf(t *testing.T, dir string) (kb int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		t.Fatal(err)
	}
	_, of, found := strings.Cut(string(maps), dir+"/member/snap/db")
	_, of, sized := strings.Cut(of, "\nRss:")
	if _, err := fmt.Sscanf(of, "%d kB", &kb); err != nil || !found || !sized {
		t.Fatalf("the database isn't mapped: %v", err)
	}
	return kb
}
