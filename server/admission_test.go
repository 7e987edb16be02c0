package server_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestAdmission: a program's hook sees every resource, labels what is new, and keeps what it wants to keep.
func TestAdmission(t *testing.T) {
	t.Parallel()
	hook := func(_ context.Context, r *registry.AdmissionRequest[unstructured.Unstructured]) (pass registry.Verdict, err error) {
		switch {
		case r.Name == "broken":
			panic("a mistake in the hook")
		case r.Name == "renamed":
			r.Object.SetName("secret")
		case r.Operation == registry.Create:
			r.Object.SetLabels(map[string]string{"by": r.UserAgent})
			r.Warn("labelled")
		case r.Operation == registry.Delete && r.Resource.Resource == "namespaces":
			r.Warn("think twice")
			return registry.Refuse(errors.New("namespaces stay")), nil
		}
		return pass, nil
	}
	var log await.Log
	s := servertest.New(t, func(s *server.Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.API.Admission = []registry.Admission[unstructured.Unstructured]{registry.AdmissionFunc[unstructured.Unstructured](hook)}
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
	if got := res.Header.Get("Warning"); !strings.Contains(got, "think twice") {
		t.Errorf("the refusal warns %q", got)
	}
	// What isn't the client's fault is in the log, under the request's id, and not in the answer.
	res, answer = s.Do("POST", namespaces, `{"metadata":{"name":"broken"}}`, "Content-Type", "application/json", "Audit-Id", "breaking")
	if res.StatusCode != http.StatusInternalServerError || strings.Contains(answer, "a mistake in the hook") || !strings.Contains(answer, "under the id breaking") {
		t.Errorf("%s: %s", res.Status, answer)
	}
	if got := log.String(); !strings.Contains(got, "audit_id=breaking") || !strings.Contains(got, "a mistake in the hook") {
		t.Errorf("the log lacks the cause: %s", got)
	}
	res, answer = s.Do("POST", namespaces, `{"metadata":{"name":"renamed"}}`, "Content-Type", "application/json")
	if res.StatusCode != http.StatusCreated || !strings.Contains(answer, `"name":"secret"`) {
		t.Errorf("%s: %s", res.Status, answer)
	}
	s.Get(namespaces + "/secret")
	s.Get(namespaces + "/shop")
}
