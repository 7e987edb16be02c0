package cacher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Waking. What a watcher costs is a write to its socket, whether that has one event or several. So a group with
// many members isn't woken more often than it takes to keep their writes to a part of a core: what comes
// faster they take several at a time. A group of one cohort is woken at once.
//
// A thousand watchers that become runnable at once are in one queue, before everything else that the process has
// to do. A write passes several goroutines, and would wait for all these watchers at each. So the members of a group are woken a cohort at a time, the next when most of the last have
// come to rest. Writes keep their pace, and while the cohorts have their turns news gather.

const (
	// cohortSize is how many members of a group are woken together.
	cohortSize = 32
	// maxBusy is how many woken members may be under way when one more cohort is woken.
	maxBusy = 64
	// memberPace is how much time a group leaves between two wake-ups for each of its members, some
	// three times of what the write to a socket takes, and maxPace the most.
	memberPace = 50 * time.Microsecond
	maxPace    = 5 * time.Millisecond
	// maxHeld is how long a cohort waits for members that don't come to rest: they're held up by their
	// sockets, which is no reason for others to wait.
	maxHeld = 2 * time.Millisecond
)

// cohort is those members of a group that are woken together.
type cohort struct {
	members int // guarded by Resource.mu

	pace   atomic.Int64         // of its group, in nanoseconds
	woken  time.Time            // the waker's own: when it was last woken
	queued atomic.Bool          // it's with the waker
	news   atomic.Pointer[news] // the next; replaced under mu
	mu     sync.Mutex           // guards asleep, and its agreement with news
	asleep int                  // members that wait for the news
}

// news is a channel that's closed when there are some.
type news struct{ come chan struct{} }

func noNews() *news { return &news{make(chan struct{})} }

// wake tells the members of news, and counts those that are busy by that.
func (h *cohort) wake(now time.Time, busy *atomic.Int64) {
	h.woken = now
	h.queued.Store(false)
	h.mu.Lock()
	old := h.news.Swap(noNews())
	busy.Add(int64(h.asleep))
	h.asleep = 0
	h.mu.Unlock()
	close(old.come)
}

// joinLocked finds a cohort with room, or makes one; Resource.mu must be held for writing.
func (g *group) joinLocked() *cohort {
	if n := len(g.cohorts); n == 0 || g.cohorts[n-1].members == cohortSize {
		h := &cohort{}
		h.news.Store(noNews())
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
	var pace time.Duration
	if n := len(g.cohorts); n > 1 {
		pace = min(time.Duration(n)*cohortSize*memberPace, maxPace)
	}
	for _, h := range g.cohorts {
		h.pace.Store(int64(pace))
		if !h.queued.Load() && h.queued.CompareAndSwap(false, true) {
			dirty = append(dirty, h)
		}
	}
	return dirty
}

// sleeper is how a cursor waits: whether its cohort counts it as asleep, or the waker as busy.
type sleeper struct {
	cohort *cohort
	until  *news // what it waits for; nil while it's awake
	busy   bool
}

// sleep counts the cursor as asleep until there are news, unless they have come since it looked.
func (s *sleeper) sleep(until *news, w *waker) {
	h := s.cohort
	h.mu.Lock()
	if h.news.Load() == until {
		h.asleep++
		s.until = until
	}
	h.mu.Unlock()
	s.done(w)
}

// awake ends the sleep: by the news, which have counted the cursor as busy, or for another reason.
func (s *sleeper) awake() {
	if s.until == nil {
		return
	}
	h := s.cohort
	h.mu.Lock()
	if h.news.Load() == s.until {
		h.asleep--
	} else {
		s.busy = true
	}
	h.mu.Unlock()
	s.until = nil
}

// done counts the cursor as no longer busy.
func (s *sleeper) done(w *waker) {
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

	// the waker's own
	held  []*cohort // to be woken
	stuck int64     // members that were busy for so long that they don't count
	full  time.Time // since when there has been no room; zero when there is
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
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.bell:
		case <-again.C:
		}
		w.mu.Lock()
		w.held, w.queue = append(w.held, w.queue...), nil
		w.mu.Unlock()
		if next := w.wakeDue(time.Now()); len(w.held) > 0 {
			again.Reset(next)
		}
	}
}

// wakeDue wakes the cohorts whose time has come, as far as there is room for more busy members, and returns
// after what time to try again.
func (w *waker) wakeDue(now time.Time) (next time.Duration) {
	next = maxHeld
	held := w.held
	w.held = w.held[:0]
	for i, h := range held {
		if wait := time.Duration(h.pace.Load()) - now.Sub(h.woken); wait > 0 {
			next = min(next, wait)
			w.held = append(w.held, h)
			continue
		}
		if !w.mayWake(now) {
			w.held = append(w.held, held[i:]...)
			break
		}
		h.wake(now, &w.busy)
	}
	clear(held[len(w.held):])
	return next
}

// mayWake tells whether one more cohort may be woken. If not, the waker is told when that changes.
func (w *waker) mayWake(now time.Time) bool {
	busy := w.busy.Load()
	w.stuck = min(w.stuck, busy)
	if busy-w.stuck < maxBusy {
		w.full = time.Time{}
		return true
	}
	switch {
	case w.full.IsZero():
		w.full = now
	case now.Sub(w.full) >= maxHeld:
		w.stuck, w.full = busy, time.Time{}
		return true
	}
	if w.holding.Store(true); w.busy.Load()-w.stuck < maxBusy { // one came to rest meanwhile
		w.ring()
	}
	return false
}
