package schema

import (
	"context"

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
// The errors are those of kube-apiserver, in its order: values, embedded resources, unique lists, rules; rules
// are not looked at if errors of values block them. Of values there are about maxErrors at most. What rules
// would say of unchanged parts goes to the warning.Recorder in ctx, if it has one.
//
// If ctx ends, the only error is an internal one that says so.
func (s *Schema) Validate(ctx context.Context, obj, old map[string]any) field.ErrorList {
	return s.validate(ctx, obj, old, false)
}

// ValidateStatus checks an object whose status is written alone: the rest is old's. Of values only the
// status is checked, of lists and rules all, and embedded resources aren't, as in kube-apiserver. old is
// never nil. Errors are those of Validate.
func (s *Schema) ValidateStatus(ctx context.Context, obj, old map[string]any) field.ErrorList {
	return s.validate(ctx, obj, old, true)
}

func (s *Schema) validate(ctx context.Context, obj, old map[string]any, onlyStatus bool) field.ErrorList {
	if s.trivial {
		return nil
	}
	f, err := s.compiledForm()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	v, err := s.compiledValues()
	if err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	w := &write{schema: s, form: f, obj: obj, old: old}
	var cut bool
	if onlyStatus {
		cut = w.checkStatus(ctx, v)
	} else {
		cut = w.checkValues(ctx, v)
	}
	w.checkLists()
	w.checkRules(ctx, cut)
	if err := ended(ctx); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	return w.errs
}

// write is one validation.
type write struct {
	schema   *Schema
	form     *form
	obj, old map[string]any
	pair     *common.CorrelatedObject // made when it's needed
	errs     field.ErrorList
}

func (w *write) correlated() *common.CorrelatedObject {
	if w.pair == nil {
		w.pair = w.schema.correlate(w.form, w.obj, w.old)
	}
	return w.pair
}

func (w *write) checkValues(ctx context.Context, v *values) (cut bool) {
	var correlated func() *common.CorrelatedObject
	if w.old != nil {
		correlated = w.correlated
	}
	w.errs, cut = v.check(ctx, nil, w.obj, w.old, correlated)
	if w.form.embedded {
		w.errs = append(w.errs, objectmeta.Validate(ctx, nil, w.obj, w.form.structural, false)...)
	}
	return cut
}

func (w *write) checkStatus(ctx context.Context, v *values) (cut bool) {
	status, given := w.obj["status"]
	if !given || v.status == nil {
		return false
	}
	w.errs, cut = v.status.check(ctx, field.NewPath("status"), status, w.old["status"],
		func() *common.CorrelatedObject { return w.correlated().Key("status") })
	return cut
}

// checkLists forgives all if anything was wrong before.
func (w *write) checkLists() {
	if w.form.lists == nil {
		return
	}
	errs := listtype.ValidateListSetsAndMaps(nil, w.form.lists, w.obj)
	if len(errs) == 0 || w.old != nil && len(listtype.ValidateListSetsAndMaps(nil, w.form.lists, w.old)) > 0 {
		return
	}
	w.errs = append(w.errs, errs...)
}

func (w *write) checkRules(ctx context.Context, cut bool) {
	rules := w.schema.compiledRules(w.form)
	if rules == nil {
		return
	}
	if cut || blocking(w.errs) {
		w.errs = append(w.errs, field.Invalid(nil, nil, unchecked))
		return
	}
	var old any // a nil map would count as an object
	var options []cel.Option
	if w.old != nil {
		old, options = w.old, []cel.Option{cel.WithRatcheting(w.correlated())}
	}
	errs, _ := rules.Validate(ctx, nil, w.form.structural, w.obj, old, celconfig.RuntimeCELCostBudget, options...)
	w.errs = append(w.errs, errs...)
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
