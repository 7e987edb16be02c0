package managed_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// small is an object of about a kilobyte.
const small = `
spec:
  size: 3
  color: red
  port: http
  ports:
  - {port: 80, protocol: TCP, name: http}
  - {port: 443, protocol: TCP, name: https}
  tags: [a, b, c]
  args: [--one, --two, --three]
  limits: {cpu: "1", memory: 1Gi}
  unit: {a: "1", b: "2"}
`

// nested has 30 elements with three fields each, under keys of a map so that deduced types merge them too.
func nested() (schema, text string) {
	var s, o strings.Builder
	s.WriteString("type: object\nproperties:\n  spec:\n    type: object\n    properties:\n")
	o.WriteString("spec:\n")
	for i := range 30 {
		fmt.Fprintf(&s, "      part%d: {type: object, properties: {name: {type: string}, count: {type: integer}, on: {type: boolean}}}\n", i)
		fmt.Fprintf(&o, "  part%d: {name: name-%d, count: %d, on: true}\n", i, i, i)
	}
	return s.String(), o.String()
}

func BenchmarkManager(b *testing.B) {
	nestedSchema, nestedText := nested()
	nestedTypes := managed.NewTypes(func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(b, nestedSchema))
		return definitions, nil
	})
	for _, c := range []struct {
		name, text, change string
		types              *managed.Types
	}{
		{"small/typed", small, "size", things(b)},
		{"small/deduced", small, "size", deduced()},
		{"30-objects/typed", nestedText, "part7", nestedTypes},
		{"30-objects/deduced", nestedText, "part7", deduced()},
	} {
		m := managed.New(gvk, "", c.types, []string{"status"}, nil)
		applied := config(b, c.text)
		live, err := m.Apply(object(b, "example.com/v1", ""), applied, "applier", false)
		if err != nil {
			b.Fatal(err)
		}
		changed := tree(b, toJSON(b, live))
		if p, ok := changed["spec"].(map[string]any)[c.change].(map[string]any); ok {
			p["count"] = int64(99)
		} else {
			changed["spec"].(map[string]any)[c.change] = int64(99)
		}
		changed = m.Update(live, changed, "updater", false)

		b.Run("apply-unchanged/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Apply(live, applied, "applier", false); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("apply-changed/"+c.name, func(b *testing.B) {
			for b.Loop() {
				if _, err := m.Apply(changed, applied, "applier", true); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("update/"+c.name, func(b *testing.B) {
			for b.Loop() {
				m.Update(live, changed, "updater", false)
			}
		})
		b.Run("update-unchanged/"+c.name, func(b *testing.B) {
			for b.Loop() {
				m.Update(live, live, "updater", false)
			}
		})
	}
}
