package managed_test

import (
	"encoding/json"
	"reflect"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// TestTake: what is taken is what the type writes of it.
func TestTake(t *testing.T) {
	for _, c := range []struct {
		name, list string
		taken      bool
	}{
		{"all fields", `[{"manager":"m","operation":"Update","apiVersion":"v1","time":"2026-01-02T03:04:05Z","fieldsType":"FieldsV1","fieldsV1":{"f:a":{"k:{\"b\":1}":{".":{}}}},"subresource":"status"}]`, true},
		{"two", `[{"manager":"m","fieldsV1":{}},{"manager":"n"}]`, true},
		{"an empty entry", `[{}]`, true},
		{"an empty field", `[{"manager":""}]`, false},
		{"null", `[{"manager":null}]`, false},
		{"no fields", `[{"fieldsV1":null}]`, false},
		{"fields of another type", `[{"fieldsV1":[]}]`, false},
		{"a number", `[{"manager":1}]`, false},
		{"an unknown field", `[{"manger":"m"}]`, false},
		{"another name's case", `[{"Manager":"m"}]`, false},
		{"a time with an offset", `[{"time":"2026-01-02T03:04:05+01:00"}]`, false},
		{"a time with a fraction", `[{"time":"2026-01-02T03:04:05.5Z"}]`, false},
		{"no time", `[{"time":"now"}]`, false},
		{"no entry", `["m"]`, false},
		{"one of two", `[{"manager":"m"},null]`, false},
		{"an empty list", `[]`, false},
		{"no list", `{}`, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			was, _, err := jsontree.Decode([]byte(c.list))
			if err != nil {
				t.Fatal(err)
			}
			metadata := map[string]any{"name": "a", "managedFields": was}
			taken := managed.Take(metadata)
			if _, left := metadata["managedFields"]; (taken != nil) != c.taken || left == c.taken || metadata["name"] != "a" {
				t.Fatalf("%v is taken of %s, and left is %v", taken, c.list, metadata)
			}
			if !c.taken {
				return
			}
			var entries []metav1.ManagedFieldsEntry
			if err := json.Unmarshal([]byte(c.list), &entries); err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(entries)
			if err != nil {
				t.Fatal(err)
			}
			if typed, _, err := jsontree.Decode(text); err != nil || !reflect.DeepEqual(any(taken), typed) {
				t.Errorf("%v is taken, and the type writes %v, %v", taken, typed, err)
			}
		})
	}
}
