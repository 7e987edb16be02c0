package registry

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// What only one object may have, an address or the names of a definition, is decided by what all objects have. Within one
// process whoever decides holds a lock. Processes that share a store decide in turns: a write that takes something has the
// condition that no other one has taken anything since the caches were looked at (storage.WithTurn). If one has, the write
// begins again. Writes that take nothing don't notice.

// turnsPrefix is where the turns are, one for each kind of objects that take something.
const turnsPrefix = storage.Own + "turns/"

// takesTurns tells whether objects of the resource take what only one may have, and others may take it, too.
func (e *Endpoint) takesTurns() bool {
	t := e.res.storage.typed
	return e.res.registry.shared && t != nil && (t.Claim != nil || t.begin != nil)
}

// readTurn reads the turn in which the write decides what its object takes, and waits until the caches have all
// that was taken before.
func (w *write) readTurn(ctx context.Context) error {
	if !w.takesTurns() || w.dryRun {
		return nil
	}
	r := w.res.registry
	w.turn = storage.Condition{Key: turnsPrefix + w.Plural + "." + w.Group}
	kv, err := r.store.Get(ctx, w.turn.Key)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	w.turn.Revision = kv.Revision // 0 if nobody has taken anything yet
	if err := w.waitFor(ctx, kv.Revision); err != nil {
		return err
	}
	r.definitions.catchUp()
	return nil
}

// inItsTurn returns a context with which the write is done only in the turn that was read, if it takes something.
func (w *write) inItsTurn(ctx context.Context) context.Context {
	if w.turn.Key == "" || w.typed != nil && w.typed.Claim != nil && w.settle == nil {
		return ctx
	}
	return storage.WithTurn(ctx, w.turn)
}
