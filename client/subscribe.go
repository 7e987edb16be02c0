package client

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Change is what happened to an object in a cache.
type Change[T any] struct {
	Type watchstream.Type // Added, Modified or Deleted
	Key  Key
	Old  *T // the state before; for Deleted, the last known one; nil for Added
	New  *T // the state after; nil for Deleted
}

// maxPending is how many changes a subscription of EveryChange may be behind, besides what there was when it began. They keep the
// states of objects in memory.
const maxPending = 1 << 20

// Changes yields what changes in the cache, from what is in it on: that comes first, as Added. A subscriber that is slow
// gets fewer changes, each from the state that it knows to the newest one, so it's never further behind than there are
// objects. An object that was deleted and created anew is told as both. Nobody waits for a subscriber.
//
// The subscription is made when the iteration begins, and ends with it. The last thing it yields is why ctx ended, or ErrClosed
// when the cache of StartCache has ended and all has been told.
func (c *Cache[T]) Changes(ctx context.Context) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		c.subscribe(ctx, func(int) queue[T] { return &newest[T]{pending: map[Key]*pending[T]{}} }, yield)
	}
}

// EveryChange is Changes without leaving anything out. A subscriber that is more than a million changes behind gets
// ErrLagging, and no more.
func (c *Cache[T]) EveryChange(ctx context.Context) iter.Seq2[Change[T], error] {
	return func(yield func(Change[T], error) bool) {
		c.subscribe(ctx, func(objects int) queue[T] { return &every[T]{most: objects + maxPending} }, yield)
	}
}

// subscription is one subscriber's changes.
type subscription[T any] struct {
	news chan struct{} // capacity 1: rung when there are changes

	mu    sync.Mutex // guards queue
	queue queue[T]
}

// queue is the changes that a subscriber hasn't had yet.
type queue[T any] interface {
	push(Change[T])
	// take removes some and returns them, oldest first.
	take() ([]Change[T], error)
}

func (s *subscription[T]) push(change Change[T]) {
	s.mu.Lock()
	s.queue.push(change)
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default: // it has been rung
	}
}

func (s *subscription[T]) take() ([]Change[T], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.queue.take()
}

// subscribe yields changes until ctx or the cache ends, the queue fails, or the loop is left.
func (c *Cache[T]) subscribe(ctx context.Context, makeQueue func(objects int) queue[T], yield func(Change[T], error) bool) {
	s := c.enter(makeQueue)
	defer c.leave(s)
	for ended := false; ; {
		changes, err := s.take()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err == nil && ended && len(changes) == 0 {
			err = ErrClosed
		}
		if err != nil {
			yield(Change[T]{}, err)
			return
		}
		for _, change := range changes {
			if !yield(change, nil) {
				return
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-s.news:
		case <-ctx.Done():
		case <-c.ended:
			ended = true // once more: nothing is told after this
		}
	}
}

// enter adds a subscription that begins with what is in the cache.
func (c *Cache[T]) enter(makeQueue func(objects int) queue[T]) *subscription[T] {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &subscription[T]{news: make(chan struct{}, 1), queue: makeQueue(len(c.objects))}
	for key, e := range c.objects {
		s.push(Change[T]{Type: Added, Key: key, New: e.object})
	}
	if c.subscriptions == nil {
		c.subscriptions = map[*subscription[T]]struct{}{}
	}
	c.subscriptions[s] = struct{}{}
	return s
}

func (c *Cache[T]) leave(s *subscription[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.subscriptions, s)
}

// every is a queue that keeps each change, as long as there are no more than most.
type every[T any] struct {
	most    int
	changes []Change[T]
}

func (q *every[T]) push(change Change[T]) {
	if len(q.changes) <= q.most {
		q.changes = append(q.changes, change)
	}
}

func (q *every[T]) take() ([]Change[T], error) {
	if len(q.changes) > q.most {
		return nil, fmt.Errorf("%w: %d changes", ErrLagging, q.most)
	}
	changes := q.changes
	q.changes = nil
	return changes, nil
}

// newest is a queue that keeps for each object the way from the state that the subscriber knows to the newest one.
type newest[T any] struct {
	pending map[Key]*pending[T]
	order   []Key // of pending, by their first change
}

// pending is what a subscriber doesn't know yet about one key.
type pending[T any] struct {
	known   *T   // the state it knows; nil if it knows of none
	last    *T   // the last state of the object that it knows, if that was deleted
	deleted bool // the object that it knows was deleted
	now     *T   // the newest state; nil if there's none
}

func (q *newest[T]) push(change Change[T]) {
	p := q.pending[change.Key]
	if p == nil {
		p = &pending[T]{known: change.Old}
		q.pending[change.Key] = p
		q.order = append(q.order, change.Key)
	}
	if change.Type == Deleted && !p.deleted && p.known != nil {
		p.deleted, p.last = true, change.Old
	}
	p.now = change.New
}

func (q *newest[T]) take() (changes []Change[T], err error) {
	for len(q.order) > 0 && len(changes) == 0 { // what came and went leaves nothing to tell
		key := q.order[0]
		q.order = q.order[1:]
		p := q.pending[key]
		delete(q.pending, key)
		switch {
		case p.deleted:
			changes = append(changes, Change[T]{Type: Deleted, Key: key, Old: p.last})
		case p.known != nil:
			return append(changes, Change[T]{Type: Modified, Key: key, Old: p.known, New: p.now}), nil
		}
		if p.now != nil {
			changes = append(changes, Change[T]{Type: Added, Key: key, New: p.now})
		}
	}
	return changes, nil
}
