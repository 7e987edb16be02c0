package server_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// newSecure starts a server with HTTPS, and a client that speaks HTTP/2 if the server does.
func newSecure(t *testing.T, options ...func(*server.Server)) *servertest.Server {
	t.Helper()
	s := servertest.New(t, append(options, func(s *server.Server) { s.TLS.On = true })...)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: rootsOf(t, s)}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	s.Client = &http.Client{Transport: transport}
	return s
}

// TestTransportSecurity: answers over HTTPS have the header of --strict-transport-security-directives, also those that refuse.
func TestTransportSecurity(t *testing.T) {
	directives := func(s *server.Server) {
		s.Serving.TransportSecurity = []string{"max-age=31536000", "includeSubDomains"}
	}
	secure := newSecure(t, directives)
	for _, path := range []string{"/version", "/api/v1/namespaces", "/nothing"} {
		res, _ := secure.Do("GET", path, "")
		if got, want := res.Header.Get("Strict-Transport-Security"), "max-age=31536000; includeSubDomains"; got != want {
			t.Errorf("%s: the header is %q, want %q", path, got, want)
		}
	}
	plain := servertest.New(t, directives)
	if res, _ := plain.Do("GET", "/version", ""); res.Header.Get("Strict-Transport-Security") != "" {
		t.Error("an answer without TLS has the header, which RFC 6797 forbids")
	}
}

// TestNoHTTP2: with --disable-http2-serving clients that would speak HTTP/2 speak HTTP/1.1.
func TestNoHTTP2(t *testing.T) {
	s := newSecure(t, func(s *server.Server) { s.Serving.NoHTTP2 = true })
	if res, _ := s.Do("GET", "/version", ""); res.ProtoMajor != 1 {
		t.Errorf("the answer is of %s", res.Proto)
	}
}

// TestGoaway: with --goaway-chance clients over HTTP/2 come to open another connection, while the watch on the first one goes on.
func TestGoaway(t *testing.T) {
	s := newSecure(t, func(s *server.Server) { s.Bounds.GoawayChance = 0.02 })
	watch := s.Watch("/api/v1/namespaces?watch=true&resourceVersion=1")
	defer watch.Close()
	first := ""
	await.Until(t, "another connection is opened", func() bool {
		from := ""
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(c httptrace.GotConnInfo) { from = c.Conn.LocalAddr().String() }})
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+"/version", nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := s.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		first = cmp.Or(first, from)
		return from != first
	})
	if _, err := watch.Next(); err != nil {
		t.Errorf("the watch on the first connection: %v", err)
	}
}

// TestRequestTimeout: a request that takes longer than --request-timeout is answered 504.
func TestRequestTimeout(t *testing.T) {
	hook := newAsked(t, func(map[string]any) (map[string]any, int) { <-t.Context().Done(); return nil, http.StatusNotFound })
	d := newDoors(t, func(s *server.Server) {
		s.Access.AuthorizationMode, s.Access.AuthorizationWebhook.ConfigFile = "Webhook", hook.kubeconfig()
		s.Bounds.RequestTimeout = 100 * time.Millisecond
	})
	if res, text := d.ask(nil, true, "GET", "/api/v1/namespaces", "", "Authorization", "Bearer alice-token"); res.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%d %s, want 504", res.StatusCode, text)
	}
}

// TestMinRequestTimeout: a watch whose client doesn't say it lasts --min-request-timeout at least, and not twice as long.
func TestMinRequestTimeout(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.Bounds.MinWatchTimeout = time.Second })
	began := time.Now()
	watch := s.Watch("/api/v1/namespaces?watch=true&resourceVersion=1&fieldSelector=metadata.name%3Dnone")
	defer watch.Close()
	for {
		if _, err := watch.Next(); err != nil {
			break
		}
	}
	if lasted := time.Since(began); lasted < time.Second {
		t.Errorf("it lasted %v, want at least a second", lasted)
	}
}

// TestShutdownDelay: for --shutdown-delay-duration after the end began /readyz fails, /livez doesn't, and requests are served.
func TestShutdownDelay(t *testing.T) {
	s := &server.Server{}
	s.Serving.Listen, s.Data.Dir, s.Serving.ShutdownDelay = "127.0.0.1:0", filepath.Join(t.TempDir(), "data"), 2*time.Second
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	url, began, closed := s.URL(), time.Now(), make(chan error)
	go func() { closed <- s.Close() }()
	code := func(path string) int {
		r, err := http.NewRequestWithContext(context.Background(), "GET", url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0
		}
		res.Body.Close()
		return res.StatusCode
	}
	await.Until(t, "/readyz fails", func() bool { return code("/readyz") == http.StatusInternalServerError })
	if got := code("/livez"); got != http.StatusOK {
		t.Errorf("/livez is %d meanwhile", got)
	}
	if got := code("/api/v1/namespaces"); got != http.StatusOK {
		t.Errorf("a list is answered %d meanwhile", got)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took < 2*time.Second {
		t.Errorf("it ended after %v", took)
	}
	http.DefaultClient.CloseIdleConnections()
}
