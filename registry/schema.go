package registry

import (
	"context"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
)

// shape prunes an object's unknown fields and fills in defaults, as the schema says.
func (e *Endpoint) shape(o *object.Object) error {
	if e.schema == nil || e.schema.Trivial() {
		return nil
	}
	return misfit(e.schema.Shape(o.Content))
}

// shapeReporting is shape, and returns the paths of the fields that it pruned.
func (e *Endpoint) shapeReporting(o *object.Object) (unknown []string, err error) {
	if e.schema == nil || e.schema.Trivial() {
		return nil, nil
	}
	unknown, err = e.schema.ShapeReporting(o.Content)
	return unknown, misfit(err)
}

// misfit refuses a body that its schema can't shape; nil for nil.
func misfit(err error) error {
	if err == nil {
		return nil
	}
	return badRequest("the body of the request doesn't fit the schema: %s", clip.Text(err.Error()))
}

// AddWarning adds a warning of a schema's rules, or of what prepares an object, to those for the client. It makes a write a warning.Recorder.
func (w *write) AddWarning(_, text string) { w.warnings = append(w.warnings, text) }

// validate checks an object against the schema; old is the one before, or nil. meta are the errors of its metadata.
func (w *write) validate(ctx context.Context, o, old *object.Object, meta field.ErrorList) field.ErrorList {
	if w.schema == nil {
		return meta
	}
	found := schema.Found{Metadata: meta, Scale: w.validateScale(o, w.Subresource)}
	if w.schema.Trivial() {
		return append(found.Metadata, found.Scale...)
	}
	ctx = warning.WithWarningRecorder(ctx, w)
	var before map[string]any
	if old != nil {
		before = w.plain(old)
	}
	if w.Subresource == status {
		return w.schema.ValidateStatus(ctx, w.plain(o), before, found)
	}
	return w.schema.Validate(ctx, w.plain(o), before, found)
}

// plain returns an object as its schema sees it. Of metadata, schemas and rules know name and generateName only.
func (e *Endpoint) plain(o *object.Object) map[string]any {
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
	tree["apiVersion"], tree["kind"], tree["metadata"] = e.apiVersion(), e.Kind, metadata
	return tree
}
