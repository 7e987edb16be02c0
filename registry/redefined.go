package registry

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// A definition may change while a request for its objects runs. A request is answered under the definition that is
// current at its end.
//
// Every write of a custom resource compares the definition's revision in its transaction, as a create does
// (see conditions). So an object whose revision is above that of the definition's last change was written under that
// definition, and is in the form that its schema gives: it can be read by copying. Older objects are converted when
// they're first read (see kube.Conversion).

// ErrChanged means that the definition has changed since the endpoint was looked up. No client sees it: Current handles it.
var ErrChanged = errors.New("the definition has changed")

// Current runs a verb. If the definition changes meanwhile, or everything is reset, it runs the verb again on the endpoint
// that is served then.
func Current[T any](ctx context.Context, e *Endpoint, verb func(ctx context.Context, e *Endpoint) (T, error)) (T, error) {
	for {
		pinned, mine := e.Res.Registry.Store.Pin(ctx)
		res, err := verb(pinned, e)
		if !errors.Is(err, ErrChanged) && !(mine && errors.Is(err, storage.ErrReplaced)) {
			return res, err
		}
		var none T
		if _, err := e.Res.Registry.Cacher.Barrier(ctx); err != nil {
			return none, e.Fail("", err)
		}
		e.Res.Registry.Definitions.Sync()
		if e, err = e.Res.Registry.Lookup(ctx, e.Path()); err != nil {
			return none, err
		}
	}
}
