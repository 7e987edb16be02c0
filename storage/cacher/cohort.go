package cacher

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// cohortSize is how many members of a group are woken together: few enough that a write waits for them only
	// about half a millisecond, and so many that the feed's cost stays small.
	cohortSize = 32
	// memberPace is how much time a group leaves between two wake-ups for each of its members: some three times
	// what the write to a socket takes. maxPace bounds the time for a large group, which delays its events.
	memberPace = 50 * time.Microsecond
	maxPace    = 5 * time.Millisecond
)

// cohort is some members of a group, which are woken together. That of a Merged is in each of its groups, and has no other
// member.
type cohort struct {
	awake   *atomic.Bool // its group's; nil for that of a Merged
	members int          // guarded by Resource.mu; 0 for that of a Merged

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
	if h.awake != nil {
		h.awake.Store(true) // before the news are others: see group.awake
	}
	h.mu.Lock()
	old := h.news.Swap(noNews())
	busy.Add(int64(h.asleep))
	h.asleep = 0
	h.mu.Unlock()
	close(old.come)
}

func newCohort(awake *atomic.Bool) *cohort {
	h := &cohort{awake: awake}
	h.news.Store(noNews())
	return h
}

// joinLocked adds a member to the last cohort, or to a new one when that's full; Resource.mu must be held for writing.
func (g *group) joinLocked() *cohort {
	if n := len(g.cohorts); n == 0 || g.cohorts[n-1].awake == nil || g.cohorts[n-1].members == cohortSize {
		g.cohorts = append(g.cohorts, newCohort(&g.awake))
	}
	g.awake.Store(true)
	h := g.cohorts[len(g.cohorts)-1]
	h.members++
	return h
}

// bringLocked adds a member with the cohort of its Merged, before the one that the next member fills; Resource.mu must be
// held for writing.
func (g *group) bringLocked(h *cohort) {
	g.cohorts = slices.Insert(g.cohorts, 0, h)
	g.merged++
}

// leaveLocked takes a member out of its cohort, and makes that the last one, so that the next member fills the place;
// Resource.mu must be held for writing.
func (g *group) leaveLocked(h *cohort) {
	i, last := slices.Index(g.cohorts, h), len(g.cohorts)-1
	if h.awake == nil {
		g.cohorts = slices.Delete(g.cohorts, i, i+1)
		g.merged--
		return
	}
	g.cohorts[i], g.cohorts[last] = g.cohorts[last], h
	g.awake.Store(true) // the pace is another one
	if h.members--; h.members == 0 {
		g.cohorts[last] = nil
		g.cohorts = g.cohorts[:last]
	}
}

// queueLocked adds those of the group's cohorts to dirty that the waker doesn't have yet; Resource.mu must be held.
func (g *group) queueLocked(dirty []*cohort) []*cohort {
	if !g.awake.Swap(false) && g.merged == 0 {
		return dirty
	}
	var pace time.Duration
	if n := (g.members + cohortSize - 1) / cohortSize; n > 1 {
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
