package gotype_test

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
)

// TestKnownOptional: kubectl 1.20 refuses an object without what its schema requires.
func TestKnownOptional(t *testing.T) {
	root, schemas, err := gotype.Of(reflect.TypeFor[corev1.Event]())
	if err != nil {
		t.Fatal(err)
	}
	if got := schemas[root].Required; !slices.Equal(got, []string{"metadata", "involvedObject"}) {
		t.Errorf("an Event must have %q, want what Kubernetes' own schema requires", got)
	}
}

// TestKnownLists merges lists whose keys no tag says: a port may be there once for each protocol, which is TCP where
// it's left out.
func TestKnownLists(t *testing.T) {
	root, schemas, err := gotype.Of(reflect.TypeFor[corev1.Pod]())
	if err != nil {
		t.Fatal(err)
	}
	schemas[root].AddExtension("x-kubernetes-group-version-kind", []any{map[string]any{"group": "", "version": "v1", "kind": "Pod"}})
	converter, err := managedfields.NewTypeConverter(schemas, false)
	if err != nil {
		t.Fatal(err)
	}
	port := func(protocol string) any {
		p := map[string]any{"containerPort": int64(9125)}
		if protocol != "" {
			p["protocol"] = protocol
		}
		return p
	}
	for name, test := range map[string]struct {
		ports []any
		fits  bool
	}{
		"two protocols":               {[]any{port("TCP"), port("UDP")}, true},
		"one without, which is TCP":   {[]any{port(""), port("UDP")}, true},
		"twice the same":              {[]any{port("UDP"), port("UDP")}, false},
		"twice the same, once unsaid": {[]any{port(""), port("TCP")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			obj := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "a"},
				"spec": map[string]any{"containers": []any{map[string]any{"name": "c", "ports": test.ports}}},
			}}
			if _, err := converter.ObjectToTyped(obj); (err == nil) != test.fits {
				t.Errorf("it's typed with %v", err)
			}
		})
	}
	for name := range map[string]bool{"LocalObjectReference": true, "SecretKeySelector": true} {
		if got := schemas["io.k8s.api.core.v1."+name].Extensions["x-kubernetes-map-type"]; got != "atomic" {
			t.Errorf("%s is %v, not one value", name, got)
		}
	}
}
