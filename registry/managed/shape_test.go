package managed_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// newThings are new objects, of which several have one shape, and others nearly.
var newThings = []string{
	``,
	`spec: {}`,
	`spec: {size: 3, color: red}`,
	`spec: {size: 4, color: blue}`,
	`spec: {size: 0, color: ""}`,
	`spec: {size: 3, color: null}`,
	`spec: {size: "3", color: red}`,
	`spec: {size: 3, colour: red}`,
	`spec: {note: null}`,
	`spec: {note: x}`,
	`spec: {port: 80}`,
	`spec: {port: http}`,
	`spec: {ports: [{port: 80, protocol: TCP, name: a}]}`,
	`spec: {ports: [{port: 80, protocol: TCP, name: b}]}`,
	`spec: {ports: [{port: 81, protocol: TCP, name: a}]}`,
	`spec: {ports: [{port: 80, protocol: TCP}, {port: 80, protocol: TCP}]}`,
	`spec: {ports: []}`,
	`spec: {ports: null}`,
	`spec: {tags: [a, b]}`,
	`spec: {tags: [a, c]}`,
	`spec: {args: [a, b]}`,
	`spec: {args: [a]}`,
	`spec: {limits: {cpu: "1"}}`,
	`spec: {limits: {cpu: "2"}}`,
	`spec: {limits: {memory: "1"}}`,
	`spec: {limits: {}}`,
	`spec: {unit: {a: "1", b: "2"}}`,
	`spec: {unit: {a: "1"}}`,
	`spec: {free: {a: {b: 1.5}}}`,
	`spec: {free: {a: {b: true}}}`,
	`spec: {free: {a: {b: false}}}`,
	`status: {phase: x}`,
	`status: {conditions: [{type: a}]}`,
	`status: {conditions: [{type: b}]}`,
}

// TestCreateByShape: what a manager has learned of other new objects changes nothing in the record of the next one.
func TestCreateByShape(t *testing.T) {
	times := regexp.MustCompile(`"time":"[^"]*"`)
	record := func(m *managed.Manager, root map[string]any, manager string) string {
		was := toJSON(t, root)
		list, err := json.Marshal(m.Update(nil, root, manager, true)["metadata"].(map[string]any)["managedFields"])
		if err != nil {
			t.Fatal(err)
		}
		if is := toJSON(t, root); is != was {
			t.Fatalf("what was given has become %s, from %s", is, was)
		}
		return times.ReplaceAllString(string(list), "")
	}
	for name, types := range map[string]*managed.Types{"things": things(t), "deduced": deduced()} {
		for _, subresource := range []string{"", "status"} {
			used := managed.New(gvk, subresource, types, []string{"status"}, nil)
			recorded := 0
			for round := range 2 {
				for i, text := range newThings {
					for _, labels := range []string{`{a: b}`, `{a: c}`, `{b: c}`} {
						root := object(t, "example.com/v1", text+"\nmetadata: {name: a, labels: "+labels+"}\n")
						manager := fmt.Sprintf("manager-%d", i)
						got := record(used, root, manager)
						want := record(managed.New(gvk, subresource, types, []string{"status"}, nil), root, manager)
						if got != "null" {
							recorded++
						}
						if got != want {
							t.Errorf("%s, %q, round %d, %q with labels %s:\n%s, and of a new manager\n%s", name, subresource, round, text, labels, got, want)
						}
					}
				}
			}
			if recorded < 2*2*len(newThings) {
				t.Errorf("%s, %q: of all new objects only %d have a record", name, subresource, recorded)
			}
		}
	}
}

// TestCreateOfLastApplied: kubectl's annotation decides whose fields are applied, though it has one shape.
func TestCreateOfLastApplied(t *testing.T) {
	m := managed.New(gvk, "", things(t), nil, nil)
	for i, applied := range []string{``, `kubectl.kubernetes.io/last-applied-configuration: '{"apiVersion":"example.com/v1","kind":"Thing","spec":{"size":3}}'`, ``} {
		root := object(t, "example.com/v1", "spec: {size: 3}\nmetadata: {name: a, annotations: {x: z, "+applied+"}}\n")
		list, _ := m.Update(nil, root, "kubectl", true)["metadata"].(map[string]any)["managedFields"].([]any)
		want, _ := managed.New(gvk, "", things(t), nil, nil).Update(nil, root, "kubectl", true)["metadata"].(map[string]any)["managedFields"].([]any)
		if len(list) == 0 || len(list) != len(want) {
			t.Errorf("object %d has %d entries: %v, want %v", i, len(list), list, want)
		}
	}
}
