package registry

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// What only one object may have, an address or the names of a definition, is decided by what all objects have. It's decided in
// turns: a write that takes something has the condition that the turn is the one that was read before the caches were looked at.
//
// Definitions always take the turn that they write in, and so do addresses and ports where processes share a store: of two
// writes that found the same free only one is stored, and the other one begins again. Writes that take nothing don't notice.
//
// Within one process addresses and ports are held from when a write takes them until it's stored (Guard.Claim). So such writes
// leave the turn as it is, and can be done at the same time. Only what a write took of which nobody knows whether it was, or will
// be, stored stays held, and the next write that takes something ends that: it gives the turn a new revision. What was written
// in the old one is stored by then, or never will be.

// turnsPrefix is where the turns are, one for each resource whose objects take something.
const turnsPrefix = storage.Own + "turns/"

// turn is that of a resource. Its methods are safe for concurrent use.
type turn struct {
	registry *Registry
	Key      string
	Passes   bool // each write that takes something takes the turn

	// ending has capacity 1 and is full while somebody calls end. It's a channel, because waiting for it must end with the
	// request. It's never closed.
	ending chan struct{}

	mu   sync.Mutex       // guards at and open; a leaf
	at   storage.Revision // of the key, as far as is known; 0: nobody has taken the turn
	open []taken          // at most as many as writes that took something were under way at once
}

// taken is what a write took of which nobody knows whether it was, or will be, stored.
type taken struct {
	in     storage.Revision // the turn's
	settle Settle
}

// newTurn returns the turn of a resource with a type, or nil if its objects take nothing.
func newTurn(res *Resource, t *Type) *turn {
	if t.Guard.Claim == nil && t.Guard.begin == nil {
		return nil
	}
	return &turn{
		registry: res.Registry, Key: turnsPrefix + res.Plural + "." + res.Group,
		Passes: t.Guard.begin != nil || res.Registry.Shared, ending: make(chan struct{}, 1),
	}
}

// Read returns the turn's revision in the store.
func (t *turn) Read(ctx context.Context) (storage.Revision, error) {
	kv, err := t.registry.Store.Get(ctx, t.Key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return 0, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at = kv.Revision
	return t.at, nil
}

// Known returns the turn's revision as far as it's known. A write in a turn that is over isn't done, and reads it.
func (t *turn) Known() storage.Revision {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.at
}

// Leave notes what a write took in a turn of which nobody knows whether it's stored.
func (t *turn) Leave(in storage.Revision, settle Settle) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = append(t.open, taken{in, settle})
}

// left returns what was left.
func (t *turn) left() []taken {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open
}

// End ends what was left before: none of it is stored any more that the caches don't show then. A turn whose revision isn't
// theirs has excluded them: etcd does whatever it does of them either before the turn got that revision, or never.
func (t *turn) End(ctx context.Context) error {
	if len(t.left()) == 0 {
		return nil
	}
	select {
	case t.ending <- struct{}{}:
		defer func() { <-t.ending }()
	case <-ctx.Done():
		return ctx.Err()
	}
	open := t.left() // what is left from now on may be of the new turn
	now, err := t.Read(ctx)
	if err == nil && slices.ContainsFunc(open, func(o taken) bool { return o.in == now }) {
		now, err = t.pass(ctx, now)
	}
	if err != nil {
		return err
	}
	shown, err := t.registry.Cacher.Barrier(ctx)
	if err != nil {
		return err
	}
	t.mu.Lock()
	t.at, t.open = now, t.open[len(open):]
	t.mu.Unlock()
	for _, o := range open {
		o.settle(shown)
	}
	return nil
}

// pass gives the turn a new revision.
func (t *turn) pass(ctx context.Context, now storage.Revision) (storage.Revision, error) {
	if now == 0 {
		return t.registry.Store.Create(ctx, t.Key, nil)
	}
	return t.registry.Store.Update(ctx, t.Key, nil, now)
}
