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
			s := &Server{Listen: "127.0.0.1:0", Ephemeral: true, DataDir: b.TempDir(), Builtin: builtin.All, ManagedFieldsAlways: true,
				Plugins: admission.Options{Kubernetes: plugins == "kubernetes"}}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%d","labels":{"app":"web"}},"spec":{"containers":[`+
					`{"name":"c","image":"registry.example.com/web:1.2.3","ports":[{"containerPort":8080}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]}}`, i)
				w := &recorded{discard: discard{header: http.Header{}}}
				r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1/api/v1/namespaces/default/pods", strings.NewReader(body))
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				s.in.handler.ServeHTTP(w, r)
				if w.code != http.StatusCreated {
					b.Fatalf("the answer is %d", w.code)
				}
			}
		})
	}
}

// recorded is discard that keeps the code.
type recorded struct {
	discard
	code int
}

func (r *recorded) WriteHeader(code int) { r.code = code }
