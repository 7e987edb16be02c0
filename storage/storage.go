// Package storage has the words for objects as bytes under keys, for their revisions, and for what changed.
//
//   - what a store is (this file), and the errors that its callers test for (errors.go)
//   - what values go through on their way to etcd and back (transformer.go)
//   - how keys are built (key.go), and which keys say that a store is ours (marker.go)
//   - the guards that a context adds to writes (guards.go), and the writes of several keys at once (batch.go, replace.go)
//   - the highest revision that was seen of something (watermark.go)
//
// Nothing here knows what an object is: values are opaque. Nothing here knows etcd, either.
//
// There are two stores: package embedded has the one over the etcd in this process, package remote the one over a cluster
// that other processes use, too. All writes are transactions through etcd's client, so both write by the same Writer, that of
// package kv. Stores differ in how they read and in how they learn what others wrote. Package storagetest has the tests that both
// pass.
//
// Goroutines: none. Locks: none.
package storage

import (
	"context"
	"strconv"
)

// Revision is etcd's revision: one counter for the whole store, raised by every transaction that
// writes. An object's resourceVersion is the revision of its last write. 0 means "none".
type Revision int64

// String returns the decimal form, which clients know as resourceVersion.
func (r Revision) String() string { return strconv.FormatInt(int64(r), 10) }

// KeyValue is one key's state at Revision. Nobody may change Value: readers share it.
type KeyValue struct {
	Key      string
	Value    []byte
	Revision Revision // of the last write to this key
	Stale    bool     // the store's Transformer would store Value in another way now
}

// Change is one write to one key. Value is nil for a deletion. Err is set when the stored entry couldn't be decoded, and
// then Key is empty too; or when the store's Transformer refused what is stored, which Value is then.
type Change struct {
	KeyValue
	Deleted bool
	Err     error

	// Before is what the key held before, with Revision 0 if there was nothing. It's nil where the store would need another
	// read for it: ask GetAt.
	Before *KeyValue
}

// Version is a write of one key, as Versions yields it.
type Version struct {
	Change
	Created bool // the key didn't exist before
}

// Condition says that a write is done only if Key's last write has this revision. A new object needs that of its
// namespace, for example.
type Condition struct {
	Key      string
	Revision Revision // of the last write to Key; 0 means that Key must not exist
}

// Stretch names a part of history: the changes with After < revision <= Through.
type Stretch struct {
	After    Revision
	Through  Revision // 0 means: as far as there is
	MaxBytes int      // stop after about this many bytes of values, on a whole revision; 0 means no limit
}

// Store is the objects in an etcd. It is safe for concurrent use.
//
// The errors of all methods include ErrUnavailable when etcd can't answer, and ctx's. Package kv's Writer has the four writes and Pin
// for every Store.
type Store interface {
	// Get reads one key, linearizably: it sees every write acknowledged before the call. Errors: ErrNotFound, and the Transformer's as for
	// GetAt.
	Get(ctx context.Context, key string) (KeyValue, error)

	// GetAt reads one key as it was at a revision; 0 means whatever is quickest to read: in the embedded store what the
	// member has now. Errors: ErrNotFound if the key didn't exist then, ErrCompacted if history begins after the
	// revision, ErrFutureRevision if etcd hasn't reached it. An error of the Transformer's comes together with the
	// key, revision and what is stored.
	GetAt(ctx context.Context, key string, at Revision) (KeyValue, error)

	// List calls fn for each key of a range, in key order, as of one revision, which it returns. If at is 0, that's the
	// present one, linearizably. The memory it takes doesn't grow with the number of keys. A value that the Transformer
	// refuses comes with its Err set. Errors: fn's, as it is, which ends the list; ErrCompacted if history begins after the
	// revision, also when that happens during the list; ErrFutureRevision if etcd hasn't reached it.
	List(ctx context.Context, keys Range, at Revision, fn func(Change) error) (Revision, error)

	// Count returns how many keys of a range there were at a revision. It reads no values. Errors as for GetAt, without
	// ErrNotFound.
	Count(ctx context.Context, keys Range, at Revision) (int, error)

	// Create writes a key that must not exist and returns its revision. ErrExists means that the key exists;
	// ErrConditionFailed that it doesn't, and that one of the conditions doesn't hold. Other errors of the three writes:
	// ErrTooLarge, ErrNoSpace, ErrNotTransformed, ErrReplaced, those of the guards that ctx has (WithFence, WithTurn, WithPremise),
	// ErrUnavailable and ctx's. With ErrUnknownOutcome the write may have happened, and without it, it hasn't.
	Create(ctx context.Context, key string, value []byte, conds ...Condition) (Revision, error)

	// Update replaces a key's value if its last write has the expected revision, and returns the new revision.
	// ErrConflict means that it has another one or that the key is gone: read again. ErrConditionFailed means
	// that the key is as expected and one of the conditions doesn't hold. Update doesn't look whether the bytes are those
	// that are stored: the caller must leave out such a write, because every write makes an event. Other errors as for
	// Create.
	Update(ctx context.Context, key string, value []byte, expected Revision, conds ...Condition) (Revision, error)

	// Delete removes a key if its last write is the expected revision, and returns the revision of the
	// deletion. ErrConflict as for Update, other errors as for Create.
	Delete(ctx context.Context, key string, expected Revision) (Revision, error)

	// Commit writes several keys in one revision, which it returns, if all conditions hold. Otherwise nothing is written, the error is
	// ErrConditionFailed, and broken are the conditions that didn't hold. Other errors as for Create, without ErrExists; ErrTooLarge also for
	// more operations than etcd takes in one transaction. The guards that ctx has don't count: they're among the conditions.
	Commit(ctx context.Context, b Batch) (rev Revision, broken []Condition, err error)

	// Replace writes many keys in one revision, which it returns. plan says what to write. While plan runs and until Replace
	// returns no other write is under way: each one has either its revision before plan is called, or a later one than
	// Replace. Replaces wait for each other. A Replacement without keys makes a revision, too. Errors: plan's, as it is;
	// ErrTooLarge for one that etcd doesn't take in one request; ErrNoSpace; ErrUnavailable, also of a store to which others
	// write; and ctx's. With ErrUnknownOutcome the write may have happened, and without it, it hasn't.
	Replace(ctx context.Context, plan func() (Replacement, error)) (Revision, error)

	// Pin returns a context whose writes fail once the store was replaced. A write that decides by what it reads pins its context
	// before it reads what it decides by, because a revision doesn't tell it everything: a Replace may leave the object that
	// it wants to delete as it is, and bring back what the object belongs to. mine tells that the context wasn't pinned
	// before: only whoever pinned it may begin again.
	Pin(ctx context.Context) (_ context.Context, mine bool)

	// Changes returns what happened in a stretch of history, in revision order and always whole revisions. upTo is the
	// last revision it saw, of any key; ask from there next. ErrCompacted means that etcd's history begins after After,
	// so some of the changes may be gone. The changes belong to the caller. One that couldn't be decoded has its Err
	// set. An empty stretch gives upTo = After.
	Changes(ctx context.Context, st Stretch) (changes []Change, upTo Revision, err error)

	// Versions calls fn for each write of a key that history still has, newest first: those up to a revision, or all for 0. A key that was
	// deleted and created again has the deletion and what was before it, too, for which everything that history has may have to be looked
	// through. Errors: fn's, as it is, which ends it; ErrCompacted if history begins after the revision; ErrFutureRevision. A version whose
	// value the Transformer refuses comes with its Err set.
	Versions(ctx context.Context, key string, upTo Revision, fn func(Version) error) error

	// Follow waits until something is written after a revision and returns it, in revision order and always whole
	// revisions; up to upTo there is nothing else, and upTo is after the revision. Errors: ErrCompacted, as for
	// Changes; ErrUnavailable when etcd has stopped or the Store was closed; ErrRewound. The changes belong to the
	// caller. Follow is for one reader, the feed.
	//
	// Follow returns ErrRewound once. The reader then calls Window for what the store is now, reads the state at a revision
	// of that window, and calls Follow with this revision, which may be lower than the ones before. Only then do Barriers
	// succeed again: until then they fail with ErrUnavailable.
	Follow(ctx context.Context, after Revision) (changes []Change, upTo Revision, err error)

	// Window returns what can be read of history: the revision up to which it's gone, as Compacted does, and the newest
	// revision whose changes can be read. After ErrRewound both are those of the store that's there now.
	Window(ctx context.Context) (compacted, newest Revision, err error)

	// Compacted returns the revision up to which history is gone: all changes after it are there, and the state at the
	// revision itself can be read. 0 means that nothing was ever compacted. It's what was last read from etcd, so it may
	// be too small; Changes reads it again.
	Compacted() Revision

	// Barrier returns a revision that is at least that of every write acknowledged before the call, by any process that
	// shares the etcd. Follow reaches it. ErrUnavailable also means that Follow has yet to be called after ErrRewound.
	Barrier(ctx context.Context) (Revision, error)

	// TailBytes returns about how many bytes of changes wait for Follow.
	TailBytes() int64

	// Reads returns how many stretches of history were read from etcd, for a metric.
	Reads() int64

	// Close ends what Follow reads from. It is idempotent.
	Close()
}
