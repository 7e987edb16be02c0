package tracing

import (
	"context"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/utils/ptr"
)

// BenchmarkRequest is what a create costs besides itself: eight steps and the answer, without traces and with some.
func BenchmarkRequest(b *testing.B) {
	about := About{Request: &http.Request{Method: "POST", URL: &url.URL{Path: "/api/v1/namespaces/default/configmaps"}, Header: http.Header{}}, Namespace: "default", AuditID: "a", Begun: time.Now(), User: &user.DefaultInfo{}}
	for _, bench := range []struct {
		name string
		rate int32
	}{{"off", -1}, {"1%", million / 100}, {"all", million}} {
		b.Run(bench.name, func(b *testing.B) {
			var tracer *Tracer
			if bench.rate >= 0 {
				c := &Config{}
				c.Endpoint, c.SamplingRatePerMillion = ptr.To("127.0.0.1:1"), ptr.To(bench.rate)
				var err error
				if tracer, err = New(c, nil, slog.New(slog.DiscardHandler)); err != nil {
					b.Fatal(err)
				}
				defer tracer.Close()
			}
			b.ReportAllocs()
			for b.Loop() {
				var q Request
				ctx := tracer.Begin(context.Background(), &q, about)
				for range 8 {
					_, step := Begin(ctx, Etcd, "etcd create")
					step.End(nil)
				}
				q.Wrote(time.Now())
				q.Ended(201, 100)
			}
		})
	}
}
