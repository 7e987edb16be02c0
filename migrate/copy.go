package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

const (
	// keyPage is how many keys are read at once, without values. etcd counts all the keys that follow for each read with
	// a limit, so few reads should have one.
	keyPage = 10_000
	// readKeys is how many values are read at once at most, and readBytes is how much that should be: the next read is
	// for fewer keys if the last one brought more.
	readKeys  = 64
	readBytes = 4 << 20
	// batchKeys and batchBytes bound a transaction: etcd takes 128 operations and 1.5 MiB unless it's told otherwise.
	batchKeys  = 100
	batchBytes = 1 << 20
	// requestTimeout is for one request, so that a cluster that has lost its majority doesn't hold the command forever.
	requestTimeout = 30 * time.Second
	// reportInterval is how often a migration says how far it is.
	reportInterval = 5 * time.Second
)

// store is one end of a migration. Its client's keys begin with storage.Root and storage.Own.
type store struct {
	client *clientv3.Client
	name   string // for messages, as "the directory ./data"
	prefix string // what its keys begin with besides, "" for a directory
	locked bool   // its lock says that no server runs on it
}

// position is the value of storage.MigrationKey.
type position struct {
	Source   string           `json:"source"`   // which one is moved: the cluster's id and the prefix
	Revision storage.Revision `json:"revision"` // as of which it's moved
	Last     string           `json:"last"`     // the last key that was copied, "" before the first
	Keys     int64            `json:"keys"`     // how many were copied
}

// migration is one that is under way.
type migration struct {
	source, target store
	out            io.Writer                       // for progress
	marker         bool                            // the target gets a marker
	account        []byte                          // the target gets this key of ServiceAccounts' tokens; nil for none
	prepare        func(ctx context.Context) error // before the first write, in a target that may be filled; nil for nothing
	raise          func(ctx context.Context, from, to storage.Revision) error

	at  position
	mod storage.Revision // the revision of the position's last write
	all int64            // how many keys there are to copy
}

// goesOn says of an error after the first write what it leaves.
func goesOn(err error) error {
	return fmt.Errorf("%w; nothing is served from the target yet, and the same command goes on from here", err)
}

// run moves the content.
func (m *migration) run(ctx context.Context) error {
	if err := m.begin(ctx); err != nil {
		return err
	}
	if err := m.copy(ctx); err != nil {
		return goesOn(err)
	}
	return m.finish(ctx)
}

// begin looks at both ends, and leaves the position in the target.
func (m *migration) begin(ctx context.Context) error {
	head, err := m.source.get(ctx, storage.MigrationKey)
	if err != nil {
		return err
	}
	if len(head.Kvs) > 0 {
		return fmt.Errorf("%s is the target of a migration that isn't finished", m.source.name)
	}
	m.at = position{Source: fmt.Sprintf("%x%s", head.Header.ClusterId, m.source.prefix), Revision: storage.Revision(head.Header.Revision)}
	if err := m.source.unused(ctx); err != nil {
		return err
	}
	found, err := m.target.get(ctx, storage.MigrationKey)
	if err != nil {
		return err
	}
	if found.Header.ClusterId == head.Header.ClusterId && m.source.prefix == m.target.prefix {
		return errors.New("the source and the target are the same")
	}
	begun := len(found.Kvs) > 0
	if begun {
		err = m.resume(found)
	} else {
		err = m.target.empty(ctx)
	}
	if err == nil && m.prepare != nil {
		err = m.prepare(ctx)
	}
	if err == nil && !begun {
		err = m.raised(ctx, storage.Revision(found.Header.Revision), func() error { return m.save(ctx, nil) })
	}
	if err != nil {
		return err
	}
	m.all, err = m.source.count(ctx, m.at.Revision)
	return err
}

// resume takes the position of an earlier run.
func (m *migration) resume(found *clientv3.GetResponse) error {
	var at position
	if err := json.Unmarshal(found.Kvs[0].Value, &at); err != nil {
		return fmt.Errorf("%s has a %s that can't be read: %w", m.target.name, storage.MigrationKey, err)
	}
	if at.Source != m.at.Source {
		return fmt.Errorf("%s is filled by half from another source (%s, this one is %s): finish that migration, or remove the target's keys first", m.target.name, at.Source, m.at.Source)
	}
	m.at, m.mod = at, storage.Revision(found.Kvs[0].ModRevision)
	fmt.Fprintf(m.out, "going on after %d keys\n", at.Keys)
	return nil
}

// raised has the target's revision be above the source's, and calls begin. Nothing is written if it can't be.
func (m *migration) raised(ctx context.Context, now storage.Revision, begin func() error) error {
	if now > m.at.Revision {
		return begin()
	}
	if m.raise == nil {
		return fmt.Errorf("%s has revision %d, which isn't above the source's, %d: clients would take new states for old ones. With --raise-revision it's raised first, by %d writes; or start the cluster from a snapshot with: etcdutl snapshot restore --bump-revision %d --mark-compacted",
			m.target.name, now, m.at.Revision, m.at.Revision-now+1, m.at.Revision-now+1)
	}
	if err := m.raise(ctx, now, m.at.Revision+1); err != nil {
		return fmt.Errorf("raise the revision of %s: %w", m.target.name, err)
	}
	return begin()
}

// save writes a batch and the position after it, if nobody else wrote the position and no server took the target.
func (m *migration) save(ctx context.Context, batch []*mvccpb.KeyValue) error {
	next := m.at
	ops := make([]clientv3.Op, 0, len(batch)+1)
	for _, kv := range batch {
		ops = append(ops, clientv3.OpPut(string(kv.Key), string(kv.Value)))
		next.Last = string(kv.Key)
		next.Keys++
	}
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	res, err := m.commit(ctx, append(ops, clientv3.OpPut(storage.MigrationKey, string(value))))
	if err != nil {
		if errors.Is(err, rpctypes.ErrRequestTooLarge) && len(batch) == 1 {
			return fmt.Errorf("%s has %d bytes, more than %s takes in a request (etcd's --max-request-bytes): %w", batch[0].Key, len(batch[0].Value), m.target.name, err)
		}
		return err
	}
	m.at, m.mod = next, storage.Revision(res.Header.Revision)
	return nil
}

// commit does a transaction on the target on the conditions that hold for all of them.
func (m *migration) commit(ctx context.Context, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := m.target.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(storage.MigrationKey), "=", int64(m.mod)),
		clientv3.Compare(clientv3.CreateRevision(storage.MarkerKey), "=", 0),
	).Then(ops...).Commit()
	switch {
	case err != nil:
		return nil, fmt.Errorf("write to %s: %w", m.target.name, err)
	case !res.Succeeded:
		return nil, fmt.Errorf("%s was taken meanwhile, by a server or by another migration", m.target.name)
	}
	return res, nil
}

// copy copies what comes after the position.
func (m *migration) copy(ctx context.Context) error {
	end := clientv3.GetPrefixRangeEnd(storage.Root)
	reported := time.Now()
	for atOnce := readKeys; ; {
		from := storage.Root
		if m.at.Last != "" {
			from = m.at.Last + "\x00"
		}
		keys, err := m.source.get(ctx, from, clientv3.WithRange(end), clientv3.WithRev(int64(m.at.Revision)), clientv3.WithKeysOnly(), clientv3.WithLimit(keyPage))
		if err != nil {
			return err
		}
		for rest := keys.Kvs; len(rest) > 0; {
			n := min(atOnce, len(rest))
			values, err := m.source.get(ctx, string(rest[0].Key), clientv3.WithRange(string(rest[n-1].Key)+"\x00"), clientv3.WithRev(int64(m.at.Revision)))
			if err != nil {
				return err
			}
			if err := m.write(ctx, values.Kvs); err != nil {
				return err
			}
			rest, atOnce = rest[n:], nextRead(n, values.Kvs)
			if time.Since(reported) > reportInterval {
				reported = time.Now()
				fmt.Fprintf(m.out, "%d of %d keys\n", m.at.Keys, m.all)
			}
		}
		if !keys.More {
			return nil
		}
	}
}

// nextRead is how many values to read after a read of n brought these.
func nextRead(n int, kvs []*mvccpb.KeyValue) int {
	size := 1
	for _, kv := range kvs {
		size += len(kv.Value)
	}
	return min(max(1, n*readBytes/size), readKeys)
}

// write writes values in as few transactions as the bounds allow.
func (m *migration) write(ctx context.Context, kvs []*mvccpb.KeyValue) error {
	for len(kvs) > 0 {
		n, size := 0, 0
		for n < min(len(kvs), batchKeys) {
			size += len(kvs[n].Key) + len(kvs[n].Value)
			if n > 0 && size > batchBytes {
				break
			}
			n++
		}
		if err := m.save(ctx, kvs[:n]); err != nil {
			return err
		}
		kvs = kvs[n:]
	}
	return nil
}

// finish makes the target one that is served, if all is there.
func (m *migration) finish(ctx context.Context) error {
	if err := m.source.unchanged(ctx, m.at.Revision, m.all); err != nil {
		return err
	}
	copied, err := m.target.count(ctx, 0)
	if err != nil {
		return goesOn(err)
	}
	if copied != m.all {
		return fmt.Errorf("%s has %d objects and %s %d: something else wrote to it; remove its keys and begin again", m.source.name, m.all, m.target.name, copied)
	}
	ops := []clientv3.Op{clientv3.OpDelete(storage.MigrationKey), clientv3.OpDelete(raiseKey)}
	if m.marker {
		ops = append(ops, clientv3.OpPut(storage.MarkerKey, string(storage.NewMarker().Bytes())))
	} else if err := m.target.forget(ctx, m.mod); err != nil {
		return goesOn(err)
	}
	if m.account != nil {
		ops = append(ops, clientv3.OpPut(storage.AccountKey, string(m.account)))
	}
	if _, err := m.commit(ctx, ops); err != nil {
		return goesOn(err)
	}
	return nil
}

// get is a linearizable read of one of the ends.
func (s store) get(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	res, err := s.client.Get(ctx, key, options...)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		return nil, fmt.Errorf("read %s: its history doesn't go back to where the migration began any more; remove the target's keys and begin again: %w", s.name, err)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", s.name, err)
	}
	return res, nil
}

// count counts the objects at a revision; 0 is now.
func (s store) count(ctx context.Context, at storage.Revision) (int64, error) {
	res, err := s.get(ctx, storage.Root, clientv3.WithPrefix(), clientv3.WithCountOnly(), clientv3.WithRev(int64(at)))
	if err != nil {
		return 0, err
	}
	return res.Count, nil
}

// unused refuses a store that a server runs on: what replicas hold while they run has a lease. In a directory that means
// nothing, because a lease doesn't end while no server runs, and the lock says it.
func (s store) unused(ctx context.Context) error {
	if s.locked {
		return nil
	}
	own, err := s.get(ctx, storage.Own, clientv3.WithPrefix()) // few and small; with keys only there'd be no leases
	if err != nil {
		return err
	}
	for _, kv := range own.Kvs {
		if kv.Lease != 0 {
			return fmt.Errorf("a server runs on %s (it holds %s): stop all replicas first, and wait for ten seconds if one was killed", s.name, kv.Key)
		}
	}
	return nil
}

// empty refuses a target that has keys.
func (s store) empty(ctx context.Context) error {
	for _, prefix := range []string{storage.Root, storage.Own} {
		res, err := s.get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(2))
		if err != nil {
			return err
		}
		for _, kv := range res.Kvs {
			if string(kv.Key) != raiseKey { // which an interrupted raise leaves
				return fmt.Errorf("%s isn't empty: it has keys, as %s; name one without any", s.name, kv.Key)
			}
		}
	}
	return nil
}

// unchanged refuses a source that was written to after a revision at which it had so many objects.
func (s store) unchanged(ctx context.Context, since storage.Revision, had int64) error {
	newer, err := s.get(ctx, storage.Root, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1), clientv3.WithMinModRev(int64(since)+1))
	if err != nil {
		return goesOn(err)
	}
	has, err := s.count(ctx, 0)
	if err != nil {
		return goesOn(err)
	}
	if len(newer.Kvs) > 0 || has != had {
		return fmt.Errorf("%s was written to while it was moved, so the target isn't complete: stop its servers, remove the target's keys, and begin again", s.name)
	}
	return nil
}

// forget drops the history before a revision, so that nobody resumes a watch from it: the copies are no changes.
func (s store) forget(ctx context.Context, before storage.Revision) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	_, err := s.client.Compact(ctx, int64(before))
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compact %s: %w", s.name, err)
	}
	return nil
}
