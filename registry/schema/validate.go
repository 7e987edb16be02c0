package schema

import (
	"context"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Validate checks a whole object that was shaped, with its apiVersion, kind and metadata. old is nil for a new
// object, and else the object that is to be replaced, shaped, too: it feeds transition rules, and errors of
// parts that are as they were are forgiven. obj and old aren't changed.
//
// The errors are those of kube-apiserver, with those that the caller found, in its order: metadata, values, scale, embedded
// resources, unique lists, rules; rules are not looked at if other errors block them. Those of a step that walks through maps are
// sorted by their fields. Of values there are about maxErrors at most. What rules would say of unchanged parts goes to the
// warning.Recorder in ctx, if it has one.
//
// If ctx ends, the only error is an internal one that says so.
func (s *Schema) Validate(ctx context.Context, obj, old map[string]any, found Found) field.ErrorList {
	return s.validate(ctx, obj, old, found, (*run).checkValues)
}

// Found is what else is wrong with an object.
type Found struct{ Metadata, Scale field.ErrorList }

// ValidateStatus checks an object whose status is written alone: the rest is old's. Of values only the
// status is checked, of lists and rules all, and embedded resources aren't, as in kube-apiserver. old is
// never nil. Errors are those of Validate.
func (s *Schema) ValidateStatus(ctx context.Context, obj, old map[string]any, found Found) field.ErrorList {
	return s.validate(ctx, obj, old, found, (*run).checkStatus)
}

// validate checks the values as it's told, and all lists and rules.
func (s *Schema) validate(ctx context.Context, obj, old map[string]any, found Found, check func(r *run, ctx context.Context, v *values) (cut bool)) field.ErrorList {
	if s.trivial {
		return append(found.Metadata, found.Scale...)
	}
	f, err := s.compile()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	v, err := s.compiledValues()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	r := &run{schema: s, compiled: f, obj: obj, old: old, scale: found.Scale, errs: found.Metadata}
	cut := check(r, ctx, v)
	r.checkLists()
	r.checkRules(ctx, cut)
	if err := ended(ctx); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return r.errs
}

// run is one validation.
type run struct {
	schema   *Schema
	compiled *compiled
	obj, old map[string]any
	pair     *common.CorrelatedObject // made when it's needed
	scale    field.ErrorList          // which come after those of values
	errs     field.ErrorList
}

// add adds the errors of one step, sorted by their fields: those of one field stay in their order.
func (r *run) add(errs field.ErrorList) {
	slices.SortStableFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Field, b.Field) })
	r.errs = append(r.errs, errs...)
}

func (r *run) correlated() *common.CorrelatedObject {
	if r.pair == nil {
		r.pair = r.schema.correlate(r.compiled, r.obj, r.old)
	}
	return r.pair
}

func (r *run) checkValues(ctx context.Context, v *values) (cut bool) {
	var correlated func() *common.CorrelatedObject
	if r.old != nil {
		correlated = r.correlated
	}
	errs, cut := v.check(ctx, nil, r.obj, r.old, correlated)
	r.add(errs)
	r.errs = append(r.errs, r.scale...)
	if r.compiled.embedded {
		r.add(objectmeta.Validate(ctx, nil, r.obj, r.compiled.structural, false))
	}
	return cut
}

func (r *run) checkStatus(ctx context.Context, v *values) (cut bool) {
	var errs field.ErrorList
	if status, given := r.obj["status"]; given && v.status != nil {
		errs, cut = v.status.check(ctx, field.NewPath("status"), status, r.old["status"],
			func() *common.CorrelatedObject { return r.correlated().Key("status") })
	}
	r.add(errs)
	r.errs = append(r.errs, r.scale...)
	return cut
}

// checkLists forgives all if anything was wrong before.
func (r *run) checkLists() {
	if r.compiled.lists == nil {
		return
	}
	errs := listtype.ValidateListSetsAndMaps(nil, r.compiled.lists, r.obj)
	if len(errs) == 0 || r.old != nil && len(listtype.ValidateListSetsAndMaps(nil, r.compiled.lists, r.old)) > 0 {
		return
	}
	r.add(errs)
}

func (r *run) checkRules(ctx context.Context, cut bool) {
	rules := r.schema.compiledRules(r.compiled)
	if rules == nil {
		return
	}
	if cut || blocking(r.errs) {
		r.errs = append(r.errs, field.Invalid(nil, nil, unchecked))
		return
	}
	var old any // a nil map would count as an object
	var options []cel.Option
	if r.old != nil {
		old, options = r.old, []cel.Option{cel.WithRatcheting(r.correlated())}
	}
	errs, _ := rules.Validate(ctx, nil, r.compiled.structural, r.obj, old, celconfig.RuntimeCELCostBudget, options...)
	r.add(errs)
}

// unchecked is kube-apiserver's text.
const unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// blocking tells whether there are errors that would make rules fail for the wrong reason.
func blocking(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
