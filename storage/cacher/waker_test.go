package cacher

import (
	"slices"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// sleeping returns a group's cohorts with so many members, all of which sleep, and those.
func sleeping(w *waker, members int) (*group, []*sleeper) {
	g := &group{members: members}
	all := make([]*sleeper, members)
	for i := range all {
		all[i] = &sleeper{cohort: g.joinLocked()}
	}
	for _, s := range all {
		s.sleep(s.cohort.news.Load(), w)
	}
	return g, all
}

// wokenOf counts the sleepers whose news have come.
func wokenOf(all []*sleeper) (n int) {
	for _, s := range all {
		select {
		case <-s.until.come:
			n++
		default:
		}
	}
	return n
}

// TestPace: the time between two wake-ups of a cohort grows with its group's members up to a bound. A group of one cohort
// is woken at once.
func TestPace(t *testing.T) {
	for _, tc := range []struct {
		name    string
		members int
		pace    time.Duration
	}{
		{"one member", 1, 0},
		{"one cohort", cohortSize, 0},
		{"two cohorts", cohortSize + 1, 2 * cohortSize * memberPace},
		{"three cohorts", 3 * cohortSize, 3 * cohortSize * memberPace},
		{"a thousand", 1000, maxPace},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &waker{pending: make(chan struct{}, 1)}
			g, all := sleeping(w, tc.members)
			first := all[:min(len(all), cohortSize)] // the first cohort's
			now := time.Now()
			at := func(after time.Duration) time.Duration {
				g.awake.Store(true)
				w.held = append(w.held[:0], g.queueLocked(nil)[:1]...)
				g.cohorts[0].queued.Store(true)
				for _, h := range g.cohorts[1:] {
					h.queued.Store(false)
				}
				return w.wakeDue(now.Add(after))
			}
			at(0)
			if n := wokenOf(first); n != len(first) {
				t.Fatalf("at first %d of %d are woken", n, len(first))
			}
			for _, s := range first {
				s.awake()
				s.sleep(s.cohort.news.Load(), w)
			}
			if w.busy.Load() != 0 {
				t.Fatalf("%d are busy, and all sleep", w.busy.Load())
			}
			if tc.pace > 0 {
				early := tc.pace - 10*time.Microsecond
				if next := at(early); wokenOf(first) != 0 || len(w.held) != 1 || next != min(10*time.Microsecond, maxHeld) {
					t.Fatalf("after %v %d are woken, %d cohorts are held, the next try is in %v", early, wokenOf(first), len(w.held), next)
				}
				w.wakeDue(now.Add(tc.pace))
			} else {
				at(0)
			}
			if n := wokenOf(first); n != len(first) || len(w.held) != 0 {
				t.Errorf("after %v %d of %d are woken, and %d cohorts are held", tc.pace, n, len(first), len(w.held))
			}
		})
	}
}

// TestHeldCohorts: while maxBusy members haven't finished writing the next cohort waits, for as long as one of them takes,
// and no longer than maxHeld.
func TestHeldCohorts(t *testing.T) {
	begin := func(t *testing.T) (w *waker, busy, waiting []*sleeper, now time.Time) {
		w, now = &waker{pending: make(chan struct{}, 1)}, time.Now()
		g, all := sleeping(w, maxBusy+cohortSize)
		w.held = g.queueLocked(nil)
		if next := w.wakeDue(now); next > maxHeld {
			t.Errorf("the next try is in %v", next)
		}
		busy, waiting = all[:maxBusy], all[maxBusy:]
		if n := wokenOf(busy); n != maxBusy || wokenOf(waiting) != 0 || len(w.held) != 1 {
			t.Fatalf("%d of the first %d are woken and %d of the others, and %d cohorts are held", n, maxBusy, wokenOf(waiting), len(w.held))
		}
		return w, busy, waiting, now
	}
	t.Run("one finishes", func(t *testing.T) {
		w, busy, waiting, now := begin(t)
		busy[0].awake()
		busy[0].sleep(busy[0].cohort.news.Load(), w)
		select {
		case <-w.pending:
		default:
			t.Fatal("nobody tells the waker")
		}
		if w.wakeDue(now.Add(maxHeld / 2)); wokenOf(waiting) != len(waiting) {
			t.Errorf("%d of %d are woken", wokenOf(waiting), len(waiting))
		}
	})
	t.Run("none finishes", func(t *testing.T) {
		w, busy, waiting, now := begin(t)
		if w.wakeDue(now.Add(maxHeld - 1)); wokenOf(waiting) != 0 {
			t.Fatal("they're woken before maxHeld")
		}
		if w.wakeDue(now.Add(maxHeld)); wokenOf(waiting) != len(waiting) {
			t.Fatalf("after maxHeld %d of %d are woken", wokenOf(waiting), len(waiting))
		}
		if w.stuck != maxBusy {
			t.Errorf("%d count as stuck, want %d", w.stuck, maxBusy)
		}
		// Those that nobody waits for don't count when they finish, either.
		for _, s := range busy {
			s.awake()
			s.done(w)
		}
		if w.mayWake(now.Add(maxHeld)); w.stuck > w.busy.Load() || w.busy.Load() != int64(len(waiting)) {
			t.Errorf("%d are stuck and %d busy, of %d", w.stuck, w.busy.Load(), len(waiting))
		}
	})
}

// TestQueuedOnce: an event queues those cohorts of a group that aren't queued: each once, however many events come before the waker takes it, and
// again after that.
func TestQueuedOnce(t *testing.T) {
	b := newBench(defaultBounds)
	for range 3 * cohortSize {
		b.watch(t, query{}, WatchOptions{Start: StartNow})
	}
	w := &b.cacher.waker
	event := func(want int) {
		t.Helper()
		b.rev++
		b.cacher.feed.applyAll([]storage.Change{{KeyValue: storage.KeyValue{Key: string(widgets) + "ns1/a", Value: widget("a", ""), Revision: b.rev}}})
		b.cacher.feed.moveTo(b.rev)
		if len(w.queue) != want {
			t.Errorf("%d cohorts are queued, want %d", len(w.queue), want)
		}
	}
	for range 3 {
		event(3)
		event(3)
		b.wakeAll()
	}
	event(3)
	one := w.queue[1]
	w.queue = slices.Delete(w.queue, 1, 2)
	one.wake(time.Now(), &w.busy)
	event(3)
	b.watch(t, query{}, WatchOptions{Start: StartNow})
	event(4)
	if pace := w.queue[0].pace.Load(); pace == 0 || pace != w.queue[3].pace.Load() {
		t.Errorf("the paces are %d and %d", pace, w.queue[3].pace.Load())
	}
}
