// Package clock has the time that users see, and by which what they store comes due: the machine's, or for tests one that stands still until it's told
// to go on.
//
// What is between machines goes by the machine's clock, whatever this one says: timeouts, the ends of watches, latencies, the log. k8s.io/utils/clock
// has a fake, too. Its timers block the clock when they fire twice before anybody looks, and one that is due when it's made never fires.
//
// Goroutines: none. Locks: one, a leaf.
package clock

import (
	"sync"
	"sync/atomic"
	"time"
)

// Clock is a clock that stands still. Nil is the machine's.
type Clock struct {
	now atomic.Pointer[time.Time]

	mu    sync.Mutex    // guards moved, and who sets now
	moved chan struct{} // closed by the next Advance
}

// New returns a fake clock, which stands at the present, or the machine's.
func New(fake bool) *Clock {
	if !fake {
		return nil
	}
	return StandAt(time.Now())
}

// StandAt returns a clock that stands at a time, in UTC. So that what is stored in whole seconds is due to the second, a part of a second is cut off.
func StandAt(at time.Time) *Clock {
	at = at.UTC().Truncate(time.Second) // which has no reading of the monotonic clock
	c := &Clock{moved: make(chan struct{})}
	c.now.Store(&at)
	return c
}

// Now returns the time.
func (c *Clock) Now() time.Time {
	if c == nil {
		return time.Now()
	}
	return *c.now.Load()
}

// Fake returns Now of a clock that stands still, nil of the machine's. It's for what can't import this package.
func (c *Clock) Fake() func() time.Time {
	if c == nil {
		return nil
	}
	return c.Now
}

// Since returns how long a time is ago.
func (c *Clock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// Stands tells whether the clock stands still.
func (c *Clock) Stands() bool { return c != nil }

// Moved returns a channel that is closed when the clock is moved: to wait for a time, ask for the channel first, and then for the time. The machine's
// clock is never moved.
func (c *Clock) Moved() <-chan struct{} {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.moved
}

// Advance moves a clock that stands still, and returns what it says then.
func (c *Clock) Advance(d time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now.Load().Add(d)
	c.now.Store(&now)
	close(c.moved)
	c.moved = make(chan struct{})
	return now
}
