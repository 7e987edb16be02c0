package cacher

import (
	"context"
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
	// maxBusy is how many woken members may still be writing when one more cohort is woken: two cohorts, so that
	// the next one is runnable before the last has finished.
	maxBusy = 2 * cohortSize
	// maxHeld is how long a cohort waits for members that haven't finished writing. By then their sockets are
	// full, which is no reason for others to wait.
	maxHeld = 2 * time.Millisecond
)

// waker wakes cohorts, in a goroutine of its own.
type waker struct {
	pending chan struct{} // capacity 1: one pending signal is enough, the queue has the rest
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
	case w.pending <- struct{}{}:
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
		case <-w.pending:
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

// mayWake tells whether one more cohort may be woken. If not, done signals when that changes.
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
