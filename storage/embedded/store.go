package embedded

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// Store implements storage.Store over an etcd in this process. Writes go through the client (raft); reads and history
// come straight from the member's own store.
type Store struct {
	// ReadIndex, if set, returns when the local member has everything that was acknowledged before the call, on any member,
	// and how often another member's database had taken the place of this one's by then. It's needed if there are other
	// members. Set it before the store is used.
	ReadIndex func(context.Context) (snapshots int64, err error)

	kv.Reader
	*kv.Writer

	local     *etcdserver.EtcdServer
	tail      tail
	compacted storage.Watermark // the revision up to which history was gone when it was last read from etcd
	reads     atomic.Int64      // stretches of history read
	searches  chan struct{}     // has an element for each search for a deletion: see maxSearches
}

// New returns the store of an embedded member and its in-process client. Close it before the member stops. It refuses a store
// that a migration has filled by half.
func New(client *clientv3.Client, local *etcdserver.EtcdServer) (*Store, error) {
	s := &Store{Writer: kv.NewWriter(client), local: local, searches: make(chan struct{}, maxSearches)}
	half, err := local.KV().Range(context.Background(), []byte(storage.MigrationKey), nil, mvcc.RangeOptions{})
	if err != nil {
		return nil, kv.Wrap("get", storage.MigrationKey, err)
	}
	if len(half.KVs) > 0 {
		return nil, errors.New("the data directory is filled by half: run the same migration again to go on with it, or remove the directory to give it up")
	}
	if err := s.tail.open(local.Watchable(), s.Current); err != nil {
		return nil, fmt.Errorf("watch the store: %w", err)
	}
	return s, nil
}

// SetTransformer says what values go through on their way to etcd and back. Call it before the store is used.
func (s *Store) SetTransformer(t storage.Transformer) {
	s.Reader.Transformer, s.Writer.Transformer = t, t
}

// Close implements storage.Store.
func (s *Store) Close() { s.tail.close() }

// Get implements storage.Store.
func (s *Store) Get(ctx context.Context, key string) (storage.KeyValue, error) {
	if err := s.fresh(ctx); err != nil {
		return storage.KeyValue{}, kv.Wrap("get", key, err)
	}
	return s.GetAt(ctx, key, 0)
}

// GetAt implements storage.Store.
func (s *Store) GetAt(ctx context.Context, key string, at storage.Revision) (storage.KeyValue, error) {
	res, err := s.readRange(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: int64(at)})
	if err != nil {
		return storage.KeyValue{}, kv.Wrap("get", key, err)
	}
	if len(res.KVs) == 0 {
		return storage.KeyValue{}, kv.Wrap("get", key, storage.ErrNotFound)
	}
	c := s.Decode(res.KVs[0])
	return c.KeyValue, c.Err
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

// What List reads at once: so much is in memory besides what the caller keeps. 1000 objects of 3 KB are 3 MB.
const (
	listKeys  = 1000
	listBytes = 8 << 20
)

// List implements storage.Store.
func (s *Store) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	if at == 0 {
		if err := s.fresh(ctx); err != nil {
			return 0, kv.Wrap("list", keys.Prefix, err)
		}
		at = s.announced()
	}
	from, end := []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix))
	for page := (kv.Page{MaxKeys: listKeys, MaxBytes: listBytes}); ; {
		res, err := s.readRange(ctx, from, end, mvcc.RangeOptions{Rev: int64(at), Limit: int64(page.Keys())})
		if err != nil {
			return 0, kv.Wrap("list", keys.Prefix, err)
		}
		bytes := 0
		for c := range s.DecodePage(res.KVs) {
			bytes += len(c.Key) + len(c.Value)
			if err := fn(c); err != nil {
				return 0, err
			}
		}
		if len(res.KVs) < page.Keys() {
			return at, nil
		}
		page.Read(bytes)
		from = append(res.KVs[len(res.KVs)-1].Key, 0)
	}
}

// Count implements storage.Store.
func (s *Store) Count(ctx context.Context, keys storage.Range, at storage.Revision) (int, error) {
	res, err := s.readRange(ctx, []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix)), mvcc.RangeOptions{Rev: int64(at), CountOnly: true})
	if err != nil {
		return 0, kv.Wrap("count", keys.Prefix, err)
	}
	return res.Count, nil
}

// Barrier implements storage.Store. It doesn't wait for a disk: etcd announces a write before it answers it
// (watchableStoreTxnWrite.End calls notify, and only then does the apply return). A transaction that changes nothing has
// no revision, and neither has a compaction. Only right after a snapshot from another member does Barrier wait for etcd's
// database, until ctx ends (see noteRestore).
func (s *Store) Barrier(ctx context.Context) (storage.Revision, error) {
	if err := s.fresh(ctx); err != nil {
		return 0, kv.Wrap("barrier", storage.Root, err)
	}
	return s.announced(), nil
}

// fresh returns when the member's state has everything that was acknowledged before the call, and has announced it. If
// this is the only member, that's at once: its state has every write that it acknowledged (storage/etcd waits for the
// replay of the log before it serves). With others, raft's read index asks them. It's most of what reading one object
// takes.
func (s *Store) fresh(ctx context.Context) error {
	if s.ReadIndex == nil {
		return s.running(ctx)
	}
	_, step := tracing.Begin(ctx, tracing.Barrier, "barrier")
	snapshots, err := s.ReadIndex(ctx)
	if step.End(err); err != nil {
		return err
	}
	return s.tail.noteRestore(ctx, snapshots)
}

// running returns an error when etcd is stopping or ctx has ended.
func (s *Store) running(ctx context.Context) error {
	select {
	case <-s.local.StoppingNotify():
		return etcderrors.ErrStopped
	default:
		return ctx.Err()
	}
}
