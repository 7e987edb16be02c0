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
// Of schemas nothing but digests is kept: callers cache. Nothing happens at init.
package gotype

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

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
	defer recovered(t, &err)
	s, err := surveyOf(t)
	if err != nil {
		return "", nil, err
	}
	for name, t := range s.structs {
		if s.schemas[name], err = structSchema(t); err != nil {
			return "", nil, fmt.Errorf("the schema of %v: %w", t, err)
		}
	}
	return Name(s.root), s.schemas, nil
}

// Digest changes when what Of returns may have changed. It costs less than the schemas: what was worked out of a struct is kept for as
// long as the process runs, and kinds share most of their structs. Errors are Of's.
func Digest(t reflect.Type) (digest [sha256.Size]byte, err error) {
	defer recovered(t, &err)
	s, err := surveyOf(t)
	if err != nil {
		return digest, err
	}
	sum := sha256.New()
	add := func(name string, schema [sha256.Size]byte) {
		sum.Write([]byte(name))
		sum.Write(schema[:])
	}
	for _, name := range slices.Sorted(maps.Keys(s.schemas)) {
		known, err := digestOf(s.schemas[name])
		if err != nil {
			return digest, err
		}
		add(name, known)
	}
	for _, name := range slices.Sorted(maps.Keys(s.structs)) {
		known, err := structDigest(s.structs[name])
		if err != nil {
			return digest, fmt.Errorf("the schema of %v: %w", t, err)
		}
		add(name, known)
	}
	return [sha256.Size]byte(sum.Sum(nil)), nil
}

// digests are those of the schemas of structs, by their reflect.Type.
var digests sync.Map

func structDigest(t reflect.Type) ([sha256.Size]byte, error) {
	if known, ok := digests.Load(t); ok {
		return known.([sha256.Size]byte), nil
	}
	schema, err := structSchema(t)
	if err != nil {
		return [sha256.Size]byte{}, err
	}
	digest, err := digestOf(schema)
	if err == nil {
		digests.Store(t, digest)
	}
	return digest, err
}

func digestOf(s *spec.Schema) ([sha256.Size]byte, error) {
	text, err := json.Marshal(s)
	return sha256.Sum256(text), err
}

// recovered makes an error of a panic: methods of the type are called.
func recovered(t reflect.Type, err *error) {
	if cause := recover(); cause != nil {
		*err = fmt.Errorf("the schema of %v: %v", t, cause)
	}
}

// surveyOf looks at a type that has a schema.
func surveyOf(t reflect.Type) (*survey, error) {
	for t != nil && t.Kind() == reflect.Pointer && t.Name() == "" {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct || t.Name() == "" {
		return nil, fmt.Errorf("the schema of %v: only a named struct has one", t)
	}
	s := &survey{root: t, structs: map[string]reflect.Type{}, schemas: map[string]*spec.Schema{}}
	if err := s.visit(t, nil); err != nil {
		return nil, fmt.Errorf("the schema of %v: %w", t, err)
	}
	return s, nil
}

// survey is what is known of a type before jsonschema sees it, which never ends for some.
type survey struct {
	root    reflect.Type
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
