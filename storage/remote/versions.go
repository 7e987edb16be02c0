package remote

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// Versions implements storage.Store, by a read for each version. Deletions are found by a watch of them, for which etcd goes through its history.
func (s *Store) Versions(ctx context.Context, key string, upTo storage.Revision, fn func(storage.Version) error) error {
	at := func(rev storage.Revision) (*mvccpb.KeyValue, int64, error) {
		res, err := s.ask(ctx, readTimeout, key, clientv3.WithRev(int64(rev)))
		switch {
		case err != nil:
			return nil, 0, err
		case len(res.Kvs) == 0:
			return nil, res.Header.Revision, nil
		}
		return res.Kvs[0], res.Header.Revision, nil
	}
	deletion := func(upTo storage.Revision) (storage.Revision, error) { return s.deletion(ctx, key, upTo) }
	return s.Reader.Versions(kv.Past{Key: key, At: at, Deletion: deletion}, upTo, fn)
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
