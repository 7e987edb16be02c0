// Package storage keeps objects as bytes under keys in etcd and tells what changed.
//
// It owns six things: how keys are built (key.go), the operations on one key (store.go), the one that writes many keys
// at once (replace.go), the errors that callers test for (errors.go), the ordered history of all changes with the
// barrier that makes reads of it consistent (changes.go), and what is just being written (tail.go). Nothing
// here knows what an object is: values are opaque.
//
// Down: a write is one transaction through etcd's client. Up: etcd's watch hands what was written to the tail, and
// Follow takes it from there. What had no room in the tail is read by Changes from etcd's index of revisions.
//
// Goroutines: none of ours. Locks: gate.open, in stores that may be replaced, for which nobody waits longer than its
// context. Each write has a place in it while etcd has the write. Replace has all places, and calls its plan with them: the
// plan may take locks of the cacher and mustn't write. Scans of the index take the read lock of etcd's backend, for at most
// revisionsPerHold revisions at a time.
//
// Bounds: maxTailBytes in the tail, followBytes per Follow, listPage keys per read of List.
package storage

import "strconv"

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
}

// Change is one write to one key. Value is nil for a deletion. Err is set when the stored entry couldn't be decoded, and
// then Key is empty too; or when the store's OnRead refused the value.
type Change struct {
	KeyValue
	Deleted bool
	Err     error
}
