package registry

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// survey is what a look through a Go type has found.
type survey struct {
	copies bool // decoding a tree copies all of it: the type has no field of any type
	plain  bool // nor one of JSON as text, so that a value says the same however it was made
}

// holding looks through the type, when that is first asked: of all types it would be a part of the server's start.
func (t *typed) holding() survey {
	t.surveyed.Do(func() {
		if t.zero == nil {
			return
		}
		of := reflect.TypeOf(t.zero)
		t.survey.copies = !holds(of, isAny, map[reflect.Type]bool{})
		t.survey.plain = t.survey.copies && !holds(of, isText, map[reflect.Type]bool{})
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
