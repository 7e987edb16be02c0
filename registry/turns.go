package registry

import (
	"context"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// turns lets the writes of one key wait for each other. Each reads the object, changes it and writes it if nobody
// else has written meanwhile: of many at once all but one would have done that in vain, again and again. Nothing but
// speed depends on it: etcd compares the revision in any case. The zero value is ready.
type turns struct {
	mu    sync.Mutex // guards lines and what is in them
	lines map[string]*line
}

// line is who writes one key. It's there as long as anybody is in it.
type line struct {
	length int            // how many are in it, with the one whose turn it is
	turn   chan struct{}  // of capacity 1, full while it's somebody's turn; who waits to fill it is served in order
	last   *cacher.Object // what the last of them left, which the cache may not have yet; nil for nothing
}

// maxTurnWait bounds how long a write waits for those before it. After that it tries its luck: a hook may be slow, or
// wait itself for a write of the same key. 200 writes at once, kube-apiserver's bound, take a slow disk 4 s.
const maxTurnWait = 5 * time.Second

// take waits for the turn to write a key. It returns what the one before left, nil for nothing, and the function that
// ends the turn with what is stored by then. The error is ctx's.
func (t *turns) take(ctx context.Context, key string) (last *cacher.Object, end func(stored *cacher.Object), err error) {
	l := t.join(key)
	mine, err := l.wait(ctx)
	if !mine {
		end = func(*cacher.Object) { t.leave(key, l, nil) }
		if err != nil {
			end(nil)
		}
		return nil, end, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return l.last, func(stored *cacher.Object) {
		t.leave(key, l, stored)
		<-l.turn
	}, nil
}

// wait tells whether the turn came.
func (l *line) wait(ctx context.Context) (mine bool, err error) {
	select {
	case l.turn <- struct{}{}: // nobody else is here
		return true, nil
	default:
	}
	patience := time.NewTimer(maxTurnWait)
	defer patience.Stop()
	select {
	case l.turn <- struct{}{}:
		return true, nil
	case <-patience.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (t *turns) join(key string) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.lines[key]
	if l == nil {
		if t.lines == nil {
			t.lines = map[string]*line{}
		}
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[key] = l
	}
	l.length++
	return l
}

func (t *turns) leave(key string, l *line, stored *cacher.Object) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if stored != nil {
		l.last = stored
	}
	if l.length--; l.length == 0 {
		delete(t.lines, key)
	}
}
