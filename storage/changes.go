package storage

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"
)

// Stretch names a part of history: the changes with After < revision <= Through.
type Stretch struct {
	After    Revision
	Through  Revision // 0 means: as far as there is
	MaxBytes int      // stop after about this many bytes of values, on a whole revision; 0 means no limit
}

// entriesPerHold is how many entries of the revision index are decoded under one hold of the
// backend's read lock, which delays writers: about a quarter of a millisecond.
const entriesPerHold = 256

// Changes returns what happened in a stretch of history, in revision order and always whole
// revisions. upTo is the last revision it saw, of any key; ask from there next. It's never the one
// asked for, because etcd announces a revision shortly before its backend shows it. ErrCompacted means
// that After is older than etcd's history: something in between may be gone. The changes belong to
// the caller.
//
// It scans etcd's own index of revisions, because a watch can't carry a fast writer: its channel
// holds 128 responses, and a watcher that fills it is fed by a slow loop that re-reads everything.
// Source: etcd's mvcc store, whose "key" bucket maps revisions to key-value pairs.
func (s *Store) Changes(ctx context.Context, st Stretch) (changes []Change, upTo Revision, err error) {
	s.reads.Add(1)
	upTo = st.After
	end := int64(math.MaxInt64)
	if st.Through > 0 {
		end = int64(st.Through) + 1
	}
	for bytes, limit := 0, int64(entriesPerHold); ; {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		page, seen, more := s.scan(int64(upTo)+1, end, limit)
		if more && len(page) == 0 { // one revision with more entries than the limit
			limit *= 2
			continue
		}
		for _, c := range page {
			bytes += len(c.Key) + len(c.Value)
		}
		if changes == nil {
			changes = page
		} else {
			changes = append(changes, page...)
		}
		upTo = max(upTo, seen)
		if !more || st.MaxBytes > 0 && bytes >= st.MaxBytes {
			break
		}
	}
	// A compaction first moves this mark and then removes entries: looked at after the reads, it
	// tells whether any of them could have missed something.
	if c := s.Compacted(); st.After < c {
		return nil, 0, fmt.Errorf("changes after %d: %w (history begins at %d)", st.After, ErrCompacted, c)
	}
	return changes, upTo, nil
}

// scan decodes the index entries with from <= revision < end, limit of them at most, cut back to
// whole revisions. more means that it stopped at the limit.
func (s *Store) scan(from, end, limit int64) (page []Change, seen Revision, more bool) {
	lo := mvcc.RevToBytes(mvcc.Revision{Main: from}, mvcc.NewRevBytes())
	hi := mvcc.RevToBytes(mvcc.Revision{Main: end}, mvcc.NewRevBytes())
	tx := s.local.Backend().ReadTx() // fetched anew each time: a raft snapshot replaces the backend
	tx.RLock()
	defer tx.RUnlock()
	keys, values := tx.UnsafeRange(schema.Key, lo, hi, limit)
	n := len(keys)
	if more = int64(n) == limit; more {
		last := mvcc.BytesToRev(keys[n-1]).Main // may go on past the limit
		for n > 0 && mvcc.BytesToRev(keys[n-1]).Main == last {
			n--
		}
	}
	if n == 0 {
		return nil, 0, more
	}
	page = make([]Change, n)
	for i := range n {
		bk := mvcc.BytesToBucketKey(keys[i])
		var kv mvccpb.KeyValue
		if err := proto.Unmarshal(values[i], &kv); err != nil {
			page[i].Err = fmt.Errorf("decode revision %d: %w", bk.Main, err)
		} else if mvcc.IsTombstone(keys[i]) {
			page[i] = Change{KeyValue: KeyValue{Key: string(kv.Key)}, Deleted: true}
		} else {
			page[i] = s.decode(&kv)
		}
		page[i].Revision = Revision(bk.Main)
	}
	return page, page[n-1].Revision, more
}

// Compacted returns the revision up to which history is gone: changes after it are all there, and it
// is itself readable. 0 means that nothing was ever compacted.
func (s *Store) Compacted() Revision {
	first, _ := s.revisions()
	return max(0, first)
}

// Current returns the newest revision whose changes can be read.
func (s *Store) Current() Revision {
	_, rev := s.revisions()
	return rev
}

func (s *Store) revisions() (compacted, current Revision) {
	// Shared-buffer mode reads two integers under etcd's locks; the plain ReadView would copy the
	// whole read buffer for that.
	txn := s.local.KV().Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer txn.End()
	return Revision(txn.FirstRev()), Revision(txn.Rev())
}

// Barrier returns a revision that is at least that of every write acknowledged before the call.
// Concurrent callers share a round of raft's read index, and only one that wasn't sent yet: etcd's
// LinearizableReadNotify sees to that.
func (s *Store) Barrier(ctx context.Context) (Revision, error) {
	if err := s.local.LinearizableReadNotify(ctx); err != nil {
		return 0, wrap("barrier", "", err)
	}
	return s.Current(), nil
}

// Rung is signalled when something was written; Announced tells how far. One reader.
func (s *Store) Rung() <-chan struct{} { return s.bell.rung }

// Announced returns the newest revision that etcd has announced; Changes shows it an instant later.
func (s *Store) Announced() Revision { return Revision(s.bell.announced.Load()) }

// Reads returns how many stretches of history were read.
func (s *Store) Reads() int64 { return s.reads.Load() }

// bell is an etcd watch over all keys whose filter notes the revision and drops the event. Nothing is
// queued for it, so it never becomes one of etcd's slow watchers.
type bell struct {
	announced atomic.Int64
	rung      chan struct{} // capacity 1
	stream    mvcc.WatchStream
	once      sync.Once
}

func (b *bell) hang(w mvcc.Watchable) error {
	b.rung = make(chan struct{}, 1)
	b.stream = w.NewWatchStream()
	ring := func(e *mvccpb.Event) bool { // called under etcd's store lock: must not block
		if rev := e.Kv.ModRevision; rev > b.announced.Load() { // one caller at a time
			b.announced.Store(rev)
		}
		select {
		case b.rung <- struct{}{}:
		default:
		}
		return true
	}
	all, toTheEnd := []byte{0}, []byte{}
	_, err := b.stream.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, ring)
	return err
}

func (b *bell) takeDown() { b.once.Do(b.stream.Close) }
