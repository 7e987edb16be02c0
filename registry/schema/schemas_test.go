package schema

import (
	"embed"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// ThirtyDefinition is a definition with 30 fields and two rules, as YAML.
//
//go:embed testdata/thirty.yaml
var ThirtyDefinition []byte

// Thirty returns the schema of thirty.yaml, which has 30 fields and two rules.
func Thirty(t testing.TB) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(ThirtyDefinition, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// Props decodes a schema from YAML.
func Props(t testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	p := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", "  ")), p); err != nil {
		t.Fatalf("schema: %v\n%s", err, text)
	}
	return p
}

// Widget is the schema of the benchmarks' definition: seven fields, no rule.
const Widget = `
type: object
required: [spec]
properties:
  spec:
    type: object
    required: [size, color]
    properties:
      size: {type: integer, minimum: 0, maximum: 1000000000}
      color: {type: string, enum: [red, green, blue]}
      owner: {type: string, maxLength: 64, pattern: "^[a-z0-9-]+$"}
      replicas: {type: integer, format: int32, minimum: 0}
      ratio: {type: number, minimum: 0, maximum: 1}
      tags: {type: array, maxItems: 8, items: {type: string, maxLength: 32}}
      payload: {type: string, maxLength: 1048576}
`

// Schemas returns those that are compared with upstream and fuzzed, by name.
func Schemas(t testing.TB) map[string]*apiextensionsv1.JSONSchemaProps {
	all := map[string]*apiextensionsv1.JSONSchemaProps{"thirty": Thirty(t), "widget": Props(t, Widget)}
	for name, text := range Texts {
		all[name] = Props(t, text)
	}
	return all
}

//go:embed testdata/schemas/*.yaml
var files embed.FS

// Texts are schemas as YAML, by name.
var Texts = func() map[string]string {
	all := map[string]string{}
	entries, _ := files.ReadDir("testdata/schemas") // both are a part of the program
	for _, e := range entries {
		text, _ := files.ReadFile("testdata/schemas/" + e.Name())
		all[strings.TrimSuffix(e.Name(), ".yaml")] = string(text)
	}
	return all
}()
