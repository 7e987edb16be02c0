package schema

import (
	"context"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Schema is the schema of one version of a definition. It's safe for concurrent use.
type Schema struct {
	v1      *apiextensionsv1.JSONSchemaProps
	trivial bool

	// What is made of v1, each at its first use.
	compiled    lazy[*compiled]
	values      lazy[*values]
	rules       lazy[*cel.Validator] // nil if there are none
	correlation lazy[common.Schema]
}

// New returns the schema of a version whose openAPIV3Schema is v1, which passed the validation of definitions.
// v1 isn't changed, and must not be changed by others. nil is the schema that knows no field.
func New(v1 *apiextensionsv1.JSONSchemaProps) *Schema {
	return &Schema{v1: v1, trivial: isTrivial(v1)}
}

// Trivial tells that the schema keeps every object as it is and accepts it, so that there is no need to call
// Shape, Prune or Validate: x-kubernetes-preserve-unknown-fields at the root, and nothing besides. It
// compiles nothing.
func (s *Schema) Trivial() bool { return s.trivial }

func isTrivial(v1 *apiextensionsv1.JSONSchemaProps) bool {
	if v1 == nil || v1.XPreserveUnknownFields == nil || !*v1.XPreserveUnknownFields || v1.Type != "object" {
		return false
	}
	rest := *v1
	rest.XPreserveUnknownFields, rest.Type, rest.Nullable = nil, "", false
	rest.Title, rest.Description, rest.Example, rest.ExternalDocs = "", "", nil, nil
	return reflect.ValueOf(rest).IsZero()
}

// Structural returns the structural schema, for others to derive something from. It must not be changed. It's
// nil for a Schema of nil. The error says why it can't be compiled.
func (s *Schema) Structural() (*structuralschema.Structural, error) {
	f, err := s.compile()
	if err != nil {
		return nil, err
	}
	return f.structural, nil
}

// Published returns a structural schema of which documents are made. It's made for the caller and kept nowhere, so that a definition which is
// published and not used takes no memory for it. The caller may change its nodes, but not the lists and values in them, which are the
// definition's. It's nil for a Schema of nil. The error is Structural's.
func (s *Schema) Published() (*structuralschema.Structural, error) { return newStructural(s.v1) }

func (s *Schema) compile() (*compiled, error) {
	return s.compiled.get(func() (*compiled, error) { return newCompiled(s.v1) })
}

func (s *Schema) compiledValues() (*values, error) {
	return s.values.get(func() (*values, error) { return newValues(s.v1) })
}

// compiledRules may return a validator that knows only of errors: upstream reports those with each object.
func (s *Schema) compiledRules(f *compiled) *cel.Validator {
	rules, _ := s.rules.get(func() (*cel.Validator, error) {
		return cel.NewValidator(f.structural, true, celconfig.PerCallLimit), nil
	})
	return rules
}

// correlate pairs an object with its old one, part by part, as the schema says which belong together. The
// result is for one goroutine.
func (s *Schema) correlate(f *compiled, obj, old map[string]any) *common.CorrelatedObject {
	root, _ := s.correlation.get(func() (common.Schema, error) { return newCorrelation(f.structural), nil })
	return common.NewCorrelatedObject(obj, old, root)
}

// internal converts a schema to the version that upstream compiles from.
func internal(v1 *apiextensionsv1.JSONSchemaProps) (*apiextensions.JSONSchemaProps, error) {
	if v1 == nil {
		return nil, nil
	}
	in := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, in, nil); err != nil {
		return nil, fmt.Errorf("the schema of the definition can't be converted: %w", err)
	}
	return in, nil
}

// lazy is a value that is made at its first use, once.
type lazy[T any] struct {
	once  sync.Once
	value T
	err   error
}

func (l *lazy[T]) get(make func() (T, error)) (T, error) {
	l.once.Do(func() { l.value, l.err = make() })
	return l.value, l.err
}

// ended returns why ctx has ended, as an error for a list, or nil.
func ended(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("the object was not validated to the end: %w", context.Cause(ctx))
}
