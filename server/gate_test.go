package server

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// newGate returns a handler with nothing behind it: only what lets requests in or not can be tested with it.
func newGate(ready bool, f *inflight) *handler {
	h := &handler{
		log:      slog.New(slog.DiscardHandler),
		ready:    func() bool { return ready },
		checks:   []check{{"serving", []string{"readyz"}, func() error { return errors.New("not yet") }}},
		inflight: f,
		guard:    newGuard(loopback, false, nil),
		metrics:  newMetrics(f),
	}
	h.routes = h.newRoutes(prometheus.NewRegistry())
	return h
}

func TestGate(t *testing.T) {
	full := newInflight(1, 1)
	for _, class := range []requestClass{classRead, classWrite} {
		if err := full.enter(class); err != nil {
			t.Fatal(err)
		}
	}
	draining := newInflight(1, 1)
	draining.drain()
	for _, tc := range []struct {
		name, method, path string
		handler            *handler
		code               int
		reason             metav1.StatusReason
	}{
		{"read before it's ready", "GET", "/api", newGate(false, newInflight(1, 1)), 429, metav1.StatusReasonTooManyRequests},
		{"write before it's ready", "POST", "/api/v1/namespaces", newGate(false, newInflight(1, 1)), 429, metav1.StatusReasonTooManyRequests},
		{"watch before it's ready", "GET", "/api/v1/namespaces?watch=true", newGate(false, newInflight(1, 1)), 429, metav1.StatusReasonTooManyRequests},
		{"read beyond the bound", "GET", "/api/v1/namespaces", newGate(true, full), 429, metav1.StatusReasonTooManyRequests},
		{"write beyond the bound", "DELETE", "/api/v1/namespaces/a", newGate(true, full), 429, metav1.StatusReasonTooManyRequests},
		{"read while shutting down", "GET", "/api", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable},
		{"write while shutting down", "POST", "/api/v1/namespaces", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable},
		{"watch while shutting down", "GET", "/api/v1/namespaces?watch=true", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec := httptest.NewRecorder()
			tc.handler.ServeHTTP(rec, httptest.NewRequest(tc.method, "http://localhost"+tc.path, nil))
			var got metav1.Status
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
			}
			if rec.Code != tc.code || got.Reason != tc.reason || rec.Header().Get("Retry-After") != "1" || got.Details.RetryAfterSeconds != 1 {
				t.Errorf("%d %s, Retry-After %q", rec.Code, rec.Body, rec.Header().Get("Retry-After"))
			}
		})
	}
	rec := httptest.NewRecorder()
	newGate(false, full).ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost/readyz", nil))
	if rec.Code != http.StatusInternalServerError || rec.Body.String() != "[-]serving failed: not yet\nreadyz check failed\n" {
		t.Errorf("readyz: %d %q", rec.Code, rec.Body)
	}
}

// TestSlowBody announces a body and doesn't send it.
func TestSlowBody(t *testing.T) {
	s := &Server{Listen: "127.0.0.1:0", Ephemeral: true, DataDir: t.TempDir(), bodyTimeout: 200 * time.Millisecond}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	body, never := io.Pipe()
	defer never.Close()
	res, err := http.Post(s.URL()+"/api/v1/namespaces", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	if res.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "did not arrive in time") {
		t.Errorf("%s: %s", res.Status, text)
	}
}

// TestTimeouts: what a client can't make us wait for longer.
func TestTimeouts(t *testing.T) {
	s := &Server{Listen: "127.0.0.1:0", Ephemeral: true, DataDir: t.TempDir()}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	h := s.in.http
	if h.ReadHeaderTimeout != headerTimeout || h.ReadTimeout != bodyTimeout || h.IdleTimeout != idleTimeout || h.WriteTimeout != writeTimeout || h.MaxHeaderBytes != maxHeaderBytes || h.HTTP2.MaxConcurrentStreams != DefaultHTTP2MaxStreams {
		t.Errorf("the HTTP server's bounds are %+v", h)
	}
}

// TestRunEndsWithEtcd: a server whose etcd is gone must not go on.
func TestRunEndsWithEtcd(t *testing.T) {
	s := &Server{Listen: "127.0.0.1:0", Ephemeral: true, DataDir: t.TempDir()}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.in.etcd.Local.HardStop()
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd stopped by itself") {
		t.Errorf("Run = %v", err)
	}
}
