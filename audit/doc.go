// Package audit notes who did what, in the form of Kubernetes' audit log.
//
// A Log has a policy (policy file) and a file. A request that the policy wants noted gets a Record when it's known who asks,
// which travels in the request's context. Whoever decides something about the request annotates it. At each stage of the
// request the Record writes an event: a line of JSON. The policy is read and asked by Kubernetes' own code.
//
// # What is never noted
//
// Headers, which is where credentials are, but User-Agent and the addresses in X-Forwarded-For and X-Real-Ip, which become sourceIPs
// unchecked. The bodies of TokenReviews and of what creates tokens, at any level.
// Secrets are what the policy makes of them.
//
// # Goroutines
//
// Each Log has one, which writes; Close waits for it, for at most closeTimeout. Requests hand their events to it. In the blocking modes they wait, at most
// writeTimeout, and not at all while a write hangs. The library that rotates files keeps a goroutine of its own, for ever.
//
// # Locks
//
// Record.mu is held while the request waits for its event to be written, so that the events of one request are in order. sink.mu
// is a leaf.
//
// # Bounds
//
// Events that wait (Batch.BufferSize, maxQueuedBytes), an event (Log.maxEvent), a body (MaxBody), annotations
// (maxAnnotations), the policy (maxPolicy). What is beyond them is lost, counted and logged; a body is left out, and the event
// says so.
package audit
