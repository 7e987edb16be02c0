package registry

import (
	"context"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// load decodes a stored object in the endpoint's version. One that can't be read is a Status 500.
func (e *Endpoint) load(ctx context.Context, old *kube.Object) (*object.Object, error) {
	if old.Err != nil {
		return nil, e.unreadable(old.Name(), old.Err)
	}
	shown, err := e.view.Shown(ctx, old)
	if err != nil {
		return nil, e.fail(old.Name(), err)
	}
	o, err := object.DecodeStored(shown.Raw())
	if err != nil {
		return nil, e.unreadable(old.Name(), err)
	}
	return o, nil
}

// encode returns an object's bytes in the storage version, as they're stored. More than maxObjectBytes are a Status 413.
func (e *Endpoint) encode(ctx context.Context, o *object.Object) ([]byte, error) {
	if to := e.res.storage; to != e {
		tree, err := o.Tree(e.apiVersion(), e.Kind)
		if err != nil {
			return nil, badRequest("the object can't be encoded: %s", clip.Text(err.Error()))
		}
		version := o.Meta.ResourceVersion
		trees := []map[string]any{tree}
		if err := e.res.convert(ctx, to, trees); err != nil {
			return nil, e.fail(o.Meta.Name, err)
		}
		converted, err := object.FromTree(trees[0])
		if err != nil {
			return nil, e.fail(o.Meta.Name, fmt.Errorf("conversion to %s: %w", to.apiVersion(), err))
		}
		o = converted
		o.Meta.ResourceVersion = version
		if err := to.shape(o); err != nil {
			return nil, err
		}
	}
	raw, err := o.Encode(e.res.storage.apiVersion(), e.res.storage.Kind)
	if err != nil {
		return nil, badRequest("the object can't be encoded: %s", clip.Text(err.Error()))
	}
	if len(raw) > maxObjectBytes {
		return nil, tooLarge(e.resource(), clip.Text(o.Meta.Name))
	}
	return raw, nil
}
