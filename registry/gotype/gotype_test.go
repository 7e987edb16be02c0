package gotype_test

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
)

const (
	here  = "com.github.apiserver-lite.apiserver-lite.registry.gotype_test."
	meta  = "io.k8s.apimachinery.pkg.apis.meta.v1."
	crdv1 = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."
)

type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec GadgetSpec `json:"spec"`
}

type GadgetSpec struct {
	*Common
	Size       int32                        `json:"size" minimum:"1" maximum:"10"`
	Color      Color                        `json:"color,omitempty" enum:"red,blue" description:"How it looks."`
	Ratio      *float64                     `json:"ratio,omitzero"`
	Big        uint64                       `json:"big,string,omitempty"`
	Raw        []byte                       `json:"raw,omitempty"`
	At         *metav1.Time                 `json:"at,omitempty"`
	Exactly    metav1.MicroTime             `json:"exactly,omitempty"`
	When       time.Time                    `json:"when,omitempty"`
	For        metav1.Duration              `json:"for,omitempty"`
	Port       intstr.IntOrString           `json:"port,omitempty"`
	Limits     corev1.ResourceList          `json:"limits,omitempty"`
	Template   runtime.RawExtension         `json:"template,omitempty"`
	Default    *apiextensionsv1.JSON        `json:"default,omitempty"`
	Message    json.RawMessage              `json:"message,omitempty"`
	Any        any                          `json:"any,omitempty"`
	Tree       map[string]any               `json:"tree,omitempty"`
	Numbered   map[int]string               `json:"numbered,omitempty"`
	Matrix     [][]int64                    `json:"matrix,omitempty"`
	Labels     Labels                       `json:"labels,omitempty"`
	Next       *GadgetSpec                  `json:"next,omitempty"`
	Parts      []Part                       `json:"parts,omitempty" patchStrategy:"merge" patchMergeKey:"name"`
	Names      []string                     `json:"names,omitempty" patchStrategy:"merge"`
	Plain      []Part                       `json:"plain,omitempty"`
	Box        Box[int]                     `json:"box,omitempty"`
	Whole      *unstructured.Unstructured   `json:"whole,omitempty"`
	Inner      struct{ Deep bool }          `json:"inner,omitempty"`
	Groups     map[string]map[string][]Part `json:"groups,omitempty"`
	Conditions []metav1.Condition           `json:"conditions,omitempty"`
	Hidden     chan int                     `json:"-"`
	private    func()                       //lint:ignore U1000 it must not be looked at
}

type Color string

type Labels map[string]string

type Common struct {
	Shared bool `json:"shared,omitempty"`
}

func (Common) SwaggerDoc() map[string]string {
	return map[string]string{"": "Common to all.", "shared": "Shared is shared."}
}

type Part struct {
	Name string `json:"name"`
}

func (Part) SwaggerDoc() map[string]string {
	return map[string]string{"": "Part of a gadget.", "name": "Name of the part."}
}

type Box[T any] struct{ Content T }

func of[T any](t *testing.T) (string, map[string]*spec.Schema) {
	t.Helper()
	root, schemas, err := gotype.Of(reflect.TypeFor[T]())
	if err != nil {
		t.Fatal(err)
	}
	if schemas[root] == nil {
		t.Fatalf("there is no schema %q", root)
	}
	return root, schemas
}

func TestNames(t *testing.T) {
	for _, test := range []struct {
		of   reflect.Type
		want string
	}{
		{reflect.TypeFor[corev1.Namespace](), "io.k8s.api.core.v1.Namespace"},
		{reflect.TypeFor[*corev1.Namespace](), "io.k8s.api.core.v1.Namespace"},
		{reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), crdv1 + "CustomResourceDefinition"},
		{reflect.TypeFor[metav1.Status](), meta + "Status"},
		{reflect.TypeFor[metav1.Time](), meta + "Time"},
		{reflect.TypeFor[Gadget](), here + "Gadget"},
		{reflect.TypeFor[struct1](), here + "struct1"},
		{reflect.TypeFor[Box[Part]](), here + "Box_github.com.apiserver-lite.apiserver-lite.registry.gotype_test.Part_"},
	} {
		root, _, err := gotype.Of(test.of)
		if err != nil || root != test.want {
			t.Errorf("%v is called %q, %v; want %q", test.of, root, err, test.want)
		}
	}
}

// struct1 has the methods of what it embeds, which speak of that alone.
type struct1 struct{ metav1.ObjectMeta }

func TestFields(t *testing.T) {
	_, schemas := of[Gadget](t)
	properties := schemas[here+"GadgetSpec"].Properties
	for field, want := range map[string]string{
		"shared":   `{"type":"boolean","description":"Shared is shared."}`,
		"size":     `{"type":"integer","format":"int32","maximum":10,"minimum":1}`,
		"color":    `{"type":"string","description":"How it looks.","enum":["red","blue"]}`,
		"ratio":    `{"type":"number","format":"double"}`,
		"big":      `{"type":"string"}`,
		"raw":      `{"type":"string","format":"byte"}`,
		"at":       `{"$ref":"#/components/schemas/` + meta + `Time"}`,
		"exactly":  `{"$ref":"#/components/schemas/` + meta + `MicroTime"}`,
		"when":     `{"type":"string","format":"date-time"}`,
		"for":      `{"$ref":"#/components/schemas/` + meta + `Duration"}`,
		"port":     `{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.util.intstr.IntOrString"}`,
		"limits":   `{"type":"object","additionalProperties":{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.api.resource.Quantity"}}`,
		"template": `{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.runtime.RawExtension"}`,
		"default":  `{"$ref":"#/components/schemas/` + crdv1 + `JSON"}`,
		"message":  `{"x-kubernetes-preserve-unknown-fields":true}`,
		"any":      `{"x-kubernetes-preserve-unknown-fields":true}`,
		"tree":     `{"type":"object","additionalProperties":{"x-kubernetes-preserve-unknown-fields":true}}`,
		"numbered": `{"type":"object","additionalProperties":{"type":"string"}}`,
		"matrix":   `{"type":"array","items":{"type":"array","items":{"type":"integer","format":"int64"}},"x-kubernetes-list-type":"atomic"}`,
		"labels":   `{"type":"object","additionalProperties":{"type":"string"}}`,
		"next":     `{"$ref":"#/components/schemas/` + here + `GadgetSpec"}`,
		"parts": `{"type":"array","items":{"$ref":"#/components/schemas/` + here + `Part"},"x-kubernetes-list-map-keys":["name"],` +
			`"x-kubernetes-list-type":"map","x-kubernetes-patch-merge-key":"name","x-kubernetes-patch-strategy":"merge"}`,
		"names":      `{"type":"array","items":{"type":"string"},"x-kubernetes-list-type":"set","x-kubernetes-patch-strategy":"merge"}`,
		"plain":      `{"type":"array","items":{"$ref":"#/components/schemas/` + here + `Part"},"x-kubernetes-list-type":"atomic"}`,
		"conditions": `{"type":"array","items":{"$ref":"#/components/schemas/` + meta + `Condition"},"x-kubernetes-list-map-keys":["type"],"x-kubernetes-list-type":"map"}`,
		"box":        `{"$ref":"#/components/schemas/` + here + `Box_int_"}`,
		"whole":      `{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.unstructured.Unstructured"}`,
		"inner":      `{"type":"object","required":["Deep"],"properties":{"Deep":{"type":"boolean"}}}`,
		"groups":     `{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"array","items":{"$ref":"#/components/schemas/` + here + `Part"}}}}`,
	} {
		got := properties[field]
		if !sameJSON(t, got, want) {
			t.Errorf("%s is %s, want %s", field, encode(t, got), want)
		}
		delete(properties, field)
	}
	if len(properties) > 0 {
		t.Errorf("there are %v besides", slices.Collect(maps.Keys(properties)))
	}
	if got, want := schemas[here+"GadgetSpec"].Required, []string{"size"}; !slices.Equal(got, want) {
		t.Errorf("%q are required, want %q", got, want)
	}
	if got := schemas[here+"Part"].Description; got != "Part of a gadget." {
		t.Errorf("the description is %q", got)
	}
	port := schemas["io.k8s.apimachinery.pkg.util.intstr.IntOrString"]
	if want := `{"format":"int-or-string","oneOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`; !sameJSON(t, *port, want) {
		t.Errorf("IntOrString is %s", encode(t, port))
	}
}

// TestReferencesResolve: each schema that others refer to is there, and no other.
func TestReferencesResolve(t *testing.T) {
	root, schemas := of[Gadget](t)
	used := map[string]bool{root: true}
	for name, schema := range schemas {
		for part := range strings.SplitSeq(encode(t, schema), `"$ref":"`+gotype.RefPrefix) {
			target, _, _ := strings.Cut(part, `"`)
			if strings.HasPrefix(part, "{") {
				continue // before the first
			}
			if used[target] = true; schemas[target] == nil {
				t.Errorf("%s refers to %q, which isn't there", name, target)
			}
		}
	}
	for name := range schemas {
		if !used[name] {
			t.Errorf("nothing refers to %s", name)
		}
	}
}

type (
	withChan    struct{ C chan int }
	withFunc    struct{ In []struct{ F func() } }
	withComplex struct{ C complex128 }
	withKeys    struct{ M map[struct{ X int }]string }
	withList    struct{ L list }
	list        []list
	withMap     struct{ M table }
	table       map[string]table
	withPointer struct{ P pointer }
	pointer     *pointer
	withSelf    struct{ *withSelf }
	//lint:ignore U1000 two types that embed each other are only looked at
	withOther struct{ *withOther2 }
	//lint:ignore U1000 as above
	withOther2  struct{ *withOther }
	withPanic   struct{ P panics }
	panics      struct{}
	withNilTime struct{ T struct{ *metav1.Time } }
)

func (panics) OpenAPISchemaType() []string { panic("by design") }

func TestTypesWithoutSchema(t *testing.T) {
	type Part struct{ Other string } // another of that name
	type twice struct {
		A Part
		B []gadgetPart
	}
	for name, test := range map[string]struct {
		of   reflect.Type
		want string
	}{
		"nil":               {nil, "only a named struct"},
		"string":            {reflect.TypeFor[string](), "only a named struct"},
		"slice":             {reflect.TypeFor[[]Gadget](), "only a named struct"},
		"anonymous":         {reflect.TypeFor[struct{ A int }](), "only a named struct"},
		"channel":           {reflect.TypeFor[withChan](), "field C: chan int has no form in JSON"},
		"function":          {reflect.TypeFor[withFunc](), "field In: field F: func() has no form in JSON"},
		"complex":           {reflect.TypeFor[withComplex](), "complex128 has no form in JSON"},
		"keys":              {reflect.TypeFor[withKeys](), "keys that aren't text"},
		"list in itself":    {reflect.TypeFor[withList](), "contains itself"},
		"map in itself":     {reflect.TypeFor[withMap](), "contains itself"},
		"pointer to itself": {reflect.TypeFor[withPointer](), "contains itself"},
		"embeds itself":     {reflect.TypeFor[withSelf](), "embeds itself"},
		"embeds in a ring":  {reflect.TypeFor[withOther](), "embeds itself"},
		"panics":            {reflect.TypeFor[withPanic](), "by design"},
		"two of a name":     {reflect.TypeFor[twice](), "two types have the name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := gotype.Of(test.of)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want one with %q", err, test.want)
			}
		})
	}
	if _, _, err := gotype.Of(reflect.TypeFor[withNilTime]()); err != nil && !strings.Contains(err.Error(), "nil pointer") {
		t.Error(err)
	}
}

type gadgetPart = Part

// TestServerSideApply: the type converter of managed fields takes the schemas, and merges by them.
func TestServerSideApply(t *testing.T) {
	for _, test := range []struct {
		of   reflect.Type
		kind string
		yaml map[string]any
	}{
		{reflect.TypeFor[corev1.Namespace](), "Namespace", map[string]any{"spec": map[string]any{"finalizers": []any{"kubernetes"}}}},
		{reflect.TypeFor[apiextensionsv1.CustomResourceDefinition](), "CustomResourceDefinition", map[string]any{"spec": map[string]any{
			"group": "example.com", "versions": []any{map[string]any{"name": "v1", "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"a": map[string]any{"type": "string", "default": "x"}},
			}}}},
		}}},
		{reflect.TypeFor[Gadget](), "Gadget", map[string]any{"spec": map[string]any{
			"size": int64(1), "port": "http", "limits": map[string]any{"cpu": "1"}, "any": []any{int64(1), "x"},
			"parts": []any{map[string]any{"name": "a"}}, "names": []any{"a"}, "at": "2026-01-01T00:00:00Z",
		}}},
	} {
		t.Run(test.kind, func(t *testing.T) {
			root, schemas, err := gotype.Of(test.of)
			if err != nil {
				t.Fatal(err)
			}
			schemas[root].AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": "", "version": "v1", "kind": test.kind}})
			converter, err := managedfields.NewTypeConverter(schemas, false)
			if err != nil {
				t.Fatal(err)
			}
			obj := &unstructured.Unstructured{Object: test.yaml}
			obj.SetAPIVersion("v1")
			obj.SetKind(test.kind)
			obj.SetName("a")
			typed, err := converter.ObjectToTyped(obj)
			if err != nil {
				t.Fatal(err)
			}
			set, err := typed.ToFieldSet()
			if err != nil {
				t.Fatal(err)
			}
			if test.kind == "Gadget" && !strings.Contains(set.String(), `.spec.parts[name="a"].name`) {
				t.Errorf("parts aren't merged by their names: %v", set)
			}
			obj.Object["nonsense"] = true
			if _, err := converter.ObjectToTyped(obj); err == nil {
				t.Error("an unknown field has a type")
			}
		})
	}
}

func encode(t *testing.T, v any) string {
	t.Helper()
	if schema, ok := v.(spec.Schema); ok {
		v = &schema
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func sameJSON(t *testing.T, got spec.Schema, want string) bool {
	t.Helper()
	var a, b any
	if err := json.Unmarshal([]byte(encode(t, got)), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &b); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(a, b)
}

func BenchmarkCustomResourceDefinition(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := gotype.Of(reflect.TypeFor[apiextensionsv1.CustomResourceDefinition]()); err != nil {
			b.Fatal(err)
		}
	}
}

// TestDigest: types with other schemas have other digests, and the same type has the same.
func TestDigest(t *testing.T) {
	seen := map[[sha256.Size]byte]reflect.Type{}
	for _, of := range []reflect.Type{reflect.TypeFor[corev1.Pod](), reflect.TypeFor[corev1.PodTemplate](), reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.Status]()} {
		digest, err := gotype.Digest(of)
		if err != nil {
			t.Fatal(err)
		}
		if other := seen[digest]; other != nil {
			t.Errorf("%v has the digest of %v", of, other)
		}
		seen[digest] = of
		if again, err := gotype.Digest(reflect.PointerTo(of)); err != nil || again != digest {
			t.Errorf("a pointer to %v has another digest, or the error %v", of, err)
		}
	}
	if _, err := gotype.Digest(reflect.TypeFor[int]()); err == nil {
		t.Error("an int has a digest")
	}
}
