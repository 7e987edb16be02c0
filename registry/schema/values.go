package schema

import (
	"context"
	"reflect"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

const (
	// maxErrors is how many errors of values are enough. Upstream compares each with all others.
	maxErrors = 128
	// maxErrorPaths bounds the bytes that the paths of these errors take, of which there are several copies:
	// keys may be as long as bodies.
	maxErrorPaths = 1 << 20
)

// values is what a schema says of values: types, bounds, enums and the like.
type values struct {
	schema *spec.Schema
	quick  *quick
	status *values // that of the property status, nil if there is none
}

func newValues(v1 *apiextensionsv1.JSONSchemaProps) (*values, error) {
	in, err := internal(v1)
	if err != nil {
		return nil, err
	}
	_, schema, err := validation.NewSchemaValidator(in)
	if err != nil {
		return nil, err
	}
	v := &values{schema: schema, quick: newQuick(schema)}
	if status, ok := schema.Properties["status"]; ok {
		v.status = &values{schema: &status, quick: v.quick.object.properties["status"]}
	}
	return v, nil
}

// check returns what is wrong with a value. correlated, which is only asked for if there is something, pairs
// it with its old value; it returns nil if there is no such pair, and is nil itself if there is no old object.
// Errors of unchanged parts don't count then. cut tells that there are more errors.
func (v *values) check(ctx context.Context, path *field.Path, value, old any, correlated func() *common.CorrelatedObject) (errs field.ErrorList, cut bool) {
	if v.quick.accepts(value) {
		return nil, false
	}
	c := &checker{ctx: ctx, values: v}
	errs = validation.ValidateCustomResource(path, value, c)
	if correlated == nil || len(errs) == 0 { // forgiving makes valid, never invalid
		return errs, c.cut
	}
	c.cut = false
	errs = validation.ValidateCustomResourceUpdate(path, value, old, c, validation.WithRatcheting(correlated()))
	return errs, c.cut
}

// checker asks upstream about one value. Upstream calls it for each field and item. It skips those that are surely valid,
// and all others once there are enough errors or ctx has ended. Skipping can't make an invalid object valid: what is skipped
// is valid itself, or comes after an error. Ratcheting forgives a whole part, so nothing that was skipped in it is missed.
type checker struct {
	ctx    context.Context // here, because upstream's validators pass none on; a checker lives for one call of check
	values *values
	cut    bool // errors were left out
}

func (c *checker) Validate(value any, _ ...validation.ValidationOption) *validate.Result {
	return validate.NewSchemaValidator(c.values.schema, nil, "", strfmt.Default, c.hook(c.values.quick)).Validate(value)
}

func (c *checker) ValidateUpdate(value, old any, options ...validation.ValidationOption) *validate.Result {
	validator := validation.NewRatchetingSchemaValidator(c.values.schema, nil, "", strfmt.Default, c.hook(c.values.quick))
	return validator.ValidateUpdate(value, old, options...)
}

// hook returns the option that puts a level between a value's validator and those of its parts. Upstream
// applies it to the parts, and not to the branches of anyOf and the like.
func (c *checker) hook(q *quick) validate.Option {
	return func(o *validate.SchemaValidatorOptions) {
		l := &level{checker: c, quick: q, forField: o.NewValidatorForField, forIndex: o.NewValidatorForIndex}
		o.NewValidatorForField, o.NewValidatorForIndex = l.field, l.index
	}
}

// level is one object or array during validation.
type level struct {
	checker *checker
	quick   *quick
	errors  int // found in its parts so far

	// Those of ratcheting, which pair with old values; nil without.
	forField func(string, *spec.Schema, any, string, strfmt.Registry, ...validate.Option) validate.ValueValidator
	forIndex func(int, *spec.Schema, any, string, strfmt.Registry, ...validate.Option) validate.ValueValidator
}

func (l *level) field(name string, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
	q := l.quick.object.property(name)
	return &part{level: l, quick: q, path: path, validator: func() validate.ValueValidator {
		if l.forField != nil {
			return l.forField(name, s, root, path, formats, l.checker.hook(q))
		}
		return validate.NewSchemaValidator(s, root, path, formats, l.checker.hook(q))
	}}
}

func (l *level) index(i int, s *spec.Schema, root any, path string, formats strfmt.Registry, _ ...validate.Option) validate.ValueValidator {
	q := l.quick.array.items
	return &part{level: l, quick: q, path: path, validator: func() validate.ValueValidator {
		if l.forIndex != nil {
			return l.forIndex(i, s, root, path, formats, l.checker.hook(q))
		}
		return validate.NewSchemaValidator(s, root, path, formats, l.checker.hook(q))
	}}
}

// part is one field or item during validation.
type part struct {
	level     *level
	quick     *quick
	path      string
	validator func() validate.ValueValidator
}

func (p *part) Validate(value any) *validate.Result {
	l := p.level
	if p.quick.accepts(value) || l.checker.ctx.Err() != nil {
		return nil
	}
	enough := max(1, min(maxErrors, maxErrorPaths/(1+len(p.path))))
	if l.errors >= enough {
		l.checker.cut = true
		return nil
	}
	result := p.validator().Validate(value)
	if len(result.Errors) > enough {
		l.checker.cut = true
		result.Errors = result.Errors[:enough]
	}
	l.errors += len(result.Errors)
	return result
}

func (p *part) SetPath(string) {}

func (p *part) Applies(any, reflect.Kind) bool { return true }
