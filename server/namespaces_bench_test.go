package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// BenchmarkNamespaceDelete deletes a namespace with 10,000 objects of 20 kinds, until it's gone. The bound is 5 s on two
// cores.
//
//	go test ./server -run '^$' -bench NamespaceDelete -benchtime 3x
func BenchmarkNamespaceDelete(b *testing.B) {
	const kinds = 20
	objects := sized(10_000)
	for name, ephemeral := range map[string]bool{"ephemeral": true, "durable": false} {
		b.Run(name, func(b *testing.B) {
			s := servertest.New(b, func(s *server.Server) { s.Data.Ephemeral = ephemeral })
			for i := range kinds {
				s.PostYAML(definitionsPath, strings.NewReplacer("widgets", fmt.Sprintf("kind%02ds", i), "widget", fmt.Sprintf("kind%02d", i),
					"Widget", fmt.Sprintf("Kind%02d", i), "wd", fmt.Sprintf("k%02d", i)).Replace(widgets))
			}
			for b.Loop() {
				b.StopTimer()
				s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
				var writers sync.WaitGroup
				for i := range kinds {
					writers.Go(func() {
						for n := range objects / kinds {
							path := fmt.Sprintf("/apis/example.com/v1/namespaces/shop/kind%02ds", i)
							body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Kind%02d","metadata":{"name":"object-%d"},"spec":{"text":"%0500d"}}`, i, n, n)
							if res, answer := s.Do(http.MethodPost, path, body, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
								b.Errorf("%s: %s", res.Status, answer)
								return
							}
						}
					})
				}
				writers.Wait()
				b.StartTimer()
				s.Do(http.MethodDelete, "/api/v1/namespaces/shop", "")
				s.Quiescent()
				if res, _ := s.Do(http.MethodGet, "/api/v1/namespaces/shop", ""); res.StatusCode != http.StatusNotFound {
					b.Fatalf("the namespace is %s", res.Status)
				}
			}
			b.ReportMetric(float64(b.N*objects)/b.Elapsed().Seconds(), "objects/s")
		})
	}
}
