package watchstream

import (
	"iter"
	"sync"
)

// Fake gives events that a test makes. Events yields them as a watch would. It's the counterpart of apimachinery's
// FakeWatcher and RaceFreeFakeWatcher. Nothing that is done after Stop has an effect, blocks or panics. The zero Fake is one as
// NewRaceFreeFake returns it.
type Fake[T any] struct {
	wait bool // until an event is taken

	mu  sync.Mutex  // guards now
	now *fakeRun[T] // nil before the first use
}

// fakeRun is a fake from its start, or from Reset, to Stop.
type fakeRun[T any] struct {
	mu      sync.Mutex // guards all below
	queue   []*fakeItem[T]
	news    chan struct{} // closed when the queue grows or the run stops
	stopped bool
}

type fakeItem[T any] struct {
	event Event[T]
	err   error
	taken chan struct{} // closed when a reader has it, or when the run stops
}

// NewFake returns a fake whose methods wait until the event is taken, or until Stop.
func NewFake[T any]() *Fake[T] { return &Fake[T]{wait: true} }

// NewRaceFreeFake returns a fake whose methods don't wait: events are queued, however many, and what is queued before Stop
// is still given.
func NewRaceFreeFake[T any]() *Fake[T] { return &Fake[T]{} }

func newFakeRun[T any]() *fakeRun[T] { return &fakeRun[T]{news: make(chan struct{})} }

// Add gives an Added event.
func (f *Fake[T]) Add(object *T) { f.Action(Event[T]{Type: Added, Object: object}) }

// Modify gives a Modified event.
func (f *Fake[T]) Modify(object *T) { f.Action(Event[T]{Type: Modified, Object: object}) }

// Delete gives a Deleted event with the last state.
func (f *Fake[T]) Delete(last *T) { f.Action(Event[T]{Type: Deleted, Object: last}) }

// Error gives an error, after which a reader's loop ends.
func (f *Fake[T]) Error(err error) { f.put(&fakeItem[T]{err: err, taken: make(chan struct{})}) }

// Action gives any event.
func (f *Fake[T]) Action(event Event[T]) {
	f.put(&fakeItem[T]{event: event, taken: make(chan struct{})})
}

func (f *Fake[T]) put(item *fakeItem[T]) {
	run := f.run()
	run.mu.Lock()
	if run.stopped {
		run.mu.Unlock()
		return
	}
	run.queue = append(run.queue, item)
	run.signal()
	run.mu.Unlock()
	if f.wait {
		<-item.taken
	}
}

// Stop ends the loops over Events.
func (f *Fake[T]) Stop() {
	run := f.run()
	run.mu.Lock()
	defer run.mu.Unlock()
	if run.stopped {
		return
	}
	run.stopped = true
	run.signal()
	if f.wait { // those who wait get their events back
		for _, item := range run.queue {
			close(item.taken)
		}
		run.queue = nil
	}
}

// Stopped tells whether Stop was called.
func (f *Fake[T]) Stopped() bool {
	run := f.run()
	run.mu.Lock()
	defer run.mu.Unlock()
	return run.stopped
}

// Reset makes the fake as new. Loops over Events that began before end as by Stop.
func (f *Fake[T]) Reset() {
	f.Stop()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = newFakeRun[T]()
}

func (f *Fake[T]) run() *fakeRun[T] {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.now == nil {
		f.now = newFakeRun[T]()
	}
	return f.now
}

// signal wakes the readers. run.mu must be held.
func (run *fakeRun[T]) signal() {
	close(run.news)
	run.news = make(chan struct{})
}

// Events yields the events until Stop. Several loops share them: each event goes to one.
func (f *Fake[T]) Events() iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		run := f.run()
		for {
			item, news := run.take()
			switch {
			case item != nil:
				if !yield(item.event, item.err) || item.err != nil {
					return
				}
			case news == nil:
				return
			default:
				<-news
			}
		}
	}
}

// take returns the next event, or what to wait for, or neither after Stop.
func (run *fakeRun[T]) take() (*fakeItem[T], <-chan struct{}) {
	run.mu.Lock()
	defer run.mu.Unlock()
	if len(run.queue) > 0 {
		item := run.queue[0]
		run.queue = run.queue[1:]
		close(item.taken)
		return item, nil
	}
	if run.stopped {
		return nil, nil
	}
	return nil, run.news
}
