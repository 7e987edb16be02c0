package managed_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

var (
	gvk   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
	gvkV2 = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Thing"}
)

// thing is a structural schema with one of each way to merge.
const thing = `
type: object
properties:
  spec:
    type: object
    properties:
      size: {type: integer}
      color: {type: string}
      note: {type: string, nullable: true}
      port: {x-kubernetes-int-or-string: true}
      ports:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [port, protocol]
        items:
          type: object
          required: [port]
          properties:
            port: {type: integer}
            protocol: {type: string, default: TCP}
            name: {type: string}
      tags:
        type: array
        x-kubernetes-list-type: set
        items: {type: string}
      args:
        type: array
        items: {type: string}
      limits:
        type: object
        additionalProperties: {type: string}
      unit:
        type: object
        x-kubernetes-map-type: atomic
        properties:
          a: {type: string}
          b: {type: string}
      template:
        type: object
        x-kubernetes-embedded-resource: true
        x-kubernetes-preserve-unknown-fields: true
      free:
        type: object
        x-kubernetes-preserve-unknown-fields: true
  status:
    type: object
    properties:
      phase: {type: string}
      conditions:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [type]
        items:
          type: object
          required: [type]
          properties:
            type: {type: string}
            status: {type: string}
`

func parseSchema(t testing.TB, text string) *spec.Schema {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := &spec.Schema{}
	if err := json.Unmarshal(raw, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// things are the types of thing, in v1 and v2.
func things(t testing.TB) *managed.Types {
	t.Helper()
	definitions := map[string]*spec.Schema{}
	managed.Define(definitions, gvk, parseSchema(t, thing))
	managed.Define(definitions, gvkV2, parseSchema(t, thing))
	return managed.NewTypes(func() (map[string]*spec.Schema, error) { return definitions, nil })
}

func deduced() *managed.Types {
	return managed.NewTypes(func() (map[string]*spec.Schema, error) { return nil, nil })
}

func tree(t testing.TB, text string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return integers(m).(map[string]any)
}

// integers makes of whole numbers what the registry's decoder makes of them.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key := range v {
			v[key] = integers(v[key])
		}
	case []any:
		for i := range v {
			v[i] = integers(v[i])
		}
	case float64:
		if v == float64(int64(v)) && v < 1<<53 && v > -1<<53 {
			return int64(v)
		}
	}
	return v
}

// object returns a Thing with the fields in text, and with a uid, as every stored object has.
func object(t testing.TB, apiVersion, text string) map[string]any {
	t.Helper()
	return tree(t, fmt.Sprintf("apiVersion: %s\nkind: Thing\nmetadata: {name: a, namespace: b, uid: u}\n%s", apiVersion, text))
}

// config is a configuration to apply; text begins at the first column.
func config(t testing.TB, text string) map[string]any {
	t.Helper()
	if !strings.Contains(text, "metadata:") {
		text = "metadata: {name: a}\n" + text
	}
	return tree(t, "apiVersion: example.com/v1\nkind: Thing\n"+text)
}

func toJSON(t testing.TB, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
