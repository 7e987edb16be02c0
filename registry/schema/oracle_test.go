package schema

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/crd"
)

// TestLikeUpstream compares with the oracle: what comes out of Shape, and what is wrong with objects.
func TestLikeUpstream(t *testing.T) {
	triples := 120
	if testing.Short() {
		triples = 20
	}
	for name, v1 := range Schemas(t) {
		t.Run(name, func(t *testing.T) {
			s, o := New(v1), NewOracle(t, v1)
			g := &Generator{Rand: rand.New(rand.NewPCG(7, uint64(len(name))))}
			var valid, invalid int
			for range triples {
				old := g.Object(v1)
				for _, own := range metaNames { // a decoder has had a look at them
					delete(old, own)
				}
				obj := runtime.DeepCopyJSON(old)
				if g.IntN(4) > 0 {
					g.Mutate(v1, obj)
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
				sameErrors(t, "create", obj, nil, s.Validate(t.Context(), obj, nil, Found{}), o.Validate(t, obj, nil))
				errs := s.Validate(t.Context(), obj, old, Found{})
				sameErrors(t, "update", obj, old, errs, o.Validate(t, obj, old))
				status := runtime.DeepCopyJSON(old)
				if v, ok := obj["status"]; ok {
					status["status"] = v
				} else {
					delete(status, "status")
				}
				sameErrors(t, "status", status, old, s.ValidateStatus(t.Context(), status, old, Found{}), o.ValidateStatus(t, status, old))
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
func shapeBoth(t *testing.T, s *Schema, o *Oracle, content map[string]any) bool {
	t.Helper()
	given := text(t, content)
	want := runtime.DeepCopyJSON(content)
	wantUnknown, wantErr := o.Shape(want)
	unknown, err := s.ShapeReporting(content)
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
	if unknown, err := s.ShapeReporting(again); err != nil || len(unknown) > 0 || !reflect.DeepEqual(again, content) {
		t.Fatalf("shaped again, %s is %s (unknown %q, %v)", text(t, content), text(t, again), unknown, err)
	}
	return true
}

func sameErrors(t *testing.T, what string, obj, old map[string]any, errs, want field.ErrorList) {
	t.Helper()
	if got, want := Described(errs), Described(want); !slices.Equal(got, want) {
		t.Fatalf("%s of %s, old %s, has errors\n%s\nupstream\n%s", what, text(t, obj), text(t, old), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestSchemasAreDefinitions makes sure that the tests' schemas are such as can be posted.
func TestSchemasAreDefinitions(t *testing.T) {
	for name, v1 := range Schemas(t) {
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
