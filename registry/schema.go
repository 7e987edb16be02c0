package registry

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/warning"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
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

// validate checks an object against the schema; old is the one before, or nil. Errors are sorted by their fields, because
// the schema walks through maps, whose order is random.
func (w *write) validate(ctx context.Context, o, old *object.Object) (errs field.ErrorList) {
	if w.schema == nil {
		return nil
	}
	ctx = warning.WithWarningRecorder(ctx, w)
	if !w.schema.Trivial() {
		var before map[string]any
		if old != nil {
			before = w.plain(old)
		}
		if w.Subresource == status {
			errs = w.schema.ValidateStatus(ctx, w.plain(o), before)
		} else {
			errs = w.schema.Validate(ctx, w.plain(o), before)
		}
		slices.SortStableFunc(errs, func(a, b *field.Error) int {
			if n := strings.Compare(a.Field, b.Field); n == 0 || a.Field != noField && b.Field != noField {
				return n
			}
			return strings.Compare(b.Field, a.Field)
		})
	}
	return append(errs, w.validateScale(o, w.Subresource)...)
}

// noField is the field of errors that are about no field. They come last.
const noField = "<nil>"

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
