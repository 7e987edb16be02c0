package schema

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

// props decodes a schema from YAML.
func props(t testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	p := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", "  ")), p); err != nil {
		t.Fatalf("schema: %v\n%s", err, text)
	}
	return p
}

// tree decodes an object from YAML, as the server does: integers are int64. The empty text is nil.
func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	if text == "" {
		return nil
	}
	data, err := yaml.YAMLToJSON([]byte(strings.ReplaceAll(text, "\t", "  ")))
	if err != nil {
		t.Fatalf("object: %v\n%s", err, text)
	}
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &object); err != nil {
		t.Fatalf("object: %v\n%s", err, text)
	}
	return object
}

func text(t testing.TB, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// thirty is the schema of testdata/thirty.yaml, which has 30 fields and two rules.
func thirty(t testing.TB) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	data, err := os.ReadFile("testdata/thirty.yaml")
	if err != nil {
		t.Fatal(err)
	}
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(data, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// widget is the schema of the benchmarks' definition: seven fields, no rule.
const widget = `
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
