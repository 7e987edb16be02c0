// Package embedded is the store over the etcd that runs in this process (storage/etcd).
//
// Down: a write is one transaction through etcd's client. Up: etcd's watch hands what was written to the tail (tail.go), and
// Follow takes it from there. What had no room in the tail is read by Changes from etcd's index of revisions (changes.go).
//
// In a cluster, a Barrier first asks raft up to where the others have written (Store.ReadIndex). A snapshot that comes from
// another member replaces etcd's database, with writes that no watch announces. Then the tail begins a new watch, and Follow
// reads the index.
//
// Goroutines: one that begins the new watch after such a snapshot. Close waits for it.
//
// Locks: tail.lock guards the tail's watch. It's taken before etcd's locks and never after. It's held while a watch begins after
// a snapshot that came from another member, which waits for the locks of etcd's database. So it's no mutex but a channel:
// whoever waits for it can give up. Etcd has locks around its database that it holds for a whole defragmentation. A Barrier, Follow
// from the tail, and the figures take none of them. Everything that reads the database does, and waits however long that takes.
// Scans of the index take the read lock of etcd's backend, for at most revisionsPerHold revisions at a time.
//
// Bounds: maxTailBytes in the tail, followBytes per Follow, listKeys keys and about listBytes per read of List.
package embedded
