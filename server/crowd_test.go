package server_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestTooManyConnections: whatever a client speaks, one connection too many gets the answer to come back, or how the
// server is if it asks that.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		secure, http2 bool
	}{"HTTP/1.1": {false, false}, "HTTP/2": {false, true}, "HTTPS": {true, false}, "HTTPS, HTTP/2": {true, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := servertest.New(t, func(s *server.Server) {
				s.Bounds.MaxConnections, s.TLS.On, s.Log = 1, tc.secure, slog.New(slog.DiscardHandler)
			})
			first := newTransport(tc.secure, tc.http2)
			s.Client = &http.Client{Transport: first}
			watch := s.Watch("/api/v1/namespaces?watch=true&name=x")
			s.Client = &http.Client{Transport: newTransport(tc.secure, tc.http2)}
			for _, step := range []struct {
				path string
				code int
			}{
				{"/api/v1/namespaces?watch=true", 503}, {"/api/v1/namespaces", 503}, {"/api", 503},
				{"/readyz", 200}, {"/livez", 200}, {"/metrics", 200}, {"/debug/watchers", 200},
			} {
				res, body := s.Do("GET", step.path, "")
				if res.StatusCode != step.code || tc.http2 != (res.ProtoMajor == 2) {
					t.Errorf("GET %s: %s by %s, want %d: %s", step.path, res.Status, res.Proto, step.code, body)
				}
				if step.code == 503 {
					status(t, res, body)
					if res.Header.Get("Retry-After") != "1" {
						t.Errorf("GET %s has Retry-After %q", step.path, res.Header.Get("Retry-After"))
					}
				}
			}
			watch.Close()
			first.CloseIdleConnections()
			until(t, "the place is free", func() bool {
				res, _ := s.Do("GET", "/api", "")
				return res.StatusCode == 200
			})
			s.Client.CloseIdleConnections()
		})
	}
}

func newTransport(secure, http2 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!http2)
	protocols.SetHTTP2(http2 && secure)
	protocols.SetUnencryptedHTTP2(http2 && !secure)
	return &http.Transport{
		Protocols:       protocols,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, // other tests are about the certificate
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
}

// TestMaxConnections: what can't be is refused or made less, in words.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	err := (&server.Server{Bounds: server.Bounds{MaxConnections: -1}}).Start(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--max-connections") {
		t.Errorf("-1: %v", err)
	}
	var log await.Log
	s := servertest.New(t, func(s *server.Server) {
		s.Bounds.MaxConnections, s.Log = 1<<30, slog.New(slog.NewTextHandler(&log, nil))
	})
	if !strings.Contains(log.String(), "ulimit -n") {
		t.Errorf("the log doesn't say that there are too few descriptors: %s", log.String())
	}
	if s.Get("/readyz") != "ok" {
		t.Error("not ready")
	}
}
