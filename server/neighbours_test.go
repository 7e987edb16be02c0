package server_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// neighbours are two clients of one server, at two addresses of the loopback: what the first does must not keep the second
// waiting.
const firstAddress, secondAddress = "127.0.0.1", "127.0.0.2"

// neighbour returns a client at the second address.
func neighbour(t *testing.T, url string) func(method, path, body string, headers ...string) (int, string) {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(secondAddress)}}
	transport := &http.Transport{DialContext: dialer.DialContext}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	return func(method, path, body string, headers ...string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodPatch {
			r.Header.Set("Content-Type", "application/merge-patch+json")
		}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return res.StatusCode, string(text)
	}
}

// TestNeighbours has one address take all that it can get of each thing that clients share, and hold it. Another address
// is served meanwhile. What the first holds isn't given back before that, so the second hasn't waited for it.
func TestNeighbours(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, server.GiveTime)
	object := widgetsPath + "/a"
	do := neighbour(t, s.URL)
	served := func(t *testing.T) {
		t.Helper()
		for _, ask := range []struct{ method, path, body string }{
			{"GET", object, ""}, {"PATCH", object, "{}"}, {"GET", widgetsPath, ""}, {"GET", "/openapi/v2", ""}, {"GET", "/readyz", ""},
			{"GET", "/apis/coordination.k8s.io/v1/leases", ""}, {"GET", "/debug/quiescent", ""},
		} {
			if code, text := do(ask.method, ask.path, ask.body); code != http.StatusOK {
				t.Errorf("%s %s: %d %.200s", ask.method, ask.path, code, text)
			}
		}
	}

	t.Run("bodies that don't come", func(t *testing.T) {
		s := s.In(t)
		for range 250 {
			c := dial(t, s)
			fmt.Fprintf(c, "PATCH %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\nContent-Length: 2\r\n\r\n{", object)
		}
		until(t, "250 writes are under way", func() bool {
			return strings.Contains(s.Get("/metrics"), "apiserver_current_inflight_requests{request_kind=\"mutating\"} 250\n")
		})
		if taken, waiting := server.WaitingForSeats(s.Server); taken != 0 || waiting != 0 {
			t.Errorf("%d have seats, and %d wait for one, without a body", taken, waiting)
		}
		served(t)
	})
	until(t, "no write is under way", func() bool {
		return strings.Contains(s.Get("/metrics"), "apiserver_current_inflight_requests{request_kind=\"mutating\"} 0\n")
	})
	t.Run("seats", func(t *testing.T) {
		s := s.In(t)
		release := server.OccupySeats(t, s.Server, firstAddress+"/32")
		defer release()
		served(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+object, nil)
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 1)
		go func() {
			res, err := http.DefaultClient.Do(r)
			if err == nil {
				res.Body.Close()
			}
			answered <- err
		}()
		until(t, "the first's next request waits", func() bool { _, waiting := server.WaitingForSeats(s.Server); return waiting == 1 })
		served(t)
		for _, path := range []string{"/apis/coordination.k8s.io/v1/leases", "/readyz"} {
			if code, text := s.Do(http.MethodGet, path, ""); code.StatusCode != http.StatusOK {
				t.Errorf("the first's own GET %s: %s %.200s", path, code.Status, text)
			}
		}
		release()
		if err := <-answered; err != nil {
			t.Errorf("the request that waited: %v", err)
		}
	})
	t.Run("large answers that nobody reads", func(t *testing.T) {
		large := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large"},"data":{"a":%q}}`, strings.Repeat("x", 1<<20))
		for i := range 6 {
			code, text := do(http.MethodPost, "/api/v1/namespaces/default/configmaps", strings.Replace(large, `"large"`, fmt.Sprintf(`"large-%d"`, i), 1))
			if code != http.StatusCreated {
				t.Fatalf("%d %.200s", code, text)
			}
		}
		const list = "/api/v1/namespaces/default/configmaps"
		for range 36 {
			c := dial(t, s)
			if tcp, ok := c.(*net.TCPConn); ok {
				tcp.SetReadBuffer(4 << 10)
			}
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", list)
		}
		until(t, "all of them are stalled", func() bool { _, stalled := server.StalledAnswers(s.Server); return stalled == 36 })
		if code, text := do(http.MethodGet, list, ""); code != http.StatusOK || len(text) < 6<<20 {
			t.Errorf("the second's list: %d, %d bytes", code, len(text))
		}
		served(t)
	})
}

// TestFullWaitingRooms: when all places are taken in which requests wait for the store or for the controllers, further ones
// are told to come back, health is answered, and what has left makes room. A request waits for a quarter of its time, so that
// there is enough left to say so.
func TestFullWaitingRooms(t *testing.T) {
	t.Parallel()
	d := newDoors(t)
	asRoot := func(path string) (*http.Response, string) {
		return d.Do(http.MethodGet, path, "", "Authorization", "Bearer root-token")
	}
	for _, room := range []struct {
		fill          func(*testing.T, *server.Server) (int, func())
		places        int
		path, refusal string
	}{
		{server.FillArrivals, 1024, "/api?timeout=2s", "too many requests are arriving"},
		{server.FillWaits, 256, "/debug/quiescent", "too many requests wait for the controllers"},
	} {
		asRoot("/debug/quiescent") // so that it doesn't wait below
		taken, release := room.fill(t, d.Server.Server)
		res, text := asRoot(room.path)
		if taken != room.places || res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" || !strings.Contains(text, room.refusal) {
			t.Errorf("%d places are taken, want %d; %s: %s %s", taken, room.places, room.path, res.Status, text)
		}
		if res, text := asRoot("/readyz"); res.StatusCode != http.StatusOK {
			t.Errorf("/readyz beside that: %s %s", res.Status, text)
		}
		release()
		path, _, _ := strings.Cut(room.path, "?")
		if res, text := asRoot(path); res.StatusCode != http.StatusOK {
			t.Errorf("%s after that: %s %s", path, res.Status, text)
		}
	}
}

// TestNeighboursByUser is TestNeighbours for two users at one address, in two namespaces: the seats of one are held, and the
// other is served. What is stored as FlowSchemas counts at once.
func TestNeighboursByUser(t *testing.T) {
	t.Parallel()
	d := newDoors(t)
	as := func(user, method, path, body string) (int, http.Header) {
		t.Helper()
		res, _ := d.Do(method, path, body, "Authorization", "Bearer "+user+"-token", "Content-Type", "application/json")
		return res.StatusCode, res.Header
	}
	release := server.OccupyLevel(t, d.Server.Server, "global-default", "alice")
	for _, ask := range []struct{ user, method, path, body string }{
		{"bob", "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"b"}}`},
		{"bob", "GET", "/api/v1/namespaces/default/configmaps/b", ""},
		{"bob", "GET", "/api/v1/namespaces/default/configmaps", ""},
		{"root", "POST", "/api/v1/namespaces/kube-system/configmaps", `{"metadata":{"name":"a"}}`},
		{"alice", "POST", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases", `{"metadata":{"name":"a"}}`},
		{"alice", "GET", "/readyz", ""},
		{"alice", "GET", "/api/v1/namespaces/kube-system/configmaps/a?timeout=2s", ""},
	} {
		code, _ := as(ask.user, ask.method, ask.path, ask.body)
		if waits := strings.Contains(ask.path, "timeout"); waits && code != http.StatusTooManyRequests || !waits && code >= 300 {
			t.Errorf("%s of %s: %s: %d", ask.method, ask.user, ask.path, code)
		}
	}
	release()
	if _, metrics := d.Do("GET", "/metrics", "", "Authorization", "Bearer root-token"); !strings.Contains(metrics, `apiserver_flowcontrol_rejected_requests_total{flow_schema="global-default",priority_level="global-default",reason="time-out"} 1`) {
		t.Error("the refusal isn't counted")
	}

	const group = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	as("root", "POST", group+"prioritylevelconfigurations", `{"metadata":{"name":"none"},"spec":{"type":"Limited","limited":{"nominalConcurrencyShares":0,"borrowingLimitPercent":0,"limitResponse":{"type":"Reject"}}}}`)
	schema := `{"metadata":{"name":"bob"},"spec":{"priorityLevelConfiguration":{"name":"none"},"matchingPrecedence":50,"rules":[{"subjects":[{"kind":"User","user":{"name":"bob"}}],
		"resourceRules":[{"verbs":["*"],"apiGroups":["*"],"resources":["*"],"namespaces":["*"],"clusterScope":true}]}]}}`
	const rounds = 20 // a schema is in effect, or not any more, when its write is answered
	for range rounds {
		if code, _ := as("root", "POST", group+"flowschemas", schema); code != http.StatusCreated {
			t.Fatalf("the FlowSchema: %d", code)
		}
		if code, header := as("bob", "GET", "/api/v1/namespaces/default/configmaps/b", ""); code != http.StatusTooManyRequests ||
			header.Get("X-Kubernetes-PF-FlowSchema-UID") == "" || header.Get("X-Kubernetes-PF-PriorityLevel-UID") == "" || header.Get("Retry-After") == "" {
			t.Errorf("bob, whose level has no seats: %d %v", code, header)
		}
		if code, _ := as("alice", "GET", "/api/v1/namespaces/default/configmaps/b", ""); code != http.StatusOK {
			t.Errorf("alice beside that: %d", code)
		}
		if code, _ := as("root", "DELETE", group+"flowschemas/bob", ""); code != http.StatusOK {
			t.Errorf("its deletion: %d", code)
		}
		if code, _ := as("bob", "GET", "/api/v1/namespaces/default/configmaps/b", ""); code != http.StatusOK {
			t.Errorf("bob after that: %d", code)
		}
	}
}

// TestNeighboursOfAWebhook: one address has a webhook convert as much as it may at once, and the webhook doesn't answer. What
// another address asks of the same webhook is answered meanwhile.
func TestNeighboursOfAWebhook(t *testing.T) {
	t.Parallel()
	const asked = 40 // more than a webhook is called at once
	h := newWebhook(t)
	var held atomic.Int64
	release := make(chan struct{})
	convert := h.Config.Handler
	h.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if strings.Contains(string(body), `"first-`) {
			held.Add(1)
			<-release
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		convert.ServeHTTP(w, r)
	})
	s := newConvertedBy(t, h)
	for i := range asked {
		s.PostYAML(thingsPath, thing("v1", fmt.Sprintf("first-%d", i), `,"spec":{"size":"abc"}`))
	}
	s.PostYAML(thingsPath, thing("v1", "second", `,"spec":{"size":"abc"}`))
	var first sync.WaitGroup
	defer first.Wait()
	defer close(release)
	for i := range asked {
		first.Go(func() { s.Do(http.MethodGet, fmt.Sprintf("%s/first-%d", things2Path, i), "") })
	}
	until(t, "all of them wait", func() bool {
		return strings.Contains(s.Get("/metrics"), fmt.Sprintf("apiserver_current_inflight_requests{request_kind=\"readOnly\"} %d\n", asked)) && held.Load() >= 12
	})
	if code, text := neighbour(t, s.URL)(http.MethodGet, things2Path+"/second", ""); code != http.StatusOK || !strings.Contains(text, `"length":3`) {
		t.Errorf("the second's: %d %.200s", code, text)
	}
}

// TestNeighboursRefused: one address is refused all the time, and resets watches before they're answered. Another one is
// served meanwhile, and what it's refused is in the log. The proof at the test's end asks that no watch stays open.
func TestNeighboursRefused(t *testing.T) {
	t.Parallel()
	const path, tries = "/api/v1/namespaces/default/configmaps", 3 // so few that two clients have as many lines in a second
	var log await.Log
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	writeFile(t, tokens, csvTokens)
	s := servertest.New(t, func(s *server.Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.Access.TokenAuthFile = tokens
	})
	var first sync.WaitGroup
	stop := make(chan struct{})
	stopped := func() bool {
		select {
		case <-stop:
			return true
		default:
			return false
		}
	}
	first.Go(func() {
		for !stopped() {
			if res, _ := s.Do(http.MethodGet, path, "", "Authorization", "Bearer wrong"); res.StatusCode != http.StatusUnauthorized {
				t.Errorf("with a wrong token: %s", res.Status)
			}
		}
	})
	first.Go(func() {
		for !stopped() {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			fmt.Fprintf(c, "GET %s?watch=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice-token\r\n\r\n", path)
			if tcp, ok := c.(*net.TCPConn); ok {
				tcp.SetLinger(0) // a reset
			}
			c.Close()
		}
	})
	until(t, "lines of the first's are left out of the log", func() bool {
		return strings.Count(log.String(), "from="+firstAddress) >= 20
	})
	do := neighbour(t, s.URL)
	for range tries {
		if code, _ := do(http.MethodGet, path, "", "Authorization", "Bearer wrong"); code != http.StatusUnauthorized {
			t.Errorf("the second with a wrong token: %d", code)
		}
		if code, text := do(http.MethodGet, path, "", "Authorization", "Bearer bob-token"); code != http.StatusOK {
			t.Errorf("the second: %d %.200s", code, text)
		}
	}
	close(stop)
	first.Wait()
	if n := strings.Count(log.String(), "from="+secondAddress); n != tries {
		t.Errorf("%d lines of the log are about the second's refusals, want %d", n, tries)
	}
}
