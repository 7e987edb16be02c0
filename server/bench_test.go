package server

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// discard is a ResponseWriter that keeps nothing.
type discard struct{ header http.Header }

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) Write(p []byte) (int, error) { return len(p), nil }
func (d *discard) WriteHeader(int)             {}

// BenchmarkRequest is what a request costs in this package and below, without net/http and the socket.
func BenchmarkRequest(b *testing.B) {
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: b.TempDir()}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for name, path := range map[string]string{
		"get":       "/api/v1/namespaces/default",
		"list":      "/api/v1/namespaces",
		"pretty":    "/api/v1/namespaces?pretty=true",
		"not found": "/nothing",
		"health":    "/readyz",
		"discovery": "/apis",
		"openapi":   "/openapi/v3",
		"old list":  "/api/v1/namespaces?resourceVersion=0",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1"+path, nil)
				if err != nil {
					b.Fatal(err)
				}
				s.life.in.handler.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkAudit is what a request costs without an audit log, with one whose policy doesn't want it, and with one event.
// Without one it must allocate as much as BenchmarkRequest's get.
func BenchmarkAudit(b *testing.B) {
	for _, level := range []string{"off", "None", "Metadata"} {
		b.Run(level, func(b *testing.B) {
			s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: b.TempDir()}}
			if level != "off" {
				policy := filepath.Join(b.TempDir(), "policy.yaml")
				text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: " + level + "}]"
				if err := os.WriteFile(policy, []byte(text), 0o600); err != nil {
					b.Fatal(err)
				}
				s.Audit = audit.Options{PolicyFile: policy, Path: filepath.Join(b.TempDir(), "audit.log")}
			}
			if err := s.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1/api/v1/namespaces/default", nil)
				if err != nil {
					b.Fatal(err)
				}
				s.life.in.handler.ServeHTTP(w, r)
			}
		})
	}
}

// BenchmarkDiscovery is what the aggregated documents of 200 group versions, and of what the server has of its
// own, cost: to build after a definition has changed, and to answer one request.
func BenchmarkDiscovery(b *testing.B) {
	const versions = 200
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: b.TempDir()}, API: API{Register: func(r *registry.Registry) {
		for i := range versions {
			registry.Register(r, registry.Definition[corev1.ConfigMap]{
				Group: fmt.Sprintf("g%03d.example.com", i), Version: "v1", Kind: "Thing", ShortNames: []string{"th"}, Status: true,
			})
		}
	}}}
	if err := s.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	b.Run("built", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			fresh := discovery.New(discovery.Sources{Registry: s.life.in.registry, Others: s.life.in.aggregator, Log: s.life.in.log})
			for _, path := range []string{discovery.Core, discovery.Groups} {
				for _, encoding := range []form.Encoding{form.JSON, form.Protobuf} {
					if _, err := fresh.Aggregated(b.Context(), path, encoding); err != nil {
						b.Fatal(err)
					}
				}
			}
		}
	})
	for _, media := range []negotiation.Media{negotiation.AggregatedJSON, negotiation.AggregatedProtobuf} {
		b.Run("kept, "+string(media), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := &discard{header: http.Header{}}
				r, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://127.0.0.1/apis", nil)
				if err != nil {
					b.Fatal(err)
				}
				r.Header.Set("Accept", string(media))
				s.life.in.handler.ServeHTTP(w, r)
			}
		})
	}
}
