package server_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestTTLRefusals: what the annotation apiserver-lite/ttl may say.
func TestTTLRefusals(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const field = "FieldValueInvalid metadata.annotations[apiserver-lite/ttl]"
	annotated := func(ttl string) string {
		return fmt.Sprintf(`{"metadata":{"annotations":{"apiserver-lite/ttl":%s}}}`, ttl)
	}
	var attempts []attempt
	for _, tc := range []struct {
		name, ttl string
		code      int
		message   string
	}{
		{"an hour", "1h", 200, ""},
		{"in parts", "1h30m0.5s", 200, ""},
		{"ten years", "87600h", 200, ""},
		{"over ten years", "87600h1s", 422, "must not be over ten years"},
		{"more than fits", "9999999h", 422, "must be a duration"},
		{"negative", "-1s", 422, "must not be negative"},
		{"a number", "3600", 422, "must be a duration as Go writes it, such as 90s or 1h30m"},
		{"days", "7d", 422, "must be a duration"},
		{"a space", "1 h", 422, "must be a duration"},
		{"nothing", "", 422, "must be a duration"},
	} {
		causes := ""
		if tc.code == 422 {
			causes = field
		}
		attempts = append(attempts,
			attempt{name: tc.name, method: "PATCH", media: mergePatch, body: annotated(strconv.Quote(tc.ttl)), code: tc.code, message: tc.message, causes: causes})
	}
	gizmoCollection.try(t, s, append(attempts,
		attempt{name: "in a new object", method: "POST", code: 422, message: "must not be negative", causes: field,
			body: aMeta + `{"name":"new","annotations":{"apiserver-lite/ttl":"-1h"}}}`},
		attempt{name: "in a new object, dry", method: "POST", path: "?dryRun=All", code: 422, message: "must be a duration", causes: field,
			body: aMeta + `{"name":"new","annotations":{"apiserver-lite/ttl":"x"}}}`},
		attempt{name: "in a label", method: "PATCH", media: mergePatch, code: 200, body: `{"metadata":{"labels":{"apiserver-lite/ttl":"x"}}}`},
	))
	if res, body := s.Do("POST", namespacesPath, `{"metadata":{"name":"shop","annotations":{"apiserver-lite/ttl":"soon"}}}`, "Content-Type", "application/json"); res.StatusCode != 422 {
		t.Errorf("a Go type: %s %s", res.Status, body)
	}
}

// deletions reads a watch until names were deleted, and returns when each was, with its resourceVersion.
func deletions(t *testing.T, w *servertest.Stream, names ...string) (at map[string]time.Time, revisions map[string]string) {
	t.Helper()
	at, revisions = map[string]time.Time{}, map[string]string{}
	for len(at) < len(names) {
		line, err := w.Next()
		if err != nil {
			t.Fatal(err)
		}
		if value(line, "type") != "DELETED" {
			continue
		}
		name := value(line, "object.metadata.name")
		if !slices.Contains(names, name) {
			t.Fatalf("%s was deleted: %s", name, line)
		}
		at[name], revisions[value(line, "object.metadata.resourceVersion")] = time.Now(), name
	}
	return at, revisions
}

// TestExpiry: objects go when their time is over, not before, each in a revision of its own, and only as they were written
// last.
func TestExpiry(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	annotated := func(name, ttl, more string) string {
		return applied(name, fmt.Sprintf(`%s,"annotations":{"apiserver-lite/ttl":%q}`, more, ttl))
	}
	w := s.Watch(gizmosPath + "?watch=true")
	began := time.Now()
	s.PostYAML(gizmosPath, applied("stays", ""))
	s.PostYAML(gizmosPath, annotated("later", "1h", ""))
	s.PostYAML(gizmosPath, annotated("kept", "2s", ""))
	s.PostYAML(gizmosPath, annotated("short", "500ms", ""))
	s.PostYAML(gizmosPath, annotated("now", "0s", ""))
	s.PostYAML(gizmosPath, annotated("made-short", "1h", ""))
	s.PostYAML(gizmosPath, annotated("held", "1s", `,"finalizers":["x.y/z"]`))
	send(t, s, 200, "PATCH", gizmosPath+"/made-short", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/ttl":"1s"}}}`)
	send(t, s, 200, "PATCH", gizmosPath+"/kept", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/ttl":null}}}`)
	at, revisions := deletions(t, w, "short", "now", "made-short")
	if len(revisions) != 3 {
		t.Errorf("the deletions have the revisions %v", revisions)
	}
	for name, least := range map[string]time.Duration{"short": 500 * time.Millisecond, "made-short": time.Second} {
		if age := at[name].Sub(began); age < least {
			t.Errorf("%s was deleted after %v, want %v", name, age, least)
		}
	}
	// What is held is marked, and goes when nothing holds it any more.
	for {
		held := s.Get(gizmosPath + "/held")
		if value(held, "metadata.deletionTimestamp") != "" {
			break
		}
		if line, err := w.Next(); err != nil {
			t.Fatal(line, err)
		}
	}
	send(t, s, 200, "PATCH", gizmosPath+"/held", mergePatch, `{"metadata":{"finalizers":null}}`)
	deletions(t, w, "held")
	s.PostYAML(gizmosPath, annotated("marker", "2s", "")) // after the time that kept had
	deletions(t, w, "marker")
	if got := namesOf(t, s, gizmosPath); got != "kept later stays" {
		t.Errorf("left are %s", got)
	}

	// A namespace and a definition are objects, too.
	definitions := s.Watch(definitionsPath + "?watch=true")
	send(t, s, 200, "PATCH", definitionsPath+"/gizmos.example.com", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/ttl":"1ms"}}}`)
	deletions(t, definitions, "gizmos.example.com")
	namespaces := s.Watch(namespacesPath + "?watch=true")
	s.PostYAML(namespacesPath, `metadata: {name: shop, annotations: {apiserver-lite/ttl: 1ms}}`)
	send(t, s, 200, "PATCH", namespacesPath+"/default", mergePatch, `{"metadata":{"annotations":{"apiserver-lite/ttl":"1ms"}}}`)
	deletions(t, namespaces, "shop")
	s.Get(namespacesPath + "/default")
}

// stamp is a Go type whose objects live a second after their last write.
type stamp struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	N                 int `json:"n,omitempty"`
}

// TestTypesExpire: objects of a Go type expire whatever controllers are on, and those with the annotation don't without
// theirs.
func TestTypesExpire(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) {
		s.API.Controllers = "none"
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[stamp]{Group: "example.com", Version: "v1", Kind: "Stamp", ClusterScoped: true, Deletion: registry.Deletion[*stamp]{TTL: time.Second}})
		}
	})
	const stamps = "/apis/example.com/v1/stamps"
	w := s.Watch(stamps + "?watch=true")
	s.PostYAML(namespacesPath, `metadata: {name: shop, annotations: {apiserver-lite/ttl: 1ms}}`)
	s.PostYAML(stamps, `{apiVersion: example.com/v1, kind: Stamp, metadata: {name: a}}`)
	s.PostYAML(stamps, `{apiVersion: example.com/v1, kind: Stamp, metadata: {name: b}}`)
	var written time.Time
	for n := range 8 {
		written = time.Now()
		send(t, s, 200, "PATCH", stamps+"/b", mergePatch, fmt.Sprintf(`{"n":%d}`, n+1))
	}
	at, _ := deletions(t, w, "a", "b")
	if age := at["b"].Sub(written); age < time.Second {
		t.Errorf("b was deleted %v after its last write", age)
	}
	if ns := s.Get(namespacesPath + "/shop"); value(ns, "metadata.deletionTimestamp") != "" {
		t.Errorf("the namespace expires: %s", ns)
	}
}
