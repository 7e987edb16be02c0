package registry

import (
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
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
