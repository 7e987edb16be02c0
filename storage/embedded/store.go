package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Store implements storage.Store over an etcd in this process. Writes go through the client (raft); reads and history
// come straight from the member's own store.
type Store struct {
	// OnRead, if set, is called for each value that is read from etcd, with its key, by any goroutine. Its error becomes that of
	// the read: the Err of a Change, or the error of a Get. Tests hold up readers with it, or make a value unreadable. Set it
	// before the store is used.
	OnRead func(key string) error

	// ReadIndex, if set, returns when the local member has everything that was acknowledged before the call, on any member.
	// It's needed if there are other members. Set it before the store is used.
	ReadIndex func(context.Context) error

	*storage.Writer

	local     *etcdserver.EtcdServer
	tail      tail
	compacted atomic.Int64 // the revision up to which history was gone when it was last read from etcd
	reads     atomic.Int64 // stretches of history read
}

// New returns the store of an embedded member and its in-process client. Close it before the member stops. It refuses a store
// that a migration has filled by half.
func New(client *clientv3.Client, local *etcdserver.EtcdServer) (*Store, error) {
	s := &Store{Writer: storage.NewWriter(client), local: local}
	half, err := local.KV().Range(context.Background(), []byte(storage.MigrationKey), nil, mvcc.RangeOptions{})
	if err != nil {
		return nil, storage.Wrap("get", storage.MigrationKey, err)
	}
	if len(half.KVs) > 0 {
		return nil, errors.New("the data directory is filled by half: run the same migration again to go on with it, or remove the directory to give it up")
	}
	if err := s.tail.open(local.Watchable(), s.Current); err != nil {
		return nil, fmt.Errorf("watch the store: %w", err)
	}
	return s, nil
}

// Close implements storage.Store.
func (s *Store) Close() { s.tail.close() }

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.KeyValue, error) {
	if err := s.fresh(ctx); err != nil {
		return storage.KeyValue{}, storage.Wrap("get", key, err)
	}
	return s.GetAt(ctx, key, 0)
}

// GetAt implements storage.Store.
func (s *Store) GetAt(ctx context.Context, key string, at storage.Revision) (storage.KeyValue, error) {
	res, err := s.readRange(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: int64(at)})
	if err != nil {
		return storage.KeyValue{}, storage.Wrap("get", key, err)
	}
	if len(res.KVs) == 0 {
		return storage.KeyValue{}, storage.Wrap("get", key, storage.ErrNotFound)
	}
	kv := s.decode(res.KVs[0])
	return kv.KeyValue, kv.Err
}

// readRange is etcd's Range, of a state that has everything that was announced before the call. Etcd announces a
// write an instant before its own reads show it, and a reader of the caches may have seen the write by then. So
// readRange tries again until etcd's reads show it.
func (s *Store) readRange(ctx context.Context, from, end []byte, o mvcc.RangeOptions) (*mvcc.RangeResult, error) {
	announced := int64(s.announced())
	for {
		res, err := s.local.KV().Range(ctx, from, end, o)
		switch {
		case errors.Is(err, mvcc.ErrFutureRev) && o.Rev <= announced:
		case err == nil && o.Rev == 0 && res.Rev < announced:
		default:
			return res, err
		}
		if err := s.running(ctx); err != nil {
			return nil, err
		}
		runtime.Gosched()
	}
}

// listPage is how many keys List reads at once: 1000 objects of 3 KB are 3 MB of memory.
const listPage = 1000

// List implements storage.Store.
func (s *Store) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	if at == 0 {
		if err := s.fresh(ctx); err != nil {
			return 0, storage.Wrap("list", keys.Prefix, err)
		}
		at = s.announced()
	}
	from, end := []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix))
	for {
		res, err := s.readRange(ctx, from, end, mvcc.RangeOptions{Rev: int64(at), Limit: listPage})
		if err != nil {
			return 0, storage.Wrap("list", keys.Prefix, err)
		}
		for _, kv := range res.KVs {
			if err := fn(s.decode(kv)); err != nil {
				return 0, err
			}
		}
		if len(res.KVs) < listPage {
			return at, nil
		}
		from = append(res.KVs[len(res.KVs)-1].Key, 0)
	}
}

// Count implements storage.Store.
func (s *Store) Count(ctx context.Context, keys storage.Range, at storage.Revision) (int, error) {
	res, err := s.readRange(ctx, []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix)), mvcc.RangeOptions{Rev: int64(at), CountOnly: true})
	if err != nil {
		return 0, storage.Wrap("count", keys.Prefix, err)
	}
	return res.Count, nil
}

func (s *Store) decode(kv *mvccpb.KeyValue) storage.Change {
	c := storage.Change{KeyValue: storage.KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: storage.Revision(kv.ModRevision)}}
	if s.OnRead != nil {
		if err := s.OnRead(c.Key); err != nil {
			c.Err = fmt.Errorf("read %q: %w", c.Key, err)
		}
	}
	return c
}
