package ruleset

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// definition returns one in example.com with a version for each schema of spec's properties: v1, v2 and so on.
func definition(t testing.TB, annotation string, specs ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	d.Annotations = map[string]string{Annotation: annotation}
	d.Spec.Group = "example.com"
	for i, spec := range specs {
		v := apiextensionsv1.CustomResourceDefinitionVersion{Name: fmt.Sprintf("v%d", i+1), Served: true, Storage: i == 0}
		props := &apiextensionsv1.JSONSchemaProps{}
		text := fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object","properties":{%s}}}}`, spec)
		if err := json.Unmarshal([]byte(text), props); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		v.Schema = &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: props}
		d.Spec.Versions = append(d.Spec.Versions, v)
	}
	return d
}

// pair is an annotation with one pair, v1 and v2.
func pair(rules ...string) string {
	return "- versions: [v1, v2]\n  rules: [" + strings.Join(rules, ", ") + "]\n"
}

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	tree, _, err := jsontree.Decode(raw)
	if err != nil {
		t.Fatal(err)
	}
	return tree.(map[string]any)
}

func encoded(t testing.TB, tree map[string]any) string {
	t.Helper()
	raw, err := jsontree.Append(nil, tree)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func compiled(t testing.TB, d *apiextensionsv1.CustomResourceDefinition) *Rules {
	t.Helper()
	r, errs := New(d)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return r
}

const (
	text    = `{"type":"string"}`
	integer = `{"type":"integer"}`
)

// listOf is a property that is a list of objects.
func listOf(name, properties string) string {
	return `"` + name + `":{"type":"array","items":{"type":"object","properties":{` + properties + `}}}`
}

// TestConvert: each kind of rule, there and back.
func TestConvert(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name         string
		rules        string // without the outermost braces
		schema1      string // the properties of spec
		schema2      string
		spec1, spec2 string // in flow style
		annotations  string // of the object in v2, in flow style
	}{
		{name: "rename", rules: `rename: {from: spec.size, to: spec.length}`, schema1: `"size":` + text, schema2: `"length":` + text, spec1: `size: a`, spec2: `length: a`},
		{name: "nothing to rename", rules: `rename: {from: spec.size, to: spec.length}`, schema1: `"size":` + text, schema2: `"length":` + text},
		{name: "two names swapped", rules: `rename: {from: spec.a, to: spec.b}}, {rename: {from: spec.b, to: spec.a}`,
			schema1: `"a":` + text + `,"b":` + integer, schema2: `"b":` + text + `,"a":` + integer, spec1: `a: x, b: 1`, spec2: `b: x, a: 1`},
		{name: "a chain of names", rules: `rename: {from: spec.a, to: spec.b}}, {rename: {from: spec.b, to: spec.c}`,
			schema1: `"a":` + text + `,"b":` + text, schema2: `"b":` + text + `,"c":` + text, spec1: `a: x`, spec2: `b: x`},
		{name: "move out", rules: `move: {from: spec.server.host, to: spec.host}`,
			schema1: `"server":{"type":"object","properties":{"host":` + text + `}}`, schema2: `"host":` + text, spec1: `server: {host: h}`, spec2: `host: h`},
		{name: "move in beside another", rules: `move: {from: spec.host, to: spec.server.host}`,
			schema1: `"host":` + text + `,"server":{"type":"object","properties":{"port":` + integer + `}}`, schema2: `"server":{"type":"object","properties":{"host":` + text + `,"port":` + integer + `}}`,
			spec1: `host: h, server: {port: 1}`, spec2: `server: {host: h, port: 1}`},
		{name: "an object moved", rules: `move: {from: spec.a, to: spec.b.c}`,
			schema1: `"a":{"type":"object","properties":{"x":` + text + `}}`, schema2: `"b":{"type":"object","properties":{"c":{"type":"object","properties":{"x":` + text + `}}}}`,
			spec1: `a: {x: "1"}`, spec2: `b: {c: {x: "1"}}`},
		{name: "text in an annotation", rules: `move: {from: spec.old, to: "metadata.annotations[example.com/old]"}`, schema1: `"old":` + text, spec1: `old: o`, annotations: `example.com/old: o`},
		{name: "an object in an annotation", rules: `move: {from: spec.old, to: "metadata.annotations[example.com/old]"}`, schema1: `"old":{"type":"object","properties":{"k":` + integer + `}}`,
			spec1: `old: {k: 1}`, annotations: `example.com/old: '{"k":1}'`},
		{name: "a default", rules: `default: {to: spec.mode, value: auto}`, schema2: `"mode":` + text, spec2: `mode: auto`},
		{name: "a default of the first version", rules: `default: {from: spec.mode, value: {a: [1]}}`, schema1: `"mode":{"type":"object","properties":{"a":{"type":"array","items":` + integer + `}}}`, spec1: `mode: {a: [1]}`},
		{name: "a map", rules: `map: {from: spec.level, to: spec.grade, values: {low: L, high: H}}`, schema1: `"level":` + text, schema2: `"grade":` + text, spec1: `level: high`, spec2: `grade: H`},
		{name: "a map of one field", rules: `map: {from: spec.level, to: spec.level, values: {low: L}}`, schema1: `"level":` + text, schema2: `"level":` + text, spec1: `level: low`, spec2: `level: L`},
		{name: "a map without the value", rules: `map: {from: spec.level, to: spec.level, values: {low: L}}`, schema1: `"level":` + text, schema2: `"level":` + text, spec1: `level: x`, spec2: `level: x`},
		{name: "split", rules: `split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}`, schema1: `"at":` + text, schema2: `"host":` + text + `,"port":` + integer, spec1: `at: "h:80"`, spec2: `host: h, port: 80`},
		{name: "split without the last part", rules: `split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}`, schema1: `"at":` + text, schema2: `"host":` + text + `,"port":` + integer, spec1: `at: h`, spec2: `host: h`},
		{name: "split with more", rules: `split: {from: spec.at, to: [spec.a, spec.b], separator: ":"}`, schema1: `"at":` + text, schema2: `"a":` + text + `,"b":` + text, spec1: `at: "1:2:3"`, spec2: `a: "1", b: "2:3"`},
		{name: "join", rules: `join: {from: [spec.a, spec.b, spec.c], to: spec.all, separator: "--"}`, schema1: `"a":` + text + `,"b":` + text + `,"c":` + text, schema2: `"all":` + text, spec1: `a: x, b: "y", c: z`, spec2: `all: x--y--z`},
		{name: "CEL", rules: `cel: {from: spec.seconds, to: spec.time, forth: 'string(value) + "s"', back: 'int(value.replace("s", ""))'}`, schema1: `"seconds":` + integer, schema2: `"time":` + text, spec1: `seconds: 5`, spec2: `time: 5s`},
		{name: "CEL of nothing", rules: `cel: {from: spec.seconds, to: spec.time, forth: 'string(value) + "s"', back: 'int(value.replace("s", ""))'}`, schema1: `"seconds":` + integer, schema2: `"time":` + text},
		{name: "CEL of several", rules: `cel: {from: [spec.a, spec.b], to: spec.all, forth: '[self.spec.a, self.spec.b]', back: ['value[0]', 'value[1]']}`,
			schema1: `"a":` + integer + `,"b":` + integer, schema2: `"all":{"type":"array","items":` + integer + `}`, spec1: `a: 1, b: 2`, spec2: `all: [1, 2]`},
		{name: "items of a list", rules: `rename: {from: "spec.ports[*].port", to: "spec.ports[*].number"}}, {split: {from: "spec.ports[*].name", to: ["spec.ports[*].a", "spec.ports[*].b"], separator: "-"}`,
			schema1: listOf("ports", `"port":`+integer+`,"name":`+text), schema2: listOf("ports", `"number":`+integer+`,"a":`+text+`,"b":`+text),
			spec1: `ports: [{port: 1, name: x-y}, {port: 2}, {}]`, spec2: `ports: [{number: 1, a: x, b: "y"}, {number: 2}, {}]`},
		{name: "items of items", rules: `rename: {from: "spec.a[*].b[*].x", to: "spec.a[*].b[*].z"}}, {rename: {from: "spec.a[*].k", to: "spec.a[*].m"}`,
			schema1: listOf("a", listOf("b", `"x":`+integer)+`,"k":`+integer), schema2: listOf("a", listOf("b", `"z":`+integer)+`,"m":`+integer),
			spec1: `a: [{k: 0, b: [{x: 1}, {x: 2}]}, {b: []}]`, spec2: `a: [{m: 0, b: [{z: 1}, {z: 2}]}, {b: []}]`},
		{name: "CEL in a list", rules: `cel: {from: "spec.a[*].x", to: "spec.a[*].z", forth: 'value + self.k', back: 'value - self.k'}`,
			schema1: listOf("a", `"x":`+integer+`,"k":`+integer), schema2: listOf("a", `"z":`+integer+`,"k":`+integer), spec1: `a: [{x: 1, k: 2}]`, spec2: `a: [{z: 3, k: 2}]`},
		{name: "a key of a map", rules: `move: {from: "spec.tags[a.b/c]", to: spec.c}`, schema1: `"tags":{"type":"object","additionalProperties":` + text + `}`,
			schema2: `"c":` + text + `,"tags":{"type":"object","additionalProperties":` + text + `}`, spec1: `tags: {a.b/c: v, d: w}`, spec2: `c: v, tags: {d: w}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := compiled(t, definition(t, pair("{"+tc.rules+"}"), tc.schema1, tc.schema2))
			whole := func(version, spec string) string {
				metadata := "name: a"
				if version == "v2" && tc.annotations != "" {
					metadata += ", annotations: {" + tc.annotations + "}"
				}
				if spec != "" {
					spec = ", spec: {" + spec + "}"
				}
				return fmt.Sprintf("{apiVersion: example.com/%s, metadata: {%s}%s}", version, metadata, spec)
			}
			o := object(t, whole("v1", tc.spec1))
			for _, step := range []struct{ from, to, want string }{{"v1", "v2", tc.spec2}, {"v2", "v1", tc.spec1}} {
				if err := r.Convert(t.Context(), o, step.from, step.to); err != nil {
					t.Fatal(err)
				}
				if got, want := encoded(t, o), encoded(t, object(t, whole(step.to, step.want))); got != want {
					t.Errorf("in %s it is\n%s, want\n%s", step.to, got, want)
				}
			}
		})
	}
}

// TestTree: an object goes along the one way between two versions, and keeps its metadata.
func TestTree(t *testing.T) {
	t.Parallel()
	r := compiled(t, definition(t, `
- versions: [v2, v1]
  rules: [rename: {from: spec.b, to: spec.a}]
- versions: [v2, v3]
  rules: [rename: {from: spec.b, to: spec.c}]
- versions: [v4, v3]
  rules: [rename: {from: spec.d, to: spec.c}]
- versions: [v5, v1]
`, `"a":`+text, `"b":`+text, `"c":`+text, `"d":`+text, `"a":`+text))
	names := map[string]string{"v1": "a", "v2": "b", "v3": "c", "v4": "d", "v5": "a"}
	for from, name := range names {
		for to, want := range names {
			o := object(t, fmt.Sprintf("{apiVersion: example.com/%s, kind: Thing, metadata: {name: x, labels: {l: m}}, spec: {%s: x}}", from, name))
			if err := r.Convert(t.Context(), o, from, to); err != nil {
				t.Fatal(err)
			}
			if got := encoded(t, o); got != fmt.Sprintf(`{"apiVersion":"example.com/%s","kind":"Thing","metadata":{"labels":{"l":"m"},"name":"x"},"spec":{"%s":"x"}}`, to, want) {
				t.Errorf("from %s to %s it's %s", from, to, got)
			}
		}
	}
}

// TestUnconvertible: an object for which a rule has no answer is an error that names the rule and the field.
func TestUnconvertible(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, rule, schema1, schema2, spec, want string }{
		{"a part", `split: {from: spec.at, to: [spec.host, spec.port], separator: ":"}`, `"at":` + text, `"host":` + text + `,"port":` + integer, `at: "h:x"`,
			`conversion from v1 to v2 by [0].rules[0].split: spec.port must be an integer, and would be "x"`},
		{"no text", `split: {from: spec.at, to: [spec.a, spec.b], separator: ":"}`, `"at":` + text, `"a":` + text + `,"b":` + text, `at: 1`, `spec.at must be text, and is a number`},
		{"CEL", `cel: {from: spec.a, to: spec.b, forth: '1/value', back: 'value'}`, `"a":` + integer, `"b":` + integer, `a: 0`, `spec.b: division by zero`},
		{"CEL of no JSON", `cel: {from: spec.a, to: spec.b, forth: 'duration("1s")', back: 'value'}`, `"a":` + integer, `"b":` + text, `a: 0`, `use string()`},
		{"CEL that costs too much", `cel: {from: spec.a, to: spec.b, forth: 'value.map(x, value.map(y, value.map(z, value.map(w, w))))', back: 'value'}`,
			`"a":{"type":"array","items":` + integer + `}`, `"b":{"type":"array","items":` + integer + `}`, `a: [` + strings.Repeat("1, ", 100) + `1]`, `cost`},
		{"no text for an annotation", `cel: {from: spec.a, to: "metadata.annotations[b]", forth: 'value', back: 'int(value)'}`, `"a":` + integer, ``, `a: 0`, `metadata.annotations[b] must be text`},
	} {
		r := compiled(t, definition(t, pair("{"+tc.rule+"}"), tc.schema1, tc.schema2))
		err := r.Convert(t.Context(), object(t, "{spec: {"+tc.spec+"}}"), "v1", "v2")
		if e := (*Error)(nil); !errors.As(err, &e) || !strings.Contains(err.Error(), tc.want) || e.Field == "" {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}

// TestMade: what rules make counts as the memory that it takes.
func TestMade(t *testing.T) {
	nest := text
	for range 95 {
		nest = `{"type":"object","properties":{"b":` + nest + `}}`
	}
	empty := "[" + strings.TrimSuffix(strings.Repeat("{},", 60000), ",") + "]"
	items := func(n int) string {
		return `{"spec": {"l": [` + strings.TrimSuffix(strings.Repeat(`{"a":""},`, n), ",") + `]}}`
	}
	for name, c := range map[string]struct {
		rule, v2 string
		items    int
	}{
		"objects that lead to a field": {`{move: {from: "spec.l[*].a", to: "spec.l[*]` + strings.Repeat(".b", 95) + `"}}`, `"l":{"type":"array","items":` + nest + `}`, 2000},
		"a default of many objects":    {`{default: {to: "spec.l[*].d", value: ` + empty + `}}`, listOf("l", `"a":`+text+`,"d":{"x-kubernetes-preserve-unknown-fields":true}`), 20},
	} {
		r := compiled(t, definition(t, pair(c.rule), listOf("l", `"a":`+text), c.v2))
		if err := r.Convert(t.Context(), object(t, items(c.items)), "v1", "v2"); err == nil || !strings.Contains(err.Error(), "the rules make more than") {
			t.Errorf("%s: %v", name, err)
		}
		if err := r.Convert(t.Context(), object(t, items(2)), "v1", "v2"); err != nil {
			t.Errorf("%s, of two items: %v", name, err)
		}
	}
}

// TestAnnotationsOfItems: what an item of a list has at metadata.annotations is a field as any other.
func TestAnnotationsOfItems(t *testing.T) {
	of := func(name string) string {
		return listOf("l", `"metadata":{"type":"object","properties":{"annotations":{"type":"object","properties":{"`+name+`":{"type":"integer"}}}}}`)
	}
	r := compiled(t, definition(t, pair(`{rename: {from: "spec.l[*].metadata.annotations.a", to: "spec.l[*].metadata.annotations.b"}}`), of("a"), of("b")))
	o := object(t, `{"spec": {"l": [{"metadata": {"annotations": {"a": 1}}}]}}`)
	if err := r.Convert(t.Context(), o, "v1", "v2"); err != nil || !strings.Contains(encoded(t, o), `{"b":1}`) {
		t.Errorf("%s, %v", encoded(t, o), err)
	}
}

// TestSchemasAndNames: an embedded resource loses its metadata in a plain object, and an annotation has a name that annotations can have.
func TestSchemasAndNames(t *testing.T) {
	plain := `"t":{"type":"object","properties":{"spec":` + text + `}}`
	for name, d := range map[string]*apiextensionsv1.CustomResourceDefinition{
		"it's an embedded resource":        definition(t, pair(), strings.Replace(plain, `"object",`, `"object","x-kubernetes-embedded-resource":true,`, 1), plain),
		"an annotation can't be called so": definition(t, pair(`{move: {from: spec.a, to: "metadata.annotations[not a key!]"}}`), `"a":`+text, ``),
	} {
		if _, errs := New(d); len(errs) == 0 || !strings.Contains(errs.ToAggregate().Error(), name) {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
