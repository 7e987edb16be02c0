package embedded_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// following reads from a revision on until it has what it was written up to, and checks that each revision comes once,
// in order and whole: sizes has the number of changes of each revision.
func following(ctx context.Context, t *testing.T, s *embedded.Store, from, to storage.Revision) (sizes []int) {
	t.Helper()
	for at := from; at < to; {
		changes, upTo, err := s.Follow(ctx, at)
		if err != nil || len(changes) == 0 || changes[len(changes)-1].Revision != upTo {
			t.Fatalf("after %d: %d changes up to %d, %v", at, len(changes), upTo, err)
		}
		for _, c := range changes {
			switch n := c.Revision - from; {
			case c.Revision <= at || n > storage.Revision(len(sizes)+1):
				t.Fatalf("after %d: revision %d", from+storage.Revision(len(sizes)), c.Revision)
			case n > storage.Revision(len(sizes)):
				sizes = append(sizes, 1)
			default:
				sizes[n-1]++
			}
		}
		at = upTo
	}
	return sizes
}

// TestFollow: whatever the writers and the reader do, the reader gets every revision exactly once and whole.
func TestFollow(t *testing.T) {
	put := func(n, size int) []clientv3.Op {
		var ops []clientv3.Op
		for i := range n {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/g/r/%d", i), strings.Repeat("x", size)))
		}
		return ops
	}
	for name, c := range map[string]struct {
		writes int
		ops    []clientv3.Op
		reads  bool // from memory alone
	}{
		"as many as the channel has room for": {128, put(1, 10), true},
		"one more":                            {129, put(1, 10), false},
		"many more":                           {1000, put(1, 10), false},
		"transactions of several keys":        {100, put(5, 10), true},
		"several keys, and more than fits":    {200, put(5, 10), false},
		"more bytes than are read at once":    {7, put(1, 600<<10), true},
		"more bytes than there is room for":   {12, put(1, 1<<20), false},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			s, e := storagetest.Embedded(t)
			begin, reads := s.Current(), s.Reads()
			for range c.writes { // nobody reads meanwhile
				if _, err := e.Client.Txn(ctx).Then(c.ops...).Commit(); err != nil {
					t.Fatal(err)
				}
			}
			sizes := following(ctx, t, s, begin, begin+storage.Revision(c.writes))
			if fmt.Sprint(sizes) != fmt.Sprint(slices.Repeat([]int{len(c.ops)}, c.writes)) {
				t.Errorf("revisions of %v changes", sizes)
			}
			if inMemory := s.Reads() == reads; inMemory != c.reads {
				t.Errorf("read from memory alone: %v", inMemory)
			}
			// And the reader is back in memory.
			reads = s.Reads()
			begin = s.Current()
			if _, err := e.Client.Txn(ctx).Then(c.ops...).Commit(); err != nil {
				t.Fatal(err)
			}
			following(ctx, t, s, begin, begin+1)
			if s.Reads() != reads {
				t.Error("the next write wasn't read from memory")
			}
		})
	}
}

// TestFollowUnderLoad: beside eight writers, a barrier is never behind a write, and etcd's reads are never behind
// what was followed.
func TestFollowUnderLoad(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, _ := storagetest.Embedded(t)
	begin := s.Current()
	const writers, writes = 8, 300
	var wg sync.WaitGroup
	defer wg.Wait()
	for w := range writers {
		wg.Go(func() {
			for i := range writes {
				rev, err := s.Create(ctx, fmt.Sprintf("/registry/g/r/%d-%d", w, i), []byte("v"))
				if err != nil {
					t.Error(err)
					return
				}
				if at, err := s.Barrier(ctx); err != nil || at < rev {
					t.Errorf("barrier at %d after a write at %d, %v", at, rev, err)
				}
			}
		})
	}
	for at := begin; at < begin+writers*writes; {
		changes, upTo, err := s.Follow(ctx, at)
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range changes {
			if c.Revision != at+storage.Revision(i)+1 {
				t.Fatalf("revision %d follows %d", c.Revision, at+storage.Revision(i))
			}
		}
		at = upTo
		last := changes[len(changes)-1]
		if kv, err := s.Get(ctx, last.Key); err != nil || kv.Revision != last.Revision {
			t.Fatalf("get of what was followed at %d: %+v, %v", last.Revision, kv, err)
		}
		if _, err := s.Count(ctx, storage.Range{Prefix: last.Key}, upTo); err != nil {
			t.Fatalf("count at %d, which was followed: %v", upTo, err)
		}
	}
}

// TestFollowDeletions: a deletion has a key and a revision, from memory as from the index.
func TestFollowDeletions(t *testing.T) {
	ctx := t.Context()
	s, _ := storagetest.Embedded(t)
	begin := s.Current()
	created, err := s.Create(ctx, key, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	deleted, err := s.Delete(ctx, key, created)
	if err != nil {
		t.Fatal(err)
	}
	history, _, err := s.Changes(ctx, storage.Stretch{After: begin})
	if err != nil {
		t.Fatal(err)
	}
	got, upTo, err := s.Follow(ctx, begin)
	if err != nil || upTo != deleted || fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", history) || !got[1].Deleted {
		t.Errorf("got %+v up to %d, %v, want %+v", got, upTo, err, history)
	}
}

// TestFollowEnds: a reader that is behind the history is told so, and one that waits ends with its context or the
// store.
func TestFollowEnds(t *testing.T) {
	s, e := storagetest.Embedded(t)
	begin := s.Current()
	var last storage.Revision
	for i := range 200 {
		var err error
		if last, err = s.Create(t.Context(), fmt.Sprintf("/registry/g/r/%d", i), []byte("v")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := e.Client.Compact(t.Context(), int64(last-10)); err != nil {
		t.Fatal(err)
	}
	// What waits in memory needs no history.
	at := begin
	for at < last {
		_, upTo, err := s.Follow(t.Context(), at)
		if errors.Is(err, storage.ErrCompacted) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		at = upTo
	}
	if at != begin+128 {
		t.Errorf("followed up to %d of %d", at-begin, last-begin)
	}
	ended, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Follow(ended, last)
		done <- err
	}()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("after the context: %v", err)
	}
	go func() {
		_, _, err := s.Follow(t.Context(), last)
		done <- err
	}()
	s.Close()
	if err := <-done; !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("after the store was closed: %v", err)
	}
}

// TestBarrierWithoutDisk: while a write of etcd can't finish, because a commit or a defragmentation has the locks
// of its database, barriers and the tail go on.
func TestBarrierWithoutDisk(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, e := storagetest.Embedded(t)
	rev, err := s.Create(ctx, key, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	following(ctx, t, s, rev-1, rev)
	for caught := false; !caught; rev++ {
		tx := e.Local.Backend().ReadTx()
		tx.RLock() // the write waits for this, and whoever wants to read then waits for the write
		written := make(chan error, 1)
		go func() {
			_, err := s.Update(ctx, key, []byte("two"), rev)
			written <- err
		}()
		soon, cancel := context.WithTimeout(ctx, time.Second)
		_, upTo, err := s.Follow(soon, rev)
		cancel()
		if caught = err == nil; caught {
			at, err := s.Barrier(ctx)
			if err != nil || at != rev+1 || upTo != at {
				t.Errorf("barrier at %d, followed up to %d, %v", at, upTo, err)
			}
			s.Compacted()
			select {
			case err := <-written:
				t.Errorf("the write ended, so nothing was locked: %v", err)
			default:
			}
		}
		tx.RUnlock() // if the write wasn't caught, a commit was first, and the write waited for that: again
		if err := <-written; err != nil {
			t.Fatal(err)
		}
		if !caught {
			following(ctx, t, s, rev, rev+1)
		}
	}
}
