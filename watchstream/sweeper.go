package watchstream

import (
	"context"
	"sync"
	"time"
)

// Sweeper wakes many streams at their times with one timer: who is due within the same second shares a
// channel. The nil Sweeper gives everyone a timer.
type Sweeper struct {
	mu      sync.Mutex // guards buckets
	buckets map[int64]chan struct{}
}

// sweepInterval is how exactly a sweeper wakes.
const sweepInterval = time.Second

// NewSweeper returns a sweeper; its owner calls Run.
func NewSweeper() *Sweeper { return &Sweeper{buckets: map[int64]chan struct{}{}} }

// At returns a channel that's closed at a time or up to a second later; never for the zero time. stop
// releases what was taken for that.
func (s *Sweeper) At(t time.Time) (due <-chan struct{}, stop func()) {
	if t.IsZero() {
		return nil, func() {}
	}
	if s == nil {
		ch := make(chan struct{})
		timer := time.AfterFunc(time.Until(t), func() { close(ch) })
		return ch, func() { timer.Stop() }
	}
	bucket := t.Add(sweepInterval-1).UnixNano() / int64(sweepInterval)
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := s.buckets[bucket]
	if ch == nil {
		ch = make(chan struct{})
		s.buckets[bucket] = ch
	}
	return ch, func() {}
}

// Run closes the channels that are due until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
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
	for bucket, ch := range s.buckets {
		if bucket*int64(sweepInterval) <= now.UnixNano() {
			close(ch)
			delete(s.buckets, bucket)
		}
	}
}
