package registry

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// gadgets posts a definition with printer columns, given as JSON, and returns its endpoint.
func (s *server) gadgets(columns string) *Endpoint {
	s.t.Helper()
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(`{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "gadgets.example.com"},
  "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "gadgets", "kind": "Gadget"},
    "versions": [{"name": "v1", "served": true, "storage": true, "additionalPrinterColumns": [`+columns+`],
       "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]
  }
}`)))
	return s.at("example.com", "v1", "gadgets")
}

// rowOf renders one object as a row behind the name; columns are types and paths in turn.
func rowOf(t testing.TB, object string, columns ...string) string {
	t.Helper()
	var declared []Column
	for i := 0; i < len(columns); i += 2 {
		declared = append(declared, Column{Name: "C", Type: columns[i], JSONPath: columns[i+1]})
	}
	e := fuzzEndpoint()
	e.forms = newForms(declared)
	in, err := e.In(Form{Kind: Table, Version: "v1"}, map[string][]string{"includeObject": {"None"}})
	if err != nil {
		t.Fatal(err)
	}
	o := cacher.NewObject(fuzzKey, []byte(object), 7)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	var row struct{ Cells []json.RawMessage }
	if err := json.Unmarshal(in.shown.item.Append(nil, o), &row); err != nil {
		t.Fatal(err)
	}
	var cells []string
	for _, cell := range row.Cells {
		cells = append(cells, string(cell))
	}
	return strings.Join(cells[1:], " ")
}

// TestCells is what kube-apiserver shows for a value as a type.
func TestCells(t *testing.T) {
	minutesAgo := time.Now().UTC().Add(-5 * time.Minute).Format(time.RFC3339)
	for _, c := range []struct{ name, typ, value, want string }{
		{"integer", "integer", `3`, `3`},
		{"integer beyond a float's precision", "integer", `9007199254740993`, `9007199254740993`},
		{"integer of a fraction", "integer", `3.9`, `3`},
		{"integer of a string", "integer", `"3"`, `null`},
		{"number", "number", `1.5`, `1.5`},
		{"number of an integer", "number", `2`, `2`},
		{"number of a bool", "number", `true`, `null`},
		{"boolean", "boolean", `true`, `true`},
		{"boolean of a string", "boolean", `"true"`, `null`},
		{"string", "string", `"a\"<b"`, `"a\"\u003cb"`},
		{"string of an integer", "string", `3`, `"3"`},
		{"string of a bool", "string", `false`, `"false"`},
		{"string of a list", "string", `["a",1]`, `"[\"a\",1]"`},
		{"string of an object", "string", `{"b":1}`, `"{\"b\":1}"`},
		{"string of null", "string", `null`, `"\u003cno value\u003e"`},
		{"date", "date", `"` + minutesAgo + `"`, `"5m"`},
		{"date long ago", "date", `"2001-01-01T00:00:00+02:00"`, ""},
		{"date that is none", "date", `"yesterday"`, `"\u003cinvalid\u003e"`},
		{"date that is empty", "date", `""`, `"\u003cunknown\u003e"`},
		{"date of a number", "date", `7`, `null`},
		{"date of null", "date", `null`, `null`},
		{"a type that there isn't", "color", `"red"`, `null`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := rowOf(t, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{},"spec":{"v":`+c.value+`}}`, c.typ, ".spec.v")
			if c.want == "" {
				if !strings.HasSuffix(got, `y"`) {
					t.Errorf("the cell is %s, want years", got)
				}
			} else if got != c.want && !(strings.HasPrefix(got, `"5m`) && c.want == `"5m"`) {
				t.Errorf("the cell is %s, want %s", got, c.want)
			}
		})
	}
}

func TestColumnPaths(t *testing.T) {
	const object = `{"apiVersion":"example.com/v0","kind":"Widget","metadata":{"annotations":{"a.b/c":"dotted"}},
		"spec":{"list":[{"n":1,"on":false},{"n":2,"on":true}],"deep":{"er":{"x":"y"}},"empty":[]}}`
	for path, want := range map[string]string{
		".spec.list[0].n":                 `1`,
		".spec.list[-1].n":                `2`,
		".spec.list[*].n":                 `1`, // the first
		".spec.list[?(@.on==true)].n":     `2`,
		".spec.list[7].n":                 `null`,
		".spec.empty[0]":                  `null`,
		".spec.none.at.all":               `null`,
		".spec.list.n":                    `null`,
		".spec..x":                        `null`, // "y" isn't an integer
		".metadata.resourceVersion":       `null`, // it's a string
		".spec.list[":                     `null`,
		".spec} {range .spec.list[*]}{.n": `null`,
		".spec.list[*]}{.n}{end":          `null`,
		".spec..list..n":                  `null`, // costs more than in proportion
		".spec['deep','list']['er']":      `null`,
		"":                                `null`,
	} {
		if got := rowOf(t, object, "integer", path); got != want {
			t.Errorf("%s gives %s, want %s", path, got, want)
		}
	}
	for path, want := range map[string]string{
		`.metadata.annotations.a\.b/c`: `"dotted"`,
		".spec..x":                     `"y"`,
		".metadata.resourceVersion":    `"7"`,              // of the event or the read
		".apiVersion":                  `"example.com/v1"`, // as served
	} {
		if got := rowOf(t, object, "string", path); got != want {
			t.Errorf("%s gives %s, want %s", path, got, want)
		}
	}
}

// TestColumnsAreShared renders rows of one table at the same time; the race detector watches.
func TestColumnsAreShared(t *testing.T) {
	e := fuzzEndpoint()
	e.forms = newForms([]Column{
		{Name: "A", Type: "string", JSONPath: `.spec.list[?(@.n==2)].name`},
		{Name: "B", Type: "integer", JSONPath: `.spec.list[-1].n`},
	})
	o := cacher.NewObject(fuzzKey, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{},"spec":{"list":[{"n":1,"name":"one"},{"n":2,"name":"two"}]}}`), 7)
	const want = `{"cells":["a","two",2],"object":null}`
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			in, err := e.In(Form{Kind: Table, Version: "v1"}, map[string][]string{"includeObject": {"None"}})
			if err != nil {
				t.Error(err)
				return
			}
			for range 50 {
				if got := string(in.shown.item.Append(nil, o)); got != want {
					t.Errorf("the row is %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
}

// TestFormsAreKept: watchers share what is encoded for them only if they have the same views.
func TestFormsAreKept(t *testing.T) {
	s := start(t, "", Options{})
	e := s.widgets()
	in := func(e *Endpoint, kind FormKind) *cacher.View {
		t.Helper()
		in, err := e.In(Form{Kind: kind, Version: "v1"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return in.shown.event
	}
	table := in(e, Table)
	if in(e, Table) != table || in(e, MetadataOnly) == table {
		t.Error("a form has not one view")
	}
	label := func(body string) *Endpoint {
		t.Helper()
		s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", "application/merge-patch+json", nil, []byte(body)))
		return s.at("example.com", "v1", "widgets")
	}
	if in(label(`{"metadata":{"labels":{"a":"b"}}}`), Table) != table {
		t.Error("a definition that defines the same has other views")
	}
	if in(label(`{"spec":{"names":{"shortNames":["w"]}}}`), Table) == table {
		t.Error("a definition that defines something else has the same views")
	}
}

// FuzzColumn looks for paths that panic, never end, or make rows that aren't JSON.
func FuzzColumn(f *testing.F) {
	for _, path := range []string{".spec.v", ".spec.list[?(@.n==1)].n", ".spec..n", ".", "..", ".spec['a','b']", ".x} {range .y[*]}{.z", ".spec.list[1:2:0]", `.a\.b`} {
		f.Add(path, "string")
	}
	f.Add(".spec.v", "date")
	const object = `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"},"spec":{"v":"2020-01-01T00:00:00Z","list":[{"n":1},{"n":null}]}}`
	f.Fuzz(func(t *testing.T, path, typ string) {
		rowOf(t, object, typ, path)
	})
}
