package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

func TestTokens(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(file, []byte("# a\nfrom-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t, func(s *server.Server) { s.Token, s.TokenFile = "from-field", file })
	for _, token := range []string{"from-file", "from-field"} {
		if res, body := s.Do("GET", "/api", "", "Authorization", "Bearer "+token, "Host", "any.example"); res.StatusCode != http.StatusOK {
			t.Errorf("with a right token: %s %s", res.Status, body)
		}
	}
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/readyz/etcd"} {
		if got := s.Get(path); got != "ok" {
			t.Errorf("%s without a token: %q", path, got)
		}
	}
	first := ""
	for _, path := range []string{"/api", "/metrics", "/version", "/openapi/v3", "/nothing", "/api/v1/namespaces?watch=true", "/api?token=from-file"} {
		for _, header := range []string{"", "Bearer wrong", "Bearer from-fil", "Basic from-file"} {
			res, body := s.Do("GET", path, "", "Authorization", header)
			if first == "" {
				first = body
			}
			if res.StatusCode != http.StatusUnauthorized || res.Header.Get("WWW-Authenticate") != "Bearer" || body != first {
				t.Errorf("GET %s with %q: %s %s", path, header, res.Status, body)
			}
			status(t, res, body)
		}
	}
	if res, _ := s.Do("FROB", "/nothing", ""); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("an unknown method without a token: %s", res.Status)
	}
}

func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Serving.AllowedHosts = []string{"api.test"} })
	for host, want := range map[string]int{"api.test:8080": 200, "localhost": 200, "other.test": 403} {
		if res, _ := s.Do("GET", "/readyz", "", "Host", host); res.StatusCode != want {
			t.Errorf("Host %s: %s, want %d", host, res.Status, want)
		}
	}
}

func TestSelfSignedTLS(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.TLS.On = true })
	if !strings.HasPrefix(s.URL, "https://127.0.0.1:") {
		t.Fatalf("the URL is %s", s.URL)
	}
	text, err := os.ReadFile(filepath.Join(s.Dir(), "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(text)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	s.Client = &http.Client{Transport: transport}
	if res, _ := s.Do("GET", "/readyz", ""); res.StatusCode != http.StatusOK || res.ProtoMajor != 2 {
		t.Errorf("%s by %s", res.Status, res.Proto)
	}
	w := s.Watch("/api/v1/namespaces?watch=true")
	if line, err := w.Next(); err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) {
		t.Errorf("%q, %v", line, err)
	}
	w.Close()

	// The same certificate, as files of the user's.
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "c"), filepath.Join(dir, "k")
	private, err := os.ReadFile(filepath.Join(s.Dir(), "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	if block, _ := pem.Decode(private); block == nil {
		t.Fatal("the key is no PEM")
	}
	for name, content := range map[string][]byte{cert: text, key: private} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	other := servertest.New(t, func(s *server.Server) { s.TLS.CertFile, s.TLS.KeyFile = cert, key })
	http1 := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{}}
	defer http1.CloseIdleConnections()
	other.Client = &http.Client{Transport: http1}
	if res, _ := other.Do("GET", "/readyz", ""); res.StatusCode != http.StatusOK || res.ProtoMajor != 1 {
		t.Errorf("HTTP/1.1 over TLS: %s by %s", res.Status, res.Proto)
	}
	if err := os.Chmod(key, 0o640); err != nil { // as secrets are mounted in containers
		t.Fatal(err)
	}
	var log await.Log
	servertest.New(t, func(s *server.Server) {
		s.TLS.CertFile, s.TLS.KeyFile, s.Log = cert, key, slog.New(slog.NewTextHandler(&log, nil))
	})
	if !strings.Contains(log.String(), "can be read by its group") {
		t.Errorf("no warning of a key that the group can read: %s", log.String())
	}
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := (&server.Server{TLS: server.TLS{CertFile: cert, KeyFile: key}}).Start(t.Context()); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a key for everybody: %v", err)
	}
}

func TestUnixSocket(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	s := servertest.New(t, func(s *server.Server) { s.Serving.Listen = "unix:" + path })
	if s.URL != "unix:"+path {
		t.Errorf("the URL is %s", s.URL)
	}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}
	defer transport.CloseIdleConnections()
	s.Client, s.URL = &http.Client{Transport: transport}, "http://whatever"
	if got := s.Get("/readyz"); got != "ok" {
		t.Errorf("readyz is %q", got)
	}
	transport.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the socket is still there")
	}
}

// TestRawHTTP sends what no HTTP library would: each is refused, the connection is closed, and nothing of
// it is taken for a second request.
func TestRawHTTP(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	post := "POST " + widgetsPath + " HTTP/1.1\r\nHost: localhost\r\n"
	smuggled := "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
	for name, tc := range map[string]struct {
		request string
		codes   []string
	}{
		"garbage":                  {"\x00\x01\x02" + strings.Repeat("\xff", 20) + "\r\n\r\n", []string{"400"}},
		"HTTP/0.9":                 {"GET /version\r\n\r\n", []string{"400"}},
		"HTTP/0.9, short":          {"GET /api\r\n\r\n", []string{"400"}},
		"HTTP/0.9, shorter":        {"GET /\n\n", []string{"400"}},
		"no host":                  {"GET /version HTTP/1.1\r\n\r\n", []string{"400"}},
		"two hosts":                {"GET /version HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n", []string{"400"}},
		"host with a space":        {"GET /version HTTP/1.1\r\nHost: local host\r\n\r\n", []string{"400"}},
		"NUL in a header":          {"GET /version HTTP/1.1\r\nHost: localhost\r\nX: a\x00b\r\n\r\n", []string{"400"}},
		"header name with a space": {"GET /version HTTP/1.1\r\nHost: localhost\r\nX : a\r\n\r\n", []string{"400"}},
		"two lengths":              {post + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}" + smuggled, []string{"400"}},
		"length with a sign":       {post + "Content-Length: +2\r\n\r\n{}" + smuggled, []string{"400"}},
		"length and chunks":        {post + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"400"}}, // for the empty body
		"chunked twice":            {post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"400", "501"}},
		"unknown coding":           {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + smuggled, []string{"400", "501"}},
		"chunk size overflow":      {post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}" + smuggled, []string{"400"}},
		"chunk size of letters":    {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}" + smuggled, []string{"400"}},
		"terabyte announced":       {post + "Content-Length: 1099511627776\r\n\r\n{", []string{"413"}},
		"terabyte expected":        {post + "Expect: 100-continue\r\nContent-Length: 1099511627776\r\n\r\n", []string{"413"}},
		"chunks without end":       {post + "Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("10000\r\n"+strings.Repeat(" ", 0x10000)+"\r\n", 49), []string{"413"}},
		"large headers":            {"GET /version HTTP/1.1\r\nHost: localhost\r\nX: " + strings.Repeat("x", 2<<20) + "\r\n\r\n", []string{"431"}},
		"many headers":             {"GET /version HTTP/1.1\r\nHost: localhost\r\n" + strings.Repeat("X: y\r\n", 50_000) + "\r\n", []string{"431"}},
		"long URI":                 {"GET /" + strings.Repeat("x", 100<<10) + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", []string{"414"}},
		"CRLF in the path":         {"GET /version\r\nX: y HTTP/1.1\r\nHost: localhost\r\n\r\n", []string{"400"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			go io.WriteString(c, tc.request) // it may be closed before it has taken all
			answer, _ := io.ReadAll(c)       // a reset is as good as an end
			line, _, _ := strings.Cut(string(answer), "\r\n")
			fields := strings.Fields(line)
			if len(fields) < 2 || !strings.Contains(strings.Join(tc.codes, " "), fields[1]) {
				t.Errorf("answered %.200q, want %s", answer, tc.codes)
			}
			if res, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil); err != nil {
				t.Error(err)
			} else if body, err := io.ReadAll(res.Body); err != nil {
				t.Error(err)
			} else if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") { // net/http's own, as from kube-apiserver
				status(t, res, string(body))
			}
			if n := strings.Count(string(answer), "HTTP/1.1 "); n != 1 {
				t.Errorf("%d answers: %.1000q", n, answer)
			}
		})
	}
}

// TestShutdownFinishesRequests: a request under way is answered, and new ones are sent away meanwhile.
func TestShutdownFinishesRequests(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	body, feed := io.Pipe()
	type answer struct {
		code int
		err  error
	}
	slow := make(chan answer)
	go func() {
		res, err := s.Client.Post(s.URL+widgetsPath, "application/json", body)
		if err == nil {
			res.Body.Close()
			slow <- answer{code: res.StatusCode}
			return
		}
		slow <- answer{err: err}
	}()
	io.WriteString(feed, `{"apiVersion":"example.com/v1",`) // is read once the request is under way
	until(t, "the request is under way", func() bool {
		return strings.Contains(s.Get("/metrics"), `apiserver_current_inflight_requests{request_kind="mutating"} 1`)
	})
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	until(t, "the server isn't ready any more", func() bool {
		res, _ := s.Do("GET", "/readyz", "")
		return res.StatusCode == http.StatusInternalServerError
	})
	until(t, "a new write is refused", func() bool {
		res, answer := s.Do("POST", widgetsPath, widget("late"))
		if res.StatusCode == http.StatusServiceUnavailable && status(t, res, answer).Reason != metav1.StatusReasonServiceUnavailable {
			t.Errorf("a new write got %s", answer)
		}
		return res.StatusCode == http.StatusServiceUnavailable && res.Header.Get("Retry-After") == "1"
	})
	io.WriteString(feed, `"kind":"Widget","metadata":{"name":"slow"}}`)
	feed.Close()
	if got := <-slow; got.err != nil || got.code != http.StatusCreated {
		t.Errorf("the write under way got %+v", got)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	await.Until(t, what, done)
}

// TestSecretsStayOut looks for what must not be in logs, errors and metrics at the highest verbosity.
func TestSecretsStayOut(t *testing.T) {
	t.Parallel()
	var log await.Log
	const token, payload, inQuery = "sesame-1234", "payload-5678", "query-9012"
	s := servertest.New(t, func(s *server.Server) {
		s.Token = token
		s.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug - 8}))
	})
	auth := []string{"Authorization", "Bearer " + token, "Content-Type", "application/yaml"}
	var answers strings.Builder
	for _, r := range []struct{ method, path, body string }{
		{"POST", definitionsPath, widgets},
		{"POST", widgetsPath, strings.Replace(widget("a"), `"size":1`, `"text":"`+payload+`"`, 1)},
		{"GET", widgetsPath + "?access_token=" + inQuery, ""},
		{"POST", widgetsPath, "{" + payload},
		{"GET", "/nothing?x=" + inQuery, ""},
	} {
		res, body := s.Do(r.method, r.path, r.body, auth...)
		if res.StatusCode >= 400 {
			answers.WriteString(body)
		}
	}
	if _, body := s.Do("GET", "/api", "", "Authorization", "Bearer wrong-"+token); body != "" {
		answers.WriteString(body)
	}
	_, metrics := s.Do("GET", "/metrics", "", auth...)
	for name, text := range map[string]string{"the log": log.String(), "errors": answers.String(), "metrics": metrics} {
		for _, secret := range []string{token, inQuery} {
			if strings.Contains(text, secret) {
				t.Errorf("%q is in %s:\n%s", secret, name, text)
			}
		}
	}
	if strings.Contains(log.String(), payload) {
		t.Errorf("a body is in the log:\n%s", log.String())
	}
	if !strings.Contains(log.String(), "path=/nothing code=404") {
		t.Errorf("there is no line for a request:\n%s", log.String())
	}
}

// TestMetricsAreBounded: what clients make up leaves no series.
func TestMetricsAreBounded(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	series := func() int { return strings.Count(s.Get("/metrics"), "\n") }
	probe := func(i int) {
		s.Do("GET", fmt.Sprintf("/nothing/%d", i), "", "User-Agent", fmt.Sprint("agent", i))
		s.Do("GET", fmt.Sprintf("/apis/g%d.example.com/v1/things", i), "")
		s.Do(fmt.Sprintf("METHOD%d", i), "/version", "")
		s.Do("GET", fmt.Sprintf("%s/n%d", widgetsPath, i), "")
		s.Do("GET", fmt.Sprintf("%s/a/sub%d", widgetsPath, i), "")
	}
	probe(0)
	series() // scraping counts, too
	before := series()
	for i := range 50 {
		probe(i)
	}
	if after := series(); after != before {
		t.Errorf("there were %d lines and there are %d:\n%s", before, after, s.Get("/metrics"))
	}
	text := s.Get("/metrics")
	for _, want := range []string{
		`apiserver_request_total{code="201",component="apiserver",dry_run="",group="example.com",resource="widgets",scope="resource",subresource="",verb="POST",version="v1"} 1`,
		`apiserver_request_total{code="404",component="apiserver",dry_run="",group="",resource="",scope="",subresource="",verb="GET",version=""} `,
		`verb="other"`,
		"apiserver_request_duration_seconds_bucket{",
		`apiserver_request_sli_duration_seconds_bucket{component="apiserver",dry_run="",group="example.com",resource="widgets",scope="resource",subresource="",verb="POST",version="v1",le="1"} 1`,
		`apiserver_resource_objects{group="example.com",resource="widgets"} `,
		`apiserver_current_inflight_requests{request_kind="readOnly"} 0`,
		"apiserver_lite_feed_revision ",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %s in\n%s", want, text)
		}
	}
}

// gadget is a Go type whose defaulting fails as no code should.
type gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
}

func TestPanics(t *testing.T) {
	t.Parallel()
	var log await.Log
	s := servertest.New(t, func(s *server.Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[gadget]{Group: "example.com", Version: "v1", Kind: "Gadget", ClusterScoped: true,
				Default: func(*gadget) { panic("deliberate") }})
		}
	})
	res, body := s.Do("POST", "/apis/example.com/v1/gadgets", `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"a"}}`, "Audit-Id", "id-7")
	got := status(t, res, body)
	if res.StatusCode != http.StatusInternalServerError || got.Reason != metav1.StatusReasonInternalError || !strings.Contains(got.Message, "id-7") || strings.Contains(body, "deliberate") {
		t.Errorf("%s: %s", res.Status, body)
	}
	if text := log.String(); !strings.Contains(text, "deliberate") || !strings.Contains(text, "audit_id=id-7") || !strings.Contains(text, "server_test") {
		t.Errorf("the log has no cause, id or stack: %s", text)
	}
	if got := s.Get("/metrics"); !strings.Contains(got, "apiserver_request_panics_total 1") {
		t.Errorf("it was not counted: %s", got)
	}
	if got := s.Get("/readyz"); got != "ok" {
		t.Errorf("afterwards readyz is %s", got)
	}
}

// TestManyAtOnce does everything at once, for the race detector.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			w := s.Watch(fmt.Sprintf("%s?watch=true&labelSelector=n%%3D%d", widgetsPath, i))
			defer w.Close()
			for j := range 10 {
				name := fmt.Sprintf("w-%d-%d", i, j)
				s.PostYAML(widgetsPath, strings.Replace(widget(name), `"name"`, fmt.Sprintf(`"labels":{"n":"%d"},"name"`, i), 1))
				if got := next(t, w).String(); got != "ADDED "+name {
					t.Errorf("watcher %d got %s, want %s", i, got, name)
				}
				s.Get("/apis/example.com/v1?pretty=true")
				s.Get("/openapi/v3")
				s.Get("/metrics")
				s.Do("GET", widgetsPath, "", "Accept", "application/yaml")
				s.Do("DELETE", widgetsPath+"/"+name, "")
				if got := next(t, w).String(); got != "DELETED "+name {
					t.Errorf("watcher %d got %s, want the deletion of %s", i, got, name)
				}
			}
		})
	}
	all.Wait()
}
