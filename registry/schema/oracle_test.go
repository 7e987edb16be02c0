package schema

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"sort"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/crd"
)

// oracle applies a schema with upstream's passes alone, all of them, in upstream's order: what
// customresource_handler.go, strategy.go and status_strategy.go of k8s.io/apiextensions-apiserver do,
// without the object's own metadata and scale.
type oracle struct {
	structural     *structuralschema.Structural
	values, status validation.SchemaValidator
	rules          *cel.Validator
}

func newOracle(t testing.TB, v1 *apiextensionsv1.JSONSchemaProps) *oracle {
	t.Helper()
	in, err := internal(v1)
	if err != nil {
		t.Fatal(err)
	}
	o := &oracle{}
	if o.structural, err = structuralschema.NewStructural(in); err != nil {
		t.Fatal(err)
	}
	o.structural = o.structural.DeepCopy()
	if err := defaulting.PruneDefaults(o.structural); err != nil {
		t.Fatal(err)
	}
	if o.values, _, err = validation.NewSchemaValidator(in); err != nil {
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

// shape is unstructuredSchemaCoercer.apply and unstructuredDefaulter.Default, for objects without metadata.
func (o *oracle) shape(content map[string]any) (unknown []string, err error) {
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

func (o *oracle) validate(t testing.TB, obj, old map[string]any) (errs field.ErrorList) {
	if old == nil {
		errs = append(errs, validation.ValidateCustomResource(nil, obj, o.values)...)
		errs = append(errs, objectmeta.Validate(t.Context(), nil, obj, o.structural, false)...)
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, obj)...)
		return o.validateRules(t, errs, obj, nil)
	}
	pair := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: o.structural})
	errs = append(errs, validation.ValidateCustomResourceUpdate(nil, obj, old, o.values, validation.WithRatcheting(pair))...)
	errs = append(errs, objectmeta.Validate(t.Context(), nil, obj, o.structural, false)...)
	if len(listtype.ValidateListSetsAndMaps(nil, o.structural, old)) == 0 {
		errs = append(errs, listtype.ValidateListSetsAndMaps(nil, o.structural, obj)...)
	}
	return o.validateRules(t, errs, obj, old, cel.WithRatcheting(pair))
}

func (o *oracle) validateStatus(t testing.TB, obj, old map[string]any) (errs field.ErrorList) {
	pair := common.NewCorrelatedObject(obj, old, &model.Structural{Structural: o.structural})
	if status, ok := obj["status"]; ok {
		errs = append(errs, validation.ValidateCustomResourceUpdate(field.NewPath("status"), status, old["status"], o.status, validation.WithRatcheting(pair.Key("status")))...)
	}
	if more := listtype.ValidateListSetsAndMaps(nil, o.structural, obj); len(more) > 0 && len(listtype.ValidateListSetsAndMaps(nil, o.structural, old)) == 0 {
		errs = append(errs, more...)
	}
	return o.validateRules(t, errs, obj, old, cel.WithRatcheting(pair))
}

func (o *oracle) validateRules(t testing.TB, errs field.ErrorList, obj map[string]any, old any, options ...cel.Option) field.ErrorList {
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

// TestLikeUpstream compares with the oracle: what comes out of Shape, and what is wrong with objects.
func TestLikeUpstream(t *testing.T) {
	triples := 120
	if testing.Short() {
		triples = 20
	}
	for name, v1 := range schemas(t) {
		t.Run(name, func(t *testing.T) {
			s, o := New(v1), newOracle(t, v1)
			g := &generator{Rand: rand.New(rand.NewPCG(7, uint64(len(name))))}
			var valid, invalid int
			for range triples {
				old := g.object(v1)
				for _, own := range metaNames { // a decoder has had a look at them
					delete(old, own)
				}
				obj := runtime.DeepCopyJSON(old)
				if g.IntN(4) > 0 {
					g.mutate(v1, obj)
				}
				for _, own := range metaNames {
					delete(obj, own)
				}
				shapeBoth(t, s, o, old)
				if !shapeBoth(t, s, o, obj) {
					continue
				}
				for _, content := range []map[string]any{obj, old} {
					content["apiVersion"], content["kind"], content["metadata"] = "example.com/v1", "Thing", map[string]any{"name": "x"}
				}
				before := text(t, []any{obj, old})
				sameErrors(t, "create", obj, nil, s.Validate(t.Context(), obj, nil), o.validate(t, obj, nil))
				errs := s.Validate(t.Context(), obj, old)
				sameErrors(t, "update", obj, old, errs, o.validate(t, obj, old))
				status := runtime.DeepCopyJSON(old)
				if v, ok := obj["status"]; ok {
					status["status"] = v
				} else {
					delete(status, "status")
				}
				sameErrors(t, "status", status, old, s.ValidateStatus(t.Context(), status, old), o.validateStatus(t, status, old))
				if text(t, []any{obj, old}) != before {
					t.Fatalf("validation has changed %s", before)
				}
				if len(errs) == 0 {
					valid++
				} else {
					invalid++
				}
			}
			if valid == 0 || invalid == 0 && !s.Trivial() && name != "preserve" {
				t.Errorf("%d updates were valid and %d invalid: the comparison says little", valid, invalid)
			}
		})
	}
}

// shapeBoth shapes content and compares with what the oracle makes of it. It returns whether that's an object.
func shapeBoth(t *testing.T, s *Schema, o *oracle, content map[string]any) bool {
	t.Helper()
	given := text(t, content)
	want := runtime.DeepCopyJSON(content)
	wantUnknown, wantErr := o.shape(want)
	unknown, err := s.Shape(content, true)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("Shape(%s) fails with %v, upstream with %v", given, err, wantErr)
	}
	if err != nil {
		return false
	}
	if !reflect.DeepEqual(content, want) {
		t.Fatalf("Shape(%s) makes\n%s, upstream\n%s", given, text(t, content), text(t, want))
	}
	if !slices.Equal(unknown, wantUnknown) {
		t.Fatalf("Shape(%s) reports %q, upstream %q", given, unknown, wantUnknown)
	}
	again := runtime.DeepCopyJSON(content)
	if unknown, err := s.Shape(again, true); err != nil || len(unknown) > 0 || !reflect.DeepEqual(again, content) {
		t.Fatalf("shaped again, %s is %s (unknown %q, %v)", text(t, content), text(t, again), unknown, err)
	}
	return true
}

func sameErrors(t *testing.T, what string, obj, old map[string]any, errs, want field.ErrorList) {
	t.Helper()
	if got, want := described(errs), described(want); !slices.Equal(got, want) {
		t.Fatalf("%s of %s, old %s, has errors\n%s\nupstream\n%s", what, text(t, obj), text(t, old), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// described returns errors in a form that can be compared: upstream's order is that of Go's maps.
func described(errs field.ErrorList) []string {
	texts := make([]string, 0, len(errs))
	for _, err := range errs {
		texts = append(texts, fmt.Sprintf("%s %s: %s (%v)", err.Type, err.Field, err.Detail, err.BadValue))
	}
	slices.Sort(texts)
	return texts
}

// TestSchemasAreDefinitions makes sure that the tests' schemas are such as can be posted.
func TestSchemasAreDefinitions(t *testing.T) {
	for name, v1 := range schemas(t) {
		t.Run(name, func(t *testing.T) {
			d := &crd.Definition{
				ObjectMeta: metav1.ObjectMeta{Name: "things.example.com"},
				Spec: apiextensionsv1.CustomResourceDefinitionSpec{
					Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
					Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "things", Kind: "Thing"},
					Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
						Name: "v1", Served: true, Storage: true,
						Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: v1},
					}},
				},
				Status: apiextensionsv1.CustomResourceDefinitionStatus{StoredVersions: []string{"v1"}},
			}
			crd.Default(d)
			if errs := crd.Validate(t.Context(), d, nil); len(errs) > 0 {
				t.Error(errs.ToAggregate())
			}
		})
	}
}

// generator makes objects that are about right.
type generator struct{ *rand.Rand }

func (g *generator) object(s *apiextensionsv1.JSONSchemaProps) map[string]any {
	if object, ok := g.value(s, 0).(map[string]any); ok {
		return object
	}
	return map[string]any{}
}

// mutate replaces some part of an object.
func (g *generator) mutate(s *apiextensionsv1.JSONSchemaProps, object map[string]any) {
	names := sortedNames(object)
	if len(names) == 0 {
		for name, v := range g.object(s) {
			object[name] = v
		}
		return
	}
	name := names[g.IntN(len(names))]
	child := propertyOf(s, name)
	if inner, ok := object[name].(map[string]any); ok && child != nil && g.IntN(4) > 0 {
		g.mutate(child, inner)
		return
	}
	if child == nil || g.IntN(6) == 0 {
		delete(object, name)
		return
	}
	object[name] = g.value(child, 1)
}

func propertyOf(s *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if property, ok := s.Properties[name]; ok {
		return &property
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema
	}
	return nil
}

func (g *generator) value(s *apiextensionsv1.JSONSchemaProps, depth int) any {
	switch n := g.IntN(40); {
	case depth == 0 || n > 4:
	case n == 0:
		return nil
	default:
		return g.wrong(depth)
	}
	if len(s.Enum) > 0 && g.IntN(8) > 0 {
		var v any
		raw := s.Enum[g.IntN(len(s.Enum))].Raw
		if raw == nil { // null
			return nil
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
			panic(err)
		}
		return v
	}
	kind := s.Type
	if s.XIntOrString {
		kind = []string{"integer", "string"}[g.IntN(2)]
	}
	switch kind {
	case "object":
		return g.fields(s, depth)
	case "array":
		items := make([]any, 0, 3)
		for range g.IntN(4) {
			if s.Items != nil && s.Items.Schema != nil {
				items = append(items, g.value(s.Items.Schema, depth+1))
			}
		}
		return items
	case "integer":
		return []int64{0, 1, 2, 3, 5, 7, 10, 80, -1, 1 << 31, 1 << 53, 1<<63 - 1}[g.IntN(12)]
	case "number":
		return []any{0.5, 1.0, int64(1), -2.5, 1e300, int64(7), 0.1}[g.IntN(7)]
	case "boolean":
		return g.IntN(2) == 0
	case "string":
		return g.text()
	}
	return g.wrong(depth)
}

func (g *generator) fields(s *apiextensionsv1.JSONSchemaProps, depth int) map[string]any {
	object := map[string]any{}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property := s.Properties[name]
		if slices.Contains(s.Required, name) && g.IntN(20) > 0 || g.IntN(3) > 0 {
			object[name] = g.value(&property, depth+1)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for range g.IntN(3) {
			object[g.text()] = g.value(s.AdditionalProperties.Schema, depth+1)
		}
	}
	if s.XEmbeddedResource {
		g.embed(object)
	}
	if g.IntN(12) == 0 {
		object["unknown"+g.text()] = g.wrong(depth)
	}
	return object
}

func (g *generator) embed(object map[string]any) {
	if g.IntN(10) > 0 {
		object["apiVersion"], object["kind"] = []any{"v1", "apps/v1", "a/b/c"}[g.IntN(3)], []any{"Pod", "Not_A_Kind"}[g.IntN(2)]
	}
	switch g.IntN(8) {
	case 0:
		object["metadata"] = map[string]any{"name": "Not valid", "none": true}
	case 1:
		object["metadata"] = "wrong"
	case 2, 3, 4:
		object["metadata"] = map[string]any{"name": "inner", "labels": map[string]any{"a": "b"}}
	}
}

func (g *generator) text() string {
	return []string{"a", "b", "c", "abc", "Not valid", "", "10.0.0.1", "2026-01-02", "2026-01-02T03:04:05Z", "10Gi", "https://example.com/x",
		"größer", strings.Repeat("long", 30), "True", "x.y", "a/b"}[g.IntN(16)]
}

func (g *generator) wrong(depth int) any {
	switch n := g.IntN(7); {
	case n == 0:
		return nil
	case n == 1:
		return g.text()
	case n == 2:
		return int64(g.IntN(100))
	case n == 3:
		return float64(g.IntN(10)) / 2
	case n == 4:
		return true
	case n == 5 && depth < 6:
		return map[string]any{g.text(): g.wrong(depth + 1), "b": g.wrong(depth + 1)}
	case depth < 6:
		return []any{g.wrong(depth + 1), g.wrong(depth + 1)}
	}
	return "deep"
}
