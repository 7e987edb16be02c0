package schema

import (
	"fmt"
	"slices"
	"sort"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// Oracle applies a schema with upstream's passes alone, all of them, in upstream's order: what
// customresource_handler.go, strategy.go and status_strategy.go of k8s.io/apiextensions-apiserver do,
// without the object's own metadata and scale.
type Oracle struct {
	structural *structuralschema.Structural
	Values     validation.SchemaValidator // of whole objects
	status     validation.SchemaValidator
	rules      *cel.Validator
}

// NewOracle compiles a schema.
func NewOracle(t testing.TB, v1 *apiextensionsv1.JSONSchemaProps) *Oracle {
	t.Helper()
	in := &apiextensions.JSONSchemaProps{}
	err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1.DeepCopy(), in, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := &Oracle{}
	if o.structural, err = structuralschema.NewStructural(in); err != nil {
		t.Fatal(err)
	}
	o.structural = o.structural.DeepCopy()
	if err := defaulting.PruneDefaults(o.structural); err != nil {
		t.Fatal(err)
	}
	if o.Values, _, err = validation.NewSchemaValidator(in); err != nil {
		t.Fatal(err)
	}
	if status, ok := in.Properties["status"]; ok {
		if o.status, _, err = validation.NewSchemaValidator(&status); err != nil {
			t.Fatal(err)
		}
	}
	o.rules = cel.NewValidator(o.structural, true, celconfig.PerCallLimit)
	return o
}

// Shape is unstructuredSchemaCoercer.apply and unstructuredDefaulter.Default, for objects without metadata.
func (o *Oracle) Shape(content map[string]any) (unknown []string, err error) {
	unknown = pruning.PruneWithOptions(content, o.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(content, o.structural)
	fieldErr, more := objectmeta.CoerceWithOptions(nil, content, o.structural, false, objectmeta.CoerceOptions{ReturnUnknownFieldPaths: true})
	if fieldErr != nil {
		return nil, fieldErr
	}
	defaulting.Default(content, o.structural)
	unknown = append(unknown, more...)
	sort.Strings(unknown)
	return unknown, nil
}

// Validate is the strategy's Validate for old == nil, else ValidateUpdate.
func (o *Oracle) Validate(t testing.TB, obj, old map[string]any) (errs field.ErrorList) {
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, o.Values)...)
		errs = append(errs, objectmeta.Validate(t.Context(), nil, obj, o.structural, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, obj)...)
		return o.validateRules(t, errs, obj, nil)
	}
	pair := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: o.structural})
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, o.Values, validation.WithRatcheting(pair))...)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, obj, o.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, o.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, obj)...)
	}
	return o.validateRules(t, errs, obj, old, cel.WithRatcheting(pair))
}

// ValidateStatus is the status strategy's ValidateUpdate.
func (o *Oracle) ValidateStatus(t testing.TB, obj, old map[string]any) (errs field.ErrorList) {
	pair := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: o.structural})
	if status, ok := obj["status"]; ok {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], o.status, validation.WithRatcheting(pair.Key("status")))...)
	}
	if more := listtype.ValidateListSetsAndMaps(nil, o.structural, obj); len(more) > 0 && len(listtype.ValidateListSetsAndMaps(nil, o.structural, old)) == 0 {
		errs = append(errs, more...)
	}
	return o.validateRules(t, errs, obj, old, cel.WithRatcheting(pair))
}

func (o *Oracle) validateRules(t testing.TB, errs field.ErrorList, obj map[string]any, old any, options ...cel.Option) field.ErrorList {
	if o.rules == nil {
		return errs
	}
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return append(errs, field.Invalid(nil, nil, "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"))
		}
	}
	more, _ := o.rules.Validate(t.Context(), nil, o.structural, obj, old, celconfig.RuntimeCELCostBudget, options...)
	return append(errs, more...)
}

// Described returns errors in a form that can be compared: upstream's order is that of Go's maps.
func Described(errs field.ErrorList) []string {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, fmt.Sprintf("%s %s: %s (%v)", err.Type, err.Field, err.Detail, err.BadValue))
	}
	slices.Sort(texts)
	return texts
}
