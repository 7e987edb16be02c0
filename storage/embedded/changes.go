package embedded

import (
	"context"
	"fmt"
	"math"
	"runtime"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/pkg/v3/traceutil"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// revisionsPerHold is how many revisions of the index are decoded under one hold of the backend's read
// lock, which delays writers: about a quarter of a millisecond.
const revisionsPerHold = 256

// Changes implements storage.Store. It scans etcd's index of revisions, and waits for the locks of etcd's database. Source:
// etcd's mvcc store, whose "key" bucket maps revisions to key-value pairs.
func (s *Store) Changes(ctx context.Context, st storage.Stretch) (changes []storage.Change, upTo storage.Revision, err error) {
	s.reads.Add(1)
	announced := s.announced()
	if st.Through > 0 && st.Through <= st.After {
		return nil, st.After, nil
	}
	for {
		if changes, upTo, err = s.scanAll(ctx, st); err != nil || upTo > st.After || announced <= st.After {
			return changes, upTo, err
		}
		if err := s.running(ctx); err != nil {
			return nil, 0, kv.Wrap("changes", storage.Root, err)
		}
		runtime.Gosched() // etcd has announced a revision, and shows it in an instant
	}
}

// scanAll does what Changes does, but doesn't wait for a revision that etcd has announced and doesn't show yet.
func (s *Store) scanAll(ctx context.Context, st storage.Stretch) (changes []storage.Change, upTo storage.Revision, err error) {
	upTo = st.After
	if err := s.checkHistory(st.After); err != nil { // otherwise a compacted range would be walked in vain
		return nil, 0, err
	}
	budget, end := st.MaxBytes, st.Through
	if budget <= 0 {
		budget = math.MaxInt
	}
	if end <= 0 {
		end = math.MaxInt64 - 1 // scan names the revision after it
	}
	for upTo < end && budget > 0 {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		hold := storage.Stretch{After: upTo, Through: upTo + min(revisionsPerHold, end-upTo), MaxBytes: budget}
		var page []storage.Change
		page, budget = s.scan(hold)
		if changes == nil {
			changes = page
		} else {
			changes = append(changes, page...)
		}
		if len(page) == 0 {
			break
		}
		upTo = page[len(page)-1].Revision
		if upTo < hold.Through { // after a compaction there's something at every revision
			break
		}
	}
	// A compaction first moves the mark that checkHistory reads, and then removes entries. If the mark is still at
	// or below After, no entry was removed before the reads.
	if err := s.checkHistory(st.After); err != nil {
		return nil, 0, err
	}
	return changes, upTo, nil
}

func (s *Store) checkHistory(after storage.Revision) error {
	if c, _ := s.revisions(); after < c {
		return fmt.Errorf("changes after %d: %w (history begins at %d)", after, storage.ErrCompacted, c)
	}
	return nil
}

// readTx returns etcd's read transaction, with its read lock held. It's fetched anew each time, because a raft snapshot replaces
// the backend. One that was replaced while the lock was waited for may have nothing to read from any more.
func (s *Store) readTx() backend.ReadTx {
	for {
		be := s.local.Backend()
		tx := be.ReadTx()
		tx.RLock()
		if s.local.Backend() == be { // it's closed only after it was replaced, and that takes the lock
			return tx
		}
		tx.RUnlock()
	}
}

// scan decodes the index entries of a stretch, which has its Through and MaxBytes set. It stops at the end of the
// revision that uses up MaxBytes, and returns what is left of that.
//
// A value goes through the Transformer when the lock is given back: that may wait for others, and all writes wait for the lock.
//
// The range has no limit. Etcd answers a limited range from its write buffer first and fills the rest from the
// database. If the two have more than the limit together, the newest entries come and older ones are left out.
func (s *Store) scan(st storage.Stretch) (page []storage.Change, left int) {
	page, left = s.entries(st)
	for i, c := range page {
		if c.Err == nil && !c.Deleted {
			page[i] = s.Transformed(c)
		}
	}
	return page, left
}

// entries is scan without the Transformer.
func (s *Store) entries(st storage.Stretch) (page []storage.Change, left int) {
	lo := mvcc.RevToBytes(mvcc.Revision{Main: int64(st.After) + 1}, mvcc.NewRevBytes())
	hi := mvcc.RevToBytes(mvcc.Revision{Main: int64(st.Through) + 1}, mvcc.NewRevBytes())
	left = st.MaxBytes
	tx := s.readTx()
	defer tx.RUnlock()
	keys, values := tx.UnsafeRange(schema.Key, lo, hi, 0)
	page = make([]storage.Change, 0, len(keys))
	for i, key := range keys {
		bk := mvcc.BytesToBucketKey(key)
		if left <= 0 && storage.Revision(bk.Main) != page[i-1].Revision {
			break
		}
		c := s.decodeEntry(key, values[i])
		c.Revision = storage.Revision(bk.Main)
		page = append(page, c)
		left -= len(c.Key) + len(c.Value)
	}
	return page, left
}

// decodeEntry makes a change of an entry of the index, without its revision.
func (s *Store) decodeEntry(key, value []byte) storage.Change {
	var stored mvccpb.KeyValue
	if err := proto.Unmarshal(value, &stored); err != nil {
		return storage.Change{Err: fmt.Errorf("decode revision %d: %w", mvcc.BytesToRev(key).Main, err)}
	}
	if mvcc.IsTombstone(key) {
		return storage.Change{KeyValue: storage.KeyValue{Key: string(stored.Key)}, Deleted: true}
	}
	return kv.ChangeOf(&stored)
}

// Window implements storage.Store. It waits for the locks of etcd's database.
func (s *Store) Window(context.Context) (compacted, newest storage.Revision, err error) {
	compacted, newest = s.revisions()
	return compacted, newest, nil
}

// Compacted implements storage.Store.
func (s *Store) Compacted() storage.Revision { return s.compacted.At() }

// NoteCompacted notes that history is gone up to a revision. Otherwise the store finds out when it next reads history.
func (s *Store) NoteCompacted(revision storage.Revision) { s.compacted.Raise(revision) }

// Current returns the newest revision whose changes can be read. It waits for the locks of etcd's database.
func (s *Store) Current() storage.Revision {
	_, rev := s.revisions()
	return rev
}

func (s *Store) revisions() (compacted, current storage.Revision) {
	// One transaction, so that both are of one moment. In this mode it copies nothing of etcd's read buffer.
	txn := s.local.KV().Read(mvcc.SharedBufReadTxMode, traceutil.TODO())
	defer txn.End()
	compacted = max(0, storage.Revision(txn.FirstRev()))
	s.compacted.Raise(compacted)
	return compacted, storage.Revision(txn.Rev())
}

// Reads returns how many stretches of history were read from etcd's index.
func (s *Store) Reads() int64 { return s.reads.Load() }
