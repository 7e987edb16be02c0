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
	database  atomic.Pointer[backend.Backend]
	onCurrent func() // is called when the tail reads the newest revision; nil at first
}

func openRestorable(t *testing.T) *restorable {
	t.Helper()
	be := openDatabase(t)
	r := &restorable{Store: &Store{ReadIndex: func(context.Context) error { return nil }}}
	r.WatchableKV = openKV(t, be)
	r.database.Store(&be)
	current := func() storage.Revision {
		if r.onCurrent != nil {
			r.onCurrent()
		}
		return storage.Revision(r.Rev())
	}
	if err := r.tail.open(r.WatchableKV, current, func() backend.Backend { return *r.database.Load() }); err != nil {
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

// TestBarrierGivesUp: a barrier that finds another one watching etcd's new database, which waits for a disk, ends with its
// context.
func TestBarrierGivesUp(t *testing.T) {
	r := openRestorable(t)
	other := otherDatabase(t, 5)
	if err := r.Restore(other); err != nil {
		t.Fatal(err)
	}
	r.database.Store(&other)
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
	first := barrier(t.Context())
	<-reading
	ended, end := context.WithCancel(t.Context())
	second := barrier(ended)
	end()
	select {
	case got := <-second:
		if !errors.Is(got.err, context.Canceled) || errors.Is(got.err, storage.ErrUnavailable) {
			t.Errorf("a barrier whose context has ended is at %d: %v", got.at, got.err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a barrier whose context has ended waits for the disk")
	}
	close(disk)
	if got := <-first; got.err != nil || got.at != storage.Revision(r.Rev()) {
		t.Errorf("the barrier that watched the new database is at %d: %v; etcd is at %d", got.at, got.err, r.Rev())
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
