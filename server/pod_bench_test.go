package server

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
)

// BenchmarkPodCreate is what the creation of a Pod costs in this package and below, without plug-ins, and with all that are on
// under the name kube-apiserver.
func BenchmarkPodCreate(b *testing.B) {
	for _, plugins := range []string{"few", "kubernetes"} {
		b.Run(plugins, func(b *testing.B) {
			s := podServer(b, plugins == "kubernetes")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				s.createPod(b, fmt.Sprintf("p-%d", i))
			}
		})
	}
}

// BenchmarkPodStatus is what a new status of a Pod costs there, as a node sends it, with all plug-ins.
func BenchmarkPodStatus(b *testing.B) {
	s := podServer(b, true)
	s.createPod(b, "p")
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s.send(b, http.MethodPatch, podsPath+"/p/status", "application/strategic-merge-patch+json", http.StatusOK, fmt.Sprintf(`{"status":{"phase":"Running","podIP":"10.0.0.1",`+
			`"conditions":[{"type":"Ready","status":"True","reason":"r%d"},{"type":"PodScheduled","status":"True"}],`+
			`"containerStatuses":[{"name":"c","ready":true,"started":true,"restartCount":%[1]d,"image":"registry.example.com/web:1.2.3","imageID":"","state":{"running":{}}}]}}`, i))
	}
}

const podsPath = "/api/v1/namespaces/default/pods"

// handled is a server that requests are given to without a network.
type handled struct{ *Server }

func podServer(b *testing.B, kubernetes bool) handled {
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: b.TempDir()}, API: API{Builtin: builtin.All, ManagedFieldsAlways: true},
		Plugins: admission.Options{Kubernetes: kubernetes}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return handled{s}
}

func (s handled) createPod(b *testing.B, name string) {
	s.send(b, http.MethodPost, podsPath, "application/json", http.StatusCreated, fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"labels":{"app":"web"}},"spec":{"containers":[`+
		`{"name":"c","image":"registry.example.com/web:1.2.3","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]}}`, name))
}

func (s handled) send(b *testing.B, method, path, media string, want int, body string) {
	w := &recorded{discard: discard{header: http.Header{}}}
	r, err := http.NewRequestWithContext(b.Context(), method, "http://127.0.0.1"+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Content-Type", media)
	s.life.in.handler.ServeHTTP(w, r)
	if w.code != want {
		b.Fatalf("the answer is %d", w.code)
	}
}

// recorded is discard that keeps the code.
type recorded struct {
	discard
	code int
}

func (r *recorded) WriteHeader(code int) { r.code = code }
