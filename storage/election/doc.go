// Package election says which of several processes over one etcd leads: only it collects garbage, empties namespaces,
// and does the rest of what one may do at a time.
//
// Each process that wants to lead has a key under Prefix, which lives as long as its lease. The process with the oldest key
// leads. A key is written once, so its revision names one term of leadership: the writes of a term have the condition that the
// key is still there (storage.WithFence). They fail once it's gone, also if the process doesn't know that yet because it was
// stopped for a while.
//
//	lease ─▶ key ─▶ wait until no key is older ─▶ lead ─▶ the lease or the key ends ─▶ a new lease
//
// So the keys also say which processes there are, and their values where each serves (Follow).
//
// Goroutines: the one that calls Run, one that takes etcd's answers while there is a lease, one for what it runs during a
// term, and those of etcd's client that keep the lease. Run waits for its own. Locks: Election.mu, a leaf.
//
// Bounds: a process leads for at most leaseTime, and what etcd adds to that, after it was heard of last. A process that ends
// takes at most resignTimeout to give up its lease, and another one leads at once. Whoever waits for a change looks at least every
// lookInterval, so that none is missed for longer, whatever becomes of the watch.
package election
