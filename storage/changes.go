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
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
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

// revisionsPerHold is how many revisions of the index are decoded under one hold of the backend's read
// lock, which delays writers: about a quarter of a millisecond.
const revisionsPerHold = 256

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
	if err := s.checkHistory(st.After); err != nil { // a long way through revisions that aren't there
		return nil, 0, err
	}
	room := math.MaxInt
	if st.MaxBytes > 0 {
		room = st.MaxBytes
	}
	end := int64(math.MaxInt64)
	if st.Through > 0 {
		end = int64(st.Through) + 1
	}
	for from := int64(st.After) + 1; from < end && room > 0; {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		to := from + min(revisionsPerHold, end-from)
		var page []Change
		page, room = s.scan(from, to, room)
		if changes == nil {
			changes = page
		} else {
			changes = append(changes, page...)
		}
		if len(page) == 0 {
			break
		}
		upTo = page[len(page)-1].Revision
		if int64(upTo) < to-1 { // after a compaction there's something at every revision
			break
		}
		from = to
	}
	// A compaction first moves this mark and then removes entries: looked at after the reads, it
	// tells whether any of them could have missed something.
	if err := s.checkHistory(st.After); err != nil {
		return nil, 0, err
	}
	return changes, upTo, nil
}

func (s *Store) checkHistory(after Revision) error {
	if c := s.Compacted(); after < c {
		return fmt.Errorf("changes after %d: %w (history begins at %d)", after, ErrCompacted, c)
	}
	return nil
}

// scan decodes the index entries with from <= revision < to. It stops at the end of the revision that uses
// up the room, in bytes, and returns what is left of that.
//
// The range has no limit, because etcd gives a limited one from its write buffer first and from the
// database with what remains of the limit: where more is in the two than that, the newest entries come and
// older ones don't.
func (s *Store) scan(from, to int64, room int) (page []Change, left int) {
	lo := mvcc.RevToBytes(mvcc.Revision{Main: from}, mvcc.NewRevBytes())
	hi := mvcc.RevToBytes(mvcc.Revision{Main: to}, mvcc.NewRevBytes())
	tx := s.local.Backend().ReadTx() // fetched anew each time: a raft snapshot replaces the backend
	tx.RLock()
	defer tx.RUnlock()
	keys, values := tx.UnsafeRange(schema.Key, lo, hi, 0)
	page = make([]Change, 0, len(keys))
	for i, key := range keys {
		bk := mvcc.BytesToBucketKey(key)
		if room <= 0 && Revision(bk.Main) != page[i-1].Revision {
			break
		}
		c := s.decodeEntry(key, values[i])
		c.Revision = Revision(bk.Main)
		page = append(page, c)
		room -= len(c.Key) + len(c.Value)
	}
	return page, room
}

// decodeEntry makes a change of an entry of the index, without its revision.
func (s *Store) decodeEntry(key, value []byte) Change {
	var kv mvccpb.KeyValue
	if err := proto.Unmarshal(value, &kv); err != nil {
		return Change{Err: fmt.Errorf("decode revision %d: %w", mvcc.BytesToRev(key).Main, err)}
	}
	if mvcc.IsTombstone(key) {
		return Change{KeyValue: KeyValue{Key: string(kv.Key)}, Deleted: true}
	}
	return s.decode(&kv)
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
func (s *Store) Barrier(ctx context.Context) (Revision, error) {
	if err := s.settle(ctx); err != nil {
		return 0, wrap("barrier", "", err)
	}
	return s.Current(), nil
}

// settle returns when this member's state has every acknowledged write. It has it always: it's the only
// member, and acknowledges what it has applied (storage/etcd waits for the replay of the log before it
// serves). Raft's read index, which asks whether another member leads by now, would be most of what
// reading one object costs.
func (s *Store) settle(ctx context.Context) error {
	select {
	case <-s.local.StoppingNotify():
		return etcderrors.ErrStopped
	default:
		return ctx.Err()
	}
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
