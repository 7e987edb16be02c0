// Package gotype derives OpenAPI schemas from Go types: those of the built-in resources, and of the types
// that a program registers. The schemas are published, and server-side apply merges by them.
//
// The fields of a struct, their JSON names, and what the tags of JSON Schema say of them (minimum, pattern, enum, …)
// are found by github.com/swaggest/jsonschema-go. This package says how Kubernetes sees it: names and references,
// formats, types that encode themselves, descriptions from SwaggerDoc methods, and the patch strategies in tags.
//
// What Kubernetes keeps in comments (+optional, +listType, +structType, +enum) isn't in a Go type at run time. So a list
// is atomic unless a patchStrategy tag says that it's merged, or it's one of Kubernetes's own (see kubernetes.go), and a field
// is required unless it's a pointer or its JSON tag has omitempty or omitzero.
//
// Nothing is kept: callers cache. Nothing happens at init.
package gotype

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/kube-openapi/pkg/validation/spec"
)

// RefPrefix is what references between the schemas begin with; the name of a schema follows.
const RefPrefix = "#/components/schemas/"

// Of returns the schemas of a named struct (or of a pointer to one) and of everything in it, by their names, and the
// name of its own: "io.k8s.api.core.v1.Namespace". They belong to the caller.
//
// It's an error if some type in it can't be encoded as JSON (channels, functions, complex numbers, maps with keys
// that aren't text), contains itself without a named struct that could be referred to, or has the name of another.
func Of(t reflect.Type) (root string, schemas map[string]*spec.Schema, err error) {
	for t != nil && t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || t.Name() == "" {
		return "", nil, fmt.Errorf("the schema of %v: only a named struct has one", t)
	}
	defer func() { // methods of the type are called
		if cause := recover(); cause != nil {
			err = fmt.Errorf("the schema of %v: %v", t, cause)
		}
	}()
	s := &survey{structs: map[string]reflect.Type{}, schemas: map[string]*spec.Schema{}}
	if err := s.visit(t, nil); err != nil {
		return "", nil, fmt.Errorf("the schema of %v: %w", t, err)
	}
	for name, t := range s.structs {
		if s.schemas[name], err = structSchema(t); err != nil {
			return "", nil, fmt.Errorf("the schema of %v: %w", t, err)
		}
	}
	return Name(t), s.schemas, nil
}

// survey is what is known of a type before jsonschema sees it, which never ends for some.
type survey struct {
	structs map[string]reflect.Type // by name: each becomes a schema that others refer to
	schemas map[string]*spec.Schema // those that are known: of named structs with a form of their own
}

// visit looks at a type and all that is in it. inside are the types that contain this one and whose schemas would
// contain its schema, since nothing is referred to on the way.
func (s *survey) visit(t reflect.Type, inside []reflect.Type) error {
	if schema := leaf(t); schema != nil {
		if referred(t) {
			s.schemas[Name(t)] = schema
		}
		return nil
	}
	if referred(t) {
		name := Name(t)
		if other := s.structs[name]; other == t {
			return nil
		} else if other != nil {
			return fmt.Errorf("two types have the name %s: %v in %q and %v in %q", name, other, other.PkgPath(), t, t.PkgPath())
		}
		s.structs[name] = t
		return s.visitFields(t, []reflect.Type{t})
	}
	if slices.Contains(inside, t) {
		return fmt.Errorf("%v contains itself without a struct between", t)
	}
	inside = append(slices.Clone(inside), t)
	switch t.Kind() {
	case reflect.Struct:
		return s.visitFields(t, inside)
	case reflect.Map:
		if !textKey(t.Key()) {
			return fmt.Errorf("%v has keys that aren't text in JSON", t)
		}
		return s.visit(t.Elem(), inside)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return s.visit(t.Elem(), inside)
	}
	return fmt.Errorf("%v has no form in JSON", t)
}

func (s *survey) visitFields(t reflect.Type, inside []reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Tag.Get("json") == "-" || f.PkgPath != "" && !f.Anonymous {
			continue
		}
		embedded := f.Type
		for embedded.Kind() == reflect.Pointer && embedded.Name() == "" {
			embedded = embedded.Elem()
		}
		var err error
		switch {
		case f.Anonymous && name == "" && embedded.Kind() == reflect.Struct:
			if slices.Contains(inside, embedded) {
				return fmt.Errorf("%v embeds itself", embedded)
			}
			err = s.visitFields(embedded, append(slices.Clone(inside), embedded))
		default:
			err = s.visit(f.Type, inside)
		}
		if err != nil {
			return fmt.Errorf("field %s: %w", f.Name, err)
		}
	}
	return nil
}
