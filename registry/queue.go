package registry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// writers lets the writes of one key wait for each other. Each write reads the object, changes it, and stores it if nobody
// else has written meanwhile. Without it, only one of many writes at once would succeed, and the others would begin
// again. Only speed depends on it: etcd compares the revision in any case. The zero value is ready.
type writers struct {
	mu     sync.Mutex // guards queues and their length and last
	queues map[string]*queue

	waiting atomic.Int64 // writers that wait to be at the front
	lapsed  atomic.Int64 // writes that went on without being there
}

// queue is the queue of the writers of one key. The last one to leave drops it.
type queue struct {
	length int           // writers in it, with the one at the front
	place  chan struct{} // capacity 1; full while a writer is at the front. Waiting writers are served in order. Never closed
	last   *kube.Object  // what the last writer stored, which the cache may not have yet; nil for nothing
}

// maxQueueWait bounds how long a write waits for those before it. After that it goes on without waiting: a hook may be
// slow, or may itself wait for a write of the same key. The reason for 5 s: 200 writes at once, kube-apiserver's bound,
// take a slow disk 4 s.
const maxQueueWait = 5 * time.Second

// Take waits until a write is at the front of its key's queue. last is what the writer before stored, nil for nothing. The
// caller calls end once, with what it stored, or nil for nothing. The error is ctx's.
func (w *writers) Take(ctx context.Context, key string) (last *kube.Object, end func(stored *kube.Object), err error) {
	q := w.join(key)
	mine, err := w.wait(ctx, q)
	if !mine {
		end = func(*kube.Object) { w.leave(key, q, nil) }
		if err != nil {
			end(nil)
		}
		return nil, end, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return q.last, func(stored *kube.Object) {
		w.leave(key, q, stored)
		<-q.place
	}, nil
}

// wait waits for the front, at most maxQueueWait. mine tells whether it came to that; the error is ctx's.
func (w *writers) wait(ctx context.Context, q *queue) (mine bool, err error) {
	select {
	case q.place <- struct{}{}: // nobody else is here
		return true, nil
	default:
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	patience := time.NewTimer(maxQueueWait)
	defer patience.Stop()
	select {
	case q.place <- struct{}{}:
		return true, nil
	case <-patience.C:
		w.lapsed.Add(1)
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// length returns how many keys have a queue.
func (w *writers) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queues)
}

func (w *writers) join(key string) *queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.queues[key]
	if q == nil {
		if w.queues == nil {
			w.queues = map[string]*queue{}
		}
		q = &queue{place: make(chan struct{}, 1)}
		w.queues[key] = q
	}
	q.length++
	return q
}

func (w *writers) leave(key string, q *queue, stored *kube.Object) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if stored != nil {
		q.last = stored
	}
	if q.length--; q.length == 0 {
		delete(w.queues, key)
	}
}
