package registry

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// What only one object may have, an address or the names of a definition, is decided by what all objects have. It's decided in
// turns: a write that takes something has the condition that no other one has taken anything since the caches were looked at
// (storage.WithTurn). If one has, the write begins again. Writes that take nothing don't notice. So of two writes that found
// the same free only one is stored, also if the client of one has left, and nobody knows whether etcd did what it asked for.
//
// Definitions always take turns. Addresses and ports do where processes share a store; within one process whoever takes some
// holds a lock, and keeps them (Type.Claim), so that Services can be written at the same time.

// turnsPrefix is where the turns are, one for each kind of objects that take something.
const turnsPrefix = storage.Own + "turns/"

// takesTurns tells whether writes of the resource's objects take something in turns.
func (e *Endpoint) takesTurns() bool {
	t := e.res.storage.typed
	return t != nil && (t.begin != nil || t.Claim != nil && e.res.registry.shared)
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
