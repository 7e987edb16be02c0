package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestAdmission: a program's hook sees every resource, labels what is new, and keeps what it wants to keep.
func TestAdmission(t *testing.T) {
	t.Parallel()
	hook := func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) error {
		switch {
		case r.Name == "broken":
			panic("a mistake in the hook")
		case r.Operation == registry.Create:
			r.Object.SetLabels(map[string]string{"by": r.UserAgent})
			r.Warn("labelled")
		case r.Operation == registry.Delete && r.Resource.Resource == "namespaces":
			return errors.New("namespaces stay")
		}
		return nil
	}
	s := servertest.New(t, func(s *server.Server) {
		s.Log = slog.New(slog.DiscardHandler) // of the panic
		s.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](hook)}
	})
	const namespaces = "/api/v1/namespaces"
	res, answer := s.Do("POST", namespaces, `{"metadata":{"name":"shop"}}`, "Content-Type", "application/json", "User-Agent", "me")
	if res.StatusCode != http.StatusCreated || !strings.Contains(answer, `"by":"me"`) || !strings.Contains(res.Header.Get("Warning"), "labelled") {
		t.Errorf("%s, warned %q: %s", res.Status, res.Header.Get("Warning"), answer)
	}
	res, answer = s.Do("DELETE", namespaces+"/shop", "")
	if res.StatusCode != http.StatusForbidden || !strings.Contains(answer, `namespaces \"shop\" is forbidden: namespaces stay`) {
		t.Errorf("%s: %s", res.Status, answer)
	}
	res, answer = s.Do("POST", namespaces, `{"metadata":{"name":"broken"}}`, "Content-Type", "application/json")
	if res.StatusCode != http.StatusInternalServerError || strings.Contains(answer, "a mistake in the hook") || !strings.Contains(answer, "internal error") {
		t.Errorf("%s: %s", res.Status, answer)
	}
	s.Get(namespaces + "/shop")
}
