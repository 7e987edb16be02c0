package form

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// rows is how tables show items of a list, without the objects.
func rows(t testing.TB, forms *Forms) *kube.View {
	t.Helper()
	key, err := Form{Kind: Table, Version: "v1"}.WithOptions(map[string][]string{"includeObject": {"None"}})
	if err != nil {
		t.Error(err)
	}
	return forms.Get(key, &kube.View{APIVersion: "example.com/v1", Kind: "Widget"}).Item
}

// rowOf renders one object as a row after the name; columns are types and paths in turn.
func rowOf(t testing.TB, object string, columns ...string) string {
	t.Helper()
	var declared []Column
	for i := 0; i < len(columns); i += 2 {
		declared = append(declared, Column{Name: "C", Type: columns[i], JSONPath: columns[i+1]})
	}
	o := kube.NewObject("/registry/example.com/widgets/default/a", []byte(object), 7)
	if o.Err != nil {
		t.Fatal(o.Err)
	}
	var row struct{ Cells []json.RawMessage }
	if err := json.Unmarshal(rows(t, New(declared)).Append(nil, o), &row); err != nil {
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
	forms := New([]Column{
		{Name: "A", Type: "string", JSONPath: `.spec.list[?(@.n==2)].name`},
		{Name: "B", Type: "integer", JSONPath: `.spec.list[-1].n`},
	})
	o := kube.NewObject("/registry/example.com/widgets/default/a", []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{},"spec":{"list":[{"n":1,"name":"one"},{"n":2,"name":"two"}]}}`), 7)
	const want = `{"cells":["a","two",2],"object":null}`
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			item := rows(t, forms)
			for range 50 {
				if got := string(item.Append(nil, o)); got != want {
					t.Errorf("the row is %s, want %s", got, want)
				}
			}
		})
	}
	wg.Wait()
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
