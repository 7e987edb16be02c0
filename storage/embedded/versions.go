package embedded

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"google.golang.org/protobuf/proto"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

const (
	// revisionsPerSearch is how many revisions are looked at for a deletion under one hold of the backend's read lock, which delays writers. No
	// values are decoded but those of deletions.
	revisionsPerSearch = 2048
	// entriesPerSearch is after how many changes in one hold the next ones get shorter: revisions of transactions have many.
	entriesPerSearch = 4096
)

// maxSearches is how many deletions are searched for at once: each search may go through all of history, and others wait for its locks.
const maxSearches = 2

// Versions implements storage.Store, by etcd's index of keys. Deletions are searched for in the index of revisions.
func (s *Store) Versions(ctx context.Context, key string, upTo storage.Revision, fn func(storage.Version) error) error {
	at := func(rev storage.Revision) (*mvccpb.KeyValue, int64, error) {
		res, err := s.readRange(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: int64(rev)})
		switch {
		case err != nil:
			return nil, 0, err
		case len(res.KVs) == 0:
			return nil, res.Rev, nil
		}
		return res.KVs[0], res.Rev, nil
	}
	deletion := func(upTo storage.Revision) (storage.Revision, error) { return s.deletion(ctx, key, upTo) }
	return s.Reader.Versions(kv.Past{Key: key, At: at, Deletion: deletion}, upTo, fn)
}

// deletion returns the revision of the last deletion of a key up to a revision, or 0 if history has none.
func (s *Store) deletion(ctx context.Context, key string, upTo storage.Revision) (storage.Revision, error) {
	s.reads.Add(1)
	select {
	case s.searches <- struct{}{}:
		defer func() { <-s.searches }()
	case <-ctx.Done():
		return 0, kv.Wrap("versions", key, ctx.Err())
	}
	step := storage.Revision(revisionsPerSearch)
	for compacted := s.Compacted(); upTo > compacted; compacted = s.Compacted() {
		if err := s.running(ctx); err != nil {
			return 0, kv.Wrap("versions", key, err)
		}
		after := max(compacted, upTo-step)
		found, entries := s.lastDeletion(key, after, upTo)
		if found > 0 {
			return found, nil
		}
		if upTo = after; entries > entriesPerSearch {
			step = max(1, step/2)
		} else {
			step = min(revisionsPerSearch, 2*step)
		}
	}
	return 0, nil
}

// lastDeletion returns the revision of the last deletion of a key in a stretch of history, or 0, and how many changes the stretch has.
func (s *Store) lastDeletion(key string, after, upTo storage.Revision) (last storage.Revision, entries int) {
	lo := mvcc.RevToBytes(mvcc.Revision{Main: int64(after) + 1}, mvcc.NewRevBytes())
	hi := mvcc.RevToBytes(mvcc.Revision{Main: int64(upTo) + 1}, mvcc.NewRevBytes())
	tx := s.readTx()
	defer tx.RUnlock()
	revisions, values := tx.UnsafeRange(schema.Key, lo, hi, 0)
	for i := len(revisions) - 1; i >= 0; i-- {
		if !mvcc.IsTombstone(revisions[i]) {
			continue
		}
		var stored mvccpb.KeyValue
		if proto.Unmarshal(values[i], &stored) == nil && string(stored.Key) == key {
			return storage.Revision(mvcc.BytesToRev(revisions[i]).Main), len(revisions)
		}
	}
	return 0, len(revisions)
}
