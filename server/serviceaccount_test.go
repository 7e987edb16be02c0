package server_test

import (
	"net/http"
	"testing"

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
	until(t, "the namespace is gone, with its account", func() bool {
		r, _ := s.Do(http.MethodGet, "/api/v1/namespaces/shop", "")
		return r.StatusCode == http.StatusNotFound
	})
}

// awaitAccount waits until a namespace has an account of another uid.
func awaitAccount(t *testing.T, s *servertest.Server, namespace, not string) (uid string) {
	t.Helper()
	until(t, "the namespace "+namespace+" has an account", func() bool {
		r, text := s.Do(http.MethodGet, "/api/v1/namespaces/"+namespace+"/serviceaccounts/default", "")
		if r.StatusCode != http.StatusOK {
			return false
		}
		uid = string(decode[metav1.PartialObjectMetadata](t, text).UID)
		return uid != not
	})
	return uid
}

// TestNoBuiltinKinds: without ServiceAccounts the controller does nothing, and the server is as ready as ever.
func TestNoBuiltinKinds(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.None })
	if r, _ := s.Do(http.MethodGet, "/api/v1/configmaps", ""); r.StatusCode != http.StatusNotFound {
		t.Errorf("ConfigMaps are answered %s", r.Status)
	}
	if r, _ := s.Do(http.MethodGet, "/api/v1/namespaces", ""); r.StatusCode != http.StatusOK {
		t.Errorf("namespaces are answered %s", r.Status)
	}
}
