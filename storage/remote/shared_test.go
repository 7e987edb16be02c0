package remote_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// sharedEtcd is an etcd that stores share.
type sharedEtcd struct {
	Open    func(testing.TB) storage.Store    // another store over it, which the test's end closes
	Client  func(testing.TB) *clientv3.Client // of all keys
	Restart func(testing.TB)                  // as after a crash
	Replace func(testing.TB)                  // by another one at the same address, without keys
}

// runShared tests what stores over one etcd see of each other, and what they make of its faults. start returns an etcd
// without keys.
func runShared(t *testing.T, start func(testing.TB) *sharedEtcd) {
	for _, c := range []struct {
		name string
		test func(testing.TB, *sharedEtcd)
	}{
		{"writes of others", writesOfOthers},
		{"progress without events", progress},
		{"compaction while following", compaction},
		{"compaction at a deletion", compactedDeletion},
		{"restart", restart},
		{"another store at the same place", replaced},
		{"another store at the same revision", replacedAlike},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, start(t)) })
	}
}

// patience is for whatever these tests wait for. A busy machine needs most of it.
const patience = 2 * time.Minute

func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func newest(ctx context.Context, t testing.TB, s storage.Store) storage.Revision {
	t.Helper()
	_, rev, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

func create(ctx context.Context, t testing.TB, s storage.Store, key, value string) storage.Revision {
	t.Helper()
	rev, err := s.Create(ctx, key, []byte(value))
	if err != nil {
		t.Fatal(err)
	}
	return rev
}

// followTo follows until a revision, and returns the keys of the changes.
func followTo(ctx context.Context, t testing.TB, s storage.Store, at, to storage.Revision) (keys []string) {
	t.Helper()
	for at < to {
		got, upTo, err := s.Follow(ctx, at)
		if err != nil || upTo <= at {
			t.Fatalf("follow after %d: up to %d, %v", at, upTo, err)
		}
		for _, c := range got {
			if c.Revision <= at || c.Revision > upTo {
				t.Fatalf("after %d and up to %d: revision %d", at, upTo, c.Revision)
			}
			keys = append(keys, c.Key)
		}
		at = upTo
	}
	return keys
}

func writesOfOthers(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	a, b := e.Open(t), e.Open(t)
	at := newest(ctx, t, b)
	for i := range 50 {
		rev := create(ctx, t, a, fmt.Sprintf("%s%d", key, i), "v")
		seen, err := b.Barrier(ctx)
		if err != nil || seen < rev {
			t.Fatalf("barrier at %d after a write at %d, %v", seen, rev, err)
		}
		if keys := followTo(ctx, t, b, at, seen); len(keys) != 1 {
			t.Fatalf("a barrier after one write has %q", keys)
		}
		if _, err := b.Update(ctx, fmt.Sprintf("%s%d", key, i), []byte("w"), rev); err != nil {
			t.Fatal(err)
		}
		if at, err = b.Barrier(ctx); err != nil {
			t.Fatal(err)
		}
		followTo(ctx, t, b, seen, at)
	}
}

func progress(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	s, client := e.Open(t), e.Client(t)
	at := newest(ctx, t, s)
	for i := range 10 {
		if _, err := client.Put(ctx, fmt.Sprintf("/elsewhere/%d", i), "v"); err != nil {
			t.Fatal(err)
		}
		rev, err := s.Barrier(ctx)
		if err != nil || rev <= at {
			t.Fatalf("barrier at %d after %d, %v", rev, at, err)
		}
		if keys := followTo(ctx, t, s, at, rev); len(keys) != 0 {
			t.Fatalf("there is %q", keys)
		}
		at = rev
	}
}

func compaction(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	s, client := e.Open(t), e.Client(t)
	begin := newest(ctx, t, s)
	first := create(ctx, t, s, key+"0", "v")
	followTo(ctx, t, s, begin, first)
	var last storage.Revision
	for i := range 20 {
		last = create(ctx, t, s, fmt.Sprintf("%s%d", key, i+1), "v")
	}
	if _, err := client.Compact(ctx, int64(last-5)); err != nil {
		t.Fatal(err)
	}
	// The watch is open, and so has what was compacted, or finds out that it hasn't.
	for at := first; at < last; {
		_, upTo, err := s.Follow(ctx, at)
		if errors.Is(err, storage.ErrCompacted) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at = upTo
	}
	if compacted, _, err := s.Window(ctx); err != nil || compacted != last-5 {
		t.Errorf("history begins at %d, want %d, %v", compacted, last-5, err)
	}
	if _, _, err := s.Changes(ctx, storage.Stretch{After: last - 6}); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("before the compacted revision: %v", err)
	}
	if got, _, err := s.Changes(ctx, storage.Stretch{After: last - 5}); err != nil || len(got) != 5 {
		t.Errorf("after the compacted revision: %d changes, %v", len(got), err)
	}
	all := storage.Range{Prefix: storage.Root}
	if _, err := s.List(ctx, all, last-6, func(storage.Change) error { return nil }); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("list before it: %v", err)
	}
	// A store that is opened now knows it at once.
	other := e.Open(t)
	if compacted, _, err := other.Window(ctx); err != nil || compacted != last-5 {
		t.Errorf("in a new store history begins at %d, want %d, %v", compacted, last-5, err)
	}
	if _, _, err := other.Follow(ctx, first); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("follow from before it: %v", err)
	}
}

// compactedDeletion: history begins at a deletion that a store hasn't followed yet. It gets the deletion, or is told that it can't.
func compactedDeletion(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	a, b, client := e.Open(t), e.Open(t), e.Client(t)
	rev := create(ctx, t, a, key, "v")
	at := newest(ctx, t, b)
	gone, err := a.Delete(ctx, key, rev)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Compact(ctx, int64(gone), clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	last := create(ctx, t, a, key+"b", "v")
	var keys []string
	for at < last {
		changes, upTo, err := b.Follow(ctx, at)
		if errors.Is(err, storage.ErrCompacted) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			keys = append(keys, c.Key)
		}
		at = upTo
	}
	if len(keys) != 2 || keys[0] != key {
		t.Errorf("%s was removed at %d, and up to %d there's only %q", key, gone, last, keys)
	}
}

func restart(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	s := e.Open(t)
	at := newest(ctx, t, s)
	rev := create(ctx, t, s, key, "v")
	followTo(ctx, t, s, at, rev)
	e.Restart(t)
	var next storage.Revision
	succeeds(ctx, t, "a write after the restart", func() (err error) {
		next, err = s.Create(ctx, key+"b", []byte("v"))
		if errors.Is(err, storage.ErrExists) { // an attempt whose answer was lost
			next, err = newest(ctx, t, s), nil
		}
		return err
	})
	if keys := followTo(ctx, t, s, rev, next); len(keys) != 1 || keys[0] != key+"b" {
		t.Errorf("after the restart there is %q", keys)
	}
}

// succeeds tries something that fails while etcd can't answer, until it succeeds or ctx ends.
func succeeds(ctx context.Context, t testing.TB, what string, try func() error) {
	t.Helper()
	eventually(ctx, t, what, func() bool {
		err := try()
		if err != nil && !errors.Is(err, storage.ErrUnavailable) {
			t.Fatalf("%s: %v", what, err)
		}
		return err == nil
	})
}

func replaced(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	s := e.Open(t)
	at := newest(ctx, t, s)
	var rev storage.Revision
	for i := range 10 {
		rev = create(ctx, t, s, fmt.Sprintf("%s%d", key, i), "v")
	}
	followTo(ctx, t, s, at, rev)
	e.Replace(t)
	if _, _, err := s.Follow(ctx, rev); !errors.Is(err, storage.ErrRewound) {
		t.Fatalf("follow: %v", err)
	}
	if _, err := s.Barrier(ctx); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("a barrier before the caches have begun anew: %v", err)
	}
	succeeds(ctx, t, "the first look at the other store", func() (err error) {
		_, at, err = s.Window(ctx)
		return err
	})
	if at >= rev {
		t.Fatalf("the other store is at %d, and the one before was at %d", at, rev)
	}
	all := storage.Range{Prefix: storage.Root}
	if count, err := s.Count(ctx, all, 0); err != nil || count != 0 {
		t.Errorf("the other store has %d keys, %v", count, err)
	}
	next := create(ctx, t, s, key, "v")
	if keys := followTo(ctx, t, s, at, next); len(keys) != 1 {
		t.Errorf("there is %q", keys)
	}
	succeeds(ctx, t, "a barrier", func() error { _, err := s.Barrier(ctx); return err })
}

// replacedAlike: the other store is at the very revision up to which the first one was followed. Nothing is written to it.
func replacedAlike(t testing.TB, e *sharedEtcd) {
	ctx := bounded(t)
	s := e.Open(t)
	at := newest(ctx, t, s)
	rev := create(ctx, t, s, key, "v")
	for range 10 {
		var err error
		if rev, err = s.Update(ctx, key, []byte("v"), rev); err != nil {
			t.Fatal(err)
		}
	}
	followTo(ctx, t, s, at, rev)
	e.Replace(t)
	if _, _, err := s.Follow(ctx, rev); !errors.Is(err, storage.ErrRewound) {
		t.Fatalf("follow: %v", err)
	}
	succeeds(ctx, t, "the first look at the other store", func() (err error) {
		_, at, err = s.Window(ctx)
		return err
	})
	for client := e.Client(t); at < rev; {
		put, err := client.Put(ctx, "/elsewhere", "")
		if err != nil {
			t.Fatal(err)
		}
		at = storage.Revision(put.Header.Revision)
	}
	if at != rev {
		t.Fatalf("the other store is at %d, want %d", at, rev)
	}
	following, stop := context.WithCancel(ctx)
	var follower sync.WaitGroup
	defer follower.Wait()
	defer stop()
	follower.Go(func() {
		if _, _, err := s.Follow(following, at); !errors.Is(err, context.Canceled) && err != nil {
			t.Error(err)
		}
	})
	succeeds(ctx, t, "a barrier", func() error { _, err := s.Barrier(ctx); return err })
}
