package discovery

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// gadget is a kind of a program's, with what encoding/json escapes.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Size  int64    `json:"size" minimum:"1" description:"How <large>, \"it\" & its \u2028 parts are."`
		Names []string `json:"names,omitempty"`
	} `json:"spec"`
}

// everything has a schema with something of everything.
const everything = `{"type":"object","description":"It's <b>\"bold\"</b> & \u2028 wide.","required":["spec"],"properties":{"spec":{"type":"object",
"x-kubernetes-validations":[{"rule":"self.a < 3","message":"no","optionalOldSelf":true,"reason":"FieldValueInvalid","fieldPath":".a"},{"rule":"true","messageExpression":"'x'"}],
"required":["a","maybe"],"properties":{
"a":{"type":"integer","format":"int32","minimum":0,"maximum":1e21,"exclusiveMaximum":true,"multipleOf":0.5,"default":1,"enum":[1,2,3],"title":"A"},
"b":{"type":"number","minimum":-1.5e-7,"default":0.25,"nullable":true},
"c":{"x-kubernetes-int-or-string":true},
"d":{"x-kubernetes-int-or-string":true,"anyOf":[{"type":"integer"},{"type":"string"}],"allOf":[{"pattern":"^a"}]},
"e":{"type":"object","x-kubernetes-embedded-resource":true,"x-kubernetes-preserve-unknown-fields":true},
"f":{"type":"object","x-kubernetes-embedded-resource":true,"required":["kind"],"properties":{"g":{"type":"string","nullable":true}}},
"h":{"type":"object","additionalProperties":{"type":"string","nullable":true,"maxLength":5,"minLength":1,"pattern":"^\\d+$"}},
"i":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["n"],"minItems":1,"maxItems":4,"items":{"type":"object","x-kubernetes-map-type":"atomic","required":["n"],"properties":{"n":{"type":"string"}}}},
"j":{"type":"array","items":{"type":"array","items":{"x-kubernetes-preserve-unknown-fields":true}}},
"k":{"type":"string","format":"date","externalDocs":{"url":"https://example.com"},"example":"today"},
"l":{"type":"object","minProperties":1,"maxProperties":2,"default":{"z":[null,true,{"y":"<"}],"a":{}},"x-kubernetes-preserve-unknown-fields":true},
"m":{"type":"string","enum":["<",""],"default":"","not":{"enum":["b"]},"oneOf":[{"pattern":"a"},{"maxLength":3}]},
"maybe":{"type":"string","nullable":true},
"n":{"type":"object","additionalProperties":true},"o":{"type":"object","properties":{}}
}}}}`

// custom is an endpoint of a definition.
func custom(t testing.TB, plural, kind string, namespaced bool, schemaText string, subresources ...string) *registry.Endpoint {
	t.Helper()
	v1 := &apiextensionsv1.JSONSchemaProps{}
	if err := json.Unmarshal([]byte(schemaText), v1); err != nil {
		t.Fatal(err)
	}
	e := &registry.Endpoint{
		Names:      registry.Names{Group: "things.example.com", Version: "v1", Kind: kind, ListKind: kind + "List", Plural: plural},
		Namespaced: namespaced, Subresources: subresources,
		Verbs: []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"},
	}
	e.Schema = schema.New(v1)
	return e
}

// catalogOf is a catalog with all built-in kinds of a set, a kind of a program's, and definitions.
func catalogOf(set builtin.Set, definitions ...*registry.Endpoint) *registry.Catalog {
	r := registry.New(registry.Options{Cacher: cacher.New(nil, cacher.Options{})})
	builtin.Register(r, builtin.Options{Set: set})
	registry.Register(r, registry.Definition[gadget]{Group: "go.example.com", Version: "v1", Kind: "Gadget", Status: true})
	builtins := r.Catalog()
	c := &registry.Catalog{Groups: slices.Clone(builtins.Groups)}
	if len(definitions) > 0 {
		c.Groups = append(c.Groups, registry.Group{Name: "things.example.com", Versions: []registry.Version{{Name: "v1", Resources: definitions}}})
	}
	return c
}

func allDefinitions(t testing.TB) []*registry.Endpoint {
	all := []*registry.Endpoint{
		custom(t, "alls", "All", true, everything, "status", "scale"),
		custom(t, "clusters", "Cluster", false, everything, "status"),
		custom(t, "opens", "Open", true, `{"type":"object","x-kubernetes-preserve-unknown-fields":true}`),
		custom(t, "odds", "Odd", true, `{"type":"string","properties":{"a":{}}}`), // of a program with other rules: it isn't structural
		custom(t, "empties", "Empty", false, `{"type":"object"}`),
	}
	all[0].Fields = []string{"spec.m", "spec.a"}
	return all
}

// TestDocumentsAreTheModels: what is served is byte for byte what the model says.
func TestDocumentsAreTheModels(t *testing.T) {
	for _, set := range []builtin.Set{builtin.Core, builtin.All} {
		c := catalogOf(set, allDefinitions(t)...)
		d := &Discovery{}
		var got bytes.Buffer
		if err := d.writeOpenAPI2(&got, form.JSON, c, nil); err != nil {
			t.Fatal(err)
		}
		same(t, string(set)+", version 2", got.String(), plainDocument2(t, c))
		for _, g := range c.Groups {
			for _, v := range g.Versions {
				path := pathOf(g, v)
				got.Reset()
				if err := d.writeOpenAPI3(&got, form.JSON, path, v); err != nil {
					t.Fatal(err)
				}
				same(t, string(set)+", "+path, got.String(), plainDocument3(t, path, v))
			}
		}
	}
}

func same(t *testing.T, what, got, want string) {
	t.Helper()
	if got == want {
		return
	}
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	around := func(s string) string { return s[max(0, n-100):min(len(s), n+100)] }
	t.Errorf("%s differs at %d of %d bytes:\n%s\nwant\n%s", what, n, len(want), around(got), around(want))
}

func plainDocument2(t *testing.T, c *registry.Catalog) string {
	t.Helper()
	b, err := newBuilding2(c, &foreign2{})
	if err != nil {
		t.Fatal(err)
	}
	rest, restDefinitions, err := b.rest()
	if err != nil {
		t.Fatal(err)
	}
	parameters, err := b.parameters()
	if err != nil {
		t.Fatal(err)
	}
	var paths, definitions []string
	add := func(to *[]string, members any) {
		if text := plainMembers(t, members); text != "" {
			*to = append(*to, text)
		}
	}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			path, own, schemas := pathOf(g, v), object{}, object{}
			kubernetes, err := b.at(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range withNone(v.Resources) {
				if theirs := kubernetes.of(path, e); e == nil || len(theirs) > 0 {
					maps.Copy(own, theirs)
					kubernetes.addTo(schemas, object{}, theirs, b.seen)
					continue
				}
				maps.Copy(own, model2.paths(t, e))
				for name, s := range model2.schemas(t, e) {
					if b.shared.add(name, schemas, object{}, b.seen); !b.seen[name] && schemas[name] == nil {
						schemas[name] = model2.form(s)
					}
				}
			}
			for name := range schemas {
				b.seen[name] = true
			}
			add(&paths, own)
			add(&definitions, schemas)
		}
	}
	add(&paths, rest)
	add(&definitions, restDefinitions)
	end := plainMembers(t, security2)
	if len(parameters) > 0 {
		end = `"parameters":{` + plainMembers(t, parameters) + "}," + end
	}
	return `{"swagger":"2.0","info":{` + plainMembers(t, (&Discovery{}).info()) + `},"paths":{` + strings.Join(paths, ",") +
		`},"definitions":{` + strings.Join(definitions, ",") + "}," + end + "}"
}

func plainDocument3(t *testing.T, path string, v registry.Version) string {
	t.Helper()
	archive, err := openPublished()
	if err != nil {
		t.Fatal(err)
	}
	kubernetes, err := archive.read(publishedOne + path)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := archive.shared()
	if err != nil {
		t.Fatal(err)
	}
	paths, components := object{}, object{}
	for _, e := range withNone(v.Resources) {
		if theirs := kubernetes.of(path, e); e == nil || len(theirs) > 0 {
			maps.Copy(paths, theirs)
			kubernetes.addTo(components, object{}, theirs, nil)
			continue
		}
		maps.Copy(paths, model3.paths(t, e))
		for name, s := range model3.schemas(t, e) {
			if shared.add(name, components, object{}, nil); components[name] == nil {
				components[name] = model3.form(s)
			}
		}
	}
	info, members := (&Discovery{}).info(), object{"securitySchemes": securitySchemes}
	if len(kubernetes.Paths) == 0 {
		info, members = definitionsInfo, object{}
	}
	if len(components) > 0 {
		members["schemas"] = components
	}
	return "{" + plainMembers(t, object{"openapi": "3.0.0", "info": info, "paths": paths, "components": members}) + "}"
}

// FuzzSchema: a schema is written as upstream's libraries write it.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(everything))
	for _, text := range []string{
		`{"$ref":"#/components/schemas/a.b","description":"x","default":{},"allOf":[{"type":"string"}]}`,
		`{"$ref":"#/components/schemas/a.b"}`, `{"$ref":"https://example.com/a?b=<c>"}`, `{"type":["string","null"],"oneOf":[{}]}`,
		`{"id":"a","$schema":"b","items":[{"type":"string"}],"patternProperties":{"a":{"nullable":true}},"definitions":{"a":{"$ref":"#/components/schemas/c"}}}`,
		`{"discriminator":"a","readOnly":true,"x-a":{"b":[1,2.5,1e30,null]},"X-B":1,"other":2,"required":[],"enum":[],"properties":{},"example":"","type":[]}`,
		`{"properties":{"\ue000":{},"\ud83d\ude00":{},"a<b":{"not":{"oneOf":[{"type":"integer"}]}}},"additionalProperties":false,"additionalItems":true}`,
		`{"nullable":true,"oneOf":[{"type":"string"}],"anyOf":[{"nullable":true}],"dependencies":{"a":["b"]}}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		s := &spec.Schema{}
		if json.Unmarshal(body, s) != nil {
			return
		}
		sameSchema(t, s)
	})
}

func sameSchema(t *testing.T, s *spec.Schema) {
	t.Helper()
	before, err := json.Marshal(s)
	if err != nil {
		return
	}
	for n, f := range []*schemaForm{form2, form3} {
		var got text
		if err := f.schema(&got, s); err != nil {
			t.Fatal(err)
		}
		want, err := json.Marshal([]model{model2, model3}[n].form(s))
		if err != nil {
			t.Fatal(err)
		}
		same(t, fmt.Sprint("version ", n+2, " of ", string(before)), string(got), string(want))
	}
	if after, _ := json.Marshal(s); string(after) != string(before) {
		t.Errorf("it was %s and is %s", before, after)
	}
}

// TestSchemaOfGoValues: extensions and defaults may be of any types.
func TestSchemaOfGoValues(t *testing.T) {
	type named struct {
		A string   `json:"a,omitempty"`
		B []string `json:"b"`
		C *bool    `json:"c,omitempty"`
	}
	for _, v := range []any{[]string{"<"}, []string(nil), []any(nil), []any{}, map[string]any(nil), map[string]string{"b": "", "a": "<"}, named{}, []named{{}}, 1, uint8(2), int64(3),
		float32(0.1), 1e21, 1e-7, math.Copysign(0, -1), "\u2028", nil, true, []any{map[string]any{"a": named{}}}, runtimeschema.GroupKind{}, &named{}, (*named)(nil), json.RawMessage(`{"b":1, "a":2}`)} {
		s := &spec.Schema{SchemaProps: spec.SchemaProps{Default: v, Enum: []any{v}}}
		s.AddExtension("x-a", v)
		s.AddExtension("x-b", v)
		sameSchema(t, s)
	}
}

// BenchmarkDocuments is what documents of many definitions cost, and what they hold meanwhile.
func BenchmarkDocuments(b *testing.B) {
	var all []*registry.Endpoint
	for i := range 200 {
		all = append(all, custom(b, fmt.Sprintf("alls%d", i), fmt.Sprintf("All%d", i), true, everything, "status"))
	}
	c := catalogOf(builtin.Core, all...)
	last := c.Groups[len(c.Groups)-1].Versions[0]
	d := &Discovery{}
	for name, write := range map[string]func(io.Writer) error{
		"two":   func(to io.Writer) error { return d.writeOpenAPI2(to, form.JSON, c, nil) },
		"three": func(to io.Writer) error { return d.writeOpenAPI3(to, form.JSON, "apis/things.example.com/v1", last) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				doc, err := pack(b.Context(), "", write)
				if err != nil {
					b.Fatal(err)
				}
				b.SetBytes(int64(doc.Size))
			}
		})
	}
}
