package conformance

import (
	"cmp"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestEveryKindIsServed looks for each kind that client-go has a type for at a stable version among those that are served.
func TestEveryKindIsServed(t *testing.T) {
	client, err := discovery.NewDiscoveryClientForConfig(startAll(t).config())
	if err != nil {
		t.Fatal(err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	served := map[schema.GroupVersionKind]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources { // a subresource may have a kind of another group
			group := r.Group
			if r.Version == "" {
				group = gv.Group
			}
			served[schema.GroupVersionKind{Group: group, Version: cmp.Or(r.Version, gv.Version), Kind: r.Kind}] = true
		}
	}
	neverServed := map[string]string{ // by Kubernetes, either
		"PodStatusResult": "of a kubelet's files", "RangeAllocation": "of the allocators of kube-apiserver",
	}
	for gvk, typ := range scheme.Scheme.AllKnownTypes() {
		if _, object := typ.FieldByName("ObjectMeta"); !object || gvk.Version != "v1" && gvk != (schema.GroupVersionKind{Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"}) {
			continue
		}
		if !served[gvk] && neverServed[gvk.Kind] == "" {
			t.Errorf("%v isn't served", gvk)
		}
	}
}
