// Package controllers is what a server does by itself, after the writes of clients: it empties namespaces and the
// resources of definitions that are being deleted, deletes objects whose owners are gone or whose time is over, makes the
// ServiceAccount of every namespace, and counts what is used of quotas.
//
// One goroutine, the reader, reads everything that happens from a tape of the cacher, in revision order, and tells every
// controller. A controller notes what matters to it and queues the keys that it has to work on. Workers take the keys and
// write through registry's door for controllers (Endpoint.Remove and the like), so the engine of clients' writes protects
// what they do: each write says which uid or revision it means. All writes go through the actor, which notes how
// far they are.
//
//	cacher.Tape ─▶ reader ─▶ controller.observe ─▶ queue ─▶ work ─▶ actor ─▶ registry
//
// A controller knows nothing older than the event it acts on: the reader has what is served brought up to a definition before
// it tells anybody of that, and each piece of work is given what is served then. There's no other way to it from here
// (registry.Door).
//
// Controllers keep nothing that they can't read anew. When the reader falls off the tape, they're told the whole state
// again.
//
// Of several processes over one store one runs the controllers. Run is called for each term of its leadership, and begins
// with the whole state. The others keep nothing, and neither does one after its term, so they pay nothing for what the
// controllers know.
//
// What the server makes and keeps besides comes to it as a list of Duties (duties.go).
//
// Quiescent is a barrier over all of them: it returns when there is nothing left to do.
//
// Goroutines: the reader; one for each controller, which waits for the end, one for expiry and one for quotas, which wait for what is due
// next, and one for each Duty that is done at intervals; one for each open charge on a quota that a count had to add; and workers, which are there only while there is work: at
// most workersAtOnce in each queue, and DeletersAtOnce for each key whose content is deleted. Run waits for all. A panic of a
// worker is its key's failure, which is logged and tried again. One of the reader ends the process.
//
// The garbage collector is in garbagecollector_graph.go (who owns whom), garbagecollector.go (what happens to the graph) and garbagecollector_delete.go (what is done
// about an object).
//
// resourcequota.go counts the objects of a namespace, and leaves room for what requests under way are charged for
// (quota.Ledger). It counts again when these have ended.
//
// Locks: those of a controller ─▶ its queue's ─▶ bell.mu; knowledge.mu ─▶ the cacher's locks, for a look at an owner.
// reader.mu is alone. None is held during a write.
//
// Bounds: a queue has each key once, so at most one for each object. The garbage collector's graph grows with the objects
// that have owners, by some 130 bytes each. An object that expires takes some 100 bytes (see deadlines). A Report has at most
// maxHeld and maxPending entries.
package controllers
