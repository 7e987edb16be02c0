package registry

import (
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// Shape prunes an object's unknown fields and fills in defaults, as the schema says.
func (e *Endpoint) Shape(o *object.Object) error {
	if e.Schema == nil || e.Schema.Trivial() {
		return nil
	}
	return Misfit(e.Schema.Shape(o.Content))
}

// ShapeReporting is shape, and returns the paths of the fields that it pruned.
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
	for k, v := range o.Content {
		tree[k] = v
	}
	tree["apiVersion"], tree["kind"], tree["metadata"] = e.APIVersion(), e.Kind, metadata
	return tree
}
