package registry

import (
	"context"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Load decodes a stored object in the endpoint's version. One that can't be read is a Status 500.
func (e *Endpoint) Load(ctx context.Context, old *kube.Object) (*object.Object, error) {
	if old.Err != nil {
		return nil, e.Unreadable(old.Name(), old.Err)
	}
	shown, err := e.View.Shown(ctx, old)
	if err != nil {
		return nil, e.Fail(old.Name(), err)
	}
	o, err := object.DecodeStored(shown.Raw())
	if err != nil {
		return nil, e.Unreadable(old.Name(), err)
	}
	return o, nil
}

// Encode returns an object's bytes in the storage version, as they're stored. More than maxObjectBytes are a Status 413.
func (e *Endpoint) Encode(ctx context.Context, o *object.Object) ([]byte, error) {
	if to := e.Res.Storage; to != e {
		tree, err := o.Tree(e.APIVersion(), e.Kind)
		if err != nil {
			return nil, BadRequest("the object can't be encoded: %s", clip.Text(err.Error()))
		}
		version := o.Meta.ResourceVersion
		trees := []map[string]any{tree}
		if err := e.Res.Convert(ctx, to, trees); err != nil {
			return nil, e.Fail(o.Meta.Name, err)
		}
		converted, err := object.FromTree(trees[0])
		if err != nil {
			return nil, e.Fail(o.Meta.Name, fmt.Errorf("conversion to %s: %w", to.APIVersion(), err))
		}
		o = converted
		o.Meta.ResourceVersion = version
		if err := to.Shape(o); err != nil {
			return nil, err
		}
	}
	raw, err := o.Encode(e.Res.Storage.APIVersion(), e.Res.Storage.Kind)
	if err != nil {
		return nil, BadRequest("the object can't be encoded: %s", clip.Text(err.Error()))
	}
	if len(raw) > MaxObjectBytes {
		return nil, tooLarge(e.GroupResource(), clip.Text(o.Meta.Name))
	}
	return raw, nil
}
