package gotype

import (
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Value is a Go type as a part of an object of JSON, for who looks for a field of it without all schemas.
type Value struct{ t reflect.Type }

// ValueOf returns the value of a type.
func ValueOf(t reflect.Type) Value {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return Value{t}
}

// Scalar returns the schema of a value that isn't looked into, as Of has it; nil for others.
func (v Value) Scalar() *spec.Schema { return leaf(v.t) }

// Member returns a field of a struct by its name in JSON, or any of a map. ok is false if there's none.
func (v Value) Member(name string) (member Value, ok bool) {
	if v.Scalar() != nil {
		return Value{}, false
	}
	if v.t.Kind() == reflect.Map {
		return ValueOf(v.t.Elem()), true
	}
	v.eachField(func(field string, t reflect.Type) {
		if field == name {
			member, ok = ValueOf(t), true
		}
	})
	return member, ok
}

// Names returns the names of a struct's fields, sorted.
func (v Value) Names() (names []string) {
	if v.Scalar() == nil {
		v.eachField(func(field string, _ reflect.Type) { names = append(names, field) })
	}
	slices.Sort(names)
	return names
}

// Elements returns what is in a list. ok is false for what is none.
func (v Value) Elements() (element Value, ok bool) {
	if v.Scalar() != nil || v.t.Kind() != reflect.Slice && v.t.Kind() != reflect.Array {
		return Value{}, false
	}
	return ValueOf(v.t.Elem()), true
}

// eachField visits the fields of a struct that JSON has, with those of embedded structs.
func (v Value) eachField(visit func(name string, t reflect.Type)) {
	if v.t.Kind() != reflect.Struct {
		return
	}
	for i := range v.t.NumField() {
		f := v.t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-" || f.PkgPath != "" && !f.Anonymous:
		case name == "" && f.Anonymous:
			ValueOf(f.Type).eachField(visit)
		case name == "":
			visit(f.Name, f.Type)
		default:
			visit(name, f.Type)
		}
	}
}
