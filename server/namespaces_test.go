package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const shop = "/apis/example.com/v1/namespaces/shop/widgets"

// heldWidget is a widget in the namespace shop with finalizers.
func heldWidget(name string, finalizers ...string) string {
	list, _ := json.Marshal(finalizers)
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"%s","finalizers":%s}}`, name, list)
}

// namespaceConditions returns the conditions of the namespace shop, one a line: type, status, reason and message.
func namespaceConditions(t *testing.T, s *servertest.Server) string {
	t.Helper()
	var ns corev1.Namespace
	if err := json.Unmarshal([]byte(s.Get("/api/v1/namespaces/shop")), &ns); err != nil {
		t.Fatal(err)
	}
	if ns.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("phase %s", ns.Status.Phase)
	}
	var lines []string
	for _, c := range ns.Status.Conditions {
		if c.LastTransitionTime.IsZero() {
			t.Errorf("%s has no time", c.Type)
		}
		lines = append(lines, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

// The conditions when nothing is wrong, in Kubernetes' words.
const (
	discovered  = "NamespaceDeletionDiscoveryFailure=False ResourcesDiscovered: All resources successfully discovered"
	parsed      = "NamespaceDeletionGroupVersionParsingFailure=False ParsedGroupVersions: All legacy kube types successfully parsed"
	deleted     = "NamespaceDeletionContentFailure=False ContentDeleted: All content successfully deleted, may be waiting on finalization"
	removed     = "NamespaceContentRemaining=False ContentRemoved: All content successfully removed"
	nothingHeld = "NamespaceFinalizersRemaining=False ContentHasNoFinalizers: All content-preserving finalizers finished"
)

// TestNamespaceConditions: the conditions of a namespace that is being deleted say what is left in it and follow what
// happens to the content. A namespace that others' finalizers hold says that it's empty.
func TestNamespaceConditions(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	s.Do(http.MethodPut, "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":["kubernetes","example.com/ns"]}}`, "Content-Type", "application/json")
	s.PostYAML(shop, heldWidget("a", "example.com/x"))
	s.PostYAML(shop, heldWidget("b", "example.com/x", "example.com/y"))
	s.PostYAML(shop, heldWidget("free"))
	s.PostYAML("/api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"c","finalizers":["example.com/x"]}}`)
	s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
	release := func(path string) {
		t.Helper()
		if res, body := s.Do(http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != 200 {
			t.Fatalf("release %s: %s", path, body)
		}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"held by four finalizers", func() {}, []string{discovered, parsed, deleted,
			"NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: configmaps. has 1 resource instances, widgets.example.com has 2 resource instances",
			"NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/x in 3 resource instances, example.com/y in 1 resource instances"}},
		{"the core kind is released", func() { release("/api/v1/namespaces/shop/configmaps/c") }, []string{discovered, parsed, deleted,
			"NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: widgets.example.com has 2 resource instances",
			"NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/x in 2 resource instances, example.com/y in 1 resource instances"}},
		{"one finalizer of two is removed", func() {
			s.Do(http.MethodPatch, shop+"/b", `{"metadata":{"finalizers":["example.com/y"]}}`, "Content-Type", "application/merge-patch+json")
		}, []string{discovered, parsed, deleted,
			"NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: widgets.example.com has 2 resource instances",
			"NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/x in 1 resource instances, example.com/y in 1 resource instances"}},
		{"a is released", func() { release(shop + "/a") }, []string{discovered, parsed, deleted,
			"NamespaceContentRemaining=True SomeResourcesRemain: Some resources are remaining: widgets.example.com has 1 resource instances",
			"NamespaceFinalizersRemaining=True SomeFinalizersRemain: Some content in the namespace has finalizers remaining: example.com/y in 1 resource instances"}},
		{"all is gone", func() { release(shop + "/b") }, []string{discovered, parsed, deleted, removed, nothingHeld}},
	} {
		step.do()
		s.Quiescent()
		if got, want := namespaceConditions(t, s), strings.Join(step.want, "\n"); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", step.name, got, want)
		}
	}
	res, body := s.Do(http.MethodPost, shop, heldWidget("late"), "Content-Type", "application/json")
	var refusal metav1.Status
	if err := json.Unmarshal([]byte(body), &refusal); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusForbidden || refusal.Details == nil || len(refusal.Details.Causes) != 1 || refusal.Details.Causes[0].Type != corev1.NamespaceTerminatingCause {
		t.Errorf("a create is answered %s", body)
	}
	if held := s.Quiescent(); len(held) != 1 || held[0].Kind != "Namespace" || fmt.Sprint(held[0].Finalizers) != "[example.com/ns]" {
		t.Errorf("held: %+v", held)
	}
	s.Do(http.MethodPut, "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`, "Content-Type", "application/json")
	if res, body := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("it's there: %s", body)
	}
}

// Stubborn is a type whose objects can't be deleted for a while.
type Stubborn struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
}

// TestUndeletableContent: objects that can't be deleted hold up neither the others in their namespace nor other namespaces.
// The condition says why, the barrier gives the cause, and when they can be deleted the namespace goes by itself.
func TestUndeletableContent(t *testing.T) {
	t.Parallel()
	var stuck atomic.Bool
	stuck.Store(true)
	s := servertest.New(t, func(s *server.Server) {
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[Stubborn]{
				Group: "go.example.com", Version: "v1", Kind: "Stubborn", Plural: "stubborns",
				Deletion: registry.Deletion[*Stubborn]{Deleting: func(*Stubborn) {
					if stuck.Load() {
						panic("it won't go")
					}
				}},
			})
		}
	})
	s.PostYAML(definitionsPath, widgets)
	for _, ns := range []string{"shop", "other"} {
		s.PostYAML("/api/v1/namespaces", "metadata: {name: "+ns+"}")
		for i := range 20 {
			s.PostYAML("/apis/example.com/v1/namespaces/"+ns+"/widgets", heldWidget(fmt.Sprint("w", i)))
		}
	}
	for _, name := range []string{"a", "b"} {
		s.PostYAML("/apis/go.example.com/v1/namespaces/shop/stubborns", `{"metadata":{"name":"`+name+`"}}`)
	}
	s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
	s.Do(http.MethodDelete, "/api/v1/namespaces/other", "")
	until(t, "the other namespace and the other content are gone", func() bool {
		res, _ := s.Do(http.MethodGet, "/api/v1/namespaces/other", "")
		return res.StatusCode == http.StatusNotFound && strings.Contains(s.Get(allWidgets), `"items":[]`)
	})
	until(t, "the condition says why", func() bool {
		got := namespaceConditions(t, s)
		return strings.Contains(got, `NamespaceDeletionContentFailure=True ContentDeletionFailed: Failed to delete all resource types, 1 remaining: stubborns.go.example.com "shop/a": `) &&
			strings.Contains(got, "panicked (and 1 more)") &&
			strings.Contains(got, "Some resources are remaining: stubborns.go.example.com has 2 resource instances") && strings.Contains(got, nothingHeld)
	})
	res, body := s.Do(http.MethodGet, "/debug/quiescent?timeout=50ms", "")
	var pending metav1.Status
	if err := json.Unmarshal([]byte(body), &pending); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusGatewayTimeout || pending.Details == nil || len(pending.Details.Causes) != 1 || pending.Details.Causes[0].Type != "ControllerPending" ||
		pending.Details.Causes[0].Field != "v1 Namespace shop" || !strings.Contains(pending.Details.Causes[0].Message, "shop/a") {
		t.Errorf("the barrier says %s %s", res.Status, body)
	}
	stuck.Store(false)
	until(t, "the namespace is gone", func() bool {
		res, _ := s.Do(http.MethodGet, "/api/v1/namespaces/shop", "")
		return res.StatusCode == http.StatusNotFound
	})
	s.Quiescent()
}
