package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// What a registry does besides when other processes write to its store, too (Options.Shared): replicas, which are all one to
// a client. A client that was answered by one of them may ask any other next. So before a request is judged, the caches get
// everything that was acknowledged by then on any replica: definitions and namespaces, rights, webhooks, policies, quotas. A
// request waits for that once (Fresh), and what it reads afterwards needn't wait again.

// freshKey is the key under which a context says that the caches are as new as the request.
type freshKey struct{}

// Fresh waits until the caches have everything that was acknowledged before the call, on whichever replica, and serves what
// the definitions say by then. Consistent reads with the context that it returns don't wait again. In a registry that isn't
// shared it does nothing, because there every write waits for what others depend on. The error is a Status: 503 if the store
// can't say what was acknowledged, 504 if the caches don't get there in time.
func (r *Registry) Fresh(ctx context.Context) (context.Context, error) {
	if !r.shared {
		return ctx, nil
	}
	rev, err := r.barrier(ctx)
	e := r.namespaces.res.storage // of any resource: all errors are about storage
	if err != nil {
		return nil, e.fail("", err)
	}
	if err := e.waitFor(ctx, rev); err != nil {
		return nil, err
	}
	r.definitions.catchUp()
	return context.WithValue(ctx, freshKey{}, true), nil
}

// barrier is storage.Store.Barrier, which in a shared store may wait for a majority that isn't there: for at most
// freshnessWait.
func (r *Registry) barrier(ctx context.Context) (storage.Revision, error) {
	if !r.shared {
		return r.store.Barrier(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, freshnessWait)
	defer cancel()
	rev, err := r.store.Barrier(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("barrier: no answer within %v: %w: %w", freshnessWait, storage.ErrUnavailable, storage.ErrNoMajority)
	}
	return rev, err
}

// isFresh tells whether Fresh has waited for the request of a context.
func isFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }

// catchUp serves what the cached definitions say if one has changed since the last time.
func (d *definitions) catchUp() {
	if d.res.cache.Changed() != storage.Revision(d.synced.Load()) {
		d.sync()
	}
}

// followPause is how long follow waits before it watches again, after a watch that couldn't begin.
const followPause = 100 * time.Millisecond

// follow serves what other processes write to definitions, and ends the watches that depend on it, until ctx ends.
func (d *definitions) follow(ctx context.Context) {
	view, frames := d.res.storage.view, []byte(nil)
	for ctx.Err() == nil {
		cursor, err := d.res.cache.Open(ctx, cacher.WatchOptions{View: view, Start: cacher.StartAfter, After: d.registry.cacher.Position()})
		if err != nil { // all that was there was replaced just now
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
			}
			continue
		}
		for err == nil {
			var news <-chan struct{}
			d.catchUp()
			if frames, news, err = cursor.Next(ctx, frames[:0]); err == nil && news != nil {
				select {
				case <-news:
				case <-ctx.Done():
				}
			}
		}
		cursor.Close()
	}
}
