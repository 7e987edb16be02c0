package recording

import (
	"context"
	"sync"
)

const (
	// windowChanges and windowBytes are how much of a file is read ahead of what is done: changes that wait for others must not stop those that
	// don't. One change may have more bytes.
	windowChanges = 4096
	windowBytes   = 64 << 20
)

// change is a line that is replayed.
type change struct {
	Line
	at    int // the line's number
	size  int
	waits int       // for how many changes; guarded by schedule.mu, as is all below
	next  []*change // those that wait for this one
	slots []*slot
	done  bool
}

// slot is what changes touch: an object, or what all have in common.
type slot struct {
	key    string
	last   *change   // the last that had it for itself
	shared []*change // those after it that share it
	users  int       // changes that aren't done
}

// schedule gives changes to workers, each when all earlier ones that touch the same are done.
type schedule struct {
	most  int // changes that aren't done
	ready chan *change

	mu     sync.Mutex // guards all below
	slots  map[string]*slot
	undone int
	bytes  int
	room   chan struct{} // closed when a change is done; nil if nobody waits
}

func newSchedule(most int) *schedule {
	return &schedule{most: most, ready: make(chan *change, most), slots: map[string]*slot{}}
}

// add waits until there is room for a change, and then has it done after those that it must wait for: it has what own names for itself, and
// shares the rest.
func (s *schedule) add(ctx context.Context, c *change, own, shares []string) error {
	s.mu.Lock()
	for s.undone >= s.most || s.undone > 0 && s.bytes+c.size > windowBytes {
		room := s.roomLocked()
		s.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		s.mu.Lock()
	}
	defer s.mu.Unlock()
	s.undone++
	s.bytes += c.size
	for _, key := range own {
		s.slotLocked(c, key).ownLocked(c)
	}
	for _, key := range shares {
		s.slotLocked(c, key).shareLocked(c)
	}
	if c.waits == 0 {
		s.ready <- c // it has room for all
	}
	return nil
}

// slotLocked returns the slot of a key, which the change touches from now on.
func (s *schedule) slotLocked(c *change, key string) *slot {
	at := s.slots[key]
	if at == nil {
		at = &slot{key: key}
		s.slots[key] = at
	}
	at.users++
	c.slots = append(c.slots, at)
	return at
}

func (s *slot) ownLocked(c *change) {
	for _, before := range s.shared {
		c.afterLocked(before)
	}
	c.afterLocked(s.last)
	s.last, s.shared = c, nil
}

func (s *slot) shareLocked(c *change) {
	c.afterLocked(s.last)
	if len(s.shared) >= 2*windowChanges { // half of them are done at least
		left := s.shared[:0]
		for _, before := range s.shared {
			if !before.done {
				left = append(left, before)
			}
		}
		clear(s.shared[len(left):])
		s.shared = left
	}
	s.shared = append(s.shared, c)
}

// afterLocked has the change wait for another.
func (c *change) afterLocked(before *change) {
	if before == nil || before.done || before == c {
		return
	}
	before.next = append(before.next, c)
	c.waits++
}

// finish says that a change is done.
func (s *schedule) finish(c *change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.done = true
	for _, next := range c.next {
		if next.waits--; next.waits == 0 {
			s.ready <- next
		}
	}
	for _, at := range c.slots {
		if at.users--; at.users == 0 {
			delete(s.slots, at.key)
		}
	}
	c.next, c.slots, c.Object = nil, nil, nil // what shares a slot with others is kept there for a while
	s.undone--
	s.bytes -= c.size
	if s.room != nil {
		close(s.room)
		s.room = nil
	}
}

// idle waits until all changes are done: workers that find their context ended finish them undone.
func (s *schedule) idle() {
	s.mu.Lock()
	for s.undone > 0 {
		room := s.roomLocked()
		s.mu.Unlock()
		<-room
		s.mu.Lock()
	}
	s.mu.Unlock()
}

// roomLocked returns what is closed when a change is done.
func (s *schedule) roomLocked() chan struct{} {
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return s.room
}
