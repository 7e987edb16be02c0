package registry

import (
	"context"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// MaxObjectBytes bounds one stored object: etcd's customary limit of a request.
const MaxObjectBytes = 1536 << 10

// Load decodes a stored object in the endpoint's version, with its resourceVersion. One that can't be read is a Status 500.
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
	o.Meta.ResourceVersion = old.Revision.String()
	return o, nil
}

// Encode returns an object's bytes in the storage version, as they're stored. More than MaxObjectBytes are a Status 413.
func (e *Endpoint) Encode(ctx context.Context, o *object.Object) ([]byte, error) {
	if to := e.Res.Storage; to != e {
		tree, err := o.Tree(e.APIVersion(), e.Kind)
		if err != nil {
			return nil, BadRequest("the object can't be encoded: %s", clip.Text(err.Error()))
		}
		version := o.Meta.ResourceVersion
		if e.Res.byRules() {
			tree = object.DeepCopy(tree) // it shares with o
		}
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

// LabelSet returns an object's labels.
func LabelSet(o *kube.Object) labels.Set {
	set := make(labels.Set, len(o.Labels)/2)
	for i := 0; i+1 < len(o.Labels); i += 2 {
		set[o.Labels[i]] = o.Labels[i+1]
	}
	return set
}

// Shape prunes an object's unknown fields and fills in defaults, as the schema says.
func (e *Endpoint) Shape(o *object.Object) error {
	if e.Schema == nil || e.Schema.Trivial() {
		return nil
	}
	return Misfit(e.Schema.Shape(o.Content))
}

// ShapeReporting is Shape, and returns the paths of the fields that it pruned.
func (e *Endpoint) ShapeReporting(o *object.Object) (unknown []string, err error) {
	if e.Schema == nil || e.Schema.Trivial() {
		return nil, nil
	}
	unknown, err = e.Schema.ShapeReporting(o.Content)
	return unknown, Misfit(err)
}

// Misfit refuses a body that its schema can't shape; nil for nil.
func Misfit(err error) error {
	if err == nil {
		return nil
	}
	return BadRequest("the body of the request doesn't fit the schema: %s", clip.Text(err.Error()))
}

// Plain returns an object as its schema sees it. Of metadata, schemas and rules know name and generateName only.
func (e *Endpoint) Plain(o *object.Object) map[string]any {
	metadata := map[string]any{}
	if o.Meta.Name != "" {
		metadata["name"] = o.Meta.Name
	}
	if o.Meta.GenerateName != "" {
		metadata["generateName"] = o.Meta.GenerateName
	}
	tree := make(map[string]any, len(o.Content)+3)
	maps.Copy(tree, o.Content)
	tree["apiVersion"], tree["kind"], tree["metadata"] = e.APIVersion(), e.Kind, metadata
	return tree
}
