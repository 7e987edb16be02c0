package builtin_test

import (
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
)

// TestMergesAsUpstream compares by which keys lists merge, and which lists and structs are one value, with the schema that
// upstream ships for apply configurations: an object with all fields has the same fields in both. So what gotype has of
// Kubernetes' OpenAPI is of the release that k8s.io/api is of. Production code does without that schema: see gotype.Merging.
func TestMergesAsUpstream(t *testing.T) {
	upstream := applyconfigurations.NewTypeConverter(scheme.Scheme)
	for _, line := range builtin.Lines() {
		if line.Unstored.Answer != nil || !stored(line) || line.Group == "apiregistration.k8s.io" { // nobody applies what isn't stored; client-go lacks APIService
			continue
		}
		t.Run(strings.ReplaceAll(apiVersion(line)+" "+line.Kind, "/", "."), func(t *testing.T) {
			root, schemas, err := gotype.Merging(reflect.TypeOf(line.New()))
			if err != nil {
				t.Fatal(err)
			}
			gvk := schema.GroupVersionKind{Group: line.Group, Version: line.Version, Kind: line.Kind}
			schemas[root].AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
			ours, err := managedfields.NewTypeConverter(schemas, false)
			if err != nil {
				t.Fatal(err)
			}
			obj := &unstructured.Unstructured{Object: parse(t, withType(t, line, filled(t, line)))}
			want, err := upstream.ObjectToTyped(obj)
			if err != nil {
				t.Fatalf("upstream: %v", err)
			}
			got, err := ours.ObjectToTyped(obj)
			if err != nil {
				t.Fatal(err)
			}
			wanted, err := want.ToFieldSet()
			if err != nil {
				t.Fatal(err)
			}
			fields, err := got.ToFieldSet()
			if err != nil {
				t.Fatal(err)
			}
			if missing := wanted.Difference(fields); !missing.Empty() {
				t.Errorf("ours lacks %v", missing)
			}
			if more := fields.Difference(wanted); !more.Empty() {
				t.Errorf("ours has besides %v", more)
			}
		})
	}
}
