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
	mu     sync.Mutex // guards the rest
	start  time.Time  // of the first use; zero before
	rounds map[int64]*round
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
	s.beginLocked()
	n := s.roundOf(at)
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
		n := s.roundOf(a.at)
		if r := s.rounds[n]; r != nil && r.due == a.due { // else it has gone off
			if r.users--; r.users == 0 {
				delete(s.rounds, n)
			}
		}
	}
}

// beginLocked makes now the start, at the first use; mu must be held.
func (s *Sweeper) beginLocked() {
	if s.rounds == nil {
		s.start, s.rounds = time.Now(), map[int64]*round{}
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
			s.sweep(now)
		}
	}
}

func (s *Sweeper) sweep(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := int64(now.Sub(s.start) / sweepInterval)
	for n, r := range s.rounds {
		if n <= last {
			close(r.due)
			delete(s.rounds, n)
		}
	}
}
