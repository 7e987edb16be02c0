package writes

import (
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// gadgets posts a definition with printer columns, given as JSON, and returns its endpoint.
func (s *server) gadgets(columns string) *client {
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

// TestFormsAreKept: watchers share what is encoded for them only if they have the same views.
func TestFormsAreKept(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.widgets()
	in := func(e *client, kind form.Kind) *kube.View {
		t.Helper()
		shown, err := e.Shown(&registry.Request{Form: form.Form{Kind: kind, Version: "v1"}})
		if err != nil {
			t.Fatal(err)
		}
		return shown.Event
	}
	table := in(e, form.Table)
	if in(e, form.Table) != table || in(e, form.MetadataOnly) == table {
		t.Error("a form has not one view")
	}
	label := func(body string) *client {
		t.Helper()
		s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", "application/merge-patch+json", nil, []byte(body)))
		return s.at("example.com", "v1", "widgets")
	}
	if in(label(`{"metadata":{"labels":{"a":"b"}}}`), form.Table) != table {
		t.Error("a definition that defines the same has other views")
	}
	if in(label(`{"spec":{"names":{"shortNames":["w"]}}}`), form.Table) == table {
		t.Error("a definition that defines something else has the same views")
	}
}
