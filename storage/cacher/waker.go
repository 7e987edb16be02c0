package cacher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Waking. A thousand watchers that become runnable at once stand in one queue before everything else
// that the process has to do: each write passes several goroutines, and would wait for all the watchers
// at each. So the members of a group are woken a cohort at a time, the next when most of the last have
// come to rest. Writes keep their pace, and while the cohorts have their turns news gather: who is woken
// late takes several events with one write to the socket, which is what a watcher costs.

const (
	// cohortSize is how many members of a group are woken together.
	cohortSize = 32
	// maxBusy is how many woken members may be under way when one more cohort is woken.
	maxBusy = 64
	// maxHeld is how long a cohort waits for members that don't come to rest: they're held up by their
	// sockets, which is no reason for others to wait.
	maxHeld = 2 * time.Millisecond
)

// cohort is those members of a group that are woken together.
type cohort struct {
	members int // guarded by Resource.mu

	queued atomic.Bool          // it's with the waker
	bell   atomic.Pointer[bell] // replaced under mu
	mu     sync.Mutex           // guards asleep, and its agreement with bell
	asleep int                  // members that wait for the bell
}

// bell is a round of news: closed when there are some.
type bell struct{ rung chan struct{} }

func newBell() *bell { return &bell{make(chan struct{})} }

// wake rings the bell, and returns how many members that makes busy.
func (h *cohort) wake(busy *atomic.Int64) {
	h.queued.Store(false)
	h.mu.Lock()
	old := h.bell.Swap(newBell())
	busy.Add(int64(h.asleep))
	h.asleep = 0
	h.mu.Unlock()
	close(old.rung)
}

// joinLocked finds a cohort with room, or makes one; Resource.mu must be held for writing.
func (g *group) joinLocked() *cohort {
	if n := len(g.cohorts); n == 0 || g.cohorts[n-1].members == cohortSize {
		h := &cohort{}
		h.bell.Store(newBell())
		g.cohorts = append(g.cohorts, h)
	}
	h := g.cohorts[len(g.cohorts)-1]
	h.members++
	return h
}

// leaveLocked gives up a place; Resource.mu must be held for writing.
func (g *group) leaveLocked(h *cohort) {
	i, last := slices.Index(g.cohorts, h), len(g.cohorts)-1
	g.cohorts[i], g.cohorts[last] = g.cohorts[last], h
	if h.members--; h.members == 0 {
		g.cohorts[last] = nil
		g.cohorts = g.cohorts[:last]
	}
}

// queueLocked adds those of the group's cohorts that aren't with the waker yet; Resource.mu must be held.
func (g *group) queueLocked(dirty []*cohort) []*cohort {
	for _, h := range g.cohorts {
		if !h.queued.Load() && h.queued.CompareAndSwap(false, true) {
			dirty = append(dirty, h)
		}
	}
	return dirty
}

// rest is how a cursor waits: whether its cohort counts it as asleep, or the waker as busy.
type rest struct {
	cohort *cohort
	bell   *bell // the one it sleeps by; nil while it's awake
	busy   bool
}

// sleep counts the cursor as asleep, unless the bell has been rung since it looked for news.
func (s *rest) sleep(b *bell, w *waker) {
	h := s.cohort
	h.mu.Lock()
	if h.bell.Load() == b {
		h.asleep++
		s.bell = b
	}
	h.mu.Unlock()
	s.done(w)
}

// awake ends the sleep: by the bell, which has counted the cursor as busy, or for another reason.
func (s *rest) awake() {
	if s.bell == nil {
		return
	}
	h := s.cohort
	h.mu.Lock()
	if h.bell.Load() == s.bell {
		h.asleep--
	} else {
		s.busy = true
	}
	h.mu.Unlock()
	s.bell = nil
}

// done counts the cursor as no longer busy.
func (s *rest) done(w *waker) {
	if !s.busy {
		return
	}
	s.busy = false
	w.busy.Add(-1)
	if w.holding.Load() && w.holding.CompareAndSwap(true, false) {
		w.ring()
	}
}

// waker wakes cohorts, in a goroutine of its own.
type waker struct {
	bell    chan struct{} // capacity 1
	busy    atomic.Int64  // members that were woken and haven't come to rest
	holding atomic.Bool   // a cohort waits for some of them to

	mu    sync.Mutex // guards queue
	queue []*cohort
}

// wake hands cohorts to the waker.
func (w *waker) wake(cohorts []*cohort) {
	if len(cohorts) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, cohorts...)
	w.mu.Unlock()
	w.ring()
}

func (w *waker) ring() {
	select {
	case w.bell <- struct{}{}:
	default:
	}
}

func (w *waker) run(ctx context.Context) {
	var held []*cohort // in the order in which they're to be woken
	var stuck int64    // members that were busy for so long that they don't count
	patience := time.NewTimer(0)
	defer patience.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.bell:
		case <-patience.C:
			stuck = w.busy.Load()
		}
		w.mu.Lock()
		held, w.queue = append(held, w.queue...), nil
		w.mu.Unlock()
		for len(held) > 0 {
			busy := w.busy.Load()
			if stuck = min(stuck, busy); busy-stuck >= maxBusy {
				break
			}
			held[0].wake(&w.busy)
			held = held[1:]
		}
		if len(held) > 0 {
			patience.Reset(maxHeld)
			if w.holding.Store(true); w.busy.Load()-stuck < maxBusy { // one came to rest meanwhile
				w.ring()
			}
		}
	}
}
