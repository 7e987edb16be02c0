package controllers

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// expiry deletes objects whose time is over: those whose annotation kube.TTLAnnotation says so, if annotated is set, and
// those of Go types that live so long after their last write. The second is kube-apiserver's own work (events live an
// hour), so it's never off.
//
// It deletes an object only as it was observed: if it has been written since, the deletion fails, and what was written
// decides. Etcd's leases wouldn't do: when one ends, all its keys go in one revision, and a watch that is cut off in the
// middle couldn't resume.
type expiry struct {
	queued[string] // of the keys of objects that are due
	annotated      bool
	wake           chan struct{} // capacity 1: rung when an object is due earlier than all before. Never closed
	deadlines      deadlines
}

func newExpiry(c *Controllers, annotated bool) *expiry {
	x := &expiry{annotated: annotated, wake: make(chan struct{}, 1), deadlines: newDeadlines(c.clock.Now, c.clock)}
	x.queued = newQueued(c, Expiry, c.keyed, x.work)
	return x
}

func (x *expiry) begin() { x.deadlines.begin(x.annotated, x.controllers.registry.Lifetimes()) }

func (x *expiry) observe(e *cacher.Event) {
	if x.deadlines.observe(e) {
		select {
		case x.wake <- struct{}{}:
		default:
		}
	}
}

func (x *expiry) complete() { x.deadlines.complete() }

func (x *expiry) forget() { x.deadlines.forget() }

// run queues objects when they're due.
func (x *expiry) run(ctx context.Context) {
	var working sync.WaitGroup
	defer working.Wait()
	working.Go(func() { x.queue.run(ctx) })
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		moved := x.controllers.clock.Moved()
		next, any := x.deadlines.takeDue(x.queue.add)
		if any {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-x.wake:
		case <-timer.C:
		case <-moved:
		}
	}
}

// idle tells whether nothing is due.
func (x *expiry) idle() bool { return !x.deadlines.anyDue() && x.queue.idle() }

func (x *expiry) pending(most int) []Pending {
	all := x.queued.pending(most)
	for _, key := range x.deadlines.untaken(most - len(all)) {
		all = append(all, Pending{Object: x.controllers.keyed(key), Cause: "it has expired just now"})
	}
	return all
}

// work deletes an object that is due.
func (x *expiry) work(ctx context.Context, served *registry.Catalog, key string) error {
	rev, due := x.deadlines.due(key)
	p, namespace, name, ok := storage.SplitKey(key)
	e := served.Prefix(p)
	if !due || !ok || e == nil { // without a definition it goes as well
		return nil
	}
	_, err := x.controllers.actor.act(ctx, func(ctx context.Context) (storage.Revision, error) {
		rev, _, err := writes.Of(e).Remove(ctx, writes.Removal{Namespace: namespace, Name: name, Revision: rev})
		return rev, err
	})
	switch {
	case errors.Is(err, storage.ErrNotFound), errors.Is(err, storage.ErrConflict): // observe is told, or was
		return nil
	case apierrors.IsForbidden(err): // such as the namespace "default"
		x.controllers.log.Warn("an object that has expired may not be deleted, and stays", "key", key, "error", err)
		return nil
	}
	return err
}
