package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// A definition's rules of conversion are in an annotation, because typed clients drop fields that they don't know. They count as
// a part of its spec: they are judged with it, a change of them raises the generation, and no write of the status changes them.

// validateRules returns what is wrong with a definition's rules. invalid tells that the definition has other faults: without schemas
// there's nothing to check rules by. What is stored can still be written when only something else changes.
func validateRules(obj, old *crd.Definition, invalid bool) field.ErrorList {
	if _, annotated := ruleset.Of(obj); !annotated || invalid || old != nil && sameRules(obj, old) && equality.Semantic.DeepEqual(obj.Spec, old.Spec) {
		return nil
	}
	_, errs := ruleset.New(obj)
	return errs
}

// keepRules has a write of the status leave the rules as they are.
func keepRules(obj, old *crd.Definition) {
	if text, annotated := ruleset.Of(old); annotated {
		if obj.Annotations == nil {
			obj.Annotations = map[string]string{}
		}
		obj.Annotations[ruleset.Annotation] = text
		return
	}
	delete(obj.Annotations, ruleset.Annotation)
}

// countDefinition returns the generation of a definition that takes the place of another one. Writes compare it: one that was judged by
// other rules begins again.
func countDefinition(obj, old Typed) int64 {
	now := obj.(*crd.Definition)
	was, _ := old.(*crd.Definition)
	switch {
	case was == nil:
		return now.Generation
	case sameRules(now, was) && equality.Semantic.DeepEqual(now.Spec, was.Spec):
		return was.Generation
	}
	return was.Generation + 1
}

// sameDefinition tells whether two definitions define the same.
func sameDefinition(a, b *crd.Definition) bool { return crd.SameSpec(a, b) && sameRules(a, b) }

func sameRules(a, b *crd.Definition) bool {
	one, in := ruleset.Of(a)
	other, too := ruleset.Of(b)
	return in == too && one == other
}

// Losses returns what the definition's rules lose of an object of the endpoint's: what isn't the same after it was converted to
// another version and back. What the object before it, which may be nil, has lost already is no reason to refuse a write. The error is
// ctx's, or of rules that can't be used.
func (e *Endpoint) Losses(ctx context.Context, next, prev *object.Object) (errs field.ErrorList, err error) {
	if !e.Res.byRules() || prev != nil && object.SameContent(next, prev, "") && sameForRules(&next.Meta, &prev.Meta) {
		return nil, nil
	}
	for _, other := range e.Res.Versions {
		if other == e || other != e.Res.Storage && !slices.Contains(e.Res.endpoints, other) {
			continue
		}
		lost, err := e.lossesIn(ctx, other, next, false)
		if len(lost) > 0 && err == nil { // what hooks have left may not fit the schema yet
			lost, err = e.lossesIn(ctx, other, next, true)
		}
		if len(lost) > 0 && err == nil && prev != nil {
			var already field.ErrorList
			already, err = e.lossesIn(ctx, other, prev, true)
			lost = slices.DeleteFunc(lost, func(l *field.Error) bool {
				return slices.ContainsFunc(already, func(a *field.Error) bool { return *a == *l })
			})
		}
		if err != nil {
			return nil, err
		}
		errs = append(errs, lost...)
	}
	return errs, nil
}

// sameForRules tells whether expressions of rules, which have all metadata but managedFields, see the same in two versions of an object.
func sameForRules(next, prev *metav1.ObjectMeta) bool {
	seen := *prev
	seen.ResourceVersion, seen.Generation, seen.ManagedFields = next.ResourceVersion, next.Generation, next.ManagedFields
	return equality.Semantic.DeepEqual(next, &seen)
}

// lossesIn returns what isn't the same after an object of the endpoint's was converted to another version and back. prune has the
// endpoint's schema prune it before.
func (e *Endpoint) lossesIn(ctx context.Context, other *Endpoint, o *object.Object, prune bool) (field.ErrorList, error) {
	without := *o
	without.Managed = nil // which rules can't touch
	own, err := without.RawTree(e.APIVersion(), e.Kind)
	if err != nil {
		return nil, err
	}
	if prune {
		own = object.DeepCopy(own)
		if err := e.Schema.Prune(own); err != nil {
			return nil, err
		}
	}
	tree := object.DeepCopy(own)
	for _, to := range []*Endpoint{other, e} {
		err := e.Res.Convert(ctx, to, []map[string]any{tree})
		if u, broken := (*Unconverted)(nil), (*ruleset.Error)(nil); errors.As(err, &u) && errors.As(u.cause, &broken) {
			return field.ErrorList{loss(broken.Field, broken.Error())}, nil
		}
		if annotations, _, _ := unstructured.NestedStringMap(tree, "metadata", "annotations"); validation.ValidateAnnotationsSize(annotations) != nil {
			return field.ErrorList{loss("metadata.annotations", fmt.Sprintf("version %s couldn't be written: it would have more than %d bytes of annotations", to.Version, validation.TotalAnnotationSizeLimitB))}, nil
		}
		if err == nil {
			err = to.Schema.Prune(tree)
		}
		if err == nil && to == e.Res.Storage { // as it would be stored, and read again
			err = to.Schema.ShapeStored(tree)
		}
		if err != nil {
			return nil, err
		}
	}
	var errs field.ErrorList
	for _, path := range ruleset.Differences(own, tree) {
		errs = append(errs, loss(path, fmt.Sprintf("version %s would lose it: after a conversion there and back to %s it isn't the same", other.Version, e.Version)))
	}
	return errs, nil
}

func loss(path, why string) *field.Error {
	return &field.Error{Type: field.ErrorTypeInvalid, Field: clip.Text(path), BadValue: field.OmitValueType{}, Detail: clip.Text(why)}
}
