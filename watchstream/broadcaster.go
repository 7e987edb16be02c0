package watchstream

import (
	"errors"
	"slices"
	"sync"
)

// ErrStopped is returned by a Broadcaster after Shutdown.
var ErrStopped = errors.New("broadcaster already stopped")

// Full is what a Broadcaster does with an event for a receiver whose queue is full.
type Full bool

// What can be done with an event for which there's no room.
const (
	WaitIfFull Full = false // wait until the receiver takes one, and so let all others wait, too
	DropIfFull Full = true  // leave it out for this receiver
)

// incomingQueue is how many events wait for distribution before Send waits, as in apimachinery's Broadcaster.
const incomingQueue = 25

// Broadcaster gives each event to many receivers, to all in the order in which it was sent. It's the counterpart of
// apimachinery's watch.Broadcaster.
//
// Make one with NewBroadcaster. A goroutine distributes; Shutdown ends it and waits for it. Nobody waits while mu is held.
type Broadcaster[T any] struct {
	queue int
	full  Full
	done  chan struct{} // closed when all is distributed

	mu       sync.Mutex    // guards incoming and closed
	changed  *sync.Cond    // of mu: incoming or closed has changed
	incoming []incoming[T] // what isn't distributed yet, in order. Send waits for a place among incomingQueue; others don't
	closed   bool

	receivers map[*Receiver[T]]struct{} // of the distributing goroutine alone
}

// incoming is an event, or something that the distributing goroutine does between two events.
type incoming[T any] struct {
	event T
	do    func()
}

// NewBroadcaster returns a broadcaster that queues so many events for each receiver before that's full.
func NewBroadcaster[T any](queue int, full Full) *Broadcaster[T] {
	b := &Broadcaster[T]{queue: queue, full: full, done: make(chan struct{}), receivers: map[*Receiver[T]]struct{}{}}
	b.changed = sync.NewCond(&b.mu)
	go b.distribute()
	return b
}

// Receiver is one end of a Broadcaster. Events wait in C.
type Receiver[T any] struct {
	// C gives the events. It's closed by Stop, and by Shutdown when all events are in it.
	C <-chan T

	c       chan T
	b       *Broadcaster[T]
	once    sync.Once
	stopped chan struct{} // closed by Stop, which frees a broadcaster that waits for this receiver
}

// Receive adds a receiver. It gets first what is given here, for which its queue always has room, and then each event that
// is sent after the call, and no event that was sent before. It returns when the receiver has been added, which may have to
// wait for events that are being distributed. After Shutdown it's ErrStopped.
func (b *Broadcaster[T]) Receive(first ...T) (*Receiver[T], error) {
	c := make(chan T, max(b.queue, roomFor(first)))
	for _, event := range first {
		c <- event
	}
	r := &Receiver[T]{C: c, c: c, b: b, stopped: make(chan struct{})}
	if !b.between(func() { b.receivers[r] = struct{}{} }) {
		return nil, ErrStopped
	}
	return r, nil
}

// roomFor is the room for what a receiver gets first, and for one event more, as in apimachinery's WatchWithPrefix. So the
// event that is sent next has room, even if the receiver hasn't read yet.
func roomFor[T any](first []T) int {
	if len(first) == 0 {
		return 0
	}
	return len(first) + 1
}

// Stop removes the receiver and closes C, in which what was queued stays. It returns when that's done, and may be called
// again. After Shutdown has begun it returns at once: Shutdown closes C.
func (r *Receiver[T]) Stop() {
	r.once.Do(func() {
		close(r.stopped)
		r.b.between(func() {
			delete(r.b.receivers, r)
			close(r.c)
		})
	})
}

// Send gives the event to all receivers. It returns when the event has its place in the order, which may have to wait for
// receivers that are full. After Shutdown it's ErrStopped, also for a Send that still waits.
func (b *Broadcaster[T]) Send(event T) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.incoming) >= incomingQueue && !b.closed {
		b.changed.Wait()
	}
	if b.closed {
		return ErrStopped
	}
	b.addLocked(incoming[T]{event: event})
	return nil
}

// TrySend is Send that gives up when the incoming queue is full: it tells whether there was a place for the event. If not,
// nobody gets it. It never waits.
func (b *Broadcaster[T]) TrySend(event T) (sent bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return false, ErrStopped
	case len(b.incoming) >= incomingQueue:
		return false, nil
	}
	b.addLocked(incoming[T]{event: event})
	return true, nil
}

// Shutdown distributes what was sent, and closes all receivers' C, in which what they haven't taken stays. It returns when
// that's done, and may be called again. If the Broadcaster waits for full receivers, it returns once those are read or
// stopped.
func (b *Broadcaster[T]) Shutdown() {
	b.mu.Lock()
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	<-b.done
}

// between has the distributing goroutine do something after the events that were sent, and waits for it. It tells whether
// that was done: after Shutdown nothing is.
func (b *Broadcaster[T]) between(do func()) bool {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return false
	}
	done := make(chan struct{})
	b.addLocked(incoming[T]{do: func() { do(); close(done) }})
	b.mu.Unlock()
	<-done
	return true
}

// addLocked puts something at the end of the order; mu must be held.
func (b *Broadcaster[T]) addLocked(in incoming[T]) {
	b.incoming = append(b.incoming, in)
	b.changed.Broadcast()
}

// next waits for what is to be distributed next. ok is false after Shutdown, when all is distributed.
func (b *Broadcaster[T]) next() (in incoming[T], ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.incoming) == 0 {
		if b.closed {
			return in, false
		}
		b.changed.Wait()
	}
	in = b.incoming[0]
	b.incoming = slices.Delete(b.incoming, 0, 1)
	b.changed.Broadcast()
	return in, true
}

func (b *Broadcaster[T]) distribute() {
	defer close(b.done)
	for in, ok := b.next(); ok; in, ok = b.next() {
		if in.do != nil {
			in.do()
			continue
		}
		for r := range b.receivers {
			b.give(r, in.event)
		}
	}
	for r := range b.receivers {
		close(r.c)
	}
}

func (b *Broadcaster[T]) give(r *Receiver[T], event T) {
	if b.full == DropIfFull {
		select {
		case r.c <- event:
		default:
		}
		return
	}
	select {
	case r.c <- event:
	case <-r.stopped:
	}
}
