package remote

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// Snapshot returns what is stored at one revision, without its history, in a file on the disk of dir: objects, and the key of ServiceAccounts'
// tokens. It has nothing of other prefixes, and nothing of the replicas that run. Errors as for List; storage.ErrCompacted if reading took
// longer than history is kept.
func (s *Store) Snapshot(ctx context.Context, dir string) (*snapshot.Snapshot, error) {
	return snapshot.Build(ctx, dir, func(put func(*mvccpb.KeyValue) error) (at int64, err error) {
		if at, err = s.read(ctx, put); err != nil {
			return 0, kv.Wrap("snapshot", storage.Root, err)
		}
		return at, nil
	})
}

// read reads all keys that are in a snapshot, at one revision, which it returns.
func (s *Store) read(ctx context.Context, put func(*mvccpb.KeyValue) error) (at int64, err error) {
	account, err := s.ask(ctx, readTimeout, storage.AccountKey)
	if err != nil {
		return 0, err
	}
	at = account.Header.Revision
	for _, kv := range account.Kvs {
		if err := put(kv); err != nil {
			return 0, err
		}
	}
	from, end := storage.Root, clientv3.WithRange(clientv3.GetPrefixRangeEnd(storage.Root))
	for page := (kv.Page{MaxKeys: listKeys, MaxBytes: listBytes}); ; {
		res, err := s.ask(ctx, pageTimeout, from, end, clientv3.WithRev(at), clientv3.WithLimit(int64(page.Keys())))
		if err != nil {
			return 0, err
		}
		bytes := 0
		for _, kv := range res.Kvs {
			bytes += len(kv.Key) + len(kv.Value)
			if err := put(kv); err != nil {
				return 0, err
			}
		}
		if !res.More {
			return at, nil
		}
		from = string(res.Kvs[len(res.Kvs)-1].Key) + "\x00"
		page.Read(bytes)
	}
}
