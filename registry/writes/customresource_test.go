package writes

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// gizmoCRD is a definition with two versions whose schemas differ, and every subresource.
const gizmoCRD = `{
  "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
  "metadata": {"name": "gizmos.example.com"},
  "spec": {
    "group": "example.com", "scope": "Namespaced",
    "names": {"plural": "gizmos", "kind": "Gizmo"},
    "versions": [
      {"name": "v1", "served": true, "storage": true,
       "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}},
       "schema": {"openAPIV3Schema": {"type": "object", "properties": {
         "spec": {"type": "object", "x-kubernetes-validations": [{"rule": "!has(self.replicas) || self.replicas <= 10", "message": "at most ten"}],
           "properties": {
             "size": {"type": "string", "enum": ["S", "M", "L"], "default": "M"},
             "replicas": {"type": "integer"},
             "ports": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
               "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "port": {"type": "integer"}}}},
             "fixed": {"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is immutable"}]}}},
         "status": {"type": "object", "properties": {"replicas": {"type": "integer"}, "selector": {"type": "string"}, "phase": {"type": "string"}}}}}}},
      {"name": "v1beta1", "served": true, "storage": false, "deprecated": true, "subresources": {"status": {}},
       "schema": {"openAPIV3Schema": {"type": "object", "properties": {
         "spec": {"type": "object", "properties": {"size": {"type": "string"}, "color": {"type": "string", "default": "red"}}}}}}}
    ]
  }
}`

func gizmo(version, name, more string) []byte {
	return []byte(`{"apiVersion":"example.com/` + version + `","kind":"Gizmo","metadata":{"name":"` + name + `"}` + more + `}`)
}

func (s *server) gizmos() *client {
	s.t.Helper()
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(gizmoCRD)))
	return s.at("example.com", "v1", "gizmos")
}

func TestSchema(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	res, err := e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"colour":"red","fixed":"x"},"status":{"phase":"Ready"}`))
	got := s.ok(res, err)
	if got.get("spec.size") != "M" || got.get("spec.colour") != nil || got["status"] != nil {
		t.Errorf("stored %v", got)
	}
	if w := strings.Join(res.Warnings, "; "); w != `unknown field "spec.colour"` {
		t.Errorf("warnings %q", w)
	}
	for _, c := range []struct {
		name, query, spec string
		code              int32
		reason            metav1.StatusReason
		parts             []string
	}{
		{"enum", "", `{"size":"XL"}`, 422, metav1.StatusReasonInvalid, []string{`Gizmo.example.com "b" is invalid: `, `spec.size: Unsupported value: "XL": supported values:`}},
		{"type", "", `{"replicas":"many"}`, 422, metav1.StatusReasonInvalid, []string{`spec.replicas: Invalid value: "string"`}},
		{"rule", "", `{"replicas":11}`, 422, metav1.StatusReasonInvalid, []string{`spec: Invalid value:`, `at most ten`}},
		{"scale", "", `{"replicas":-1}`, 422, metav1.StatusReasonInvalid, []string{`.spec.replicas: Invalid value: -1: should be a non-negative integer`}},
		{"map keys", "", `{"ports":[{"name":"a"},{"name":"a"}]}`, 422, metav1.StatusReasonInvalid, []string{`spec.ports[1]: Duplicate value`}},
		{"required", "", `{"ports":[{}]}`, 422, metav1.StatusReasonInvalid, []string{`spec.ports[0].name: Required value`}},
		{"strict", "fieldValidation=Strict", `{"colour":"red"}`, 400, metav1.StatusReasonBadRequest, []string{`strict decoding error: unknown field "spec.colour"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := e.Create(s.ctx, "default", params(c.query), gizmo("v1", "b", `,"spec":`+c.spec))
			wantStatus(t, err, c.code, c.reason, c.parts...)
		})
	}
	_, err = e.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{"spec":{"fixed":"y"}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.fixed", "fixed is immutable")
	_, err = e.Patch(s.ctx, "default", "a", "status", "application/merge-patch+json", nil, []byte(`{"status":{"replicas":"x"}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "status.replicas")
}

// What was stored before a definition changed is served as the new one says: with its defaults, and without
// what it doesn't know.
func TestSchemaChanges(t *testing.T) {
	dir := t.TempDir()
	s := start(t, dir, registry.Options{})
	e := s.gizmos()
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "old", `,"spec":{"replicas":3}`)))
	changed := strings.Replace(gizmoCRD, `"replicas": {"type": "integer"},
             "ports"`, `"weight": {"type": "integer", "default": 7}, "ports"`, 1)
	changed = strings.Replace(changed, `"!has(self.replicas) || self.replicas <= 10"`, `"self.weight <= 10"`, 1)
	if changed == gizmoCRD {
		t.Fatal("the definition is the same")
	}
	def := s.ok(s.crds().Get(s.ctx, "", "gizmos.example.com", "", nil))
	body := strings.Replace(changed, `"metadata": {`, `"metadata": {"resourceVersion": "`+def.str("metadata.resourceVersion")+`", `, 1)
	s.ok(s.crds().Update(s.ctx, "", "gizmos.example.com", "", nil, []byte(body)))

	check := func(s *server) {
		t.Helper()
		e := s.at("example.com", "v1", "gizmos")
		got := s.ok(e.Get(s.ctx, "default", "old", "", nil))
		if got.get("spec.weight") != "7" || got.get("spec.replicas") != nil {
			t.Errorf("got %v", got)
		}
		list := s.list(e, "default", nil)
		item := tree(list["items"].([]any)[0].(map[string]any))
		if item.get("spec.weight") != "7" {
			t.Errorf("listed %v", item)
		}
		c, _, err := e.Watch(s.ctx, "", "", params("sendInitialEvents=true&resourceVersionMatch=NotOlderThan"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := events(t, s.ctx, c, 1)[0]; got.get("object.spec.weight") != "7" {
			t.Errorf("initial event %v", got)
		}
	}
	check(s)
	s.stop()
	s = start(t, dir, registry.Options{})
	check(s)
	// A write stores it in the new form; one that changes nothing else does, too.
	e = s.at("example.com", "v1", "gizmos")
	before := s.ok(e.Get(s.ctx, "default", "old", "", nil))
	after := s.ok(e.Patch(s.ctx, "default", "old", "", "application/merge-patch+json", nil, []byte(`{}`)))
	if before.str("metadata.resourceVersion") == after.str("metadata.resourceVersion") || after.get("spec.weight") != "7" {
		t.Errorf("after a patch of nothing: %v", after)
	}
}

// Writers see the old definition or the new, and nothing that the old allowed is stored as if the new did.
func TestDefinitionChangesUnderWriters(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{}`)))
	done := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				// The endpoint that was looked up stays the same, as in a request that takes long.
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"w%d":"%d"}}}`, i, n)
				if _, err := e.Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(patch)); err != nil {
					t.Errorf("patch: %v", err)
				}
				if _, err := e.Create(s.ctx, "default", nil, gizmo("v1", fmt.Sprintf("w%d-%d", i, n), `,"spec":{}`)); err != nil {
					t.Errorf("create: %v", err)
				}
			}
		})
	}
	for n := range 5 {
		patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n%d","value":{"type":"integer","default":%d}}]`, n, n)
		def := s.ok(s.crds().Patch(s.ctx, "", "gizmos.example.com", "", "application/json-patch+json", nil, []byte(patch)))
		s.ok(s.at("example.com", "v1", "gizmos").Create(s.ctx, "default", nil, gizmo("v1", fmt.Sprintf("d%d", n), "")))
		_ = def
	}
	close(done)
	writers.Wait()
	now := s.at("example.com", "v1", "gizmos")
	for _, item := range s.list(now, "default", nil)["items"].([]any) {
		for n := range 5 {
			got := tree(item.(map[string]any))
			if got["spec"] != nil && got.get(fmt.Sprintf("spec.n%d", n)) != fmt.Sprint(n) {
				t.Fatalf("lacks the default of n%d: %v", n, got)
			}
		}
	}
}

// evolve adds a field with a default to the schema of gizmos.
func (s *server) evolve(n int) {
	s.t.Helper()
	patch := fmt.Sprintf(`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/n%d","value":{"type":"integer","default":%d}}]`, n, n)
	s.ok(s.crds().Patch(s.ctx, "", "gizmos.example.com", "", "application/json-patch+json", nil, []byte(patch)))
}

// A list that is being written when its definition changes, twice, goes on as it began.
func TestListWhileDefinitionChanges(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	for i := range 150 {
		s.ok(e.Create(s.ctx, "default", nil, []byte(strings.Replace(string(gizmo("v1", fmt.Sprintf("g%03d", i), `,"spec":{}`)),
			`"metadata":{`, `"metadata":{"annotations":{"x":"`+strings.Repeat("x", 4000)+`"},`, 1))))
	}
	s.evolve(1)
	l, err := s.at("example.com", "v1", "gizmos").List(s.ctx, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	n := 1
	w := writer(func(p []byte) (int, error) {
		if n++; n < 5 {
			s.evolve(n)
			s.list(s.at("example.com", "v1", "gizmos"), "", nil)
		}
		return len(p), nil
	})
	if err := l.Write(s.ctx, w); err != nil || n < 3 {
		t.Errorf("%d writes, %v", n, err)
	}
}

type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// Endpoints that were looked up before their definition changed do what the new one says.
func TestOldEndpoints(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	held := strings.Replace(string(gizmo("v1", "held", `,"spec":{"replicas":1}`)), `"metadata":{`, `"metadata":{"finalizers":["example.com/hold"],`, 1)
	s.ok(e.Create(s.ctx, "default", nil, []byte(held)))
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "free", `,"spec":{"replicas":1}`)))
	s.ok(s.crds().Patch(s.ctx, "", "gizmos.example.com", "", "application/json-patch+json", nil,
		[]byte(`[{"op":"remove","path":"/spec/versions/0/subresources/scale"}]`)))
	_, err := e.Patch(s.ctx, "default", "free", "scale", "application/merge-patch+json", nil, []byte(`{"spec":{"replicas":3}}`))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	s.evolve(1)
	if _, err := e.DeleteCollection(s.ctx, "default", nil, nil); err != nil {
		t.Fatal(err)
	}
	if got := s.ok(e.Get(s.ctx, "default", "held", "", nil)); got.str("metadata.deletionTimestamp") == "" {
		t.Errorf("not marked: %v", got)
	}
}

// A status that has a default has it from the beginning.
func TestDefaultStatus(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(strings.Replace(gizmoCRD, `"status": {"type": "object", "properties": {"replicas"`,
		`"status": {"type": "object", "default": {"phase": "Pending"}, "properties": {"replicas"`, 1))))
	e := s.at("example.com", "v1", "gizmos")
	made := s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"status":{"phase":"Ready"}`)))
	if got := s.ok(e.Get(s.ctx, "default", "a", "", nil)); made.get("status.phase") != "Pending" || got.get("status.phase") != "Pending" {
		t.Errorf("created %v, got %v", made, got)
	}
}

// What is shown of an object may change with its definition, and then its tag does.
func TestTagChangesWithDefinition(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{}`)))
	before, err := e.Get(s.ctx, "default", "a", "", nil)
	s.ok(before, err)
	s.evolve(1)
	after, err := s.at("example.com", "v1", "gizmos").Get(s.ctx, "default", "a", "", nil)
	if s.ok(after, err); before.Tag == after.Tag {
		t.Errorf("the tag stays %s", after.Tag)
	}
}

func TestApplyClusterScoped(t *testing.T) {
	s := start(t, "", registry.Options{})
	s.ok(s.crds().Create(s.ctx, "", nil, []byte(strings.Replace(gizmoCRD, `"scope": "Namespaced"`, `"scope": "Cluster"`, 1))))
	e := s.at("example.com", "v1", "gizmos")
	for _, size := range []string{"S", "L"} {
		body := `{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"a","namespace":"ignored"},"spec":{"size":"` + size + `"}}`
		got := s.ok(e.Patch(s.ctx, "", "a", "", "application/apply-patch+yaml", params("fieldManager=m"), []byte(body)))
		if got.get("spec.size") != size || got.get("metadata.namespace") != nil {
			t.Errorf("applied %v", got)
		}
	}
	_, err := e.List(s.ctx, "", params("fieldSelector=metadata.namespace=default"))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "field label not supported: metadata.namespace")
	_, _, err = e.Watch(s.ctx, "", "", params("fieldSelector=metadata.namespace!=default"))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "field label not supported: metadata.namespace")
	_, err = s.at("", "v1", "namespaces").List(s.ctx, "", params("fieldSelector=metadata.namespace=default"))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "field label not supported: metadata.namespace")
}

func TestVersions(t *testing.T) {
	s := start(t, "", registry.Options{})
	v1 := s.gizmos()
	beta := s.at("example.com", "v1beta1", "gizmos")
	if beta.Warning != "example.com/v1beta1 Gizmo is deprecated; use example.com/v1 Gizmo" || v1.Warning != "" {
		t.Errorf("warnings %q, %q", beta.Warning, v1.Warning)
	}
	s.ok(v1.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"replicas":3}`)))
	got := s.ok(beta.Get(s.ctx, "default", "a", "", nil))
	if got.str("apiVersion") != "example.com/v1beta1" || got.get("spec.size") != "M" || got.get("spec.replicas") != nil {
		t.Errorf("in the other version %v", got)
	}
	// Written in the other version: its defaults, and what the stored version doesn't know is lost.
	made := s.ok(beta.Create(s.ctx, "default", nil, gizmo("v1beta1", "b", `,"spec":{"size":"L"}`)))
	if made.get("spec.color") != nil || made.get("spec.size") != "L" {
		t.Errorf("created in the other version %v", made)
	}
	if got := s.ok(v1.Get(s.ctx, "default", "b", "", nil)); got.get("spec.size") != "L" || got.get("spec.color") != nil {
		t.Errorf("stored %v", got)
	}
	if got := names(s.list(beta, "", nil)); got != "a b" {
		t.Errorf("listed %s", got)
	}
}

func TestScale(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	const merge = "application/merge-patch+json"
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "none", "")))
	_, err := e.Get(s.ctx, "default", "none", "scale", nil)
	s.refused(err, 500, metav1.StatusReasonInternalError, `the spec replicas field ".spec.replicas" does not exist`)
	s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"replicas":2}`)))
	s.ok(e.Patch(s.ctx, "default", "a", "status", merge, nil, []byte(`{"status":{"replicas":1,"selector":"app=a"}}`)))
	got := s.ok(e.Get(s.ctx, "default", "a", "scale", nil))
	if got.str("kind") != "Scale" || got.str("apiVersion") != "autoscaling/v1" || got.get("spec.replicas") != "2" || got.get("status.replicas") != "1" || got.get("status.selector") != "app=a" {
		t.Errorf("scale %v", got)
	}
	rv := got.str("metadata.resourceVersion")
	got = s.ok(e.Update(s.ctx, "default", "a", "scale", nil, []byte(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","resourceVersion":"`+rv+`"},"spec":{"replicas":5}}`)))
	if got.get("spec.replicas") != "5" || got.str("kind") != "Scale" {
		t.Errorf("scaled %v", got)
	}
	_, err = e.Update(s.ctx, "default", "a", "scale", nil, []byte(`{"metadata":{"name":"a","resourceVersion":"`+rv+`"},"spec":{"replicas":6}}`))
	s.refused(err, 409, metav1.StatusReasonConflict)
	_, err = e.Update(s.ctx, "default", "a", "scale", nil, []byte(`{"metadata":{"name":"a"},"spec":{"replicas":-6}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "spec.replicas")
	_, err = e.Patch(s.ctx, "default", "a", "scale", merge, nil, []byte(`{"spec":{"replicas":11}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid, "at most ten")
	got = s.ok(e.Patch(s.ctx, "default", "a", "scale", merge, params("dryRun=All"), []byte(`{"spec":{"replicas":7}}`)))
	if got.get("spec.replicas") != "7" {
		t.Errorf("tried %v", got)
	}
	if got := s.ok(e.Get(s.ctx, "default", "a", "", nil)); got.get("spec.replicas") != "5" || got.get("metadata.generation") != "2" {
		t.Errorf("it is %v", got)
	}
}

func TestDryRun(t *testing.T) {
	s := start(t, "", registry.Options{AutoCreateNamespaces: true})
	e := s.gizmos()
	dry := params("dryRun=All")
	const merge = "application/merge-patch+json"
	before := s.Cacher.Position()
	got := s.ok(e.Create(s.ctx, "fresh", dry, gizmo("v1", "a", "")))
	if got.get("metadata.resourceVersion") != nil || got.str("metadata.uid") == "" {
		t.Errorf("tried to create %v", got)
	}
	_, err := e.Get(s.ctx, "fresh", "a", "", nil) // which shows what was stored until now
	s.refused(err, 404, metav1.StatusReasonNotFound)
	if now := s.Cacher.Position(); now != before {
		t.Errorf("it wrote: position %d, before %d", now, before)
	}
	made := s.ok(e.Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"size":"S"}`)))
	rv := made.str("metadata.resourceVersion")
	_, err = e.Create(s.ctx, "default", dry, gizmo("v1", "a", ""))
	s.refused(err, 409, metav1.StatusReasonAlreadyExists)
	_, err = e.Patch(s.ctx, "default", "a", "", merge, dry, []byte(`{"spec":{"size":"XL"}}`))
	s.refused(err, 422, metav1.StatusReasonInvalid)
	if got := s.ok(e.Patch(s.ctx, "default", "a", "", merge, dry, []byte(`{"spec":{"size":"L"}}`))); got.get("spec.size") != "L" || got.str("metadata.resourceVersion") != rv {
		t.Errorf("tried to patch %v", got)
	}
	body := gizmo("v1", "a", `,"spec":{"size":"L"}`)
	body = []byte(strings.Replace(string(body), `"name":"a"`, `"name":"a","resourceVersion":"`+rv+`"`, 1))
	if got := s.ok(e.Update(s.ctx, "default", "a", "", dry, body)); got.get("metadata.generation") != "2" {
		t.Errorf("tried to update %v", got)
	}
	applied := gizmo("v1", "a", `,"spec":{"replicas":1}`)
	if got := s.ok(e.Patch(s.ctx, "default", "a", "", "application/apply-patch+yaml", params("dryRun=All&fieldManager=m"), applied)); got.get("spec.replicas") != "1" {
		t.Errorf("tried to apply %v", got)
	}
	if got := s.ok(e.Delete(s.ctx, "default", "a", dry, nil)); got.str("status") != "Success" {
		t.Errorf("tried to delete %v", got)
	}
	if _, err := e.DeleteCollection(s.ctx, "default", dry, nil); err != nil {
		t.Error(err)
	}
	crd := s.ok(s.crds().Create(s.ctx, "", dry, []byte(strings.ReplaceAll(widgetCRD, "idget", "idgot"))))
	if crd.get("metadata.resourceVersion") != nil {
		t.Errorf("tried to define %v", crd)
	}
	if got := s.ok(e.Get(s.ctx, "default", "a", "", nil)); got.str("metadata.resourceVersion") != rv {
		t.Errorf("it changed: %v", got)
	}
}

func TestDeleteCollection(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	for i := range 30 {
		more := fmt.Sprintf(`,"labels":{"n":"%d"}`, i%3)
		if i%10 == 0 {
			more += `,"finalizers":["example.com/hold"]`
		}
		s.ok(e.Create(s.ctx, "default", nil, []byte(strings.Replace(string(gizmo("v1", fmt.Sprintf("g%02d", i), "")), `}`, more+`}`, 1))))
	}
	l, err := e.DeleteCollection(s.ctx, "default", params("labelSelector=n%3D0"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(l.Page); n != 10 {
		t.Errorf("deleted %d", n)
	}
	left := names(s.list(e, "", nil))
	if !strings.Contains(left, "g00") || strings.Contains(left, "g03") || !strings.Contains(left, "g01") {
		t.Errorf("left %s", left)
	}
	if got := s.ok(e.Get(s.ctx, "default", "g00", "", nil)); got.str("metadata.deletionTimestamp") == "" {
		t.Errorf("not marked: %v", got)
	}
	if l, err = e.DeleteCollection(s.ctx, "default", params("limit=5&labelSelector=n%3D1"), nil); err != nil || len(l.Page) != 5 {
		t.Errorf("of a page %v", err)
	}
}

func TestServerSideApply(t *testing.T) {
	s := start(t, "", registry.Options{})
	e := s.gizmos()
	const apply = "application/apply-patch+yaml"
	by := func(manager, more string, spec string) (registry.Result, error) {
		return e.Patch(s.ctx, "default", "a", "", apply, params("fieldManager="+manager+more), gizmo("v1", "a", `,"spec":`+spec))
	}
	res, err := by("one", "", `{"size":"S","ports":[{"name":"http","port":80}]}`)
	got := s.ok(res, err)
	if !res.Created || got.get("spec.size") != "S" || got["metadata"].(map[string]any)["managedFields"] == nil {
		t.Errorf("created %v", got)
	}
	rv := got.str("metadata.resourceVersion")
	if got := s.ok(by("one", "", `{"size":"S","ports":[{"name":"http","port":80}]}`)); got.str("metadata.resourceVersion") != rv {
		t.Errorf("applied the same: %v", got)
	}
	_, err = by("two", "", `{"size":"L"}`)
	st := s.refused(err, 409, metav1.StatusReasonConflict, `Apply failed with 1 conflict: conflict with "one": .spec.size`)
	if c := st.Details.Causes; len(c) != 1 || c[0].Type != metav1.CauseTypeFieldManagerConflict || c[0].Field != ".spec.size" {
		t.Errorf("causes %v", c)
	}
	got = s.ok(by("two", "&force=true", `{"size":"L","ports":[{"name":"dns","port":53}]}`))
	if ports := got["spec"].(map[string]any)["ports"].([]any); len(ports) != 2 || got.get("spec.size") != "L" {
		t.Errorf("forced %v", got)
	}
	got = s.ok(by("two", "", `{"size":"L"}`))
	if ports := got["spec"].(map[string]any)["ports"].([]any); len(ports) != 1 {
		t.Errorf("given up %v", got)
	}
	_, err = by("one", "", `{"size":1}`)
	s.refused(err, 500, metav1.StatusReasonUnknown)
	_, err = by("one", "", `{"colour":"red"}`)
	s.refused(err, 500, metav1.StatusReasonUnknown, ".spec.colour: field not declared in schema")
	_, err = e.Patch(s.ctx, "default", "none", "status", apply, params("fieldManager=one"), gizmo("v1", "none", `,"status":{"phase":"x"}`))
	s.refused(err, 404, metav1.StatusReasonNotFound)
	got = s.ok(e.Patch(s.ctx, "default", "a", "status", apply, params("fieldManager=st"), gizmo("v1", "a", `,"spec":{"size":"S"},"status":{"phase":"x"}`)))
	if got.get("status.phase") != "x" || got.get("spec.size") != "L" {
		t.Errorf("applied status %v", got)
	}
	// An update of an object that was applied is tracked, too.
	got = s.ok(e.By("curl/8").Patch(s.ctx, "default", "a", "", "application/merge-patch+json", nil, []byte(`{"spec":{"replicas":4}}`)))
	if f := fmt.Sprint(got["metadata"].(map[string]any)["managedFields"]); !strings.Contains(f, "curl") || !strings.Contains(f, "f:replicas") {
		t.Errorf("managed fields %s", f)
	}
	// Go types as well.
	ns := s.ok(s.at("", "v1", "namespaces").Patch(s.ctx, "", "made", "", apply, params("fieldManager=one"), []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"made","labels":{"a":"b"}}}`)))
	if ns.get("status.phase") != "Active" {
		t.Errorf("applied namespace %v", ns)
	}
	crd := s.ok(s.crds().Patch(s.ctx, "", "widgets.example.com", "", apply, params("fieldManager=one"), []byte(widgetCRD)))
	if crd.str("metadata.name") != "widgets.example.com" {
		t.Errorf("applied definition %v", crd)
	}
	s.ok(s.at("example.com", "v1", "widgets").Create(s.ctx, "default", nil, widget("a", "")))
}

// An owner in another version keeps others from applying what that version doesn't declare, until it has applied in theirs.
func TestApplyAcrossVersions(t *testing.T) {
	s := start(t, "", registry.Options{})
	v1 := s.gizmos()
	beta := s.at("example.com", "v1beta1", "gizmos")
	const apply = "application/apply-patch+yaml"
	s.ok(beta.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=old"), gizmo("v1beta1", "a", `,"spec":{"size":"S"}`)))
	_, err := v1.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=new"), gizmo("v1", "a", `,"spec":{"replicas":3}`))
	s.refused(err, 500, metav1.StatusReasonUnknown, ".spec.replicas: field not declared in schema")
	_, err = beta.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=other"), gizmo("v1beta1", "a", `,"spec":{"size":"M"}`))
	s.refused(err, 409, metav1.StatusReasonConflict, ".spec.size")
	s.ok(v1.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=old"), gizmo("v1", "a", `,"spec":{"size":"L"}`)))
	got := s.ok(v1.Patch(s.ctx, "default", "a", "", apply, params("fieldManager=new"), gizmo("v1", "a", `,"spec":{"replicas":4}`)))
	if got.get("spec.size") != "L" || got.get("spec.replicas") != "4" {
		t.Errorf("applied %v", got)
	}
}

// An object that is too large with its managedFields loses them, unless that is what an apply is about.
func TestManagedFieldsTooLarge(t *testing.T) {
	s := start(t, "", registry.Options{ManagedFieldsAlways: true})
	w := s.widgets()
	labels := func(value string) []byte { // a record has about as many bytes as the labels
		var text strings.Builder
		for i := range 3_500 { // more are too many to be merged
			fmt.Fprintf(&text, `,"%sexample.com/label-number-%030d":"%s"`, strings.Repeat("long.", 46), i, value)
		}
		return []byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","labels":{` + text.String()[1:] + `}}}`)
	}
	managers := func(r registry.Result, err error) any { return s.ok(r, err).get("metadata.managedFields") }
	if got := managers(w.Create(s.ctx, "default", nil, labels("x"))); got != nil {
		t.Errorf("created with %.100v", got)
	}
	if got := managers(w.Patch(s.ctx, "default", "a", "", mergePatch, nil, labels("y"))); got != nil {
		t.Errorf("patched with %.100v", got)
	}
	_, err := w.Patch(s.ctx, "default", "b", "", "application/apply-patch+yaml", params("fieldManager=m"), bytes.Replace(labels("x"), []byte(`"name":"a"`), []byte(`"name":"b"`), 1))
	s.refused(err, 413, metav1.StatusReasonRequestEntityTooLarge, "larger than the limit")
	if got := managers(w.Create(s.ctx, "default", nil, widget("c", `,"spec":{"size":1}`))); got == nil {
		t.Error("a small object has no record")
	}
}

func TestManagedFieldsAlways(t *testing.T) {
	s := start(t, "", registry.Options{ManagedFieldsAlways: true})
	e := s.gizmos()
	got := s.ok(e.By("kubectl/v1").Create(s.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"size":"S"}`)))
	f := fmt.Sprint(got["metadata"].(map[string]any)["managedFields"])
	if !strings.Contains(f, "manager:kubectl") || !strings.Contains(f, "operation:Update") || !strings.Contains(f, "f:size") {
		t.Errorf("managed fields %s", f)
	}
	s2 := start(t, "", registry.Options{})
	e = s2.gizmos()
	got = s2.ok(e.Create(s2.ctx, "default", nil, gizmo("v1", "a", `,"spec":{"size":"S"}`)))
	if got["metadata"].(map[string]any)["managedFields"] != nil {
		t.Errorf("tracked %v", got)
	}
}

// TestEmbeddedMetadataThatIsMalformed: a stored object in which a definition begins to find malformed metadata can be read,
// listed and changed; the malformed field isn't shown. What a client sends is refused.
func TestEmbeddedMetadataThatIsMalformed(t *testing.T) {
	s := start(t, "", registry.Options{})
	schema := func(template string) string {
		return `spec.versions.0.schema={"openAPIV3Schema":{"type":"object","properties":{"template":{"type":"object","x-kubernetes-preserve-unknown-fields":true` + template + `}}}}`
	}
	s.ok(s.crds().Create(s.ctx, "", nil, crdOf(t, "gadgets", "Gadget", schema(""))))
	const template = `"template":{"apiVersion":"v1","kind":"Pod","metadata":{"labels":{"a":1},"name":"p"}}`
	object := func(name string) []byte {
		return []byte(`{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"` + name + `"},` + template + `}`)
	}
	e := s.at("example.com", "v1", "gadgets")
	s.ok(e.Create(s.ctx, "default", nil, object("bad")))
	s.ok(s.crds().Patch(s.ctx, "", "gadgets.example.com", "", merge, nil,
		[]byte(`{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"template":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"x-kubernetes-embedded-resource":true}}}}}]}}`)))
	e = s.at("example.com", "v1", "gadgets")
	got := s.ok(e.Get(s.ctx, "default", "bad", "", nil))
	if got.get("template.metadata.name") != "p" || strings.Contains(fmt.Sprint(got), "labels") {
		t.Errorf("shown is %v", got)
	}
	if list := names(s.list(e, "default", nil)); list != "bad" {
		t.Errorf("the list has %q", list)
	}
	_, err := e.Create(s.ctx, "default", nil, object("another"))
	s.refused(err, 400, metav1.StatusReasonBadRequest, "labels")
	s.ok(e.Patch(s.ctx, "default", "bad", "", merge, nil, []byte(`{"template":{"metadata":{"labels":{"a":"1"}}}}`)))
	if got := s.ok(e.Get(s.ctx, "default", "bad", "", nil)); got.get("template.metadata.labels.a") != "1" {
		t.Errorf("mended it is %v", got)
	}
}
