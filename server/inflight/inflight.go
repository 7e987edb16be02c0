// Package inflight counts the requests that a server works for, by class, so that its end can wait for them. It starts no goroutine. Its lock is a
// leaf.
package inflight

import (
	"net/http"
	"sync"
	"sync/atomic"
)

// Class is how a request counts.
type Class int

// The classes.
const (
	Read Class = iota
	Write
	Long    // what nobody waits for at the end: watches, streams, and what waits for the controllers
	Classes // how many there are
)

// ClassOf is the class of a request's method.
func ClassOf(r *http.Request) Class {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return Read
	}
	return Write
}

// Requests counts those that have come and aren't answered, with those that wait for a seat. After drain every request
// is refused.
type Requests struct {
	Writing atomic.Int64 // writes that have a seat

	mu       sync.Mutex // guards the following
	count    [Classes]int
	draining bool
	idle     chan struct{} // closed when draining and no reads and writes are left
}

// New returns a count of none.
func New() *Requests { return &Requests{idle: make(chan struct{})} }

// Enter counts a request, or reports that it can't be served any more. Each true must be followed by a Leave.
func (f *Requests) Enter(c Class) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return false
	}
	f.count[c]++
	return true
}

// Leave ends what Enter has begun.
func (f *Requests) Leave(c Class) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[c]--
	f.closeIfIdleLocked()
}

// Drain refuses new requests from now on. The channel is closed when all but the watches are done.
func (f *Requests) Drain() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.draining {
		f.draining = true
		f.closeIfIdleLocked()
	}
	return f.idle
}

// closeIfIdleLocked closes idle at the one moment when draining begins or the last request leaves: after
// that nobody enters, so nobody but watches leaves.
func (f *Requests) closeIfIdleLocked() {
	if f.draining && f.count[Read] == 0 && f.count[Write] == 0 {
		select {
		case <-f.idle:
		default:
			close(f.idle)
		}
	}
}

// Now returns how many requests of a class are under way.
func (f *Requests) Now(c Class) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[c]
}
