package embedded_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

const key = "/registry/example.com/widgets/default/a"

func TestStorage(t *testing.T) {
	storagetest.Run(t, func(t testing.TB) storage.Store {
		s, _ := storagetest.Embedded(t)
		return s
	})
}

// TestMigrating: a store that a migration has filled by half isn't served.
func TestMigrating(t *testing.T) {
	_, e := storagetest.Embedded(t)
	if _, err := e.Client.Put(t.Context(), storage.MigrationKey, "{}"); err != nil {
		t.Fatal(err)
	}
	if s, err := embedded.New(e.Client, e.Local); err == nil {
		s.Close()
		t.Error("the store was opened")
	}
	if _, err := e.Client.Delete(t.Context(), storage.MigrationKey); err != nil {
		t.Fatal(err)
	}
	s, err := embedded.New(e.Client, e.Local)
	if err != nil {
		t.Fatalf("after the migration: %v", err)
	}
	s.Close()
}

// TestRevisions: each write is one revision, without gaps.
func TestRevisions(t *testing.T) {
	ctx := t.Context()
	s, _ := storagetest.Embedded(t)
	created, err := s.Create(ctx, key, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	updated, err := s.Update(ctx, key, []byte("two"), created)
	if err != nil || updated != created+1 {
		t.Errorf("updated at %d after %d, %v", updated, created, err)
	}
	if deleted, err := s.Delete(ctx, key, updated); err != nil || deleted != updated+1 {
		t.Errorf("deleted at %d after %d, %v", deleted, updated, err)
	}
}

func TestList(t *testing.T) {
	ctx := t.Context()
	s, e := storagetest.Embedded(t)
	const n = 2500 // more than two pages
	var last storage.Revision
	for i := range n {
		var err error
		if last, err = s.Create(ctx, fmt.Sprintf("/registry/g/r/ns/%05d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(ctx, "/registry/g/s/ns/other", []byte("v")); err != nil {
		t.Fatal(err)
	}
	var keys []string
	collect := func(c storage.Change) error { keys = append(keys, c.Key); return nil }
	if at, err := s.List(ctx, storage.Range{Prefix: "/registry/g/r/"}, 0, collect); err != nil || at != last+1 || len(keys) != n {
		t.Errorf("%d keys at %d, %v", len(keys), at, err)
	}
	for i, k := range keys {
		if want := fmt.Sprintf("/registry/g/r/ns/%05d", i); k != want {
			t.Fatalf("key %d is %s", i, k)
		}
	}
	keys = nil
	if at, err := s.List(ctx, storage.Range{Prefix: "/registry/g/r/"}, last-1000, collect); err != nil || at != last-1000 || len(keys) != n-1000 {
		t.Errorf("in the past: %d keys at %d, %v", len(keys), at, err)
	}
	stop := errors.New("stop")
	if _, err := s.List(ctx, storage.Range{Prefix: "/registry/"}, 0, func(storage.Change) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error is %v", err)
	}
	if _, err := e.Client.Compact(ctx, int64(last)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.List(ctx, storage.Range{Prefix: "/registry/"}, last-1, collect); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("error is %v", err)
	}
}

func TestChanges(t *testing.T) {
	ctx := t.Context()
	s, e := storagetest.Embedded(t)
	begin := s.Current()
	created, _ := s.Create(ctx, key, []byte("one"))
	updated, _ := s.Update(ctx, key, []byte("two"), created)
	deleted, err := s.Delete(ctx, key, updated)
	if err != nil {
		t.Fatal(err)
	}
	txn, err := e.Client.Txn(ctx).Then(clientv3.OpPut("/registry/g/r/a", "x"), clientv3.OpPut("/registry/g/r/b", "y")).Commit()
	if err != nil {
		t.Fatal(err)
	}
	both := storage.Revision(txn.Header.Revision)

	got, upTo, err := s.Changes(ctx, storage.Stretch{After: begin})
	if err != nil || upTo != both || len(got) != 5 {
		t.Fatalf("got %d changes up to %d, %v", len(got), upTo, err)
	}
	want := []struct {
		rev     storage.Revision
		value   string
		deleted bool
	}{{created, "one", false}, {updated, "two", false}, {deleted, "", true}, {both, "x", false}, {both, "y", false}}
	for i, w := range want {
		if c := got[i]; c.Revision != w.rev || string(c.Value) != w.value || c.Deleted != w.deleted || c.Err != nil {
			t.Errorf("change %d is %+v, want %+v", i, c, w)
		}
	}
	for name, c := range map[string]struct {
		st   storage.Stretch
		n    int
		upTo storage.Revision
		err  error
	}{
		"from the middle":            {storage.Stretch{After: updated}, 3, both, nil},
		"nothing new":                {storage.Stretch{After: both}, 0, both, nil},
		"from the future":            {storage.Stretch{After: both + 10}, 0, both + 10, nil},
		"through a revision":         {storage.Stretch{After: begin, Through: updated}, 2, updated, nil},
		"whole revisions, few bytes": {storage.Stretch{After: deleted, MaxBytes: 1}, 2, both, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got, upTo, err := s.Changes(ctx, c.st)
			if len(got) != c.n || upTo != c.upTo || !errors.Is(err, c.err) {
				t.Errorf("%d changes up to %d, %v", len(got), upTo, err)
			}
		})
	}
	if _, err := e.Client.Compact(ctx, int64(updated)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Changes(ctx, storage.Stretch{After: updated}); err != nil {
		t.Errorf("after the compacted revision itself: %v", err)
	}
	if s.Compacted() != updated {
		t.Errorf("history begins at %d, want %d", s.Compacted(), updated)
	}
	if _, _, err := s.Changes(ctx, storage.Stretch{After: updated - 1}); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("before the compacted revision: %v", err)
	}
}

// TestChangesOfWideTransactions: a revision with more entries than are read in one hold comes whole.
func TestChangesOfWideTransactions(t *testing.T) {
	ctx := t.Context()
	s, e := storagetest.Embedded(t)
	begin := s.Current()
	var want []int
	for _, n := range []int{1, 100, 128, 128, 128, 7, 1} {
		var ops []clientv3.Op
		for i := range n {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/g/r/%d", i), strings.Repeat("x", 100)))
		}
		if _, err := e.Client.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
		want = append(want, n)
	}
	for _, maxBytes := range []int{0, 1, 5000, 20_000} {
		var got []int
		for at := begin; at < s.Current(); {
			changes, upTo, err := s.Changes(ctx, storage.Stretch{After: at, MaxBytes: maxBytes})
			if err != nil || upTo <= at {
				t.Fatalf("after %d: up to %d, %v", at, upTo, err)
			}
			for _, c := range changes {
				for len(got) < int(c.Revision-begin) {
					got = append(got, 0)
				}
				got[c.Revision-begin-1]++
			}
			at = upTo
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("with %d bytes: revisions of %v changes, want %v", maxBytes, got, want)
		}
	}
}

// TestChangesAcrossCommits: what is in etcd's write buffer comes after what is in its database, all of both.
func TestChangesAcrossCommits(t *testing.T) {
	ctx := t.Context()
	s, e := storagetest.Embedded(t)
	begin := s.Current()
	const writes = 300 // between two commits
	for round := range 3 {
		for i := range writes {
			if _, err := s.Create(ctx, fmt.Sprintf("/registry/g/r/%d-%d", round, i), []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
		for _, maxBytes := range []int{0, 1000} {
			for at := begin; at < s.Current(); {
				changes, upTo, err := s.Changes(ctx, storage.Stretch{After: at, MaxBytes: maxBytes})
				if err != nil || upTo <= at {
					t.Fatalf("after %d: up to %d, %v", at, upTo, err)
				}
				for i, c := range changes {
					if want := at + storage.Revision(i) + 1; c.Revision != want {
						t.Fatalf("round %d, after %d: change %d is revision %d, want %d", round, at, i, c.Revision, want)
					}
				}
				at = upTo
			}
		}
		e.Local.Backend().ForceCommit()
	}
}

// A value that can't be read comes with its error, and the others as they are.
func TestUnreadable(t *testing.T) {
	ctx := t.Context()
	s, _ := storagetest.Embedded(t)
	unreadable := errors.New("unreadable")
	s.SetTransformer(storagetest.OnRead(func(k string) error {
		if k == key+"b" {
			return unreadable
		}
		return nil
	}))
	for _, k := range []string{key, key + "b"} {
		if _, err := s.Create(ctx, k, []byte("one")); err != nil {
			t.Fatal(err)
		}
	}
	if kv, err := s.Get(ctx, key); err != nil || string(kv.Value) != "one" {
		t.Errorf("got %+v, %v", kv, err)
	}
	if kv, err := s.Get(ctx, key+"b"); !errors.Is(err, unreadable) || string(kv.Value) != "one" {
		t.Errorf("got %+v, %v", kv, err)
	}
	all, broken := 0, 0
	if _, err := s.List(ctx, storage.Range{Prefix: storage.Root}, 0, func(c storage.Change) error {
		if all++; errors.Is(c.Err, unreadable) {
			broken++
		}
		return nil
	}); err != nil || all != 2 || broken != 1 {
		t.Errorf("%d of %d values are unreadable, %v", broken, all, err)
	}
}

// TestTransformed: see storagetest.Transformed.
func TestTransformed(t *testing.T) {
	s, e := storagetest.Embedded(t)
	s.SetTransformer(storagetest.Turned{})
	storagetest.Transformed(t, s, func(key string) []byte {
		res, err := e.Client.Get(t.Context(), key)
		if err != nil || len(res.Kvs) == 0 {
			t.Fatal(res, err)
		}
		return res.Kvs[0].Value
	})
}
