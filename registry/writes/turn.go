package writes

import (
	"context"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// readTurn reads the turn in which the write decides what its object takes, and waits until the caches have all that was taken
// before. An attempt after the first one reads it from the store: it may have begun again because the turn was over.
func (w *write) readTurn(ctx context.Context) (err error) {
	t := w.Res.Turn
	if t == nil || w.dryRun {
		return nil
	}
	if err := t.End(ctx); err != nil {
		return err
	}
	if first := w.turn.Key == ""; first && !t.Passes {
		w.turn = storage.Condition{Key: t.Key, Revision: t.Known()}
		return nil
	}
	w.turn.Key = t.Key
	if w.turn.Revision, err = t.Read(ctx); err != nil {
		return err
	}
	if err := w.WaitFor(ctx, w.turn.Revision); err != nil {
		return err
	}
	w.Res.Registry.Definitions.CatchUp()
	return nil
}

// inItsTurn returns a context with which the write is done only in the turn that was read, if it takes something.
func (w *write) inItsTurn(ctx context.Context) context.Context {
	switch t := w.Res.Turn; {
	case w.turn.Key == "", w.Typed != nil && w.Typed.Guard.Claim != nil && w.settle == nil:
		return ctx
	case t.Passes:
		return storage.WithTurn(ctx, w.turn)
	}
	return storage.InTurn(ctx, w.turn)
}

// claim takes what only the object may have, if its type says so. It's refused only by what the caches have by now: somebody may just have given
// back what it asks for.
func (d *draft) claim(ctx context.Context) (err error) {
	if d.Typed == nil || d.Typed.Guard.Claim == nil || d.Subresource != registry.Whole {
		return nil
	}
	d.settled(nil) // an earlier attempt
	if d.settle, err = d.Typed.ClaimFor(d.obj, d.next, d.prev, d.dryRun); err == nil || d.settle != nil || d.dryRun {
		return err
	}
	if err := d.Freshen(ctx); err != nil {
		return err
	}
	if d.obj, err = d.Typed.FromObject(d.next); err != nil { // without what the first try has given it
		return err
	}
	d.settle, err = d.Typed.ClaimFor(d.obj, d.next, d.prev, d.dryRun)
	return err
}

// settled ends what was claimed for an object, if anything was. stored is the object, with revision 0 or nil if it isn't known to
// be stored.
func (w *write) settled(stored *kube.Object) {
	settle := w.settle
	if w.settle = nil; settle == nil {
		return
	}
	switch t := w.Res.Turn; {
	case w.told.unknown && !t.Passes:
		t.Leave(w.turn.Revision, settle)
	case stored == nil: // also if nobody knows, where the next write takes the turn: then it has excluded this one, or sees its object
		settle(0)
	default:
		settle(stored.Revision)
	}
}
