package registry

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

const (
	// pacing is the least time between two passes of a controller that waits for finalizers. Every write wakes such a
	// controller.
	pacing = 100 * time.Millisecond
	// retryPause is how long a controller waits after an error, so that one that stays doesn't fill the log.
	retryPause = 500 * time.Millisecond
	// DeletersAtOnce is how many objects the deletion of a collection deletes at the same time, a client's or a
	// controller's: etcd stores writes that come together with one fsync.
	DeletersAtOnce = 16
)

// follow calls pass at once and then whenever the resource has changed, until ctx ends. While pass says that
// something is pending, it's called whenever anything at all has changed.
func (r *Registry) follow(ctx context.Context, res *resource, pass func(ctx context.Context) (pending bool, err error)) {
	changes := &changes{resource: res}
	defer changes.close()
	for ctx.Err() == nil {
		// Before the pass: what comes after this is a wake-up.
		at := r.cacher.Position()
		news, err := changes.listen(ctx)
		var pending bool
		if err == nil {
			pending, err = pass(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			r.log.Warn("a controller failed and tries again", "resource", res.plural, "error", err)
			pause(ctx, retryPause)
		case pending:
			pause(ctx, pacing)
			r.waitForChange(ctx, at, news)
		default:
			select {
			case <-news:
			case <-ctx.Done():
			}
		}
	}
}

// waitForChange returns when the feed is past a position, when news is closed, or when ctx ends.
func (r *Registry) waitForChange(ctx context.Context, at storage.Revision, news <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() {
		select {
		case <-news:
			cancel()
		case <-ctx.Done():
		}
	})
	_ = r.cacher.WaitFor(ctx, at+1) // an error is ctx's end, or shows again in the next pass
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// changes tells that a resource has changed. It's a watch whose events nobody reads.
type changes struct {
	resource *resource
	cursor   *cacher.Cursor
	buf      []byte
}

// listen returns a channel that's closed at the next change after the call.
func (c *changes) listen(ctx context.Context) (<-chan struct{}, error) {
	for {
		if c.cursor == nil {
			view := &cacher.View{}
			cursor, err := c.resource.cache.Open(ctx, cacher.WatchOptions{View: view, Start: cacher.StartNow})
			if err != nil {
				return nil, err
			}
			c.cursor = cursor
		}
		_, news, err := c.cursor.Next(ctx, c.buf[:0])
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil: // io.EOF and an expired history too: begin again
			c.close()
			if !errors.Is(err, io.EOF) && !errors.Is(err, watchstream.ErrExpired) {
				return nil, err
			}
		case news != nil:
			return news, nil
		}
	}
}

func (c *changes) close() {
	if c.cursor != nil {
		c.cursor.Close()
		c.cursor = nil
	}
}

// deleteAll deletes the objects whose key has the prefix, as a client would. left is how many remain because finalizers
// hold them.
func (r *Registry) deleteAll(ctx context.Context, res *resource, prefix string) (left int, err error) {
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(DeletersAtOnce)
	var mu sync.Mutex // guards last
	var last storage.Revision
	for o := range res.cache.Snapshot().All(prefix) {
		if o.DeletionTimestamp != "" && o.Err == nil {
			continue
		}
		work.Go(func() error {
			d := deletion{write: res.storage.own(o), opts: &metav1.DeleteOptions{}}
			stored, err := d.inTurn(working, func(old *cacher.Object) (outcome, error) { return d.decide(working, old) })
			if errors.Is(err, storage.ErrNotFound) || errors.Is(err, errChanged) { // it counts as left
				return nil
			}
			if err != nil {
				return err
			}
			mu.Lock()
			last = max(last, stored.Revision)
			mu.Unlock()
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return 0, err
	}
	if err := r.cacher.WaitFor(ctx, last); err != nil {
		return 0, err
	}
	for range res.cache.Snapshot().All(prefix) {
		left++
	}
	return left, nil
}
