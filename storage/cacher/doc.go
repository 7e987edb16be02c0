// Package cacher serves reads and watches from memory.
//
// It owns a copy of everything under storage.Root and the recent history of it. Data flows one way:
//
//	storage.Follow ─▶ feed ─▶ Resource: tree (what is), log (what happened) ─▶ groups ─▶ Cursor ─▶ frames
//
// One goroutine, the feed, applies every change in revision order. Position P means that everything up
// to P is in the caches of all resources. A watcher is a Cursor: a position in the log that belongs to
// a group, which is all watchers that ask for the same. The feed decides once per event and group what
// the group is told and notes it in the group's ring; a cursor takes it from there. One that falls behind
// the ring reads the log, and below that etcd's history; it's never closed for being slow.
//
// Goroutines: the feed and the waker, both of Cacher.Run. The waker closes the news channels of groups,
// which is what makes sleeping watchers runnable, so that the feed pays per group and not per watcher.
//
// Locks, in the order in which they may be held:
//
//	Cacher.mu, the map of resources ─▶ Resource.mu ─▶ event.mu or states.mu
//	stretches.mu, the stretches       ─▶ event.mu
//	feed.waitMu, waker.mu, cohort.mu, kept.mu, sharedState.mu: alone
//
// Conversion.turn is a lock, too: a channel, so that whoever waits for it can give up. It's held while a webhook is
// asked. No I/O happens under any of the others, nor does matching for a single reader under Resource.mu.
//
// A list is written from a Snapshot: a clone of the tree, which takes constant time, with the index of the
// selectable fields that belongs to it. That index costs about 60 bytes for each object and field (see
// fieldIndex); label selectors are answered by a scan that looks at 8 bytes of each object (see labelBits). A
// snapshot is kept for the pages that follow the first, and dropped when it keeps too much alive; then Past
// reads the same from etcd. The same goes for the snapshot of an initial state that a client takes slowly.
//
// Bounds: those of the type bounds, and maxBatchBytes and maxBatchEvents per step of a cursor.
package cacher
