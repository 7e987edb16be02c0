package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// turns lets the writes of one key wait for each other. Each write reads the object, changes it, and stores it if nobody
// else has written meanwhile. Without turns, only one of many writes at once would succeed, and the others would begin
// again. Only speed depends on turns: etcd compares the revision in any case. The zero value is ready.
type turns struct {
	mu     sync.Mutex // guards queues and their length and last
	queues map[string]*queue

	waiting atomic.Int64 // writers that wait for their turn
	lapsed  atomic.Int64 // writes that went on without one
}

// queue is the queue of the writers of one key. The last one to leave drops it.
type queue struct {
	length int            // writers in it, with the one that has its turn
	turn   chan struct{}  // capacity 1; full while a writer has its turn. Waiting writers are served in order. Never closed
	last   *cacher.Object // what the last writer stored, which the cache may not have yet; nil for nothing
}

// maxTurnWait bounds how long a write waits for those before it. After that it writes without a turn: a hook may be
// slow, or may itself wait for a write of the same key. The reason for 5 s: 200 writes at once, kube-apiserver's bound,
// take a slow disk 4 s.
const maxTurnWait = 5 * time.Second

// take waits for the turn to write a key. last is what the writer before stored, nil for nothing. The caller calls end
// once, with what it stored, or nil for nothing. The error is ctx's.
func (t *turns) take(ctx context.Context, key string) (last *cacher.Object, end func(stored *cacher.Object), err error) {
	q := t.join(key)
	mine, err := t.wait(ctx, q)
	if !mine {
		end = func(*cacher.Object) { t.leave(key, q, nil) }
		if err != nil {
			end(nil)
		}
		return nil, end, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return q.last, func(stored *cacher.Object) {
		t.leave(key, q, stored)
		<-q.turn
	}, nil
}

// wait waits for the turn, at most maxTurnWait. mine tells whether it came; the error is ctx's.
func (t *turns) wait(ctx context.Context, q *queue) (mine bool, err error) {
	select {
	case q.turn <- struct{}{}: // nobody else is here
		return true, nil
	default:
	}
	t.waiting.Add(1)
	defer t.waiting.Add(-1)
	patience := time.NewTimer(maxTurnWait)
	defer patience.Stop()
	select {
	case q.turn <- struct{}{}:
		return true, nil
	case <-patience.C:
		t.lapsed.Add(1)
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (t *turns) join(key string) *queue {
	t.mu.Lock()
	defer t.mu.Unlock()
	q := t.queues[key]
	if q == nil {
		if t.queues == nil {
			t.queues = map[string]*queue{}
		}
		q = &queue{turn: make(chan struct{}, 1)}
		t.queues[key] = q
	}
	q.length++
	return q
}

func (t *turns) leave(key string, q *queue, stored *cacher.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stored != nil {
		q.last = stored
	}
	if q.length--; q.length == 0 {
		delete(t.queues, key)
	}
}
