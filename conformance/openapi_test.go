package conformance

import (
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	generated "k8s.io/apiextensions-apiserver/pkg/generated/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"
)

// tree is a piece of JSON.
type tree = map[string]any

func treeOf(t *testing.T, v any) (out tree) {
	t.Helper()
	text, err := json.Marshal(v)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *apiserver) document(t *testing.T, path string) (doc tree) {
	t.Helper()
	res, err := http.Get(s.url + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil {
		err = json.Unmarshal(text, &doc)
	}
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("GET %s: %s, %v", path, res.Status, err)
	}
	return doc
}

// under goes down a tree.
func under(v tree, path ...string) tree {
	for _, name := range path {
		v, _ = v[name].(tree)
	}
	return v
}

// TestOpenAPIOfDefinitions compares what is published of definitions with what kube-apiserver's builder makes of them.
func TestOpenAPIOfDefinitions(t *testing.T) {
	s := startEphemeral(t)
	k := newKubectl(t, s)
	for _, file := range []string{"testdata/details.yaml", "testdata/widgets.yaml"} {
		k.do("", "create", "-f", file)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatal(err)
		}
		apiextensionsv1.SetObjectDefaults_CustomResourceDefinition(crd)
		crd.Spec.Names.ListKind = crd.Spec.Names.Kind + "List"
		for _, v := range crd.Spec.Versions {
			name := "com.example." + v.Name + "." + crd.Spec.Names.Kind
			t.Run(name, func(t *testing.T) {
				three, err := builder.BuildOpenAPIV3(crd, v.Name, builder.Options{IncludeSelectableFields: true})
				if err != nil {
					t.Fatal(err)
				}
				got := s.document(t, "/openapi/v3/apis/example.com/"+v.Name)
				compareSchemas(t, under(got, "components", "schemas"), under(treeOf(t, three), "components", "schemas"), name)
				compareOperations(t, under(got, "paths"), under(treeOf(t, three), "paths"))

				two, err := builder.BuildOpenAPIV2(crd, v.Name, builder.Options{V2: true, IncludeSelectableFields: true})
				if err != nil {
					t.Fatal(err)
				}
				got = s.document(t, "/openapi/v2")
				compareSchemas(t, under(got, "definitions"), under(treeOf(t, two), "definitions"), name)
				compareOperations(t, under(got, "paths"), under(treeOf(t, two), "paths"))
			})
		}
	}
}

// compareSchemas compares those of a kind in all that is said, and looks whether all that they refer to are there.
func compareSchemas(t *testing.T, got, want tree, name string) {
	t.Helper()
	if a, b := comparable(got[name]), comparable(want[name]); a != b {
		t.Errorf("%s is\n%s, want\n%s", name, a, b)
	}
	list := name + "List"
	if a, b := comparable(got[list]), comparable(want[list]); a != b {
		t.Errorf("%s is\n%s, want\n%s", list, a, b)
	}
	for other := range want {
		if got[other] == nil {
			t.Errorf("%s is missing", other)
		}
	}
}

// comparable is a piece of JSON without the descriptions that upstream words differently.
func comparable(v any) string {
	text, _ := json.Marshal(without(v))
	return string(text)
}

func without(v any) any {
	switch v := v.(type) {
	case tree:
		out := tree{}
		for name, value := range v {
			switch description, isText := value.(string); {
			case name == "description" && isText && (strings.Contains(description, "sig-architecture") || strings.Contains(description, "List of ")):
			default:
				out[name] = without(value)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = without(v[i])
		}
		return out
	}
	return v
}

// compareOperations compares what clients look at.
func compareOperations(t *testing.T, got, want tree) {
	t.Helper()
	for path, item := range want {
		for method, op := range item.(tree) {
			mine := under(got, path, method)
			op, ok := op.(tree)
			if !ok {
				continue // what all operations of a path have
			}
			if mine == nil {
				t.Errorf("there is no %s %s", method, path)
				continue
			}
			for _, field := range []string{"operationId", "x-kubernetes-action", "tags"} {
				if a, b := comparable(mine[field]), comparable(op[field]); a != b {
					t.Errorf("%s of %s %s is %s, want %s", field, method, path, a, b)
				}
			}
			if a, b := comparable(mine["x-kubernetes-group-version-kind"]), comparable(op["x-kubernetes-group-version-kind"]); a != b && !strings.HasSuffix(path, "/scale") {
				t.Errorf("the kind of %s %s is %s, want %s", method, path, a, b)
			}
			if a, b := media(mine), media(op); !slices.Equal(a, b) && method != "get" && op["x-kubernetes-action"] != "deletecollection" {
				t.Errorf("%s %s takes %q, want %q", method, path, a, b)
			}
			if a, b := codes(mine), codes(op); !slices.Equal(a, b) {
				t.Errorf("%s %s answers %q, want %q", method, path, a, b)
			}
			for _, name := range parameterNames(op, item.(tree)) {
				if !slices.Contains(parameterNames(mine, under(got, path)), name) && !strings.Contains("ignoreStoreReadErrorWithClusterBreakingPotential shardSelector", name) {
					t.Errorf("%s %s lacks the parameter %s", method, path, name)
				}
			}
		}
	}
}

func media(op tree) []string {
	if consumes, ok := op["consumes"].([]any); ok {
		var all []string
		for _, one := range consumes {
			all = append(all, one.(string))
		}
		return slices.Sorted(slices.Values(all))
	}
	return slices.Sorted(maps.Keys(under(op, "requestBody", "content")))
}

func codes(op tree) []string { return slices.Sorted(maps.Keys(under(op, "responses"))) }

func parameterNames(op, item tree) (names []string) {
	for _, from := range []tree{op, item} {
		list, _ := from["parameters"].([]any)
		for _, one := range list {
			if name, _ := one.(tree)["name"].(string); name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}

// TestOpenAPIOfGoTypes compares the schemas of Kubernetes's own types with those that it generates from their sources.
func TestOpenAPIOfGoTypes(t *testing.T) {
	s := startEphemeral(t)
	newKubectl(t, s).do("", "create", "-f", "testdata/details.yaml")
	const crdv1 = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
	published := generated.GetOpenAPIDefinitions(func(name string) spec.Ref { return spec.MustCreateRef("#/components/schemas/" + name) })
	compared := 0
	for _, path := range []string{"/openapi/v3/api/v1", "/openapi/v3/apis/apiextensions.k8s.io/v1", "/openapi/v3/apis/example.com/v1"} {
		for name, got := range under(s.document(t, path), "components", "schemas") {
			definition, ok := published[name]
			if !ok {
				continue
			}
			compared++
			want := treeOf(t, &definition.Schema)
			if required := comparable(got.(tree)["required"]); required != comparable(want["required"]) && name != crdv1+"CustomResourceDefinitionStatus" {
				t.Errorf("%s requires %s, want %s", name, required, comparable(want["required"]))
			}
			properties, fields := under(got.(tree), "properties"), under(want, "properties")
			if len(properties) != len(fields) {
				t.Errorf("%s has %d fields, want %d", name, len(properties), len(fields))
			}
			for field, property := range properties {
				if name == crdv1+"CustomResourceDefinitionStatus" && field == "conditions" || name == crdv1+"CustomResourceDefinitionList" {
					continue // how the one is merged stands in a comment alone; the other is ours
				}
				a, b := bare(property.(tree)), bare(under(fields, field))
				if comparable(a) != comparable(b) {
					t.Errorf("%s.%s is\n%s, want\n%s", name, field, comparable(a), comparable(b))
				}
				if property.(tree)["description"] == nil && under(fields, field)["description"] != nil && !strings.HasPrefix(name, crdv1) { // those have no descriptions at run time
					t.Errorf("%s.%s has no description", name, field)
				}
			}
		}
	}
	if compared < 20 {
		t.Errorf("only %d schemas were there to be compared", compared)
	}
}

// bare is a field's schema without what stands in comments, and with a reference that is wrapped in allOf unwrapped.
func bare(v tree) tree {
	out := maps.Clone(v)
	for _, name := range []string{"description", "default", "enum"} {
		delete(out, name)
	}
	if all, ok := out["allOf"].([]any); ok && len(all) == 1 {
		delete(out, "allOf")
		maps.Copy(out, all[0].(tree))
	}
	for _, name := range []string{"items", "additionalProperties"} {
		if inner, ok := out[name].(tree); ok {
			out[name] = bare(inner)
		}
	}
	return out
}
