package writes

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

func TestInitialNamespaces(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := start(t, dir, registry.Options{})
	ns := s.at("", "v1", "namespaces")
	if got := names(s.list(ns, "", nil)); got != "default kube-node-lease kube-public kube-system" {
		t.Errorf("at start: %s", got)
	}
	got := s.ok(ns.Get(s.ctx, "", "default", "", nil))
	for path, want := range map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "status.phase": "Active", "metadata.generation": nil,
	} {
		if v := got.get(path); v != want {
			t.Errorf("%s = %v, want %v", path, v, want)
		}
	}
	if labels := fmt.Sprint(got.get("metadata.labels")); labels != "map[kubernetes.io/metadata.name:default]" {
		t.Errorf("labels %s", labels)
	}
	if f := fmt.Sprint(got.get("spec.finalizers")); f != "[kubernetes]" {
		t.Errorf("finalizers %s", f)
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		_, err := ns.Delete(s.ctx, "", name, nil, nil)
		s.refused(err, 403, metav1.StatusReasonForbidden, "may not be deleted")
	}
	revision := s.current()
	s.stop()
	s = start(t, dir, registry.Options{})
	if s.current() != revision {
		t.Errorf("a restart wrote: %d after %d", s.current(), revision)
	}
}

func TestNamespaceRules(t *testing.T) {
	s := start(t, "", registry.Options{})
	ns := s.at("", "v1", "namespaces")
	create := func(body string) (tree, error) {
		r, err := ns.Create(s.ctx, "", nil, []byte(body))
		if err != nil {
			return nil, err
		}
		return parse(t, r.Object), nil
	}
	made, err := create(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"team","labels":{"a":"b","kubernetes.io/metadata.name":"x"}},"status":{"phase":"Terminating"}}`)
	if err != nil {
		t.Fatal(err)
	}
	if made.str("status.phase") != "Active" || fmt.Sprint(made.get("metadata.labels")) != "map[a:b kubernetes.io/metadata.name:team]" {
		t.Errorf("created %v", made)
	}
	for _, name := range []string{"a.b", "A", strings.Repeat("a", 64)} {
		_, err := create(`{"metadata":{"name":"` + name + `"}}`)
		s.refused(err, 422, metav1.StatusReasonInvalid, "metadata.name")
	}
	_, err = create(`{"kind":"Pod","metadata":{"name":"x"}}`)
	s.refused(err, 400, metav1.StatusReasonBadRequest, "Pod in version \"v1\" cannot be handled as a Namespace")
	// An update without a version is taken; finalizers belong to /finalize.
	updated := s.ok(ns.Update(s.ctx, "", "team", "", nil, []byte(`{"metadata":{"name":"team"}}`)))
	if fmt.Sprint(updated.get("spec.finalizers")) != "[kubernetes]" || fmt.Sprint(updated.get("metadata.labels")) != "map[kubernetes.io/metadata.name:team]" {
		t.Errorf("updated %v", updated)
	}
	finalized := s.ok(ns.Update(s.ctx, "", "team", "finalize", nil, []byte(`{"metadata":{"name":"team","labels":{"x":"y"}},"spec":{"finalizers":["kubernetes","example.com/x"]}}`)))
	if fmt.Sprint(finalized.get("spec.finalizers")) != "[kubernetes example.com/x]" || fmt.Sprint(finalized.get("metadata.labels")) != "map[kubernetes.io/metadata.name:team x:y]" {
		t.Errorf("finalized %v", finalized)
	}
	s.ok(ns.Delete(s.ctx, "", "team", nil, nil))
	s.eventually("the server's own finalizer is gone", func() bool {
		return fmt.Sprint(s.ok(ns.Get(s.ctx, "", "team", "", nil)).get("spec.finalizers")) == "[example.com/x]"
	})
	s.ok(ns.Update(s.ctx, "", "team", "finalize", nil, []byte(`{"metadata":{"name":"team"},"spec":{}}`)))
	_, err = ns.Get(s.ctx, "", "team", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
}

// TestNamespaceWithoutFinalizers: the first deletion of a namespace marks it, also where nothing holds it, and the second one removes it.
func TestNamespaceWithoutFinalizers(t *testing.T) {
	s := start(t, "", registry.Options{})
	ns := s.at("", "v1", "namespaces")
	s.ok(ns.Create(s.ctx, "", nil, []byte(`{"metadata":{"name":"bare"}}`)))
	s.ok(ns.Update(s.ctx, "", "bare", "finalize", nil, []byte(`{"metadata":{"name":"bare"},"spec":{}}`)))
	marked := s.ok(ns.Delete(s.ctx, "", "bare", nil, nil))
	if marked.str("status.phase") != "Terminating" || marked.str("metadata.deletionTimestamp") == "" {
		t.Errorf("the first deletion leaves %v", marked)
	}
	if got := s.ok(ns.Get(s.ctx, "", "bare", "", nil)); got.str("status.phase") != "Terminating" {
		t.Errorf("after it there is %v", got)
	}
	_, err := ns.Create(s.ctx, "", nil, []byte(`{"metadata":{"name":"bare"}}`))
	s.refused(err, 409, metav1.StatusReasonAlreadyExists, `object is being deleted: namespaces "bare" already exists`)
	s.ok(ns.Delete(s.ctx, "", "bare", nil, nil))
	_, err = ns.Get(s.ctx, "", "bare", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
}

func TestCreateNeedsItsNamespace(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, ns := s.widgets(), s.at("", "v1", "namespaces")
	_, err := w.Create(s.ctx, "team", nil, widget("a", ""))
	status := s.refused(err, 404, metav1.StatusReasonNotFound, `namespaces "team" not found`)
	if status.Details.Kind != "namespaces" || status.Details.Name != "team" {
		t.Errorf("details %+v", status.Details)
	}
	s.ok(ns.Create(s.ctx, "", nil, []byte(`{"metadata":{"name":"team"}}`)))
	s.ok(w.Create(s.ctx, "team", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"held","finalizers":["example.com/x"]}}`)))
	for i := range 40 {
		s.ok(w.Create(s.ctx, "team", nil, widget(fmt.Sprintf("w%d", i), "")))
	}
	s.ok(w.Create(s.ctx, "default", nil, widget("other", "")))
	marked := s.ok(ns.Delete(s.ctx, "", "team", nil, nil))
	if marked.str("status.phase") != "Terminating" || marked.str("metadata.deletionTimestamp") == "" {
		t.Errorf("marked %v", marked)
	}
	_, err = w.Create(s.ctx, "team", nil, widget("late", ""))
	status = s.refused(err, 403, metav1.StatusReasonForbidden, "because it is being terminated")
	if len(status.Details.Causes) != 1 || status.Details.Causes[0].Type != "NamespaceTerminating" {
		t.Errorf("causes %+v", status.Details.Causes)
	}
	s.eventually("only what a finalizer holds is left", func() bool { return names(s.list(w, "team", nil)) == "held" })
	s.ok(w.Patch(s.ctx, "team", "held", "", "application/merge-patch+json", nil, []byte(`{"metadata":{"finalizers":null}}`)))
	s.eventually("the namespace is gone", func() bool {
		_, err := ns.Get(s.ctx, "", "team", "", nil)
		return err != nil
	})
	if got := names(s.list(w, "", nil)); got != "other" {
		t.Errorf("left: %s", got)
	}
}

func TestAutoCreateNamespaces(t *testing.T) {
	s := start(t, "", registry.Options{AutoCreateNamespaces: true})
	w := s.widgets()
	revision := s.current()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if _, err := w.Create(s.ctx, "team", nil, widget(fmt.Sprintf("w%d", i), "")); err != nil {
				t.Errorf("create: %v", err)
			}
		})
	}
	wg.Wait()
	if n := s.current() - revision; n != 9 {
		t.Errorf("8 objects and their namespace took %d writes", n)
	}
	_, err := w.Create(s.ctx, "Not_A_Label", nil, widget("a", ""))
	s.refused(err, 422, metav1.StatusReasonInvalid, "Namespace", "Not_A_Label")
}

// Whatever is created while its namespace goes is refused or deleted with it: nothing stays behind.
func TestCreatesDuringNamespaceDelete(t *testing.T) {
	s := start(t, "", registry.Options{})
	w, ns := s.widgets(), s.at("", "v1", "namespaces")
	s.ok(ns.Create(s.ctx, "", nil, []byte(`{"metadata":{"name":"team"}}`)))
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for c := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := w.Create(s.ctx, "team", nil, widget(fmt.Sprintf("w%d-%d", c, i), ""))
				if err != nil {
					if code := wantAny(t, err).Code; code != 403 && code != 404 {
						t.Errorf("create: %v", err)
						return
					}
				}
			}
		})
	}
	wg.Go(func() { // each write of the namespace makes creates under way ask again
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = ns.Patch(s.ctx, "", "team", "", "application/merge-patch+json", nil, []byte(fmt.Sprintf(`{"metadata":{"labels":{"i":"%d"}}}`, i)))
		}
	})
	s.eventually("there is something to delete", func() bool { return w.Res.Cache.Len() > 20 })
	s.ok(ns.Delete(s.ctx, "", "team", nil, nil))
	s.eventually("the namespace is gone", func() bool {
		_, err := ns.Get(s.ctx, "", "team", "", nil)
		return err != nil
	})
	close(stop)
	wg.Wait()
	if _, err := s.Store.List(s.ctx, storage.Range{Prefix: string(w.Res.Prefix)}, 0, func(c storage.Change) error {
		return fmt.Errorf("%s stayed behind", c.Key)
	}); err != nil {
		t.Error(err)
	}
}

// TestNamespaceLabelsAreAwaited: when a write of a namespace is answered, policies and webhooks go by it.
func TestNamespaceLabelsAreAwaited(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.at("", "v1", "namespaces")
	for i := range 200 {
		lock := fmt.Sprint(i)
		s.ok(e.Patch(s.ctx, "", "default", "", merge, nil, fmt.Appendf(nil, `{"metadata":{"labels":{"lock":%q}}}`, lock)))
		if got, err := s.NamespaceLabels(s.ctx, "default"); err != nil || got["lock"] != lock {
			t.Fatalf("after the write of %s the label is %q, %v", lock, got["lock"], err)
		}
	}
}
