package embedded

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// restorable is etcd's store without its server, and a tail of it. Another database can take the place of the store's, as with
// a snapshot from another member.
type restorable struct {
	mvcc.WatchableKV
	*Store
	snapshots atomic.Int64
	onCurrent func() // is called when the tail reads the newest revision; nil at first
}

func openRestorable(t *testing.T) *restorable {
	t.Helper()
	be := openDatabase(t)
	r := &restorable{Store: &Store{}}
	r.ReadIndex = func(context.Context) (int64, error) { return r.snapshots.Load(), nil }
	r.WatchableKV = openKV(t, be)
	current := func() storage.Revision {
		if r.onCurrent != nil {
			r.onCurrent()
		}
		return storage.Revision(r.Rev())
	}
	if err := r.tail.open(r.WatchableKV, current); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.tail.close)
	return r
}

func openDatabase(t *testing.T) backend.Backend {
	be := backend.NewDefaultBackend(zap.NewNop(), filepath.Join(t.TempDir(), "db"))
	t.Cleanup(func() { _ = be.Close() })
	return be
}

func openKV(t *testing.T, be backend.Backend) mvcc.WatchableKV {
	kv := mvcc.New(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	t.Cleanup(func() { _ = kv.Close() })
	return kv
}

// otherDatabase has so many writes, and history from the revision before the last one.
func otherDatabase(t *testing.T, writes int) backend.Backend {
	t.Helper()
	be := openDatabase(t)
	kv := openKV(t, be)
	for range writes {
		kv.Put([]byte("/registry/g/r/a"), []byte("v"), lease.NoLease)
	}
	done, err := kv.Compact(traceutil.TODO(), kv.Rev()-1)
	if err != nil {
		t.Fatal(err)
	}
	<-done
	kv.Commit()
	return be
}

// TestBarrierGivesUp: the watch of etcd's new database waits for a disk. Neither the barrier that began it nor one that finds it
// begun waits longer than its context, and both are right when the disk goes on.
func TestBarrierGivesUp(t *testing.T) {
	r := openRestorable(t)
	if err := r.Restore(otherDatabase(t, 5)); err != nil {
		t.Fatal(err)
	}
	r.snapshots.Add(1)
	reading, disk := make(chan struct{}), make(chan struct{})
	r.onCurrent = func() { close(reading); <-disk }
	type answer struct {
		at  storage.Revision
		err error
	}
	barrier := func(ctx context.Context) <-chan answer {
		got := make(chan answer, 1)
		go func() {
			at, err := r.Barrier(ctx)
			got <- answer{at, err}
		}()
		return got
	}
	ended, end := context.WithCancel(t.Context())
	first := barrier(ended)
	<-reading
	second, patient := barrier(ended), barrier(t.Context())
	end()
	for which, answers := range []<-chan answer{first, second} {
		select {
		case got := <-answers:
			if !errors.Is(got.err, context.Canceled) || errors.Is(got.err, storage.ErrUnavailable) {
				t.Errorf("barrier %d, whose context has ended, is at %d: %v", which, got.at, got.err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("barrier %d, whose context has ended, waits for the disk", which)
		}
	}
	close(disk)
	if got := <-patient; got.err != nil || got.at != storage.Revision(r.Rev()) {
		t.Errorf("the barrier that found the new database watched is at %d: %v; etcd is at %d", got.at, got.err, r.Rev())
	}
}

// TestEndedWatchIsRenewedLater: a reader is told that etcd has ended the watch, and gives up before it can watch anew. The next
// one does that.
func TestEndedWatchIsRenewedLater(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := openRestorable(t)
	if err := r.Restore(otherDatabase(t, 5)); err != nil {
		t.Fatal(err)
	}
	if w, err := r.tail.next(ctx); err != nil || w.CompactRevision == 0 {
		t.Fatalf("etcd hasn't ended the watch: %+v, %v", w, err)
	}
	if err := r.tail.acquire(ctx); err != nil { // as a barrier does that watches anew
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := r.tail.next(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader whose context has ended: %v", err)
	}
	r.tail.unlock()
	if _, err := r.tail.next(ctx); err != nil || r.tail.through != storage.Revision(r.Rev()) {
		t.Fatalf("the reader has to read the index up to %d, not %d: %v", r.Rev(), r.tail.through, err)
	}
	r.Put([]byte("/registry/g/r/b"), []byte("v"), lease.NoLease)
	if w, err := r.tail.next(ctx); err != nil || len(w.Events) != 1 {
		t.Errorf("the next write isn't announced: %+v, %v", w, err)
	}
}
