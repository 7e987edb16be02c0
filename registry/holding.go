package registry

import (
	"reflect"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// typed is a Go type's part in the verbs.
type typed struct {
	Type
	registry *Registry
	Zero     any // a struct of the type, for the patch strategies in its tags
	surveyed sync.Once
	survey   survey // see holding
	// EmptyStatus returns the status of an empty value as a tree, which is shared, and whether it's written.
	EmptyStatus func() (tree any, written bool)
}

// newTyped returns a type's part in the verbs of a registry.
func newTyped(t Type, r *Registry) *typed {
	n := &typed{Type: t, registry: r, Zero: reflect.ValueOf(t.New()).Elem().Interface()}
	n.EmptyStatus = sync.OnceValues(func() (any, bool) {
		tree, written := n.empty()[AtStatus]
		return tree, written
	})
	return n
}

// empty returns the tree of an empty value.
func (t *typed) empty() map[string]any {
	tree, err := jsontree.OfValue(t.New())
	if err != nil { // no empty value has what JSON can't say
		tree = map[string]any{}
	}
	return tree
}

// survey is what a look through a Go type has found.
type survey struct {
	copies bool // decoding a tree copies all of it: the type has no field of any type
	Plain  bool // nor one of JSON as text, so that a value says the same however it was made
}

// Holding looks through the type, when that is first asked: of all types it would be a part of the server's start.
func (t *typed) Holding() survey {
	t.surveyed.Do(func() {
		if t.Zero == nil {
			return
		}
		of := reflect.TypeOf(t.Zero)
		t.survey.copies = !holds(of, isAny, map[reflect.Type]bool{})
		t.survey.Plain = t.survey.copies && !holds(of, isText, map[reflect.Type]bool{})
	})
	return t.survey
}

// holds tells whether a Go type is or contains one of a sort. Metadata doesn't count. seen are the types that
// were looked at.
func holds(t reflect.Type, sort func(reflect.Type) bool, seen map[reflect.Type]bool) bool {
	if t == reflect.TypeFor[metav1.ObjectMeta]() || seen[t] {
		return false
	}
	seen[t] = true
	if sort(t) {
		return true
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return holds(t.Elem(), sort, seen)
	case reflect.Map:
		return holds(t.Key(), sort, seen) || holds(t.Elem(), sort, seen)
	case reflect.Struct:
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() && f.Tag.Get("json") != "-" && holds(f.Type, sort, seen) {
				return true
			}
		}
	}
	return false
}

// isAny tells whether values of a type can be of any type.
func isAny(t reflect.Type) bool { return t.Kind() == reflect.Interface }

// isText tells whether a type is JSON as text, such as a runtime.RawExtension.
func isText(t reflect.Type) bool {
	if t.Kind() != reflect.Struct {
		return false
	}
	raw, ok := t.FieldByName("Raw")
	return ok && raw.Type == reflect.TypeFor[[]byte]()
}
