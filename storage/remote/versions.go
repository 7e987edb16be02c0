package remote

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// Versions implements storage.Store, by a read for each version. Where a life of the key begins, a watch of the key's deletions finds the life
// before it, for which etcd goes through its history.
func (s *Store) Versions(ctx context.Context, key string, upTo storage.Revision, fn func(storage.Version) error) error {
	for at, first := upTo, true; first || at > 0; first = false {
		res, err := s.ask(ctx, readTimeout, key, clientv3.WithRev(int64(at)))
		if !first && errors.Is(err, rpctypes.ErrCompacted) {
			return nil
		}
		if err != nil {
			return kv.Wrap("versions", key, err)
		}
		var v storage.Version
		if len(res.Kvs) > 0 {
			v = storage.Version{Change: s.Decode(res.Kvs[0]), Created: res.Kvs[0].CreateRevision == res.Kvs[0].ModRevision}
		} else {
			if at == 0 {
				at = storage.Revision(res.Header.Revision)
			}
			gone, err := s.deletion(ctx, key, at)
			if gone == 0 || err != nil {
				return err
			}
			v.Change = storage.Change{KeyValue: storage.KeyValue{Key: key, Revision: gone}, Deleted: true}
		}
		if err := fn(v); err != nil {
			return err
		}
		at = v.Revision - 1
	}
	return nil
}

// deletion returns the revision of the last deletion of a key up to a revision, or 0 if history has none.
func (s *Store) deletion(ctx context.Context, key string, upTo storage.Revision) (storage.Revision, error) {
	compacted, _, err := s.Window(ctx)
	if err != nil || upTo <= compacted {
		return 0, err
	}
	s.reads.Add(1)
	gone, _, err := s.historyOf(ctx, storage.Stretch{After: compacted, Through: upTo}, key, clientv3.WithFilterPut())
	switch {
	case errors.Is(err, storage.ErrCompacted) || err == nil && len(gone) == 0:
		return 0, nil
	case err != nil:
		return 0, kv.Wrap("versions", key, err)
	}
	return gone[len(gone)-1].Revision, nil
}
