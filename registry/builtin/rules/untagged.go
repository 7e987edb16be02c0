package rules

import (
	"bytes"
	"context"
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Kubernetes judges objects in a form of its own, which is that of no version: its types have no names for JSON. What a refusal shows of
// an object has members that are called as in Go, and none is left out. They come in the order of v1's, which have the same.

// untagged is a value that is encoded so: its members have the names that Go has, instead of those of the tags.
type untagged struct{ value any }

// Untagged shows a value so, which may be inside of another one.
func Untagged(value any) untagged { return untagged{value} }

// MarshalJSON encodes the value.
func (f untagged) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	err := encodeInternal(&b, reflect.ValueOf(f.value))
	return b.Bytes(), err
}

// Size returns how many bytes that is.
func (f untagged) Size() int {
	encoded, _ := f.MarshalJSON()
	return len(encoded)
}

// InInternalForm makes a Validate whose errors show values so.
func InInternalForm(validate func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList) func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
	if validate == nil {
		return nil
	}
	return func(ctx context.Context, obj, old registry.Typed, subresource string) field.ErrorList {
		errs := validate(ctx, obj, old, subresource)
		for _, err := range errs {
			if err.BadValue != nil && hasInternal(reflect.TypeOf(err.BadValue)) {
				err.BadValue = untagged{err.BadValue}
			}
		}
		return errs
	}
}

// hasInternal tells whether a type is one of a group's, or made of such. Those that all groups share are the same in each form.
func hasInternal(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return hasInternal(t.Elem())
	}
	return t.Kind() == reflect.Struct && strings.HasPrefix(t.PkgPath(), "k8s.io/api/")
}

func encodeInternal(b *bytes.Buffer, v reflect.Value) error {
	switch {
	case !v.IsValid():
		b.WriteString("null")
	case !hasInternal(v.Type()):
		encoded, err := json.Marshal(v.Interface())
		b.Write(encoded)
		return err
	case v.Kind() != reflect.Struct && v.IsNil():
		b.WriteString("null")
	case v.Kind() == reflect.Pointer:
		return encodeInternal(b, v.Elem())
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			b.WriteByte(separator(i, '['))
			if err := encodeInternal(b, v.Index(i)); err != nil {
				return err
			}
		}
		closeList(b, v.Len(), "[]")
	case v.Kind() == reflect.Map:
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for i, name := range names {
			b.WriteByte(separator(i, '{'))
			if err := encodeMember(b, name.String(), v.MapIndex(name)); err != nil {
				return err
			}
		}
		closeList(b, len(names), "{}")
	default:
		n := 0
		if err := encodeMembers(b, v, &n); err != nil {
			return err
		}
		closeList(b, n, "{}")
	}
	return nil
}

// separator is what comes before the element with an index.
func separator(i int, first byte) byte {
	if i == 0 {
		return first
	}
	return ','
}

// closeList ends a list or an object of n elements.
func closeList(b *bytes.Buffer, n int, brackets string) {
	if n == 0 {
		b.WriteString(brackets)
		return
	}
	b.WriteByte(brackets[1])
}

func encodeMember(b *bytes.Buffer, name string, v reflect.Value) error {
	encoded, err := json.Marshal(name)
	if err != nil {
		return err
	}
	b.Write(encoded)
	b.WriteByte(':')
	return encodeInternal(b, v)
}

// encodeMembers encodes the members of a struct, and of those that it embeds. n counts them.
func encodeMembers(b *bytes.Buffer, v reflect.Value, n *int) error {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta](): // conversion leaves it out
		case f.Anonymous && hasInternal(f.Type):
			if err := encodeMembers(b, v.Field(i), n); err != nil {
				return err
			}
		case f.Anonymous: // metadata, which has names for JSON
			encoded, err := json.Marshal(v.Field(i).Interface())
			if err != nil {
				return err
			}
			if members := encoded[1 : len(encoded)-1]; len(members) > 0 {
				b.WriteByte(separator(*n, '{'))
				b.Write(members)
				*n++
			}
		default:
			b.WriteByte(separator(*n, '{'))
			*n++
			if err := encodeMember(b, f.Name, v.Field(i)); err != nil {
				return err
			}
		}
	}
	return nil
}
