package ruleset

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// definition returns one in example.com with a version for each schema of spec's properties: v1, v2 and so on.
func definition(t testing.TB, annotation string, specs ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Annotations = map[string]string{Annotation: annotation}
	d.Spec.Group = "example.com"
	for i, spec := range specs {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: fmt.Sprintf("v%d", i+1), Served: true, Storage: i == 0}
		props := &apiextensionsv1.JSONSchemaProps{}
		text := fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object","properties":{%s}}}}`, spec)
		if err := json.Unmarshal([]byte(text), props); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}
		d.Spec.Versions = append(d.Spec.Versions, v)
	}
	return d
}

// pair is an annotation with one pair, v1 and v2.
func pair(rules ...string) string {
	return "- versions: [v1, v2]\n  rules: [" + strings.Join(rules, ", ") + "]\n"
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tree, _, err := jsontree.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tree.(map[string]any)
}

func encoded(t testing.TB, tree map[string]any) string {
	t.Helper()
	raw, err := jsontree.Append(nil, tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func compiled(t testing.TB, d *apiextensionsv1.CustomResourceDefinition) *Rules {
	t.Helper()
	r, errs := New(d)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return r
}

const (
	text    = `{"type":"string"}`
	integer = `{"type":"integer"}`
)

// TestConvert: each kind of rule, there and back.
func TestConvert(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		rules         []string
		schema1       string
		schema2       string
		spec1, spec2  string // in flow style; with more than spec after a semicolon
		oneWay, other string // what comes back instead of spec1
	}{
		{name: "rename", rules: []string{`rename: {from: spec.size, to: spec.length}`}, schema1: `"size":` + text, schema2: `"length":` + text, spec1: `size: a`, spec2: `length: a`},
		{name: "rename in nothing", rules: []string{`rename: {from: spec.size, to: spec.length}`}, schema1: `"size":` + text, schema2: `"length":` + text},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			for i, r := range tc.rules {
				tc.rules[i] = "{" + r + "}"
			}
			r := compiled(t, definition(t, pair(tc.rules...), tc.schema1, tc.schema2))
			whole := func(version, spec string) string {
				return fmt.Sprintf("{apiVersion: example.com/%s, metadata: {name: a}, spec: {%s}}", version, spec)
			}
			o := object(t, whole("v1", tc.spec1))
			for _, step := range []struct{ from, to, want string }{{"v1", "v2", tc.spec2}, {"v2", "v1", tc.spec1}} {
				if err := r.Convert(t.Context(), o, step.from, step.to); err != nil {
					t.Fatal(err)
				}
				if got, want := encoded(t, o), encoded(t, object(t, whole(step.to, step.want))); got != want {
					t.Errorf("in %s it is\n%s, want\n%s", step.to, got, want)
				}
			}
		})
	}
}
