package kv

import (
	"context"
	"errors"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/semaphore"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// gate keeps other writes out while a Replace is under way.
type gate struct {
	// open has a place for each write that etcd has, and a Replace takes all of them. It's a semaphore, because waiting for
	// it must end with the caller's context.
	open     *semaphore.Weighted
	replaces atomic.Int64 // how many there were; changed by whoever has all places
}

// gatePlaces is how many writes may be under way at once: more than there ever are.
const gatePlaces = 1 << 30

// enter lets a write in, unless the store was replaced since its context was pinned. A nil gate lets all in. leave must
// follow a nil error. Other errors are ctx's.
func (g *gate) enter(ctx context.Context) error {
	if g == nil {
		return nil
	}
	if err := g.open.Acquire(ctx, 1); err != nil {
		return err
	}
	if at, pinned := ctx.Value(pin{g}).(int64); pinned && at != g.replaces.Load() {
		g.open.Release(1)
		return storage.ErrReplaced
	}
	return nil
}

func (g *gate) leave() {
	if g != nil {
		g.open.Release(1)
	}
}

// pin is the key under which a context has the number of Replaces that there were when it was pinned.
type pin struct{ of *gate }

// AllowReplace lets Replace be called. Without it, writes pay nothing for the gate. It must be called before the first
// write, and etcd must take requests that are as large as a Replace may be.
func (w *Writer) AllowReplace() { w.gate = &gate{open: semaphore.NewWeighted(gatePlaces)} }

// Pin is storage.Store's. Without AllowReplace the store is never replaced, and ctx is as it was.
func (w *Writer) Pin(ctx context.Context) (_ context.Context, mine bool) {
	if w.gate == nil || ctx.Value(pin{w.gate}) != nil {
		return ctx, false
	}
	return context.WithValue(ctx, pin{w.gate}, w.gate.replaces.Load()), true
}

// Replace is storage.Store's. Without AllowReplace it fails.
func (w *Writer) Replace(ctx context.Context, plan func() (storage.Replacement, error)) (storage.Revision, error) {
	if w.gate == nil {
		return 0, Wrap("replace", storage.Root, errors.New("AllowReplace wasn't called"))
	}
	if err := w.gate.open.Acquire(ctx, gatePlaces); err != nil {
		return 0, Wrap("replace", storage.Root, err)
	}
	defer w.gate.open.Release(gatePlaces)
	b, err := plan()
	if err != nil {
		return 0, err
	}
	ops, err := w.operations(ctx, b)
	if err != nil {
		return 0, Wrap("replace", storage.Root, err)
	}
	res, err := w.kv.Txn(ctx).Then(ops...).Commit()
	w.gate.replaces.Add(1) // after it: who pins the new number and takes a Barrier has the caches as they are from now on
	if err != nil {
		return 0, unanswered(ctx, "replace", storage.Root, err)
	}
	return storage.Revision(res.Header.Revision), nil
}

// operations are those that etcd does for a Replacement.
func (w *Writer) operations(ctx context.Context, b storage.Replacement) ([]clientv3.Op, error) {
	ops := make([]clientv3.Op, 0, len(b.Puts)+len(b.Deletes)+1)
	for _, d := range b.Deletes {
		ops = append(ops, clientv3.OpDelete(d.First, clientv3.WithRange(d.Last+"\x00")))
	}
	for _, kv := range b.Puts {
		op, err := w.toStorage(ctx, put(kv.Key, kv.Value))
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return append(ops, clientv3.OpPut(storage.ReplacedKey, "")), nil
}
