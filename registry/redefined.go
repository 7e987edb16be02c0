package registry

import (
	"context"
	"errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// A definition may change while a request for its objects runs. A request is answered under the definition that is
// current at its end.
//
// Every write of a custom resource compares the definition's revision in its transaction, as a create does
// (see conditions). So an object whose revision is above that of the definition's last change was written under that
// definition, and is in the form that its schema gives: it can be read by copying. Older objects are converted when
// they're first read (see kube.Conversion).

// errChanged means that the definition has changed since the endpoint was looked up. No client sees it: current handles it.
var errChanged = errors.New("the definition has changed")

// current runs a verb. If the definition changes meanwhile, or everything is reset, it runs the verb again on the endpoint
// that is served then.
func current[T any](ctx context.Context, e *Endpoint, verb func(ctx context.Context, e *Endpoint) (T, error)) (T, error) {
	for {
		pinned, mine := e.res.registry.store.Pin(ctx)
		res, err := verb(pinned, e)
		if !errors.Is(err, errChanged) && !(mine && errors.Is(err, storage.ErrReplaced)) {
			return res, err
		}
		var none T
		if _, err := e.res.registry.cacher.Barrier(ctx); err != nil {
			return none, e.fail("", err)
		}
		e.res.registry.definitions.sync()
		if e, err = e.res.registry.Lookup(ctx, e.path()); err != nil {
			return none, err
		}
	}
}

// readDefinition reads the endpoint's definition from etcd. The error is errChanged if the definition says something else
// than when the endpoint was made.
func (e *Endpoint) readDefinition(ctx context.Context) (*kube.Object, error) {
	def, err := e.res.read(ctx, e.res.condition.Key)
	if err != nil {
		return nil, err
	}
	if def == nil || def.Err != nil {
		return nil, errNotServed()
	}
	o, err := object.DecodeStored(def.Raw())
	if err != nil {
		return nil, errNotServed()
	}
	if o.Meta.Generation != e.res.generation || o.Meta.UID != e.res.uid {
		return nil, errChanged
	}
	return def, nil
}
