package server

import (
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// TestNoAudit: without an audit log nothing that is there for it allocates anything.
func TestNoAudit(t *testing.T) {
	h, r := &handler{gate: gate{identity: &identity{}}}, request(t, http.MethodGet, "/api/v1/namespaces/default", "")
	w := &response{ResponseWriter: &discard{header: http.Header{}}}
	var written io.Writer = io.Discard
	write := func(io.Writer) error { return nil }
	document, status := []byte(`{}`), metav1.Status{Code: 404}
	for name, step := range map[string]func(){
		"a request begins": func() {
			if next, err := h.beginAudit(w, r, registry.Everyone); next != r || err != nil {
				t.Errorf("the request is another one, or %v", err)
			}
		},
		"a request is refused": func() { h.auditRefused(w, r) },
		"a body":               func() { w.auditRequest(body{data: document}) },
		"an answer":            func() { w.auditResponse(negotiation.JSON, document) },
		"a Status":             func() { w.auditStatus(status) },
		"a streamed answer": func() {
			if err := w.auditedStream(negotiation.JSON, write)(written); err != nil {
				t.Error(err)
			}
		},
		"impersonation":    func() { w.audit.Impersonate(registry.Everyone, "") },
		"an annotation":    func() { audit.Annotate(r.Context(), audit.Decision, "allow") },
		"an answer begins": func() { w.audit.Started(200) },
		"a request ends":   func() { w.audit.Completed(200) },
	} {
		if n := testing.AllocsPerRun(100, step); n > 0 || w.audit != nil {
			t.Errorf("%s: %v allocations, record %v", name, n, w.audit)
		}
	}
}

// TestAuditAllocations: through the whole handler, a request allocates less without an audit log than with one whose policy
// doesn't want it, of which only the policy's rules are asked; and that is less than one that has an event.
func TestAuditAllocations(t *testing.T) {
	levels := []string{"off", "None", "Metadata"}
	handlers := map[string]http.Handler{}
	for _, level := range levels {
		s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: t.TempDir()}}
		if level != "off" {
			policy := filepath.Join(t.TempDir(), "policy.yaml")
			text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: " + level + "}]"
			if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s.Audit = audit.Options{PolicyFile: policy, Path: filepath.Join(t.TempDir(), "audit.log")}
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
		handlers[level] = s.life.in.handler
	}
	for name, asked := range map[string]struct{ method, path, body string }{
		"get":     {http.MethodGet, "/api/v1/namespaces/default", ""},
		"list":    {http.MethodGet, "/api/v1/namespaces", ""},
		"missing": {http.MethodGet, "/api/v1/namespaces/none", ""},
		"create":  {http.MethodPost, "/api/v1/namespaces/default/configmaps?dryRun=All", `{"metadata":{"name":"a"}}`},
	} {
		var allocated []float64
		for _, level := range levels {
			allocated = append(allocated, leastAllocs(func() {
				handlers[level].ServeHTTP(&discard{header: http.Header{}}, request(t, asked.method, asked.path, asked.body))
			}))
		}
		if !(allocated[0] < allocated[1] && allocated[1] < allocated[2]) {
			t.Errorf("%s: %v allocations with an audit log of levels %v", name, allocated, levels)
		}
	}
}

func request(t *testing.T, method, path, body string) *http.Request {
	r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return r
}

// leastAllocs returns how often f allocates. Whatever else the process does is counted, too, and pools may be empty, so f is
// run many times, and the least counts.
func leastAllocs(f func()) float64 {
	const runs = 200
	least := math.Inf(1)
	for range runs {
		least = min(least, testing.AllocsPerRun(1, f))
	}
	return least
}
