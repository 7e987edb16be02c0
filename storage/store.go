package storage

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
)

// Store is the objects in an embedded etcd. Writes go through the client (raft); reads and history
// come straight from the member's own store. It is safe for concurrent use.
type Store struct {
	// OnRead, if set, is called for each value that is read from etcd, with its key, by any goroutine. Its error becomes that of
	// the read: the Err of a Change, or the error of a Get. Tests hold up readers with it, or make a value unreadable. Set it
	// before the store is used.
	OnRead func(key string) error

	client    *clientv3.Client
	local     *etcdserver.EtcdServer
	tail      tail
	gate      *gate        // nil unless AllowReplace was called
	compacted atomic.Int64 // the revision up to which history was gone when it was last read from etcd
	reads     atomic.Int64 // stretches of history read
}

// New returns the store of an embedded member and its in-process client. Close it before the member stops.
func New(client *clientv3.Client, local *etcdserver.EtcdServer) (*Store, error) {
	s := &Store{client: client, local: local}
	if err := s.tail.open(local.Watchable(), s.Current); err != nil {
		return nil, fmt.Errorf("watch the store: %w", err)
	}
	return s, nil
}

// Close ends the watch that Follow reads. It is idempotent.
func (s *Store) Close() { s.tail.close() }

// Get reads one key, linearizably: it sees every write acknowledged before the call. Errors: ErrNotFound,
// ErrUnavailable when etcd is stopping, ctx's, and OnRead's as for GetAt.
func (s *Store) Get(ctx context.Context, key string) (KeyValue, error) {
	if err := s.running(ctx); err != nil {
		return KeyValue{}, wrap("get", key, err)
	}
	return s.GetAt(ctx, key, 0)
}

// GetAt reads one key as it was at a revision; 0 means whatever this member has now. Errors: ErrNotFound if the key
// didn't exist then, ErrCompacted if history begins after the revision, ErrFutureRevision if etcd hasn't reached it,
// ErrUnavailable when etcd is stopping, and ctx's. An error of OnRead comes together with the key, revision and value.
func (s *Store) GetAt(ctx context.Context, key string, at Revision) (KeyValue, error) {
	res, err := s.readRange(ctx, []byte(key), nil, mvcc.RangeOptions{Rev: int64(at)})
	if err != nil {
		return KeyValue{}, wrap("get", key, err)
	}
	if len(res.KVs) == 0 {
		return KeyValue{}, wrapOwn("get", key, ErrNotFound)
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

// List calls fn for each key of a range, in key order, as of one revision, which it returns. If at is 0, that's
// the present one, linearizably. The memory it takes doesn't grow with the number of keys. A value that
// OnRead refuses comes with its Err set. Errors: fn's, as it is, which ends the list; ErrCompacted if
// history begins after the revision, also when that happens during the list; ErrFutureRevision if etcd hasn't
// reached it; ErrUnavailable when etcd is stopping; and ctx's.
func (s *Store) List(ctx context.Context, keys Range, at Revision, fn func(Change) error) (Revision, error) {
	if at == 0 {
		if err := s.running(ctx); err != nil {
			return 0, wrap("list", keys.Prefix, err)
		}
		at = s.announced()
	}
	from, end := []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix))
	for {
		res, err := s.readRange(ctx, from, end, mvcc.RangeOptions{Rev: int64(at), Limit: listPage})
		if err != nil {
			return 0, wrap("list", keys.Prefix, err)
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

// Count returns how many keys of a range there were at a revision. It reads no values. Errors as for GetAt, without
// ErrNotFound.
func (s *Store) Count(ctx context.Context, keys Range, at Revision) (int, error) {
	res, err := s.readRange(ctx, []byte(keys.First()), []byte(clientv3.GetPrefixRangeEnd(keys.Prefix)), mvcc.RangeOptions{Rev: int64(at), CountOnly: true})
	if err != nil {
		return 0, wrap("count", keys.Prefix, err)
	}
	return res.Count, nil
}

func (s *Store) decode(kv *mvccpb.KeyValue) Change {
	c := Change{KeyValue: KeyValue{Key: string(kv.Key), Value: kv.Value, Revision: Revision(kv.ModRevision)}}
	if s.OnRead != nil {
		if err := s.OnRead(c.Key); err != nil {
			c.Err = wrapOwn("read", c.Key, err)
		}
	}
	return c
}

// Condition says that a write is done only if Key's last write has this revision. A new object needs that of its
// namespace, for example.
type Condition struct {
	Key      string
	Revision Revision // of the last write to Key; 0 means that Key must not exist
}

// Create writes a key that must not exist and returns its revision. ErrExists means that the key exists;
// ErrConditionFailed that it doesn't, and that one of the conditions doesn't hold. Other errors of the three writes:
// ErrTooLarge, ErrNoSpace, ErrReplaced, ErrUnavailable and ctx's. After the last two the write may have happened.
func (s *Store) Create(ctx context.Context, key string, value []byte, conds ...Condition) (Revision, error) {
	cmps := append(make([]clientv3.Cmp, 0, 1+len(conds)), clientv3.Compare(clientv3.ModRevision(key), "=", 0))
	txn := s.client.Txn(ctx).If(appendConditions(cmps, conds)...).Then(clientv3.OpPut(key, string(value)))
	if len(conds) > 0 {
		txn = txn.Else(clientv3.OpGet(key, clientv3.WithKeysOnly()))
	}
	if err := s.gate.enter(ctx); err != nil {
		return 0, wrapOwn("create", key, err)
	}
	defer s.gate.leave()
	res, err := txn.Commit()
	switch {
	case err != nil:
		return 0, wrap("create", key, err)
	case res.Succeeded:
		return Revision(res.Header.Revision), nil
	case len(conds) > 0 && len(res.Responses[0].GetResponseRange().Kvs) == 0:
		return 0, wrapOwn("create", key, ErrConditionFailed)
	}
	return 0, wrapOwn("create", key, ErrExists)
}

// Update replaces a key's value if its last write has the expected revision, and returns the new revision.
// ErrConflict means that it has another one or that the key is gone: read again. ErrConditionFailed means
// that the key is as expected and one of the conditions doesn't hold. Update doesn't look whether the bytes are those
// that are stored: the caller must leave out such a write, because every write makes an event. Other errors as for
// Create.
func (s *Store) Update(ctx context.Context, key string, value []byte, expected Revision, conds ...Condition) (Revision, error) {
	return s.commit(ctx, guarded{op: "update", key: key, expected: expected, conds: conds}, clientv3.OpPut(key, string(value)))
}

// Delete removes a key if its last write is the expected revision, and returns the revision of the
// deletion. ErrConflict as for Update, other errors as for Create.
func (s *Store) Delete(ctx context.Context, key string, expected Revision) (Revision, error) {
	return s.commit(ctx, guarded{op: "delete", key: key, expected: expected}, clientv3.OpDelete(key))
}

// guarded says under what a write of an existing key is done.
type guarded struct {
	op       string // for errors
	key      string
	expected Revision // of the key's last write
	conds    []Condition
}

// commit does a write if the key is as expected and all conditions hold.
func (s *Store) commit(ctx context.Context, g guarded, write clientv3.Op) (Revision, error) {
	if g.expected <= 0 { // a missing key would compare equal to revision 0
		return 0, wrapOwn(g.op, g.key, ErrConflict)
	}
	cmps := append(make([]clientv3.Cmp, 0, 1+len(g.conds)), clientv3.Compare(clientv3.ModRevision(g.key), "=", int64(g.expected)))
	txn := s.client.Txn(ctx).If(appendConditions(cmps, g.conds)...).Then(write)
	if len(g.conds) > 0 {
		txn = txn.Else(clientv3.OpGet(g.key, clientv3.WithKeysOnly()))
	}
	if err := s.gate.enter(ctx); err != nil {
		return 0, wrapOwn(g.op, g.key, err)
	}
	defer s.gate.leave()
	res, err := txn.Commit()
	switch {
	case err != nil:
		return 0, wrap(g.op, g.key, err)
	case res.Succeeded:
		return Revision(res.Header.Revision), nil
	}
	if len(g.conds) > 0 {
		if kvs := res.Responses[0].GetResponseRange().Kvs; len(kvs) > 0 && kvs[0].ModRevision == int64(g.expected) {
			return 0, wrapOwn(g.op, g.key, ErrConditionFailed)
		}
	}
	return 0, wrapOwn(g.op, g.key, ErrConflict)
}

func appendConditions(cmps []clientv3.Cmp, conds []Condition) []clientv3.Cmp {
	for _, c := range conds {
		cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(c.Key), "=", int64(c.Revision)))
	}
	return cmps
}

func wrapOwn(op, key string, err error) error { return fmt.Errorf("%s %q: %w", op, key, err) }
