// Package embedded is the store over the etcd that runs in this process (storage/etcd).
//
// Down: a write is one transaction through etcd's client. Up: etcd's watch hands what was written to the tail (tail.go), and
// Follow takes it from there. What had no room in the tail is read by Changes from etcd's index of revisions (changes.go).
//
// Goroutines: none of ours. Scans of the index take the read lock of etcd's backend, for at most revisionsPerHold revisions
// at a time.
//
// Bounds: maxTailBytes in the tail, followBytes per Follow, listKeys keys and about listBytes per read of List.
package embedded
