// Package fair shares a number of seats between flows, so that none shuts out the others. A flow is what one user does, or
// one address.
//
// # The rules
//
//   - A flow may have as many seats as it leaves free (Limits.Times of them, where that's more than one). So one flow alone
//     gets half of the seats, two get a third each, and whoever comes next finds some that are free. A flow that has none
//     gets one while there is one.
//   - A request that gets no seat waits. When seats are given back, the flow that has the fewest comes first, and among
//     those with as many each in turn. The requests of one flow come in the order in which they arrived.
//   - What waits is bounded, for a flow and for all of a level.
//   - Seats belong to levels. Some are reserved for one level, and the others go to whichever level needs them first, so a
//     level that is full takes nothing of what another has reserved.
//
// Kubernetes does the same with a number of queues over which it deals flows out, and with seats that levels borrow of each
// other every ten seconds (KEP 1040). Its queues only decide who comes next, though: one flow can have all seats, and others
// wait until it gives one back. And its implementation takes 9 us of CPU for a request, which is 30 times what this takes
// (BenchmarkEnter).
//
// Weights (weights.go) are a semaphore for memory, of which one flow has at most half. What waits for them has no bound of its own:
// whoever asks has a seat, and seats are bounded.
//
// # Locks
//
// A Pool has one mutex, and so have Weights. Both are leaves. Nothing is waited for while one is held.
package fair

import (
	"container/heap"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// The reasons for which a request gets no seat, named as kube-apiserver names them.
var (
	// ErrFull is for a request that may not even wait.
	ErrFull = errors.New("queue-full")
	// ErrTimeout is for a request that has waited long enough.
	ErrTimeout = errors.New("time-out")
)

// Flow names what is served in order: requests that one rule has put together, of one user or address.
type Flow struct{ Rule, Who string }

// flowKey is the key of a context's Flow.
type flowKey struct{}

// NewContext returns a context that says to which flow what is done in it belongs.
func NewContext(ctx context.Context, f Flow) context.Context {
	return context.WithValue(ctx, flowKey{}, f)
}

// FromContext returns the flow of a context; the zero value without one.
func FromContext(ctx context.Context) Flow {
	f, _ := ctx.Value(flowKey{}).(Flow)
	return f
}

// Limits are what a level may have.
type Limits struct {
	Reserved int // seats that no other level gets
	Most     int // seats at most, with those that other levels could have
	PerFlow  int // requests of one flow that may wait
	Waiting  int // requests of all flows that may wait
	Times    int // how many times what it leaves free one flow may have; 0 for once
}

// Pool is a number of seats for several levels.
type Pool struct {
	mu      sync.Mutex // guards the following, and all of the levels and their flows
	shared  int        // seats that no level has reserved
	lent    int        // of those, how many are taken
	waiting int        // requests of all levels
	levels  []*Level
}

// Level is a part of a Pool.
type Level struct {
	pool    *Pool
	listed  bool // among the pool's levels
	limits  Limits
	used    int
	waiting int
	turn    uint64 // grows with each request that was waiting and got a seat
	flows   map[Flow]*account
	queue   queue // the flows that have requests waiting
	spare   []*account
}

// account is of a flow that has seats, or requests that wait.
type account struct {
	name    Flow
	seats   int
	turn    uint64 // of the level, when the flow came or last got a seat that it had waited for
	at      int    // in the level's queue
	waiters []*waiter
}

// waiter is a request that waits.
type waiter struct {
	seats int
	ready chan struct{} // closed when it has got its seats
	got   bool
}

// Seat is what a request has. The zero value is none.
type Seat struct {
	level *Level
	flow  *account
	seats int
}

// NewPool returns a pool of which so many seats are reserved for no level.
func NewPool(shared int) *Pool { return &Pool{shared: shared} }

// NewLevel returns the only level of a pool of its own: seats that nobody else takes.
func NewLevel(l Limits) *Level {
	l.Reserved = l.Most
	return NewPool(0).Add(l)
}

// Add adds a level to a pool.
func (p *Pool) Add(l Limits) *Level {
	p.mu.Lock()
	defer p.mu.Unlock()
	level := &Level{pool: p, limits: l, flows: map[Flow]*account{}}
	level.listLocked()
	return level
}

// Share changes what the levels of a pool may have, and how many seats none of them has reserved. Seats that are taken stay
// so. A level that isn't named has nothing reserved any more; its requests go on with seats that are shared.
func (p *Pool) Share(shared int, limits map[*Level]Limits) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shared, p.lent = shared, 0
	for l, may := range limits {
		l.limits = may
		l.listLocked()
	}
	p.levels = slices.DeleteFunc(p.levels, func(l *Level) bool {
		if _, named := limits[l]; !named {
			l.limits.Reserved = 0
			l.listed = l.used > 0 || l.waiting > 0
		}
		p.lent += l.borrowedLocked()
		return !l.listed
	})
	p.dispatchLocked()
}

// Enter gives a request its seats. It waits for them for as long as wait says, at most until ctx ends. The error is
// ErrFull, ErrTimeout or that of ctx. A Seat must be given back.
func (l *Level) Enter(ctx context.Context, name Flow, seats int, wait time.Duration) (Seat, error) {
	p := l.pool
	p.mu.Lock()
	f := l.accountOfLocked(name)
	if len(f.waiters) == 0 && l.mayLocked(f, seats) {
		l.takeLocked(f, seats)
		p.mu.Unlock()
		return Seat{l, f, seats}, nil
	}
	if wait <= 0 || len(f.waiters) >= l.limits.PerFlow || l.waiting >= l.limits.Waiting {
		l.forgetLocked(f)
		p.mu.Unlock()
		return Seat{}, ErrFull
	}
	w := &waiter{seats: seats, ready: make(chan struct{})}
	if f.waiters = append(f.waiters, w); len(f.waiters) == 1 {
		heap.Push(&l.queue, f)
	}
	l.waiting++
	p.waiting++
	l.listLocked()
	p.mu.Unlock()

	limit := time.NewTimer(wait)
	defer limit.Stop()
	var err error
	select {
	case <-w.ready:
		return Seat{l, f, seats}, nil
	case <-limit.C:
		err = ErrTimeout
	case <-ctx.Done():
		err = ctx.Err()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.got { // meanwhile
		if ctx.Err() == nil {
			return Seat{l, f, seats}, nil
		}
		l.giveLocked(f, seats)
		return Seat{}, err
	}
	l.removeLocked(f, slices.Index(f.waiters, w))
	l.forgetLocked(f)
	p.dispatchLocked() // what waited behind a wide request
	return Seat{}, err
}

// Leave gives seats back, unless that was done before. It can be called for the zero value.
func (s *Seat) Leave() {
	l := s.level
	if l == nil {
		return
	}
	s.level = nil
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	l.giveLocked(s.flow, s.seats)
}

// Held tells whether there is something to give back.
func (s *Seat) Held() bool { return s.level != nil }

// Taken returns how many seats of a level are taken.
func (l *Level) Taken() int {
	used, _ := l.Now()
	return used
}

// Now returns how many seats of a level are taken, and how many requests wait.
func (l *Level) Now() (used, waiting int) {
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	return l.used, l.waiting
}

// listLocked puts a level among those of its pool. One that isn't named any more may have left them, and get a last request.
func (l *Level) listLocked() {
	if !l.listed {
		l.listed = true
		l.pool.levels = append(l.pool.levels, l)
	}
}

// accountOfLocked returns the state of a flow.
func (l *Level) accountOfLocked(name Flow) *account {
	f := l.flows[name]
	if f == nil {
		if n := len(l.spare); n > 0 {
			f, l.spare = l.spare[n-1], l.spare[:n-1]
		} else {
			f = &account{}
		}
		*f = account{name: name, turn: l.turn, waiters: f.waiters[:0]}
		l.flows[name] = f
	}
	return f
}

// maxSpare is how many flows a level keeps for the next ones, so that a flow of one request costs no memory.
const maxSpare = 64

// forgetLocked drops a flow that has nothing.
func (l *Level) forgetLocked(f *account) {
	if f.seats > 0 || len(f.waiters) > 0 {
		return
	}
	delete(l.flows, f.name)
	if len(l.spare) < maxSpare {
		l.spare = append(l.spare, f)
	}
}

// borrowedLocked is how many seats a level has beyond those that it has reserved.
func (l *Level) borrowedLocked() int { return max(l.used-l.limits.Reserved, 0) }

// mayLocked tells whether a flow may have so many seats more.
func (l *Level) mayLocked(f *account, seats int) bool {
	free := min(max(l.limits.Reserved-l.used, 0)+l.pool.shared-l.pool.lent, l.limits.Most-l.used)
	if f.seats == 0 {
		return free > 0 // a request that is wider begins all the same, and the next ones wait longer
	}
	return f.seats+seats <= max(l.limits.Times, 1)*(free-seats)
}

func (l *Level) takeLocked(f *account, seats int) {
	l.pool.lent -= l.borrowedLocked()
	l.used += seats
	f.seats += seats
	l.pool.lent += l.borrowedLocked()
}

func (l *Level) giveLocked(f *account, seats int) {
	l.pool.lent -= l.borrowedLocked()
	l.used -= seats
	f.seats -= seats
	l.pool.lent += l.borrowedLocked()
	if len(f.waiters) > 0 {
		heap.Fix(&l.queue, f.at)
	} else {
		l.forgetLocked(f)
	}
	l.pool.dispatchLocked()
}

// removeLocked takes a request out of those of its flow that wait.
func (l *Level) removeLocked(f *account, i int) {
	f.waiters = slices.Delete(f.waiters, i, i+1)
	l.waiting--
	l.pool.waiting--
	if len(f.waiters) == 0 {
		heap.Remove(&l.queue, f.at)
	}
}

// dispatchLocked gives free seats to those who wait.
func (p *Pool) dispatchLocked() {
	if p.waiting == 0 {
		return
	}
	for _, l := range p.levels {
		for len(l.queue) > 0 {
			f := l.queue[0]
			w := f.waiters[0]
			if !l.mayLocked(f, w.seats) {
				break
			}
			l.turn++
			f.turn = l.turn
			l.takeLocked(f, w.seats)
			if l.removeLocked(f, 0); len(f.waiters) > 0 {
				heap.Fix(&l.queue, f.at)
			}
			w.got = true
			close(w.ready)
		}
	}
}

// queue is a heap of flows with requests that wait: the one that comes first is at the front.
type queue []*account

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	if q[i].seats != q[j].seats {
		return q[i].seats < q[j].seats
	}
	return q[i].turn < q[j].turn
}
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}
func (q *queue) Push(x any) {
	f := x.(*account)
	f.at = len(*q)
	*q = append(*q, f)
}
func (q *queue) Pop() any {
	last := len(*q) - 1
	f := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return f
}
