package server_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// BenchmarkQuotaCreate creates ConfigMaps on disk, by 64 clients in one namespace, without a quota and with one that counts them.
func BenchmarkQuotaCreate(b *testing.B) {
	const clients = 64
	for _, quotas := range []string{"none", "one"} {
		b.Run(quotas, func(b *testing.B) {
			s := servertest.New(b, func(s *server.Server) {
				s.API.Builtin, s.Plugins, s.Data.Ephemeral = builtin.All, admission.Options{Enable: []string{"ResourceQuota"}}, false
			})
			if quotas == "one" {
				s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: q}, spec: {hard: {configmaps: '1000000'}}}")
				usedOf(b, s, "q")
			}
			var next atomic.Int64
			b.ResetTimer()
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if r, text := s.Do(http.MethodPost, configMaps, fmt.Sprintf(`{"metadata":{"name":"c%d"}}`, i), "Content-Type", "application/json"); r.StatusCode != http.StatusCreated {
							b.Errorf("%d %s", r.StatusCode, text)
							return
						}
					}
				})
			}
			all.Wait()
		})
	}
}
