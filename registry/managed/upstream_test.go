package managed_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/managedfields/managedfieldstest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/managed"
)

// metaDefinitions is what objects are merged by, as far as their metadata goes.
func metaDefinitions(t *testing.T) map[string]*spec.Schema {
	t.Helper()
	definitions, err := managed.MetaDefinitions()
	if err != nil {
		t.Fatal(err)
	}
	return definitions
}

// TestMetadataTypes compares the definitions of metadata with the tags of Kubernetes's Go types.
func TestMetadataTypes(t *testing.T) {
	definitions := metaDefinitions(t)
	if atomic := definitions["io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference"].Extensions["x-kubernetes-map-type"]; atomic != "atomic" {
		t.Errorf("the map type of OwnerReference is %v: an owner is one value", atomic)
	}
	for _, kind := range []reflect.Type{reflect.TypeFor[metav1.ObjectMeta](), reflect.TypeFor[metav1.OwnerReference]()} {
		s := definitions["io.k8s.apimachinery.pkg.apis.meta.v1."+kind.Name()]
		for i := range kind.NumField() {
			field := kind.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			property, ok := s.Properties[name]
			if got, want := shape(property), goShape(field); !ok || got != want {
				t.Errorf("%s.%s is %q (there: %t), want %q", kind.Name(), name, got, ok, want)
			}
			delete(s.Properties, name)
		}
		for name := range s.Properties {
			t.Errorf("%s has no field %s", kind.Name(), name)
		}
	}
}

// shape says how a property merges.
func shape(s spec.Schema) string {
	if name := path.Base(s.Ref.String()); s.Ref.String() != "" {
		return strings.TrimPrefix(name, "io.k8s.apimachinery.pkg.apis.meta.v1.")
	}
	text := s.Type[0]
	if strategy, ok := s.Extensions["x-kubernetes-list-type"]; ok {
		text += fmt.Sprintf(" %v %v", strategy, s.Extensions["x-kubernetes-list-map-keys"])
	}
	if s.Items != nil {
		return text + " of " + shape(*s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		return text + " of " + shape(*s.AdditionalProperties.Schema)
	}
	return text
}

// goShape says the same of a field.
func goShape(field reflect.StructField) string {
	var of func(reflect.Type) string
	of = func(kind reflect.Type) string {
		switch kind.Kind() {
		case reflect.Pointer:
			return of(kind.Elem())
		case reflect.Int64:
			return "integer"
		case reflect.Bool:
			return "boolean"
		case reflect.Map:
			return "object of " + of(kind.Elem())
		case reflect.Slice:
			key := field.Tag.Get("patchMergeKey")
			switch {
			case key != "":
				return "array map [" + key + "] of " + of(kind.Elem())
			case field.Tag.Get("patchStrategy") == "merge":
				return "array set <nil> of " + of(kind.Elem())
			}
			return "array atomic <nil> of " + of(kind.Elem())
		case reflect.Struct:
			return kind.Name()
		}
		return kind.Kind().String()
	}
	return of(field.Type)
}

// TestAgainstKubernetes does the same random writes with a Manager and with apimachinery's own test manager.
func TestAgainstKubernetes(t *testing.T) {
	goTypes := managed.NewGoTypes(func(string) map[string]any { return map[string]any{} }, func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(t, thing))
		return definitions, nil
	})
	for name, types := range map[string]*managed.Types{"custom resource": things(t), "Go type": goTypes} {
		t.Run(name, func(t *testing.T) { againstKubernetes(t, types) })
	}
}

func againstKubernetes(t *testing.T, types *managed.Types) {
	definitions := metaDefinitions(t)
	managed.Define(definitions, gvk, parseSchema(t, thing))
	converter, err := managedfields.NewTypeConverter(definitions, false)
	if err != nil {
		t.Fatal(err)
	}
	conflicts, merged := 0, 0
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(80) {
			random := rand.New(rand.NewPCG(seed, 0))
			m := managed.New(gvk, "", types, nil, nil)
			kubernetes := managedfieldstest.NewTestFieldManager(converter, gvk)
			var live map[string]any
			var done strings.Builder
			last := map[string]string{}
			for range 12 {
				if random.IntN(2) == 0 {
					time.Sleep(time.Second)
				}
				name, force := []string{"alice", "bob", "kubectl"}[random.IntN(3)], random.IntN(3) == 0
				text := randomSpec(random)
				if random.IntN(3) == 0 && last[name] != "" {
					text = last[name] // most applies are repeated
				}
				last[name] = text
				fmt.Fprintf(&done, "%s %v %s\n", name, force, text)
				var got, want error
				if live == nil || random.IntN(3) > 0 {
					applied := config(t, "metadata: {name: a, labels: {owner: x}}\n"+text)
					want = kubernetes.Apply(&unstructured.Unstructured{Object: tree(t, toJSON(t, applied))}, name, force)
					var next map[string]any
					if next, got = m.Apply(live, applied, name, force); got == nil {
						live = next
						merged++
					}
				} else {
					next := config(t, "metadata: {name: a, labels: {owner: x}}\n"+strings.Replace(text, "unknown: 1, ", "", 1)) // an update is pruned
					want = kubernetes.Update(&unstructured.Unstructured{Object: tree(t, toJSON(t, next))}, name)
					live = m.Update(live, next, name, true)
				}
				if problem := sameError(t, got, want); problem != "" {
					t.Fatalf("seed %d, %s after\n%s", seed, problem, done.String())
				}
				if got != nil {
					conflicts++
				}
				reference := tree(t, toJSON(t, kubernetes.Live()))
				if live != nil && toJSON(t, live) != toJSON(t, reference) {
					t.Fatalf("seed %d: object is\n%s, want\n%s after\n%s", seed, toJSON(t, live), toJSON(t, reference), done.String())
				}
			}
		}
	})
	if conflicts < 100 || merged < 100 {
		t.Errorf("%d conflicts and %d merges are too few to tell", conflicts, merged)
	}
}

// sameError compares errors; the texts of conflicts, and the rest by their presence.
func sameError(t *testing.T, got, want error) string {
	if (got == nil) != (want == nil) || apierrors.IsConflict(got) != apierrors.IsConflict(want) {
		return fmt.Sprintf("error is %v, want %v", got, want)
	}
	if !apierrors.IsConflict(got) {
		return ""
	}
	causes := func(err error) string {
		all := slices.Clone(err.(apierrors.APIStatus).Status().Details.Causes)
		slices.SortFunc(all, func(a, b metav1.StatusCause) int { return strings.Compare(a.Message+a.Field, b.Message+b.Field) })
		return toJSON(t, all)
	}
	if g, w := causes(got), causes(want); g != w {
		return fmt.Sprintf("causes are %s, want %s", g, w)
	}
	return ""
}

// randomSpec returns some of a Thing's fields with few values, so that writers meet.
func randomSpec(random *rand.Rand) string {
	parts := []string{
		"size: 1", "size: 2", "color: red", "color: blue", "note: null", "note: x", "port: 80", "port: http",
		"ports: [{port: 80, name: x}]", "ports: [{port: 80, protocol: UDP}, {port: 81}]", "ports: [{port: 80, protocol: TCP, name: z}]",
		"ports: []", "tags: [a]", "tags: [b, a]", "tags: [c]", "args: [a]", "args: [b]", "limits: {a: x}", "limits: {a: z, b: x}", "limits: {a: x, b: x}",
		"limits: {}", "limits: null", "unit: {a: x}", "unit: {b: x}", "unit: {a: x, b: x}", "free: {a: {b: 1}}", "free: {a: {c: 1}, d: [1]}",
		"template: {kind: K, metadata: {labels: {a: x}}}", "template: {metadata: {labels: {b: x}, finalizers: [f.g/h]}, more: 1}",
		"tags: [a, a]", "unknown: 1",
	}
	fields := map[string]string{}
	for range random.IntN(7) {
		name, value, _ := strings.Cut(parts[random.IntN(len(parts))], ": ")
		fields[name] = value
	}
	text := "spec: {"
	for name, value := range fields {
		text += name + ": " + value + ", "
	}
	return text + "}"
}

// TestWhole: an object is looked at whole where it may not fit its types, and where it has to be converted.
func TestWhole(t *testing.T) {
	define := func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		managed.Define(definitions, gvk, parseSchema(t, thing))
		managed.Define(definitions, gvkV2, parseSchema(t, thing))
		return definitions, nil
	}
	const entry = "metadata: {name: a, managedFields: [{manager: other, operation: Update, apiVersion: VERSION, fieldsType: FieldsV1, fieldsV1: {'f:spec': {'f:size': {}}}}]}\n"
	update := func(types *managed.Types, version, size string, convert func(map[string]any, string) (map[string]any, error)) []string {
		meta := strings.Replace(entry, "VERSION", version, 1)
		live := object(t, "example.com/v1", meta+"spec: {size: "+size+", color: red}\n")
		next := object(t, "example.com/v1", meta+"spec: {size: "+size+", color: blue}\n")
		return owners(t, managed.New(gvk, "", types, nil, convert).Update(live, next, "writer", true))
	}
	if got := update(managed.NewTypes(define), "example.com/v1", "text", nil); len(got) != 1 {
		t.Errorf("of an object that doesn't fit its types the record is %q", got)
	}
	goTypes := managed.NewGoTypes(func(string) map[string]any { return map[string]any{} }, define)
	converted := 0
	got := update(goTypes, "example.com/v2", "3", func(obj map[string]any, apiVersion string) (map[string]any, error) {
		converted++
		if of, _ := obj["spec"].(map[string]any); of["size"] == nil {
			t.Errorf("a part is converted: %v", obj)
		}
		obj = maps.Clone(obj)
		obj["apiVersion"] = apiVersion
		return obj, nil
	})
	if converted == 0 || len(got) != 2 {
		t.Errorf("after %d conversions the record is %q", converted, got)
	}
}
