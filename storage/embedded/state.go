package embedded

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// List asks etcd's tree of keys for each key's revision, and its index of revisions for each value, which is a search for each object. Whoever needs
// all objects in any order is quicker with the index alone, from its end to its beginning: there a write comes before those that it replaced.

const (
	// statePart is how many objects of a state are copied, decoded and given on together.
	statePart = 256
	// stateRevisions is how many revisions are looked up at a time.
	stateRevisions = 1024
)

// snapshotTx returns a transaction that has what the database has now, and holds nobody up, and the backend that it's of. Like readTx it begins anew
// if a raft snapshot has replaced the backend.
func (s *Store) snapshotTx() (backend.ReadTx, backend.Backend) {
	for {
		be := s.local.Backend()
		tx := be.ConcurrentReadTx() // until RUnlock
		if s.local.Backend() == be {
			return tx, be
		}
		tx.RUnlock()
	}
}

// State implements storage.Whole. It waits for the locks of etcd's database.
func (s *Store) State(ctx context.Context, at storage.Revision, fn func([]storage.Change)) error {
	tx, be := s.snapshotTx()
	defer tx.RUnlock()
	w := stateWalk{tx: tx, at: at, later: map[string]bool{}}
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(runtime.GOMAXPROCS(0)) // Go waits, so that no more is found than is being worked on
	var part []storage.Change
	hand := func() {
		if of := part; len(of) > 0 {
			work.Go(func() error {
				for i, c := range of {
					of[i].Value = bytes.Clone(c.Value)
					of[i] = s.Transformed(of[i])
				}
				fn(of)
				return nil
			})
		}
		part = make([]storage.Change, 0, statePart)
	}
	err := w.run(working, func(c storage.Change) {
		if part = append(part, c); len(part) == statePart {
			hand()
		}
	})
	hand()
	if err = errors.Join(err, work.Wait()); err != nil {
		return kv.Wrap("list", storage.Root, err)
	}
	if s.local.Backend() != be { // another member's has taken its place
		return fmt.Errorf("list %s: %w", storage.Root, storage.ErrUnavailable)
	}
	compacted, newest := s.revisions() // a compaction first moves the mark, and then removes entries: see scanAll
	switch {
	case at < compacted:
		return fmt.Errorf("list at %d: %w (history begins at %d)", at, storage.ErrCompacted, compacted)
	case at > newest:
		return fmt.Errorf("list at %d: %w", at, storage.ErrFutureRevision)
	}
	return nil
}

// stateWalk goes through the index of revisions backwards.
type stateWalk struct {
	tx    backend.ReadTx
	at    storage.Revision
	later map[string]bool // keys of which a write was met whose object was there before: what comes before it doesn't count
}

// run calls fn with each key below storage.Root as it was, one at a time. The values are the transaction's.
func (w *stateWalk) run(ctx context.Context, fn func(storage.Change)) error {
	oldest := w.oldest()
	for end := w.at + 1; end > 0 && end > oldest; end -= stateRevisions {
		if err := ctx.Err(); err != nil {
			return err
		}
		keys, values := w.tx.UnsafeRange(schema.Key, revisionKey(max(0, end-stateRevisions)), revisionKey(end), 0)
		for _, i := range backwards(keys) {
			e, err := entryOf(values[i])
			if err != nil {
				return fmt.Errorf("decode revision %d: %w", mvcc.BytesToRev(keys[i]).Main, err)
			}
			if w.counts(e) && !mvcc.IsTombstone(keys[i]) && bytes.HasPrefix(e.key, []byte(storage.Root)) {
				fn(storage.Change{KeyValue: storage.KeyValue{Key: string(e.key), Value: e.value, Revision: storage.Revision(mvcc.BytesToBucketKey(keys[i]).Main)}})
			}
		}
	}
	return nil
}

// oldest returns the first revision that the index has; one after all others if it has none. It's the first one of the file or of etcd's buffer, which has the
// newest, and may have what the file has by now. A range with a limit is answered from the buffer first, and a walk begins with what only the file has.
func (w *stateWalk) oldest() storage.Revision {
	first := storage.Revision(math.MaxInt64)
	see := func(key, _ []byte) error {
		first = min(first, storage.Revision(mvcc.BytesToBucketKey(key).Main))
		return io.EOF // one is enough
	}
	_ = w.tx.UnsafeForEach(schema.Key, see)
	if keys, _ := w.tx.UnsafeRange(schema.Key, revisionKey(0), revisionKey(w.at+1), 1); len(keys) > 0 {
		_ = see(keys[0], nil)
	}
	return first
}

// backwards returns the places of keys, the last one first and each key once. What comes from etcd's buffer follows what comes from its file, and after
// a commit the buffer that etcd copies for a transaction may still have what the file has now.
func backwards(keys [][]byte) []int {
	places := make([]int, len(keys))
	for i := range keys {
		places[i] = len(keys) - 1 - i
	}
	descending := func(i, j int) int { return bytes.Compare(keys[j], keys[i]) }
	if !slices.IsSortedFunc(places, descending) {
		slices.SortFunc(places, descending)
	}
	return slices.CompactFunc(places, func(i, j int) bool { return bytes.Equal(keys[i], keys[j]) })
}

// counts tells whether an entry is the last one of its key. Most keys were written once, and those that were written more often are remembered only
// until the entry that made them.
func (w *stateWalk) counts(e entry) bool {
	known := len(w.later) > 0 && w.later[string(e.key)]
	switch {
	case e.version == 1 && known: // the object begins here
		delete(w.later, string(e.key))
	case e.version != 1 && !known: // a deletion has no version
		w.later[string(e.key)] = true
	}
	return !known
}

func revisionKey(rev storage.Revision) []byte {
	return mvcc.RevToBytes(mvcc.Revision{Main: int64(rev)}, mvcc.NewRevBytes())
}

// Numbers of fields in etcd's mvccpb.KeyValue.
const (
	entryKey     protowire.Number = 1
	entryVersion protowire.Number = 4
	entryValue   protowire.Number = 5
)

// entry is what the index has of a write: some of a mvccpb.KeyValue, in place.
type entry struct {
	key, value []byte
	version    uint64 // 1 for a creation, 0 for a deletion
}

var errField = errors.New("a field's number is too large")

// entryOf reads an entry as proto.Unmarshal would, and copies nothing.
func entryOf(b []byte) (e entry, err error) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		switch {
		case n < 0:
			return e, protowire.ParseError(n)
		case num > protowire.MaxValidNumber:
			return e, errField
		}
		b = b[n:]
		switch {
		case num == entryKey && typ == protowire.BytesType:
			e.key, n = protowire.ConsumeBytes(b)
		case num == entryVersion && typ == protowire.VarintType:
			e.version, n = protowire.ConsumeVarint(b)
		case num == entryValue && typ == protowire.BytesType:
			e.value, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(num, typ, b)
		}
		if n < 0 {
			return e, protowire.ParseError(n)
		}
		b = b[n:]
	}
	return e, nil
}
