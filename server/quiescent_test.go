package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestQuiescent: after the barrier everything that follows from a deletion has happened, without a wait of the test's own.
// What a finalizer of others holds is listed, and nothing is pending because of it.
func TestQuiescent(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, widgets)
	for range 5 {
		s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
		for _, name := range []string{"a", "b", "c"} {
			s.PostYAML("/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"`+name+`"}}`)
		}
		s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
		if held := s.Quiescent(); len(held) > 0 {
			t.Errorf("held: %+v", held)
		}
		if res, body := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
			t.Fatalf("the namespace is there: %s", body)
		}
	}
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	s.PostYAML("/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"kept","finalizers":["example.com/x"]}}`)
	s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
	held := s.Quiescent()
	if len(held) != 1 || held[0].Kind != "Widget" || held[0].APIVersion != "example.com/v1" || held[0].Namespace != "shop" || held[0].Name != "kept" ||
		held[0].UID == "" || len(held[0].Finalizers) != 1 || held[0].Finalizers[0] != "example.com/x" {
		t.Errorf("held: %+v", held)
	}
	s.Do(http.MethodPatch, "/apis/example.com/v1/namespaces/shop/widgets/kept", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
	s.Do(http.MethodDelete, definitionsPath+"/widgets.example.com", "")
	if held := s.Quiescent(); len(held) > 0 {
		t.Errorf("held: %+v", held)
	}
	for _, path := range []string{"/api/v1/namespaces/shop", allWidgets, definitionsPath + "/widgets.example.com"} {
		if res, body := s.Do(http.MethodGet, path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s is there: %s", path, body)
		}
	}
}

// TestQuiescentParameters: what can't be used is a 400 that says so.
func TestQuiescentParameters(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	for query, want := range map[string]int{
		"":                                    200,
		"timeout=2s":                          200,
		"resourceVersion=2&timeout=1m":        200,
		"resourceVersion=0":                   400,
		"resourceVersion=-1":                  400,
		"resourceVersion=x":                   400,
		"resourceVersion=":                    400,
		"resourceVersion=1&resourceVersion=2": 400,
		"timeout=0s":                          400,
		"timeout=-1s":                         400,
		"timeout=30":                          400,
		"timeout=61s":                         400,
		"timeout=":                            400,
		"revision=1":                          400,
	} {
		res, body := s.Do(http.MethodGet, "/debug/quiescent?"+query, "")
		if res.StatusCode != want {
			t.Errorf("%q: %s %s", query, res.Status, body)
		}
		name, _, _ := strings.Cut(query, "=")
		if want == 400 && !strings.Contains(body, name) {
			t.Errorf("%q: the message doesn't name it: %s", query, body)
		}
	}
	if res, _ := s.Do(http.MethodPost, "/debug/quiescent", ""); res.StatusCode != http.StatusMethodNotAllowed || res.Header.Get("Allow") != "GET" {
		t.Errorf("a POST: %s, allowed %q", res.Status, res.Header.Get("Allow"))
	}
}

// TestQuiescentTimeout: a resourceVersion that doesn't come is a 504 with the cause.
func TestQuiescentTimeout(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.Quiescent() // otherwise what the start writes is left to do, too
	res, body := s.Do(http.MethodGet, "/debug/quiescent?"+url.Values{"resourceVersion": {"1000000"}, "timeout": {"10ms"}}.Encode(), "")
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	if res.StatusCode != http.StatusGatewayTimeout || status.Reason != metav1.StatusReasonTimeout || status.Details == nil || len(status.Details.Causes) != 1 ||
		!strings.Contains(status.Details.Causes[0].Message, "1000000") {
		t.Errorf("%s %s", res.Status, body)
	}
}

// TestQuiescentAtOnce: a timeout that is over before anything was asked is a 504 with a cause, too.
func TestQuiescentAtOnce(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	res, body := s.Do(http.MethodGet, "/debug/quiescent?timeout=1ns", "")
	st := status(t, res, body)
	if res.StatusCode != http.StatusGatewayTimeout || st.Details == nil || len(st.Details.Causes) == 0 || st.Details.Causes[0].Message == "" {
		t.Errorf("%s %s", res.Status, body)
	}
}

// TestQuiescentGracePeriod: a pod on a node that is being deleted is listed as held, as nobody here ends it. Its namespace
// and an owner that waits for it are nobody's work meanwhile.
func TestQuiescentGracePeriod(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	const pods = "/api/v1/namespaces/shop/pods"
	owner := s.PostYAML("/api/v1/namespaces/shop/configmaps", "metadata: {name: owner}")
	s.PostYAML(pods, `{"metadata":{"name":"p","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"`+value(owner, "metadata.uid")+`","blockOwnerDeletion":true}]},
		"spec":{"nodeName":"n","terminationGracePeriodSeconds":7,"containers":[{"name":"c","image":"i"}]}}`)
	send(t, s, 200, "DELETE", "/api/v1/namespaces/shop/configmaps/owner?propagationPolicy=Foreground", "", "")
	for _, deleted := range []string{pods + "/p", "/api/v1/namespaces/shop"} {
		s.Do(http.MethodDelete, deleted, "")
		held := s.Quiescent()
		if len(held) != 1 || held[0].Kind != "Pod" || held[0].Name != "p" || held[0].Finalizers == nil || len(held[0].Finalizers) > 0 || held[0].DeletionGracePeriodSeconds != 7 {
			t.Errorf("after the deletion of %s %+v is held", deleted, held)
		}
	}
	s.Do(http.MethodDelete, pods+"/p?gracePeriodSeconds=0", "")
	if held := s.Quiescent(); len(held) > 0 {
		t.Errorf("at the end %+v is held", held)
	}
	if res, body := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("the namespace is there: %s", body)
	}
}

// TestControllersOff: with --controllers=none a namespace stays until somebody PUTs its /finalize, its content stays, too,
// and the barrier says what holds it. Definitions are cleaned up all the same.
func TestControllersOff(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Controllers = "none" })
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	s.PostYAML("/apis/example.com/v1/namespaces/shop/widgets", `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}`)
	s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
	held := s.Quiescent()
	if len(held) != 1 || held[0].Kind != "Namespace" || held[0].Name != "shop" || len(held[0].Finalizers) != 1 || held[0].Finalizers[0] != "kubernetes" {
		t.Errorf("held: %+v", held)
	}
	var ns corev1.Namespace
	if err := json.Unmarshal([]byte(s.Get("/api/v1/namespaces/shop")), &ns); err != nil {
		t.Fatal(err)
	}
	if ns.Status.Phase != corev1.NamespaceTerminating || len(ns.Status.Conditions) > 0 {
		t.Errorf("status %+v", ns.Status)
	}
	s.Get("/apis/example.com/v1/namespaces/shop/widgets/a")
	if res, body := s.Do(http.MethodPut, "/api/v1/namespaces/shop/finalize", `{"metadata":{"name":"shop"},"spec":{"finalizers":[]}}`, "Content-Type", "application/json"); res.StatusCode != 200 {
		t.Fatalf("finalize: %s", body)
	}
	if res, _ := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("after its finalization the namespace is %s", res.Status)
	}
	s.Do(http.MethodDelete, definitionsPath+"/widgets.example.com", "")
	s.Quiescent()
	if res, body := s.Do(http.MethodGet, allWidgets, ""); res.StatusCode != http.StatusNotFound {
		t.Errorf("the definition is there: %s", body)
	}
}

// TestUnknownController: a name that is no controller's is refused at the start, with those that are.
func TestUnknownController(t *testing.T) {
	t.Parallel()
	s := &server.Server{Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, Serving: server.Serving{Listen: "127.0.0.1:0"}, API: server.API{Controllers: "namespace,jobs"}}
	err := s.Start(t.Context())
	if err == nil {
		s.Close()
		t.Fatal("it's taken")
	}
	for _, part := range []string{"--controllers", `"jobs"`, "garbage-collector,namespace,expiry,serviceaccount,clusterrole-aggregation,resourcequota,storage-version-migrator,validatingadmissionpolicy-status", "all", "none"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q lacks %s", err, part)
		}
	}
}

// TestQuiescentAfterReset: a reset may bring back a namespace that was being emptied, with content that isn't being deleted
// yet. The controllers go on with it.
func TestQuiescentAfterReset(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, widgets)
	for range 3 {
		s.Snapshot("before")
		s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
		s.PostYAML(shop, heldWidget("held", "example.com/x"))
		s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
		if held := s.Quiescent(); len(held) != 1 || held[0].Name != "held" {
			t.Errorf("held: %+v", held)
		}
		s.Snapshot("held")
		s.ResetTo("before")
		if held := s.Quiescent(); len(held) != 0 {
			t.Errorf("after the reset %+v is held", held)
		}
		s.ResetTo("held")
		if held := s.Quiescent(); len(held) != 1 || held[0].Name != "held" {
			t.Errorf("held after the second reset: %+v", held)
		}
		s.Do(http.MethodPatch, shop+"/held", `{"metadata":{"finalizers":null}}`, "Content-Type", "application/merge-patch+json")
		s.Quiescent()
		if res, body := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
			t.Fatalf("the namespace is there: %s", body)
		}
	}
}
