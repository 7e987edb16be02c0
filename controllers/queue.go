package controllers

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry/writes"
)

const (
	// workersAtOnce is how many keys of one queue are worked on at the same time: as many as a deletion of a collection
	// deletes, because etcd stores writes that come together with one sync.
	workersAtOnce = writes.DeletersAtOnce
	// firstRetry and lastRetry bound how long a key that failed waits for its next try. The time doubles with each try.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 30 * time.Second
	// complaints is how many failures of one key in a row it takes until the log says so. Conflicts pass by themselves.
	complaints = 5
)

// queue has the keys that a controller has to work on: each once, however often it's added. A key that fails is tried
// again after a while, and holds up no other. A key that is added while it's worked on is worked on again after that.
//
// There are goroutines only while there are keys to work on, at most workersAtOnce.
type queue[K comparable] struct {
	log  *slog.Logger
	work func(ctx context.Context, k K) error // an error is a reason to try again
	bell *bell                                // rings when a key is done
	tell queueMetrics

	mu      sync.Mutex // guards all below
	entries map[K]*entry
	ready   []K             // those to be worked on now, the oldest first
	workers int             // goroutines
	ctx     context.Context // the workers'; nil before run and after its end
	running sync.WaitGroup  // the workers; Add is called under mu while ctx is set
}

// entry is a key in a queue.
type entry struct {
	state    entryState
	again    bool        // it was added while it's worked on
	failures int         // in a row
	cause    error       // of the last failure
	due      *time.Timer // of a key that waits for its time, else nil
	at       time.Time   // when due fires
	since    time.Time   // when it became ready
}

type entryState int

const (
	waiting entryState = iota // for its time
	isReady                   // in ready
	working                   // by a worker
)

// add queues a key for now. A key that waits for its next try after a failure is tried now, too: whoever adds it knows of
// something new.
func (q *queue[K]) add(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(k)
}

func (q *queue[K]) addLocked(k K) {
	e := q.entries[k]
	switch {
	case e == nil:
		e = q.newLocked(k)
	case e.state == working:
		e.again = true
		return
	case e.state == isReady:
		return
	}
	e.stop()
	e.state, e.since = isReady, time.Now()
	q.ready = append(q.ready, k)
	q.tell.added(len(q.ready))
	q.startLocked()
}

// newLocked returns the entry of a key that isn't in the queue yet.
func (q *queue[K]) newLocked(k K) *entry {
	if q.entries == nil {
		q.entries = map[K]*entry{}
	}
	e := &entry{}
	q.entries[k] = e
	return e
}

// addAfter queues a key for some time later. If it's queued for an even later time, that's made earlier.
func (q *queue[K]) addAfter(k K, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := q.entries[k]
	if d <= 0 || e != nil && e.state != waiting {
		q.addLocked(k)
		return
	}
	if e == nil {
		e = q.newLocked(k)
	}
	if e.due == nil || time.Until(e.at) > d {
		q.waitLocked(k, e, d)
	}
}

// drop forgets a key that waits for its time. One that is ready or worked on stays.
func (q *queue[K]) drop(k K) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if e := q.entries[k]; e != nil && e.state == waiting {
		e.stop()
		delete(q.entries, k)
	}
}

// stop stops the timer of a key that waits.
func (e *entry) stop() {
	if e.due != nil {
		e.due.Stop()
		e.due = nil
	}
}

// startLocked starts one more worker if there is work for one.
func (q *queue[K]) startLocked() {
	if q.ctx == nil || q.workers == workersAtOnce || len(q.ready) == 0 {
		return
	}
	q.workers++
	ctx := q.ctx
	q.running.Go(func() { q.workAll(ctx) })
}

// run works on the keys until ctx ends, and then forgets those that are left. It may be called again: whoever calls it tells
// the controllers the whole state by then.
func (q *queue[K]) run(ctx context.Context) {
	q.mu.Lock()
	q.ctx = ctx
	for range min(len(q.ready), workersAtOnce) {
		q.startLocked()
	}
	q.mu.Unlock()
	<-ctx.Done()
	q.mu.Lock()
	q.ctx = nil
	for _, e := range q.entries {
		e.stop()
	}
	q.mu.Unlock()
	q.running.Wait()
	q.forget() // also a key which failed meanwhile
}

// forget forgets all keys. It's called when nobody works.
func (q *queue[K]) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, e := range q.entries {
		e.stop()
	}
	q.entries, q.ready = nil, nil
	q.tell.left(0)
}

// workAll works on keys until none is ready.
func (q *queue[K]) workAll(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.ready) > 0 && ctx.Err() == nil {
		k := q.ready[0]
		q.ready = q.ready[1:]
		e := q.entries[k]
		e.state, e.again = working, false
		q.tell.begun(e.since, len(q.ready))
		q.mu.Unlock()
		began := time.Now()
		err := guarded(q.log, func() error { return q.work(ctx, k) })
		q.tell.done(began, err != nil)
		if err != nil && ctx.Err() == nil {
			q.complain(k, e.failures+1, err)
		}
		q.mu.Lock()
		q.finishLocked(k, e, err)
		q.bell.ring()
	}
	if len(q.ready) == 0 {
		q.ready = nil // lets go of the array
	}
	q.workers--
}

// guarded runs a piece of work, and makes an error of its panic. One object that nobody expected is one key that fails, is
// logged and is tried again; if it ended the process, it would do so after each restart, because the work is found again. The
// reader isn't guarded: a controller that has half of an event would act on what was never there.
func guarded(log *slog.Logger, work func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.Error("a controller panicked, and tries again", "panic", cause, "stack", string(debug.Stack()))
			err = fmt.Errorf("a controller panicked, see the log: %v", cause)
		}
	}()
	return work()
}

// complain logs a key that keeps failing: at the fifth failure in a row, and then at each power of two.
func (q *queue[K]) complain(k K, failures int, err error) {
	if failures >= complaints && failures&(failures-1) == 0 || failures == complaints {
		q.log.Warn("a controller keeps failing and tries again", "key", k, "failures", failures, "error", err)
	}
}

// finishLocked says what becomes of a key that was worked on.
func (q *queue[K]) finishLocked(k K, e *entry, err error) {
	e.state = waiting
	if e.cause = err; err != nil {
		e.failures++
	} else {
		e.failures = 0
	}
	switch {
	case e.again: // also after a failure, of which it may be the end
		q.addLocked(k)
	case err != nil:
		q.waitLocked(k, e, backOff(e.failures))
	default:
		delete(q.entries, k)
	}
}

// waitLocked makes a key ready after a time.
func (q *queue[K]) waitLocked(k K, e *entry, d time.Duration) {
	e.stop()
	var due *time.Timer
	due = time.AfterFunc(d, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		if e.due == due { // otherwise it was stopped too late
			q.addLocked(k)
		}
	})
	e.due, e.at = due, time.Now().Add(d)
}

// maxShift is where doubling ends: lastRetry is reached long before, and a larger shift would overflow.
const maxShift = 16

// backOff is how long a key waits after so many failures: twice as long each time, and up to half as long again, so that
// those that failed together don't come back together.
func backOff(failures int) time.Duration {
	d := lastRetry
	if shift := failures - 1; shift < maxShift {
		d = min(firstRetry<<shift, lastRetry)
	}
	return d + rand.N(d/2)
}

// idle tells whether no key is left.
func (q *queue[K]) idle() bool { return q.length() == 0 }

// length returns how many keys are left, with those that wait for their time.
func (q *queue[K]) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.entries)
}

// each calls f for the keys in the queue, in no order, until it returns false. cause is what the key failed with last, or
// nil. f must not call the queue.
func (q *queue[K]) each(f func(k K, cause error) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for k, e := range q.entries {
		if !f(k, e.cause) {
			return
		}
	}
}
