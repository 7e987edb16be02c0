// Package migrate is the command apiserver-lite migrate: it moves the content of a data directory into an etcd cluster, and
// of a cluster into a data directory.
//
// It owns one key of the target, storage.MigrationKey, which is there from the first write to the last one. It says which
// source is moved, as of which revision, and up to which key. So a target that is filled by half is never served: a cluster's
// prefix has no marker as long as the key is there, and a directory with the key is refused by whoever wants to serve it.
//
// # Flow
//
// Run opens both ends. A directory is locked by that, so no server runs on it; a member's is taken only if there's no other
// member, who could write meanwhile. A cluster is read as of one revision, and in
// the end it must not have changed since. begin refuses a target that has keys, or whose revision isn't above the source's:
// each object then gets a higher resourceVersion than any that clients know. copy reads the source's keys in order, some
// thousand at a time, and their values some at a time, and writes them with the position in one transaction. finish
// compares, and in one transaction removes storage.MigrationKey and writes the marker.
//
// A migration that was interrupted goes on when it is run again with the same source, from the position that the target
// has.
//
// Everything runs in the caller's goroutine, but for raiseWriters while a cluster's revision is raised.
//
// # Bounds
//
//   - memory: keyPage keys, and the values of one read, some readBytes (readKeys of the largest at the very worst)
//   - a transaction: batchKeys, and batchBytes unless a single object is larger
//   - a request: requestTimeout
//
// They hold for a cluster of etcd 3.7, which reads keys without their values. A member of an older one reads the values, too,
// of a keyPage for each of these, and in the end, when it's asked whether anything has changed, of all keys below the prefix.
package migrate
