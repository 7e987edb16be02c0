package remote

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// looks are linearizable reads of the marker. Everybody who needs one at a moment shares it: Barrier, and the prober.
type looks struct {
	mu     sync.Mutex // guards the rest
	next   *look      // who asks now waits for this one, which hasn't been sent; nil if nobody asked
	busy   bool       // one is under way, and next is sent after it
	closed bool
	wg     sync.WaitGroup // what sends them
}

// look is one read. Its fields are set when done is closed.
type look struct {
	done     chan struct{}
	revision storage.Revision
	err      error
}

// look returns a read that is sent after the call.
func (s *Store) look() *look {
	l := &s.looks
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		if l.closed { // send must not get it: its channel is closed
			return closedLook()
		}
		l.next = &look{done: make(chan struct{})}
	}
	next := l.next
	if !l.busy { // so the store isn't closed: next was made just now
		l.busy = true
		l.wg.Go(s.send)
	}
	return next
}

// closedLook is one that failed because the store was closed.
func closedLook() *look {
	l := &look{done: make(chan struct{}), err: fmt.Errorf("%w: the store was closed", storage.ErrUnavailable)}
	close(l.done)
	return l
}

// send sends looks until nobody asks for one.
func (s *Store) send() {
	for {
		s.looks.mu.Lock()
		l := s.looks.next
		s.looks.next, s.looks.busy = nil, l != nil
		s.looks.mu.Unlock()
		if l == nil {
			return
		}
		l.revision, l.err = s.seeMarker()
		close(l.done)
	}
}

// close lets nobody begin another look.
func (l *looks) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
}

// Barrier implements storage.Store: it asks etcd for its revision, and sees to it that Follow gets there, also if nothing
// below the prefix has it. When etcd hasn't answered for a while, Barrier doesn't ask.
func (s *Store) Barrier(ctx context.Context) (storage.Revision, error) {
	if err := s.known.down(); err != nil {
		return 0, kv.Wrap("barrier", storage.Root, err)
	}
	_, step := tracing.Begin(ctx, tracing.Barrier, "barrier")
	defer func() { step.End(ctx.Err()) }()
	l := s.look()
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-l.done:
	}
	if l.err != nil {
		return 0, kv.Wrap("barrier", storage.Root, l.err)
	}
	return l.revision, nil
}

// probeInterval is how often the store looks at etcd when nobody else does: one small read a second costs etcd next to
// nothing, and a failure shows in Health within about readTries*readTimeout.
const probeInterval = time.Second

// probe looks at etcd, now and then, so that Health knows, and a store that was replaced is noticed.
func (s *Store) probe() {
	tick := time.NewTicker(probeInterval)
	defer tick.Stop()
	wasDown := false
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		<-s.look().done
		if s.ctx.Err() != nil {
			return
		}
		err := s.Health()
		if down := err != nil; down != wasDown {
			if wasDown = down; down {
				s.log.Error("the store can't be used", "error", err)
			} else {
				s.log.Info("the store can be used again")
			}
		}
	}
}
