package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Store takes what Reflect finds. Its methods are called by one goroutine at a time, and the objects are the store's.
type Store[T any] interface {
	// Replace says that the collection has exactly these objects, in this version: each is an Added. It's the first call of all,
	// and comes again when events may have been missed. The store finds out by comparing what has changed or vanished.
	Replace(state []Event[T], version string)
	// Apply says what has changed: Added, Modified or Deleted. A Bookmark says that nothing else has changed up to its
	// version.
	Apply(event Event[T])
	// Resync is called as often as the option Resync says, once the store has a state.
	Resync()
}

// Reflect keeps the store the same as the collection until ctx ends, and returns why it did.
//
// It's Track, but for where the state comes from: the beginning of a watch where the server has that (sendInitialEvents), else a
// list in pages; one line in the log says which. Then it follows. When history is gone it fetches the state again: from the last
// version it has seen on, or, if that's unknown to the server, whatever the server has. After failures it pauses, at first
// 0.8 s, at most half a minute (see Backoff), beginning anew after two minutes without one; each is logged as a warning.
// Refusals are tried again as well: what is forbidden or missing now may not be later. If ctx ends before the store has had a
// state, the error wraps the last failure, too: errors.Is then tells whether it was ErrForbidden or ErrNotFound, for example.
//
// The options narrow the collection (Labels, Fields), and say how (PageSize, Backoff, Resync, CountIn).
func Reflect[T any](ctx context.Context, from Collection[T], store Store[T], options ...Option) error {
	s := newSettings(options)
	if err := s.check(aWatch); err != nil {
		return err
	}
	s.bookmarks, s.since = true, "" // a store begins with a state
	r := &reflector[T]{store: store}
	var resync sync.WaitGroup
	defer resync.Wait()
	if s.resync > 0 {
		resync.Go(func() { r.resync(ctx, s.resync) })
	}
	var lastFailure error
	t := newTracker(from, s)
	for step, err := range t.run(ctx) {
		switch {
		case ctx.Err() != nil: // the loop ends
		case err != nil:
			lastFailure = err
			from.client.log.Warn("reflecting failed, going on", "resource", from.String(), "version", t.version, "after", t.pause.Round(time.Millisecond), "error", err)
			continue
		case step.State != nil && !r.synced:
			how := "at the beginning of a watch"
			if t.paged {
				how = "by a list in pages"
			}
			from.client.log.InfoContext(ctx, "reflecting a collection", "resource", from.String(), "state", how, "objects", len(step.State.Objects), "version", step.State.Version)
		}
		if err == nil {
			r.take(step)
		}
	}
	if r.synced || lastFailure == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: the last failure: %w", context.Cause(ctx), lastFailure)
}

// reflector is one Reflect.
type reflector[T any] struct {
	mu     sync.Mutex // guards both below: resync calls the store, too
	store  Store[T]
	synced bool // the store has had a state; only Reflect's own goroutine writes it
}

func (r *reflector[T]) take(step Step[T]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if step.State == nil {
		r.store.Apply(step.Event)
		return
	}
	r.store.Replace(step.State.Objects, step.State.Version)
	r.synced = true
}

// resync calls the store from time to time.
func (r *reflector[T]) resync(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.mu.Lock()
			if r.synced {
				r.store.Resync()
			}
			r.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}
