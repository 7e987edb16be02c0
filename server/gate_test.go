package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/health"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/secrets"
	"github.com/apiserver-lite/apiserver-lite/server/traffic"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// newGate returns a handler without a registry: only what lets requests in or refuses them can be tested with it.
func newGate(ready bool, f *inflight.Requests) *handler {
	h := &handler{
		log:      slog.New(slog.DiscardHandler),
		state:    state{func() bool { return ready }, health.Checks{{Name: "serving", Kinds: []string{"readyz"}, Run: func() error { return errors.New("not yet") }}}},
		capacity: newCapacity(flowcontrol.NewAddresses(2, fair.Limits{}), nil), // of which leases have one, and where nobody waits
		gate:     gate{guard: guard.New(guard.Options{Address: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080}}), identity: &identity{tokens: new(secrets.Tokens)}},
		metrics:  metrics.New(nil),
		tells:    tells{traffic: traffic.New(nil, nil)},
		manner:   manner{timeout: bounds.DefaultRequestTimeout},
	}
	h.capacity.inflight = f
	h.routes = h.newRoutes(h.metrics.Registry, false)
	return h
}

// refusedBy returns how many requests a handler has counted that met a bound.
func refusedBy(t *testing.T, h *handler, bound string) float64 {
	t.Helper()
	families, err := h.metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "apiserver_lite_refused_requests_total" && m.GetLabel()[0].GetValue() == bound {
				return m.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestGate(t *testing.T) {
	full := newGate(true, inflight.New())
	if _, err := levelOf(full, flowcontrol.DefaultLevel).Enter(t.Context(), fair.Flow{Who: "another"}, 1, 0); err != nil {
		t.Fatal(err)
	}
	draining := inflight.New()
	draining.Drain()
	for _, tc := range []struct {
		name, method, path string
		handler            *handler
		code               int
		reason             metav1.StatusReason
		bound              string
	}{
		{"read before it's ready", "GET", "/api", newGate(false, inflight.New()), 429, metav1.StatusReasonTooManyRequests, "start"},
		{"write before it's ready", "POST", "/api/v1/namespaces", newGate(false, inflight.New()), 429, metav1.StatusReasonTooManyRequests, "start"},
		{"watch before it's ready", "GET", "/api/v1/namespaces?watch=true", newGate(false, inflight.New()), 429, metav1.StatusReasonTooManyRequests, "start"},
		{"read beyond the bound", "GET", "/api/v1/namespaces", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"a document beyond the bound", "GET", "/openapi/v2", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"a document, called a watch", "GET", "/openapi/v2?watch=1", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"groups, called a watch", "GET", "/apis?watch=1", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"resources, called a watch", "GET", "/apis/example.com/v1?watch=1", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"the head of a watch", "HEAD", "/api/v1/namespaces?watch=1", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"write beyond the bound", "DELETE", "/api/v1/namespaces/a", full, 429, metav1.StatusReasonTooManyRequests, "requests"},
		{"read while shutting down", "GET", "/api", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable, "shutdown"},
		{"write while shutting down", "POST", "/api/v1/namespaces", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable, "shutdown"},
		{"watch while shutting down", "GET", "/api/v1/namespaces?watch=true", newGate(true, draining), 503, metav1.StatusReasonServiceUnavailable, "shutdown"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			rec, before := httptest.NewRecorder(), refusedBy(t, tc.handler, tc.bound)
			tc.handler.ServeHTTP(rec, httptest.NewRequest(tc.method, "http://localhost"+tc.path, nil))
			var got metav1.Status
			if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil {
				t.Fatalf("%d %s: %v", rec.Code, rec.Body, err)
			}
			if rec.Code != tc.code || got.Reason != tc.reason || rec.Header().Get("Retry-After") != "1" || got.Details.RetryAfterSeconds != 1 {
				t.Errorf("%d %s, Retry-After %q", rec.Code, rec.Body, rec.Header().Get("Retry-After"))
			}
			if more := refusedBy(t, tc.handler, tc.bound) - before; more != 1 {
				t.Errorf("it counts %v times under %q", more, tc.bound)
			}
		})
	}
	rec := httptest.NewRecorder()
	newGate(false, inflight.New()).ServeHTTP(rec, httptest.NewRequest("GET", "http://localhost/readyz", nil))
	if rec.Code != http.StatusInternalServerError || rec.Body.String() != "[-]serving failed: not yet\nreadyz check failed\n" {
		t.Errorf("readyz: %d %q", rec.Code, rec.Body)
	}
}

// TestSlowClients: nobody can make the server wait for long.
func TestSlowClients(t *testing.T) {
	const short = 200 * time.Millisecond
	for _, tc := range []struct {
		name, request string
		timeouts      timeouts
		answer        string // how it begins
	}{
		{"headers", "GET /api HTTP/1.1\r\nHost: localhost\r\n", timeouts{Timeouts: wire.Timeouts{Header: short}}, ""},
		{"a body", "POST /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{", timeouts{Timeouts: wire.Timeouts{Body: short}}, "HTTP/1.1 408 Request Timeout\r\n"},
		{"another request", "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n", timeouts{Timeouts: wire.Timeouts{Idle: short}}, "HTTP/1.1 200 OK\r\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: t.TempDir()}, tests: tests{timeouts: tc.timeouts}}
			if err := s.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL(), "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			io.WriteString(c, tc.request)
			c.SetReadDeadline(time.Now().Add(25 * time.Second)) // less than any of the real bounds
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), tc.answer) || tc.answer == "" && len(answer) > 0 {
				t.Errorf("%v, after %q; want the end after %q", err, answer, tc.answer)
			}
		})
	}
}

// TestCollectionCounts: the deletion of a collection takes seats as other requests do, and gives all of them back.
func TestCollectionCounts(t *testing.T) {
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: t.TempDir()}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	do := func(method, path, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL()+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/yaml")
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		io.Copy(io.Discard, res.Body)
		return res.StatusCode
	}
	const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  names: {plural: widgets, kind: Widget}
  scope: Cluster
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`
	if code := do("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition); code != http.StatusCreated {
		t.Fatalf("the definition: %d", code)
	}
	const widgets = "/apis/example.com/v1/widgets"
	h := s.life.in.handler
	others := fair.Flow{Who: "another"}
	for left, want := range map[int]int{0: http.StatusTooManyRequests, 1: http.StatusOK} {
		h.capacity.levels = flowcontrol.NewAddresses(3, fair.Limits{}) // of which leases have one, and where nobody waits
		rest := levelOf(h, flowcontrol.DefaultLevel)
		held, err := rest.Enter(t.Context(), others, 2-left, 0)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if code := do("DELETE", widgets, ""); code != want {
				t.Errorf("the deletion of a collection where %d seats are free: %d, want %d", left, code, want)
			}
		}
		held.Leave()
		if got := rest.Taken(); got != 0 {
			t.Errorf("%d seats are still taken", got)
		}
	}
}

// TestRunEndsWithEtcd: a server whose etcd is gone must not go on, and isn't alive.
func TestRunEndsWithEtcd(t *testing.T) {
	s := &Server{Serving: Serving{Listen: "127.0.0.1:0"}, Data: Data{Ephemeral: true, Dir: t.TempDir()}}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	livez := func() string {
		t.Helper()
		res, err := http.Get(s.URL() + "/livez")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, _ := io.ReadAll(res.Body)
		return fmt.Sprint(res.StatusCode, " ", string(text))
	}
	if got := livez(); got != "200 ok" {
		t.Errorf("livez: %s", got)
	}
	s.life.in.backing.etcd.Local.HardStop()
	<-s.life.in.backing.etcd.Done()
	if got := livez(); !strings.HasPrefix(got, "500 ") || !strings.Contains(got, "etcd stopped by itself") {
		t.Errorf("livez of a server that a restart would help: %s", got)
	}
	if err := s.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "etcd stopped by itself") {
		t.Errorf("Run = %v", err)
	}
}
