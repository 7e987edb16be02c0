package bulk

import (
	"reflect"
	"strings"
	"testing"
)

// FuzzOperations: what is scanned is what encoding/json makes of it, and what encoding/json refuses is refused.
func FuzzOperations(f *testing.F) {
	for _, text := range []string{
		`{"operations":[{"create":{"a":"é"}},{"update":{},"subresource":"status"},{"apply": null }]}`,
		`{"operations":[{"patch":{"resource":"widgets","name":"a","type":"json","body":[1, 2]}},{"delete":{"resource":"a","name":"b"}},{"check":{"absent":true}}]}`,
		`{"operations":[{"create":1,"create":2},{"CREATE":3}, null]}`, `{"operations":[{"check":{"absent":true},"check":{"name":"a"}}]}`,
		`{"operations":[]} {}`, `{"operations":[],"operations":[{}]}`, `{"operations":[{"drop":{}}]}`, `{"operations":[{"create":{}`, `[]`,
		"{\"operations\":[{\"subresource\":\"\xff\"}]}",
		`{"operations":[` + strings.Repeat("{},", MaxOperations) + `{}]}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var want struct {
			Operations []operation `json:"operations"`
		}
		refused := strictly(text, &want)
		got, n, err := operationsOf(text)
		switch {
		case n > MaxOperations:
			if len(got) != MaxOperations {
				t.Fatalf("%d operations of %d are kept", len(got), n)
			}
		case (refused == nil) != (err == nil):
			t.Fatalf("%q: %v, and encoding/json says %v", text, err, refused)
		case err == nil && len(got)+len(want.Operations) > 0 && !reflect.DeepEqual(got, want.Operations):
			t.Fatalf("%q: %+v, and encoding/json makes %+v of it", text, got, want.Operations)
		}
	})
}
