package writes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// crdOf returns a small definition in example.com, changed by edits of the form "path=json".
func crdOf(t testing.TB, plural, kind string, edits ...string) []byte {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"%s.example.com"},
		"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"%s","kind":"%s"},
		"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`, plural, plural, kind)
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		path, value, _ := strings.Cut(e, "=")
		var to any
		if err := json.Unmarshal([]byte(value), &to); err != nil {
			t.Fatalf("%s: %v", e, err)
		}
		steps := strings.Split(path, ".")
		at := v
		for i, step := range steps {
			last := i == len(steps)-1
			switch parent := at.(type) {
			case map[string]any:
				if last {
					parent[step] = to
				}
				at = parent[step]
			case []any:
				if last {
					parent[step[0]-'0'] = to
				}
				at = parent[step[0]-'0']
			}
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func condition(crd tree, kind string) tree {
	conditions, _ := crd.get("status.conditions").([]any)
	for _, c := range conditions {
		if c := tree(c.(map[string]any)); c.str("type") == kind {
			return c
		}
	}
	return nil
}

func TestDefinitionIsServedInItsAnswer(t *testing.T) {
	s := start(t, "", registry.Options{})
	before := s.Catalog()
	revision := s.current()
	created := s.ok(s.crds().Create(s.ctx, "", nil, []byte(widgetCRD)))
	if s.current() != revision+1 {
		t.Errorf("a definition took %d writes", s.current()-revision)
	}
	for kind, reason := range map[string]string{"NamesAccepted": "NoConflicts", "Established": "InitialNamesAccepted"} {
		if c := condition(created, kind); c.str("status") != "True" || c.str("reason") != reason {
			t.Errorf("condition %s: %v", kind, c)
		}
	}
	for path, want := range map[string]any{
		"status.acceptedNames.listKind": "WidgetList", "status.acceptedNames.singular": "widget",
		"spec.conversion.strategy": "None", "metadata.generation": "1",
	} {
		if got := created.get(path); got != want {
			t.Errorf("%s = %v, want %v", path, got, want)
		}
	}
	if got := fmt.Sprint(created.get("status.storedVersions")); got != "[v1]" {
		t.Errorf("storedVersions %s", got)
	}
	after := s.Catalog()
	if before.Hash == after.Hash {
		t.Error("the catalog's hash didn't change")
	}
	var shape []string
	for _, g := range after.Groups {
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				shape = append(shape, strings.Trim(g.Name+"/"+v.Name, "/")+":"+e.Plural+fmt.Sprint(e.Subresources))
			}
		}
	}
	want := "v1:namespaces[finalize status] apiextensions.k8s.io/v1:customresourcedefinitions[status] example.com/v1:widgets[status] example.com/v1beta1:widgets[status]"
	if got := strings.Join(shape, " "); got != want {
		t.Errorf("catalog %s", got)
	}
	e := after.Groups[2].Versions[0].Resources[0]
	if e.Kind != "Widget" || e.ListKind != "WidgetList" || e.Singular != "widget" || !e.Namespaced || e.ShortNames[0] != "wd" || e.Categories[0] != "all" {
		t.Errorf("endpoint %+v", e)
	}
	same := s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", "application/merge-patch+json", nil, []byte(`{"spec":{"scope":"Namespaced"}}`)))
	if same.str("metadata.resourceVersion") != created.str("metadata.resourceVersion") {
		t.Error("a patch of nothing wrote")
	}
}

func TestDefinitionRefusals(t *testing.T) {
	s := start(t, "", registry.Options{})
	for _, c := range []struct {
		name  string
		edit  string
		parts []string
	}{
		{"name", `metadata.name="gadgets.example.org"`, []string{"metadata.name", `must be spec.names.plural+"."+spec.group`}},
		{"protected group", `spec.group="example.k8s.io"`, []string{"api-approved.kubernetes.io"}},
		{"no storage version", `spec.versions.0.storage=false`, []string{"spec.versions", "exactly one version"}},
		{"no versions", `spec.versions=[]`, []string{"spec.versions"}},
		{"no schema", `spec.versions.0.schema=null`, []string{"spec.versions[0].schema.openAPIV3Schema", "Required"}},
		{"not structural", `spec.versions.0.schema={"openAPIV3Schema":{"properties":{"a":{}}}}`, []string{"type: Required"}},
		{"$ref", `spec.versions.0.schema={"openAPIV3Schema":{"type":"object","properties":{"a":{"$ref":"file:///etc/passwd"}}}}`, []string{"$ref"}},
		{"preserveUnknownFields", `spec.preserveUnknownFields=true`, []string{"preserveUnknownFields"}},
		{"scope", `spec.scope="Galactic"`, []string{"spec.scope"}},
		{"plural", `spec.names.plural="../gadgets"`, []string{"spec.names.plural"}},
		{"kind", `spec.names.kind="a/b"`, []string{"spec.names.kind"}},
		{"version name", `spec.versions.0.name="../v1"`, []string{"spec.versions[0].name"}},
		{"webhook", `spec.conversion={"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"http://example.com/"}}}`,
			[]string{"spec.conversion.webhook", "https"}},
		{"selectable fields", `spec.versions.0.selectableFields=[{"jsonPath":".metadata.labels"}]`, []string{"selectableFields"}},
		{"CEL", `spec.versions.0.schema={"openAPIV3Schema":{"type":"object","x-kubernetes-validations":[{"rule":"self.x >"}]}}`, []string{"x-kubernetes-validations"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", c.edit))
			status := wantStatus(t, err, 422, metav1.StatusReasonInvalid, c.parts...)
			if status.Details.Kind != "CustomResourceDefinition" || len(status.Details.Causes) == 0 {
				t.Errorf("details %+v", status.Details)
			}
		})
	}
	many := `spec.versions.0.selectableFields=[`
	props := `spec.versions.0.schema={"openAPIV3Schema":{"type":"object","properties":{`
	for i := range 9 {
		sep := ","
		if i == 0 {
			sep = ""
		}
		many += fmt.Sprintf(`%s{"jsonPath":".f%d"}`, sep, i)
		props += fmt.Sprintf(`%s"f%d":{"type":"string"}`, sep, i)
	}
	_, err := s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", props+"}}}", many+"]"))
	s.refused(err, 422, metav1.StatusReasonInvalid, "selectableFields", "8")
	_, err = s.crds().Create(s.ctx, "", params("fieldValidation=Strict"), crdOf(t, "gadgets", "Gadget", `spec.plural="x"`))
	s.refused(err, 400, metav1.StatusReasonBadRequest, `unknown field "spec.plural"`)
	if got := names(s.list(s.crds(), "", nil)); got != "" {
		t.Errorf("refused definitions are there: %s", got)
	}
}

// TestNamesAfterUnknownOutcomes: a definition whose client has left may be stored all the same. So the next one doesn't get
// its names.
func TestNamesAfterUnknownOutcomes(t *testing.T) {
	var log lockedBuffer
	s := start(t, t.TempDir(), registry.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	left := 0
	for round := range 60 {
		first, second, kind := fmt.Sprintf("as%d", round), fmt.Sprintf("bs%d", round), fmt.Sprintf("Same%d", round)
		ctx, cancel := context.WithTimeout(s.ctx, time.Duration(round%20)*200*time.Microsecond)
		if _, err := s.crds().Create(ctx, "", nil, crdOf(t, first, kind)); err != nil {
			left++
		}
		cancel()
		s.ok(s.crds().Create(s.ctx, "", nil, crdOf(t, second, kind)))
		s.settle()
		accepted := 0
		for _, plural := range []string{first, second} {
			if res, err := s.crds().Get(s.ctx, "", plural+".example.com", "", nil); err == nil {
				if c := condition(s.ok(res, err), "NamesAccepted"); c.str("status") == "True" {
					accepted++
				}
			}
		}
		if accepted != 1 {
			t.Errorf("%d definitions have the kind %s", accepted, kind)
		}
	}
	if left == 0 {
		t.Error("no client has left early")
	}
	if text := log.String(); strings.Contains(text, "storage can't answer") {
		t.Errorf("a client's own deadline is an alarm of the operator's: %s", text)
	}
}

func TestNameConflicts(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.widgets()
	second := s.ok(s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Widget", `spec.names.shortNames=["wd"]`)))
	if c := condition(second, "NamesAccepted"); c.str("status") != "False" || !strings.HasSuffix(c.str("reason"), "Conflict") || !strings.Contains(c.str("message"), "is already in use") {
		t.Errorf("NamesAccepted %v", c)
	}
	if c := condition(second, "Established"); c.str("status") != "False" || c.str("reason") != "NotAccepted" {
		t.Errorf("Established %v", c)
	}
	_, err := s.Lookup(s.ctx, gvr("example.com", "v1", "gadgets"))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	// Nobody gets a name by claiming to have it.
	s.ok(s.crds().Patch(s.ctx, "", "gadgets.example.com", "status", "application/merge-patch+json", nil,
		[]byte(`{"status":{"acceptedNames":{"plural":"gadgets","kind":"Widget"},"conditions":[{"type":"Established","status":"True","reason":"x","message":"","lastTransitionTime":"2001-01-01T00:00:00Z"}]}}`)))
	_, err = s.Lookup(s.ctx, gvr("example.com", "v1", "gadgets"))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	// What a client notes of its own stays, also without a type.
	noted := s.ok(s.crds().Patch(s.ctx, "", "gadgets.example.com", "status", "application/merge-patch+json", nil, []byte(`{"status":{"conditions":[{"message":"noted"}]}}`)))
	if all, _ := noted.get("status.conditions").([]any); len(all) != 3 || condition(noted, "NamesAccepted").str("status") != "False" || condition(noted, "").str("message") != "noted" {
		t.Errorf("noted in the status: %v", noted["status"])
	}
	// When the names are free, the second gets them.
	s.ok(s.crds().Delete(s.ctx, "", "widgets.example.com", nil, nil))
	s.eventually("the second definition is served", func() bool {
		_, err := s.Lookup(s.ctx, gvr("example.com", "v1", "gadgets"))
		return err == nil
	})
	got := s.ok(s.crds().Get(s.ctx, "", "gadgets.example.com", "", nil))
	if condition(got, "Established").str("status") != "True" {
		t.Errorf("status %v", got["status"])
	}
}

func TestDefinitionUpdate(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	watch, _, err := w.Watch(s.ctx, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	merge := "application/merge-patch+json"
	// A change of metadata or status doesn't end watches.
	s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", merge, nil, []byte(`{"metadata":{"labels":{"x":"y"}}}`)))
	if got := events(t, s.ctx, watch, 1); got[0].str("object.metadata.name") != "a" {
		t.Errorf("events %v", got)
	}
	s.ok(w.Create(s.ctx, "default", nil, widget("b", ""))) // through an endpoint of the definition before
	served := strings.Replace(widgetCRD[strings.Index(widgetCRD, `"versions"`):], `"v1alpha1", "served": false`, `"v1alpha1", "served": true`, 1)
	served = strings.TrimSuffix(strings.TrimSpace(served), "}\n}") + "}"
	patched := s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", merge, nil, []byte(`{"spec":{`+served+`}`)))
	if patched.get("metadata.generation") != "2" {
		t.Errorf("generation %v", patched.get("metadata.generation"))
	}
	s.at("example.com", "v1alpha1", "widgets")
	if got := ends(t, s.ctx, watch); len(got) != 1 || got[0].str("object.metadata.name") != "b" {
		t.Errorf("before its end the watch gave %v", got)
	}
	_, err = s.crds().Patch(s.ctx, "", "widgets.example.com", "", merge, nil, []byte(`{"spec":{"scope":"Cluster"}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.scope")
	_, err = s.crds().Patch(s.ctx, "", "widgets.example.com", "", merge, nil,
		[]byte(`{"spec":{"versions":[{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "status.storedVersions")
}

func TestDefinitionDelete(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	for i := range 40 {
		s.ok(w.Create(s.ctx, "default", nil, widget(fmt.Sprintf("w%02d", i), "")))
	}
	s.ok(w.Create(s.ctx, "default", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"held","finalizers":["example.com/x"]}}`)))
	uid := s.ok(w.Get(s.ctx, "default", "w00", "", nil)).str("metadata.uid")
	watch, _, err := w.Watch(s.ctx, "", "", params("resourceVersion="+s.current().String()))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	marked := s.ok(s.crds().Delete(s.ctx, "", "widgets.example.com", nil, nil))
	if marked.str("metadata.deletionTimestamp") == "" || condition(marked, "Terminating").str("status") != "True" ||
		fmt.Sprint(marked.get("metadata.finalizers")) != "[customresourcecleanup.apiextensions.k8s.io]" {
		t.Errorf("marked %v", marked)
	}
	_, err = w.Create(s.ctx, "default", nil, widget("late", ""))
	s.refused(err, 403, metav1.StatusReasonForbidden, "create not allowed while custom resource definition is terminating")
	_, err = s.at("example.com", "v1", "widgets").Create(s.ctx, "default", nil, widget("late", ""))
	s.refused(err, 403, metav1.StatusReasonForbidden, "create not allowed while custom resource definition is terminating")
	s.eventually("all but one are gone", func() bool { return names(s.list(w, "", nil)) == "held" })
	s.eventually("the condition says why", func() bool {
		return condition(s.ok(s.crds().Get(s.ctx, "", "widgets.example.com", "", nil)), "Terminating").str("reason") == "InstanceDeletionCheck"
	})
	s.ok(w.Patch(s.ctx, "default", "held", "", "application/merge-patch+json", nil, []byte(`{"metadata":{"finalizers":[]}}`)))
	s.eventually("the definition is gone", func() bool {
		_, err := s.Lookup(s.ctx, gvr("example.com", "v1", "widgets"))
		return err != nil
	})
	var deleted int
	for _, e := range ends(t, s.ctx, watch) {
		if e.str("type") == "DELETED" {
			deleted++
		}
	}
	if deleted != 41 {
		t.Errorf("%d DELETED events before the watch ended", deleted)
	}
	_, err = s.crds().Get(s.ctx, "", "widgets.example.com", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	again := s.widgets()
	if got := names(s.list(again, "", nil)); got != "" {
		t.Errorf("the new definition has old objects: %s", got)
	}
	if got := s.ok(again.Create(s.ctx, "default", nil, widget("w00", ""))).str("metadata.uid"); got == uid {
		t.Error("an old uid came back")
	}
}

// Objects that are created while their definition goes are refused or deleted with it; none stays behind.
func TestCreatesDuringDefinitionDelete(t *testing.T) {
	s := start(t, "", registry.Options{})
	w := s.widgets()
	stop := make(chan struct{})
	var creators sync.WaitGroup
	var created atomic.Int64
	for c := range 4 {
		creators.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				_, err := w.Create(s.ctx, "default", nil, widget(fmt.Sprintf("w%d-%d", c, i), ""))
				switch {
				case err == nil:
					created.Add(1)
				case apierrors.IsNotFound(err): // the definition is gone
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "custom resource definition is terminating"):
				default:
					t.Errorf("a create was answered %v", err)
					return
				}
			}
		})
	}
	s.eventually("there is something to delete", func() bool { return w.Res.Cache.Len() > 20 })
	s.ok(s.crds().Delete(s.ctx, "", "widgets.example.com", nil, nil))
	s.eventually("the definition is gone", func() bool {
		_, err := s.Lookup(s.ctx, gvr("example.com", "v1", "widgets"))
		return err != nil
	})
	close(stop)
	creators.Wait()
	if created.Load() == 0 {
		t.Error("nothing was created")
	}
	if _, err := s.Store.List(s.ctx, storage.Range{Prefix: string(w.Res.Prefix)}, 0, func(c storage.Change) error {
		return fmt.Errorf("%s stayed behind", c.Key)
	}); err != nil {
		t.Error(err)
	}
}

func TestRestart(t *testing.T) {
	dir := t.TempDir() + "/data"
	s := start(t, dir, registry.Options{})
	w := s.widgets()
	s.ok(s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget")))
	kept := s.ok(w.Create(s.ctx, "default", nil, widget("a", "")))
	held := []byte(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"held","finalizers":["example.com/x"]}}`)
	g := s.at("example.com", "v1", "gadgets")
	s.ok(g.Create(s.ctx, "default", nil, held))
	s.ok(s.crds().Delete(s.ctx, "", "gadgets.example.com", nil, nil))
	s.ok(s.at("", "v1", "namespaces").Create(s.ctx, "", nil, []byte(`{"metadata":{"name":"team"}}`)))
	s.ok(w.Create(s.ctx, "team", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"held","finalizers":["example.com/x"]}}`)))
	s.ok(s.at("", "v1", "namespaces").Delete(s.ctx, "", "team", nil, nil))
	revision := s.current()
	hash := s.Catalog().Hash
	s.stop()

	s = start(t, dir, registry.Options{})
	if s.Catalog().Hash != hash {
		t.Error("another catalog")
	}
	if s.current() < revision {
		t.Errorf("revision %d after %d", s.current(), revision)
	}
	w = s.at("example.com", "v1", "widgets")
	got := s.ok(w.Get(s.ctx, "default", "a", "", nil))
	if fmt.Sprint(got) != fmt.Sprint(kept) {
		t.Errorf("got %v, had %v", got, kept)
	}
	// Deletions that had begun go on.
	merge := "application/merge-patch+json"
	s.ok(s.at("example.com", "v1", "gadgets").Patch(s.ctx, "default", "held", "", merge, nil, []byte(`{"metadata":{"finalizers":null}}`)))
	s.ok(w.Patch(s.ctx, "team", "held", "", merge, nil, []byte(`{"metadata":{"finalizers":null}}`)))
	s.eventually("the definition and the namespace are gone", func() bool {
		_, err := s.Lookup(s.ctx, gvr("example.com", "v1", "gadgets"))
		_, nsErr := s.at("", "v1", "namespaces").Get(s.ctx, "", "team", "", nil)
		return err != nil && nsErr != nil
	})
}

type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		Size  int64  `json:"size"`
		Color string `json:"color,omitempty"`
	} `json:"spec"`
	Status struct {
		Ready bool `json:"ready,omitempty"`
	} `json:"status"`
}

func TestGoTypes(t *testing.T) {
	s := start(t, "", registry.Options{}, func(r *registry.Registry) {
		registry.Register(r, registry.Definition[Gadget]{
			Group: "go.example.com", Version: "v1", Kind: "Gadget", Status: true, Fields: []string{"spec.color"},
			Default: func(g *Gadget) {
				if g.Spec.Color == "" {
					g.Spec.Color = "grey"
				}
			},
		})
	})
	g := s.at("go.example.com", "v1", "gadgets")
	created := s.ok(g.Create(s.ctx, "default", nil, []byte(`{"metadata":{"name":"a"},"spec":{"size":9007199254740993},"status":{"ready":true}}`)))
	for path, want := range map[string]any{
		"apiVersion": "go.example.com/v1", "kind": "Gadget", "spec.size": "9007199254740993", "spec.color": "grey",
		"status.ready": nil, "metadata.generation": "1",
	} {
		if got := created.get(path); got != want {
			t.Errorf("%s = %v, want %v", path, got, want)
		}
	}
	res, err := g.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{"spec":{"size":2,"weight":3}}`))
	if got := s.ok(res, err); got.get("spec.weight") != nil || got.get("metadata.generation") != "2" || len(res.Warnings) != 1 {
		t.Errorf("patched %v, warned %q", got, res.Warnings)
	}
	_, err = g.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{"spec":{"size":"big"}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "size")
	if got := names(s.list(g, "", params("fieldSelector=spec.color=grey"))); got != "a" {
		t.Errorf("selected %q", got)
	}
	_, err = s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", `metadata.name="gadgets.go.example.com"`, `spec.group="go.example.com"`))
	if err != nil {
		t.Fatal(err)
	}
	if s.at("go.example.com", "v1", "gadgets").Endpoint != g.Endpoint {
		t.Error("a definition took a Go type's place")
	}
	s.ok(s.crds().Delete(s.ctx, "", "gadgets.go.example.com", nil, nil))
	s.eventually("the definition is gone", func() bool { return names(s.list(s.crds(), "", nil)) == "" })
	s.ok(g.Get(s.ctx, "default", "a", "", nil))
	for name, wrong := range map[string]func(){
		"twice": func() {
			registry.Register(registry.New(registry.Options{Store: s.Store, Cacher: s.Cacher}), registry.Definition[Gadget]{Kind: "X"})
		},
		"after Run": func() {
			registry.Register(s.Registry, registry.Definition[Gadget]{Group: "g", Version: "v1", Kind: "X"})
		},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: a mistake in wiring doesn't panic", name)
				}
			}()
			wrong()
		}()
	}
}

func TestClusterScope(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.ok(s.crds().Create(s.ctx, "", nil, crdOf(t, "planets", "Planet", `spec.scope="Cluster"`)))
	p := s.at("example.com", "v1", "planets")
	made := s.ok(p.Create(s.ctx, "", nil, []byte(`{"apiVersion":"example.com/v1","kind":"Planet","metadata":{"name":"mars","namespace":"default"},"status":{"kept":true}}`)))
	if made.get("metadata.namespace") != nil || made.get("status.kept") != true {
		t.Errorf("created %v", made)
	}
	// Without a status subresource, status is content like any other.
	got := s.ok(p.Patch(s.ctx, "", "mars", "", "application/merge-patch+json", nil, []byte(`{"status":{"kept":false}}`)))
	if got.get("metadata.generation") != "2" || got.get("status.kept") != false {
		t.Errorf("patched %v", got)
	}
	_, err := p.Update(s.ctx, "", "mars", "status", nil, []byte(`{}`))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	_, err = p.Get(s.ctx, "default", "mars", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	_, err = p.List(s.ctx, "default", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	_, _, err = p.Watch(s.ctx, "default", "", nil)
	s.refused(err, 404, metav1.StatusReasonNotFound)
	if got := names(s.list(p, "", params("fieldSelector=metadata.name=mars"))); got != "mars" {
		t.Errorf("list: %s", got)
	}
}
