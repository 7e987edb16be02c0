// Package cacher serves reads and watches from memory.
//
// It owns a copy of everything under storage.Root and the recent history of it. Data flows one way:
//
//	storage.Follow ─▶ feed ─▶ Resource: tree (what is), log (what happened) ─▶ groups ─▶ Cursor ─▶ frames
//
// One goroutine, the feed, applies every change in revision order. Position P means that everything up
// to P is in the caches of all resources. A watcher is a Cursor: a position in the log. Each cursor belongs to
// a group, which is all watchers that ask for the same. The feed decides once per event and group what the
// group is told, and notes that in the group's ring. A cursor reads the ring. A cursor that falls behind the
// ring reads the log, and one that falls behind the log reads etcd's history. No cursor is closed for being
// slow.
//
// A Tape has the changes of all resources in one order, for readers inside the process. The feed notes where the events
// are in the logs, if somebody reads, and the reader takes them from there.
//
// Goroutines: the feed, the waker, one that drops indexes that nobody asks for, all of Cacher.Run, and those that scan what the feed lists, for which it waits. The members of a group are woken in cohorts of 32. The
// feed queues the cohorts that have news, and the waker closes their channels. So the feed's cost grows with
// the cohorts, not with the watchers.
//
// Locks, in the order in which they may be held:
//
//	tapes.mu ─▶ Cacher.mu, the map of resources ─▶ Resource.mu ─▶ states.mu
//	Resource.mu ─▶ watchEvent.mu, if it's free: nobody waits for it
//	tapes.mu ─▶ Tape.mu, feed.waitMu, kept.mu or stretches.mu: each a leaf
//	waker.mu, cohort.mu, sharedState.mu: alone
//
// All are mutexes, and no I/O happens under any. Two of them, watchEvent.mu and
// sharedState.mu, are held while what readers get is encoded. That calls a kube.View's Render, Encode and
// Needed and, for a state, the selectors. Whoever waits for the first wants the same event, perhaps in
// another view, and whoever waits for the second the same state; the feed never does. Under Resource.mu selectors are
// matched for groups, in the feed, and never for a single reader.
//
// A list is written from a Snapshot: a clone of the tree, which takes constant time, with the index of the
// selectable fields that belongs to it. That index costs about 60 bytes for each object and field (see
// fieldIndex). Other fields, and labels, get such an index on demand, when lists ask for them often (see demand.go). Other label selectors are answered by a scan that looks at 8 bytes of each object (see kube.LabelBits). A
// snapshot is kept for the pages that follow the first one. It's dropped when it keeps too much alive; then Past
// reads the same objects from etcd. The same goes for the snapshot of an initial state that a client takes slowly.
//
// What an object is, and how it's shown, is package kube's. A message of protobuf that was made of an object is kept while
// the object is in the tree.
//
// Bounds: those of the type bounds; maxCostly and maxColumns for what the groups of a resource cost an event; maxBatchBytes and maxBatchEvents per step of a cursor; maxStretchBytes; tapeNotes
// for each tape. Without a bound here: cursors, groups and their rings grow with the open watches, which the server
// bounds, and a ring keeps the size that it once needed, at most groupEntries; what conversions make of objects grows with
// the objects and the versions that are read; and the number of Resources grows with the prefixes that were used. Usage
// counts the rings, what was converted, and the Resources.
package cacher
