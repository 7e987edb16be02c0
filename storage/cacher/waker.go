package cacher

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Waking. A thousand watchers that become runnable at once fill the scheduler's queue, and every goroutine of a
// write then waits for all of them. So a group's members are woken in cohorts, the next when most of the last have
// written. What happens meanwhile they get in one batch.
//
// One write to a socket costs the same for one event as for several. So each cohort of a group with many members
// is woken at most once in the group's pace (see memberPace): the writes then take only a part of a core, and events
// that come faster are written several at a time. A group of one cohort is woken at once.

const (
	// cohortSize is how many members of a group are woken together: few enough that a write waits for them only
	// about half a millisecond, and so many that the feed's cost stays small.
	cohortSize = 32
	// maxBusy is how many woken members may still be writing when one more cohort is woken: two cohorts, so that
	// the next one is runnable before the last has finished.
	maxBusy = 2 * cohortSize
	// memberPace is how much time a group leaves between two wake-ups for each of its members: some three times
	// of what the write to a socket takes. maxPace bounds the time for a large group, which delays its events.
	memberPace = 50 * time.Microsecond
	maxPace    = 5 * time.Millisecond
	// maxHeld is how long a cohort waits for members that haven't finished writing. By then their sockets are
	// full, which is no reason for others to wait.
	maxHeld = 2 * time.Millisecond
)

// cohort is some members of a group, which are woken together.
type cohort struct {
	members int // guarded by Resource.mu

	pace   atomic.Int64         // the least time between two wake-ups, in nanoseconds; the same for the group's cohorts
	woken  time.Time            // the waker's own: when the cohort was last woken
	queued atomic.Bool          // the waker has the cohort in its queue
	news   atomic.Pointer[news] // what the members wait for next; replaced under mu
	mu     sync.Mutex           // guards asleep, which counts those that wait for the present news
	asleep int
}

// news is a channel that the waker closes when there may be something to read.
type news struct{ come chan struct{} }

func noNews() *news { return &news{make(chan struct{})} }

// wake closes the cohort's channel, and counts the members that it wakes as busy.
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

// joinLocked adds a member to the last cohort, or to a new one when that's full; Resource.mu must be held for writing.
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

// leaveLocked takes a member out of its cohort, and makes that the last one, so that the next member fills the place;
// Resource.mu must be held for writing.
func (g *group) leaveLocked(h *cohort) {
	i, last := slices.Index(g.cohorts, h), len(g.cohorts)-1
	g.cohorts[i], g.cohorts[last] = g.cohorts[last], h
	if h.members--; h.members == 0 {
		g.cohorts[last] = nil
		g.cohorts = g.cohorts[:last]
	}
}

// queueLocked adds those of the group's cohorts to dirty that the waker doesn't have yet; Resource.mu must be held.
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

// sleeper says how a cursor is counted: by its cohort as asleep, by the waker as busy, or by neither.
type sleeper struct {
	cohort *cohort
	until  *news // what it waits for; nil while it's awake
	busy   bool
}

// sleep counts the cursor as asleep, unless its channel has been closed since it looked for events.
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

// awake ends the sleep. If the cohort was woken meanwhile, wake has counted the cursor as busy. Otherwise the cursor
// was woken by something else, such as its deadline, and leaves the count of the sleepers.
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
		w.signal()
	}
}

// waker wakes cohorts, in a goroutine of its own.
type waker struct {
	bell    chan struct{} // capacity 1: one pending signal is enough, the queue has the rest
	busy    atomic.Int64  // members that were woken and haven't finished writing
	holding atomic.Bool   // a cohort waits until some of them have

	mu    sync.Mutex // guards queue
	queue []*cohort

	// the waker's own
	held  []*cohort // taken from the queue, and not woken yet
	stuck int64     // how many of busy have been writing for so long that nobody waits for them
	full  time.Time // since when too many are busy; zero when that isn't so
}

// wake hands cohorts to the waker.
func (w *waker) wake(cohorts []*cohort) {
	if len(cohorts) == 0 {
		return
	}
	w.mu.Lock()
	w.queue = append(w.queue, cohorts...)
	w.mu.Unlock()
	w.signal()
}

func (w *waker) signal() {
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

// wakeDue wakes the cohorts whose time has come, until too many members are busy. It returns after what time to try
// again.
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

// mayWake tells whether one more cohort may be woken. If not, done rings the bell when that changes.
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
	if w.holding.Store(true); w.busy.Load()-w.stuck < maxBusy { // one finished writing meanwhile
		w.signal()
	}
	return false
}
