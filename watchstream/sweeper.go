package watchstream

import (
	"context"
	"sync"
	"time"
)

// Sweeper wakes many streams at their times with one timer. Streams that are due within the same second share
// a channel. The nil Sweeper gives each stream a timer.
//
// Its seconds are counted from its first use on the monotonic clock, so setting the machine's clock moves no alarm.
// It holds a channel only while some stream waits for it, so there is at most one for each stream.
//
// The zero Sweeper works once its owner calls Run: until then it wakes nobody.
type Sweeper struct {
	// Clock, if set, is a clock that stands still, by which bookmarks are due. Whoever moves it calls Sweep. Streams end by the machine's all the same.
	Clock func() time.Time

	mu     sync.Mutex // guards the rest
	start  time.Time  // of the first use; zero before
	rounds map[int64]*round
	swept  int64         // the last round whose second has come
	awake  int           // alarms that have gone off and weren't stopped: their streams are at work
	asleep chan struct{} // closed when awake is 0; nil if nobody waits for that
}

// round is the alarms that are due within one second.
type round struct {
	due   chan struct{} // closed by sweep when the second has come; if nobody waits any more, stop drops the round
	users int           // alarms that haven't been stopped
}

// sweepInterval is how late a sweeper may wake a stream: a bookmark or a deadline can wait for a second.
const sweepInterval = time.Second

// alarm is a stream's hold on a time. The zero alarm never goes off.
type alarm struct {
	at    time.Time
	due   <-chan struct{} // closed at that time or up to sweepInterval later; nil for never
	timer *time.Timer     // of an alarm without a sweeper
}

// set returns an alarm for a time, or one that never goes off for the zero time. It must be stopped.
func (s *Sweeper) set(at time.Time) alarm {
	if at.IsZero() {
		return alarm{}
	}
	if s == nil {
		due := make(chan struct{})
		return alarm{at, due, time.AfterFunc(time.Until(at), func() { close(due) })}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.setLocked(at)
}

func (s *Sweeper) setLocked(at time.Time) alarm {
	s.beginLocked()
	n := s.roundOf(at)
	if n <= s.swept {
		s.awake++
		due := make(chan struct{})
		close(due)
		return alarm{at: at, due: due}
	}
	r := s.rounds[n]
	if r == nil {
		r = &round{due: make(chan struct{})}
		s.rounds[n] = r
	}
	r.users++
	return alarm{at: at, due: r.due}
}

// stop releases what set took.
func (s *Sweeper) stop(a alarm) {
	switch {
	case a.timer != nil:
		a.timer.Stop()
	case a.due != nil:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.stopLocked(a)
		s.tellLocked()
	}
}

func (s *Sweeper) stopLocked(a alarm) {
	n := s.roundOf(a.at)
	if r := s.rounds[n]; r == nil || r.due != a.due { // it has gone off
		s.awake--
	} else if r.users--; r.users == 0 {
		delete(s.rounds, n)
	}
}

// tellLocked tells who waits that no stream is at work any more; mu must be held.
func (s *Sweeper) tellLocked() {
	if s.awake == 0 && s.asleep != nil {
		close(s.asleep)
		s.asleep = nil
	}
}

// move is stop and then set, with nothing in between: there is no moment at which the stream has no alarm and isn't at work.
func (s *Sweeper) move(a alarm, at time.Time) alarm {
	if s == nil || a.due == nil || at.IsZero() {
		s.stop(a)
		return s.set(at)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopLocked(a)
	next := s.setLocked(at)
	s.tellLocked()
	return next
}

// stands tells whether the clock stands still.
func (s *Sweeper) stands() bool { return s != nil && s.Clock != nil }

// Now is the time by which bookmarks are due.
func (s *Sweeper) Now() time.Time {
	if !s.stands() {
		return time.Now()
	}
	return s.Clock()
}

// beginLocked makes now the start, at the first use; mu must be held.
func (s *Sweeper) beginLocked() {
	if s.rounds == nil {
		s.start, s.rounds = s.Now(), map[int64]*round{}
	}
}

// roundOf returns in which interval after its start the sweeper notices that a time has come; mu must be held.
func (s *Sweeper) roundOf(at time.Time) int64 {
	after := at.Sub(s.start)
	n := int64(after / sweepInterval)
	if after%sweepInterval > 0 {
		n++
	}
	return n
}

// Run closes the channels that are due until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	s.mu.Lock()
	s.beginLocked() // so that ticks and rounds begin together, if no stream was first
	s.mu.Unlock()
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			if !s.stands() {
				s.sweep(now)
			}
		}
	}
}

// Sweep wakes the streams that are due by a Clock that was moved, and returns when those that are awake have given their bookmarks to their sinks. The
// error is ctx's.
func (s *Sweeper) Sweep(ctx context.Context) error {
	s.mu.Lock()
	s.beginLocked()
	s.mu.Unlock()
	s.sweep(s.Now())
	s.mu.Lock()
	if s.awake > 0 && s.asleep == nil {
		s.asleep = make(chan struct{})
	}
	asleep := s.asleep
	s.mu.Unlock()
	if asleep == nil {
		return nil
	}
	select {
	case <-asleep:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Sweeper) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(now.Sub(s.start) / sweepInterval)
	s.swept = max(s.swept, last)
	for n, r := range s.rounds {
		if n <= last {
			close(r.due)
			s.awake += r.users
			delete(s.rounds, n)
		}
	}
}
