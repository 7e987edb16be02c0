package controllers

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// reader reads everything that happens, once for all controllers. It's one goroutine.
type reader struct {
	controllers *Controllers
	handled     atomic.Int64 // all controllers were told every change up to this revision; 0 while they're told the state
	bell        bell         // rings when handled has moved, and when a queue has done something
	// served is what is served, with each definition that the controllers were told of.
	served atomic.Pointer[registry.Catalog]

	mu       sync.Mutex // guards deleting
	deleting map[string]*kube.Object
}

// run tells the controllers the state and then every change, until ctx ends, whose error it returns.
func (r *reader) run(ctx context.Context) error {
	tape := r.controllers.cacher.Tape()
	defer tape.Close()
	defer r.handled.Store(0) // what happens from then on nobody handles
	r.begin()
	for whole := false; ; {
		events, upTo, err := tape.Next(ctx)
		if errors.Is(err, watchstream.ErrExpired) {
			r.controllers.log.Debug("the controllers fell behind and read everything anew")
			r.begin()
			whole = false
			continue
		}
		if err != nil {
			return err
		}
		for i := range events {
			r.observe(&events[i])
		}
		if !whole && upTo > 0 {
			whole = true
			for _, k := range r.controllers.all {
				k.complete()
			}
		}
		r.handled.Store(int64(upTo))
		r.bell.ring()
	}
}

func (r *reader) begin() {
	r.handled.Store(0)
	r.served.Store(r.controllers.registry.Served()) // the tape has taken its state before
	r.mu.Lock()
	r.deleting = map[string]*kube.Object{}
	r.mu.Unlock()
	for _, k := range r.controllers.all {
		k.begin()
	}
}

// forget lets go of what was read.
func (r *reader) forget() {
	r.served.Store(&registry.Catalog{})
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleting = nil
}

func (r *reader) observe(e *cacher.Event) {
	if e.Prefix == definitionsPrefix { // no controller hears of a definition, or of what comes after it, without its catalog
		r.served.Store(r.controllers.registry.Served())
	}
	is, was := beingDeleted(e.Cur), beingDeleted(e.Prev)
	if is || was {
		r.mu.Lock()
		if is {
			r.deleting[e.Cur.Key] = e.Cur
		} else {
			delete(r.deleting, e.Object().Key)
		}
		r.mu.Unlock()
	}
	for _, k := range r.controllers.all {
		k.observe(e)
	}
}

// beingDeleted tells whether an object is marked as being deleted.
func beingDeleted(o *kube.Object) bool { return o != nil && o.DeletionTimestamp != "" }

// position returns the revision up to which all controllers were told every change.
func (r *reader) position() storage.Revision { return storage.Revision(r.handled.Load()) }

// bell wakes everybody who waits for it. The zero value is ready.
type bell struct {
	mu   sync.Mutex    // guards next
	next chan struct{} // closed by the next ring; nil while nobody waits
}

// wait returns a channel that the next ring closes.
func (b *bell) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *bell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
