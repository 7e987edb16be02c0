package writes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// held is a widget with finalizers.
func held(name string, finalizers ...string) []byte {
	return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `","finalizers":["` + strings.Join(finalizers, `","`) + `"]}}`)
}

func TestCatalogFinds(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.widgets()
	c := s.Catalog()
	for _, at := range []struct{ apiVersion, kind, found string }{
		{"v1", "Namespace", "v1 namespaces"},
		{"example.com/v1", "Widget", "example.com/v1 widgets"},
		{"example.com/v1beta1", "Widget", "example.com/v1beta1 widgets"},
		{"example.com/v1alpha1", "Widget", ""}, // not served
		{"example.com/v1", "widget", ""},
		{"example.com/v2", "Widget", ""},
		{"example.org/v1", "Widget", ""},
		{"", "Widget", ""},
		{"v1", "", ""},
	} {
		found := ""
		if e := c.Kind(at.apiVersion, at.kind); e != nil {
			found = e.APIVersion() + " " + e.Plural
		}
		if found != at.found {
			t.Errorf("%s %s: found %q, want %q", at.apiVersion, at.kind, found, at.found)
		}
	}
	var stored []string
	for e := range c.Stored() {
		if c.Prefix(e.Prefix()) != e || e.Cache() != s.Cacher.Resource(e.Prefix()) {
			t.Errorf("%s isn't found by its prefix", e.Plural)
		}
		stored = append(stored, e.APIVersion()+" "+e.Plural)
	}
	slices.Sort(stored)
	if got := strings.Join(stored, ", "); got != "apiextensions.k8s.io/v1 customresourcedefinitions, example.com/v1 widgets, v1 namespaces" {
		t.Errorf("stored: %s", got)
	}
	if c.Prefix("/registry/none/none/") != nil {
		t.Error("an endpoint of no resource")
	}
}

func TestOwnRemoval(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	for _, c := range []struct {
		name       string
		finalizers []string
		removal    Removal
		left       string // finalizers of what is left; "gone"
	}{
		{"plain", nil, Removal{}, "gone"},
		{"background", nil, Removal{Propagation: metav1.DeletePropagationBackground}, "gone"},
		{"foreground", nil, Removal{Propagation: metav1.DeletePropagationForeground}, "foregroundDeletion"},
		{"orphan", []string{"example.com/x"}, Removal{Propagation: metav1.DeletePropagationOrphan}, "example.com/x orphan"},
		{"a finalizer of the object's own", []string{"orphan"}, Removal{}, "orphan"},
		{"background in spite of it", []string{"orphan"}, Removal{Propagation: metav1.DeletePropagationBackground}, "gone"},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := widget("a", "")
			if c.finalizers != nil {
				body = held("a", c.finalizers...)
			}
			made := s.ok(w.Create(s.ctx, "default", nil, body))
			c.removal.Namespace, c.removal.Name, c.removal.UID = "default", "a", types.UID(made.str("metadata.uid"))
			c.removal.Revision, _ = reads.ParseRevision(made.str("metadata.resourceVersion"))
			rev, gone, err := w.Remove(s.ctx, c.removal)
			if err != nil || rev <= c.removal.Revision || gone != (c.left == "gone") {
				t.Fatalf("revision %d, gone %v, %v", rev, gone, err)
			}
			m, err := w.Current(s.ctx, "default", "a")
			if gone {
				if !errors.Is(err, storage.ErrNotFound) {
					t.Fatalf("after the removal: %v, %v", m, err)
				}
				return
			}
			if err != nil || m.DeletionTimestamp == nil || strings.Join(m.Finalizers, " ") != c.left || m.ResourceVersion != rev.String() {
				t.Fatalf("left %v, %v", m, err)
			}
			if _, err := w.Amend(s.ctx, "default", "a", m.UID, func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := w.Current(s.ctx, "default", "a"); !errors.Is(err, storage.ErrNotFound) {
				t.Fatalf("without finalizers: %v", err)
			}
		})
	}
}

func TestOwnRefusals(t *testing.T) {
	noDeletions := onAll(func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
		if r.Operation == registry.Delete {
			return errors.New("no deletions")
		}
		return nil
	})
	s := start(t, "", registry.Options{Admission: []registry.Admission[unstructured.Unstructured]{noDeletions}})
	w, ns := s.widgets(), s.at("", "v1", "namespaces")
	made := s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	remove := func(e *client, r Removal) func() error {
		return func() error { _, _, err := e.Remove(s.ctx, r); return err }
	}
	amend := func(namespace, name, uid string) func() error {
		return func() error {
			_, err := w.Amend(s.ctx, namespace, name, types.UID(uid), func(*metav1.ObjectMeta) error { return nil })
			return err
		}
	}
	read := func(e *client, namespace, name string) func() error {
		return func() error { _, err := e.Current(s.ctx, namespace, name); return err }
	}
	mine := errors.New("mine")
	for _, c := range []struct {
		name string
		do   func() error
		want error
	}{
		{"remove what isn't there", remove(w, Removal{Namespace: "default", Name: "b"}), storage.ErrNotFound},
		{"remove without a namespace", remove(w, Removal{Name: "a"}), storage.ErrNotFound},
		{"remove what can't have the name", remove(w, Removal{Namespace: "default", Name: "../a"}), storage.ErrNotFound},
		{"remove another uid", remove(w, Removal{Namespace: "default", Name: "a", UID: "b"}), storage.ErrConflict},
		{"remove another revision", remove(w, Removal{Namespace: "default", Name: "a", Revision: 1}), storage.ErrConflict},
		{"amend what isn't there", amend("default", "b", made.str("metadata.uid")), storage.ErrNotFound},
		{"amend another uid", amend("default", "a", "b"), storage.ErrNotFound},
		{"read what isn't there", read(w, "default", "b"), storage.ErrNotFound},
		{"read with a namespace that the resource hasn't", read(ns, "default", "default"), storage.ErrNotFound},
		{"an error of the change's own", func() error {
			_, err := w.Amend(s.ctx, "default", "a", types.UID(made.str("metadata.uid")), func(*metav1.ObjectMeta) error { return mine })
			return err
		}, mine},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := c.do(); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
		})
	}
	if _, _, err := ns.Remove(s.ctx, Removal{Name: "default"}); !apierrors.IsForbidden(err) {
		t.Errorf("the namespace default: %v", err)
	}
	// What changes nothing isn't written, and nobody asks admission about the server's own writes.
	uid, before := types.UID(made.str("metadata.uid")), made.str("metadata.resourceVersion")
	rev, err := w.Amend(s.ctx, "default", "a", uid, func(*metav1.ObjectMeta) error { return nil })
	if err != nil || rev.String() != before {
		t.Errorf("a change of nothing: revision %d, %v", rev, err)
	}
	if _, err := w.Delete(s.ctx, "default", "a", nil, nil); !apierrors.IsForbidden(err) {
		t.Errorf("a client's deletion: %v", err)
	}
	if _, gone, err := w.Remove(s.ctx, Removal{Namespace: "default", Name: "a"}); err != nil || !gone {
		t.Errorf("the server's own: %v, %v", gone, err)
	}
}

// TestOwnWritesMeetOthers lets the server's own changes of one object meet clients' writes, of it and of its definition. No
// change may be lost.
func TestOwnWritesMeetOthers(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, crds := s.widgets(), s.crds()
	finalizer := func(i int) string { return fmt.Sprintf("example.com/f%d", i) }
	const each = 20
	var all []string
	for i := range each {
		all = append(all, finalizer(i))
	}
	made := s.ok(w.Create(s.ctx, "default", nil, held("a", append(all, "example.com/last")...)))
	uid := types.UID(made.str("metadata.uid"))
	var writers sync.WaitGroup
	for i := range each {
		writers.Go(func() {
			_, err := w.Amend(s.ctx, "default", "a", uid, func(m *metav1.ObjectMeta) error {
				m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == finalizer(i) })
				return nil
			})
			if err != nil {
				t.Errorf("amend: %v", err)
			}
		})
		writers.Go(func() {
			patch := fmt.Sprintf(`{"spec":{"f%d":true}}`, i)
			if _, err := w.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(patch)); err != nil {
				t.Errorf("patch: %v", err)
			}
		})
	}
	writers.Go(func() {
		for i := range each {
			patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/p%d","value":{"type":"string"}}]`, i)
			if _, err := crds.Patch(s.ctx, "", "widgets.example.com", "", "application/json-patch+json", nil, []byte(patch)); err != nil {
				t.Errorf("patch the definition: %v", err)
			}
		}
	})
	writers.Wait()
	got := s.ok(w.Get(s.ctx, "default", "a", "", nil))
	spec, _ := got.get("spec").(map[string]any)
	if finalizers := fmt.Sprint(got.get("metadata.finalizers")); finalizers != "[example.com/last]" || len(spec) != each {
		t.Errorf("finalizers %s, %d fields in %v", finalizers, len(spec), spec)
	}
}

// TestOwnWritesUnderDefinitions: the server's own writes don't depend on which versions are served, and of a definition they
// are what clients' are.
func TestOwnWritesUnderDefinitions(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, crds := s.widgets(), s.crds()
	for _, name := range []string{"a", "b", "c"} {
		s.ok(w.Create(s.ctx, "default", nil, held(name, "example.com/x")))
	}
	unserve := `[{"op":"replace","path":"/spec/versions/0/served","value":false}]`
	s.ok(crds.Patch(s.ctx, "", "widgets.example.com", "", "application/json-patch+json", nil, []byte(unserve)))
	release := func(name string) error {
		m, err := w.Current(s.ctx, "default", name)
		if err != nil {
			return err
		}
		_, err = w.Amend(s.ctx, "default", name, m.UID, func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil })
		return err
	}
	if _, gone, err := w.Remove(s.ctx, Removal{Namespace: "default", Name: "a"}); err != nil || gone {
		t.Fatalf("marked: %v, %v", gone, err)
	}
	if err := release("a"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Current(s.ctx, "default", "a"); !errors.Is(err, storage.ErrNotFound) {
		t.Fatalf("after its last finalizer: %v", err)
	}

	// The definition goes: marked first, and from then on nothing new can be created.
	if _, gone, err := crds.Remove(s.ctx, Removal{Name: "widgets.example.com"}); err != nil || gone {
		t.Fatalf("the definition is marked: %v, %v", gone, err)
	}
	_, err := s.at("example.com", "v1beta1", "widgets").Create(s.ctx, "default", nil, []byte(`{"apiVersion":"example.com/v1beta1","kind":"Widget","metadata":{"name":"d"}}`))
	s.refused(err, 403, metav1.StatusReasonForbidden, "terminating")
	if err := release("b"); err != nil {
		t.Fatal(err)
	}
	m, err := crds.Current(s.ctx, "", "widgets.example.com")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := crds.Amend(s.ctx, "", "widgets.example.com", m.UID, func(m *metav1.ObjectMeta) error { m.Finalizers = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if s.Catalog().Prefix(w.Prefix()) != nil {
		t.Error("the definition is gone, and its resource is in the catalog")
	}
	if m, err = w.Current(s.ctx, "default", "c"); err != nil {
		t.Fatal(err)
	}
	_, err = w.Amend(s.ctx, "default", "c", m.UID, func(m *metav1.ObjectMeta) error { m.Labels = map[string]string{"a": "b"}; return nil })
	if !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a change under a definition that is gone: %v", err)
	}
}
