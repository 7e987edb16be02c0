package server_test

import (
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestDefaultServiceAccount: every namespace has its account, also a new one, and gets it again when somebody deletes it.
func TestDefaultServiceAccount(t *testing.T) {
	s := servertest.New(t)
	s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
	for _, namespace := range []string{"default", "kube-system", "shop"} {
		awaitAccount(t, s, namespace, "")
	}
	path := "/api/v1/namespaces/shop/serviceaccounts/default"
	uid := awaitAccount(t, s, "shop", "")
	if r, text := s.Do(http.MethodDelete, path, ""); r.StatusCode != http.StatusOK {
		t.Fatalf("delete: %s", text)
	}
	awaitAccount(t, s, "shop", uid)
	if r, text := s.Do(http.MethodDelete, "/api/v1/namespaces/shop", ""); r.StatusCode != http.StatusOK {
		t.Fatalf("delete the namespace: %s", text)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // until it's gone, with its account
		if r, _ := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); r.StatusCode == http.StatusNotFound {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the namespace stays")
		}
	}
}

// awaitAccount waits until a namespace has an account of another uid.
func awaitAccount(t *testing.T, s *servertest.Server, namespace, not string) (uid string) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		r, text := s.Do(http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", "")
		if r.StatusCode != http.StatusOK {
			continue
		}
		uid := string(decode[metav1.PartialObjectMetadata](t, text).UID)
		if uid != not {
			return uid
		}
	}
	t.Fatalf("the namespace %s has no account", namespace)
	return ""
}

// TestNoBuiltinKinds: without ServiceAccounts the controller does nothing, and the server is as ready as ever.
func TestNoBuiltinKinds(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.Builtin = builtin.None })
	if r, _ := s.Do(http.MethodGet, "/api/v1/configmaps", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("ConfigMaps are answered %s", r.Status)
	}
	if r, _ := s.Do(http.MethodGet, "/api/v1/namespaces", ""); r.StatusCode != http.StatusOK {
		t.Errorf("namespaces are answered %s", r.Status)
	}
}
