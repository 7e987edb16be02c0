package crd

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func definition(t *testing.T, plural, kind string, short ...string) *Definition {
	t.Helper()
	d := &Definition{}
	d.Name = plural + ".example.com"
	d.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ShortNames: short},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"}},
		}},
	}
	Default(d)
	return d
}

func TestNames(t *testing.T) {
	for _, c := range []struct {
		name                    string
		d                       *Definition
		accepted, reason        string
		established, plural     string
		acceptedKind, shortName string
	}{
		{"free", definition(t, "gadgets", "Gadget", "gd"), "True", "NoConflicts", "True", "gadgets", "Gadget", "gd"},
		{"plural is a short name", definition(t, "wd", "Gadget"), "False", "PluralConflict", "False", "", "Gadget", ""},
		{"kind is taken", definition(t, "gadgets", "Widget"), "False", "ListKindConflict", "False", "gadgets", "", ""},
		{"kind is a list kind", definition(t, "gadgets", "WidgetList"), "False", "KindConflict", "False", "gadgets", "", ""},
		{"short name is taken", definition(t, "gadgets", "Gadget", "gd", "widget"), "False", "ShortNamesConflict", "False", "gadgets", "Gadget", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			taken := NamesFor(c.d)
			taken.Take(apiextensionsv1.CustomResourceDefinitionNames{
				Plural: "widgets", Singular: "widget", Kind: "Widget", ListKind: "WidgetList", ShortNames: []string{"wd"},
			})
			taken.Take(apiextensionsv1.CustomResourceDefinitionNames{}) // a definition that has no names yet takes none
			SetStatus(c.d, taken, metav1.Now())
			names := apihelpers.FindCRDCondition(c.d, apiextensionsv1.NamesAccepted)
			if string(names.Status) != c.accepted || names.Reason != c.reason {
				t.Errorf("NamesAccepted %+v", names)
			}
			if got := apihelpers.FindCRDCondition(c.d, apiextensionsv1.Established); string(got.Status) != c.established {
				t.Errorf("Established %+v", got)
			}
			got := c.d.Status.AcceptedNames
			if got.Plural != c.plural || got.Kind != c.acceptedKind || strings.Join(got.ShortNames, ",") != c.shortName {
				t.Errorf("names %+v", got)
			}
			if Accepted(c.d) != (c.accepted == "True") || Established(c.d) != (c.established == "True") {
				t.Error("Accepted or Established say otherwise")
			}
			again := c.d.DeepCopy()
			SetStatus(again, taken, metav1.Now())
			if !reflect.DeepEqual(again, c.d) {
				t.Errorf("not stable:\n%+v\n%+v", again.Status, c.d.Status)
			}
		})
	}
}

// A definition that is served keeps its names, and goes on being served, when a new one is refused.
func TestEstablishedStays(t *testing.T) {
	d := definition(t, "gadgets", "Gadget")
	SetStatus(d, NamesFor(d), metav1.Now())
	d.Spec.Names.ShortNames = []string{"wd"}
	taken := NamesFor(d)
	taken.Take(apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", ShortNames: []string{"wd"}})
	SetStatus(d, taken, metav1.Now())
	if Accepted(d) || !Established(d) || len(d.Status.AcceptedNames.ShortNames) != 0 {
		t.Errorf("status %+v", d.Status)
	}
	SetStatus(d, NamesFor(d), metav1.Now()) // the name is free now
	if !Accepted(d) || d.Status.AcceptedNames.ShortNames[0] != "wd" {
		t.Errorf("status %+v", d.Status)
	}
}

func TestStatusSurvivesStorage(t *testing.T) {
	d := definition(t, "gadgets", "Gadget")
	SetStatus(d, NamesFor(d), metav1.Now())
	b, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	stored := &Definition{}
	if err := json.Unmarshal(b, stored); err != nil {
		t.Fatal(err)
	}
	SetStatus(stored, NamesFor(stored), metav1.Now())
	again, err := json.Marshal(stored)
	if err != nil || string(again) != string(b) {
		t.Errorf("%v\n%s\n%s", err, b, again)
	}
}

func TestValidate(t *testing.T) {
	ctx := context.Background()
	d := definition(t, "gadgets", "Gadget")
	NoteStored(d)
	SetStatus(d, NamesFor(d), metav1.Now())
	before := d.DeepCopy()
	if errs := Validate(ctx, d, nil); len(errs) > 0 {
		t.Fatal(errs)
	}
	if !reflect.DeepEqual(d, before) {
		t.Error("validating changed the definition")
	}
	d.ResourceVersion, d.UID = "1", "u"
	old := d.DeepCopy()
	d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter}
	if errs := Validate(ctx, d, old); !strings.Contains(errs.ToAggregate().Error(), "webhookClientConfig") {
		t.Error(errs)
	}
	d = old.DeepCopy()
	d.Status.StoredVersions = nil
	if errs := ValidateStatus(ctx, d, old); len(errs) > 0 {
		t.Error(errs)
	}
	if SameSpec(d, old) != true {
		t.Error("status is no part of the spec")
	}
	d.Spec.Names.Categories = []string{"all"}
	if SameSpec(d, old) {
		t.Error("names are part of the spec")
	}
}

func TestDeletion(t *testing.T) {
	d := definition(t, "gadgets", "Gadget")
	d.Finalizers = []string{"example.com/x"}
	MarkDeleted(d, metav1.Now())
	MarkDeleted(d, metav1.Now())
	if got := strings.Join(d.Finalizers, ","); got != "example.com/x,"+Finalizer {
		t.Errorf("finalizers %s", got)
	}
	at := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating).LastTransitionTime
	at.Time = at.Add(-1e9)
	apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating).LastTransitionTime = at
	Wait(d, metav1.Now())
	c := apihelpers.FindCRDCondition(d, apiextensionsv1.Terminating)
	if c.Status != apiextensionsv1.ConditionTrue || c.Reason != "InstanceDeletionCheck" || !c.LastTransitionTime.Equal(&at) {
		t.Errorf("condition %+v", c)
	}
}

func TestFieldLabels(t *testing.T) {
	v := apiextensionsv1.CustomResourceDefinitionVersion{SelectableFields: []apiextensionsv1.SelectableField{{JSONPath: ".spec.color"}, {JSONPath: ".status.phase"}}}
	if got := strings.Join(FieldLabels(&v), " "); got != "spec.color status.phase" {
		t.Error(got)
	}
}

// TestVersionsAreBounded: a definition gets no more versions than are taken; one that has more can be changed.
func TestVersionsAreBounded(t *testing.T) {
	most, more := definition(t, "gadgets", "Gadget"), definition(t, "gadgets", "Gadget")
	for i := range MaxVersions {
		v := most.Spec.Versions[0]
		v.Name, v.Storage = fmt.Sprint("v", i+2), false
		if more.Spec.Versions = append(more.Spec.Versions, v); i > 0 {
			most.Spec.Versions = append(most.Spec.Versions, v)
		}
	}
	if errs := Validate(t.Context(), more, most); len(errs) != 1 || errs[0].Error() != "spec.versions: Too many: 1001: must have at most 1000 items" {
		t.Errorf("%d versions: %v", len(more.Spec.Versions), errs)
	}
	for _, old := range []*Definition{nil, more} {
		d := most
		if old != nil {
			d = more
		}
		if err := tooMany(d, old); err != nil {
			t.Errorf("%d versions: %v", len(d.Spec.Versions), err)
		}
	}
}

// TestSchemasAreBounded: schemas count wherever they are, and in all versions together. A definition that has more already, because
// it was stored before there was a bound, can be changed, but gets no more.
func TestSchemasAreBounded(t *testing.T) {
	type props = apiextensionsv1.JSONSchemaProps
	many := func(n int) []props { return make([]props, n) }
	named := func(n int) map[string]props {
		all := map[string]props{}
		for i := range n {
			all[fmt.Sprint("p", i)] = props{}
		}
		return all
	}
	const n = MaxSchemas
	for name, s := range map[string]*props{
		"anyOf":                {AnyOf: many(n)},
		"oneOf":                {OneOf: many(n)},
		"allOf":                {AllOf: many(n)},
		"not":                  {Not: &props{AnyOf: many(n)}},
		"properties":           {Properties: named(n)},
		"patternProperties":    {PatternProperties: named(n)},
		"definitions":          {Definitions: named(n)},
		"dependencies":         {Dependencies: apiextensionsv1.JSONSchemaDependencies{"a": {Schema: &props{AnyOf: many(n)}}}},
		"items":                {Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &props{AnyOf: many(n)}}},
		"each item":            {Items: &apiextensionsv1.JSONSchemaPropsOrArray{JSONSchemas: many(n)}},
		"additionalItems":      {AdditionalItems: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &props{AnyOf: many(n)}}},
		"additionalProperties": {AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &props{AnyOf: many(n)}}},
		"deep":                 {AnyOf: []props{{AllOf: many(n / 2)}, {OneOf: many(n / 2)}}},
	} {
		wide, wider := definition(t, "gadgets", "Gadget"), definition(t, "gadgets", "Gadget")
		wide.Spec.Versions[0].Schema.OpenAPIV3Schema = s
		wider.Spec.Versions = append(wide.Spec.Versions, wider.Spec.Versions[0])
		for _, c := range []struct {
			d, old  *Definition
			refused bool
		}{{wide, nil, true}, {wide, definition(t, "gadgets", "Gadget"), true}, {wide, wide, false}, {wider, wide, true}} {
			if err := tooMany(c.d, c.old); (err != nil) != c.refused {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	half := definition(t, "gadgets", "Gadget")
	half.Spec.Versions[0].Schema.OpenAPIV3Schema = &props{AnyOf: many(n/2 - 1)}
	half.Spec.Versions = append(half.Spec.Versions, half.Spec.Versions[0])
	if err := tooMany(half, nil); err != nil {
		t.Errorf("as many as may be: %v", err)
	}
	half.Spec.Versions = append(half.Spec.Versions, half.Spec.Versions[0])
	errs := Validate(t.Context(), half, nil)
	if len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.versions: Too many: 37500: the schemas of all versions") {
		t.Errorf("three versions: %v", errs)
	}
}
