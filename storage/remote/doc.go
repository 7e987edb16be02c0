// Package remote keeps objects in an etcd cluster that runs elsewhere, which other processes use at the same time.
//
// Options say where the cluster is, Connect makes a client whose keys all are below the prefix, and Claim refuses a prefix
// that holds somebody else's data. Open does both, and returns the Store.
//
// Down: a write is one transaction. Up: one watch of the whole prefix (follow.go), whose goroutine takes what comes,
// because etcd's client would keep it without a bound, and hands it to Follow. Its position is the revision of the last
// event, or that of a progress notification: the header of a response with events may be of a later revision than they are.
//
// Barrier is a linearizable read of the marker (barrier.go), which all share who ask before it's sent. The watch doesn't tell
// of revisions that other prefixes have made, so the store asks for its progress (progress.go) until it's where the Barrier
// is. Each look also shows whether the store is still the one it was (rewound.go): the same cluster and marker, and no lower
// revision. Another term of raft proves nothing, nor does an outage, but then the store looks whether etcd's history still has the newest write
// that it knows. If the store is another one, Follow returns storage.ErrRewound, and Barrier fails until Follow is called
// again, which means that the caches have what the store is now.
//
// Each watch has a stream of its own. A watch that is asked for its progress, and comes no further for too long, begins
// again, mostly at another member: one whose disk hangs answers with an old revision.
//
// History is read by watches that begin in the past (history.go), and lists by pages that grow. The replicas agree on what
// history is removed: each calls Compact, and by marks in the store one of them does it, at the quota, too (compactor.go). The
// marks' clock is the time that replicas counted, which no jump of a clock makes longer.
//
// Goroutines: the prober, which looks at etcd once a second for Health; the one that asks for progress; the one that sends
// looks, while somebody waits for one; the follower. Close ends all and waits for them.
//
// Locks: Store.followMu before follower.mu; looks.mu, known.mu and progress.mu are leaves. Nobody waits under one,
// apart from followMu, which is held until a stopped follower has ended; that doesn't wait for etcd.
//
// Bounds: maxTailBytes wait for Follow, and a follower that was there begins its next watch at most maxLag revisions behind;
// beyond either the feed lists anew.
// readTimeout, pageTimeout, writeTimeout and historyTimeout bound what etcd may take; listKeys and listBytes a page of a
// list. The marks divide what is kept of history into some 64 parts (package history).
package remote
