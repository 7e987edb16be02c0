package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// allowExample is a server's option that lets the pages of https://example.com and its subdomains in.
func allowExample(s *server.Server) {
	s.Serving.CORSAllowedOrigins = []string{`^https://([a-z]+\.)?example\.com$`}
}

func TestCORS(t *testing.T) {
	t.Parallel()
	open, closed := newWidgets(t, allowExample), newWidgets(t)
	const ours, other = "https://app.example.com", "https://example.com.evil.test"
	for _, tc := range []struct {
		name, method, path, origin string
		want, wantClosed           int
	}{
		{"read", "GET", widgetsPath, ours, 200, 200},
		{"read by another site, which the browser doesn't show", "GET", widgetsPath, other, 200, 200},
		{"read by a program", "GET", widgetsPath, "", 200, 200},
		{"write", "POST", widgetsPath, ours, 201, 403},
		{"write by another site", "POST", widgetsPath, other, 403, 403},
		{"preflight", "OPTIONS", widgetsPath, ours, 204, 405},
		{"preflight of another site", "OPTIONS", widgetsPath, other, 405, 405},
		{"preflight without an origin", "OPTIONS", widgetsPath, "", 405, 405},
		{"refusal", "GET", "/nothing", ours, 404, 404},
	} {
		t.Run(tc.name, func(t *testing.T) {
			closed, open := closed.In(t), open.In(t)
			body, headers := "", []string{"Sec-Fetch-Site", "cross-site"}
			if tc.origin == "" {
				headers = nil
			} else {
				headers = append(headers, "Origin", tc.origin)
			}
			if tc.method == "POST" {
				body, headers = widget("b"), append(headers, "Content-Type", "application/json")
			}
			res, answer := open.Do(tc.method, tc.path, body, headers...)
			allowed := tc.origin == ours
			if res.StatusCode != tc.want || (res.Header.Get("Access-Control-Allow-Origin") == tc.origin && tc.origin != "") != allowed {
				t.Errorf("%s %v\n%s", res.Status, res.Header, answer)
			}
			for name, want := range map[string]string{
				"Access-Control-Allow-Methods":     "POST, GET, OPTIONS, PUT, DELETE, PATCH",
				"Access-Control-Allow-Headers":     "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since, Last-Event-ID",
				"Access-Control-Expose-Headers":    "Date",
				"Access-Control-Allow-Credentials": "true",
			} {
				if !allowed {
					want = ""
				}
				if got := res.Header.Get(name); got != want {
					t.Errorf("%s is %q, want %q", name, got, want)
				}
			}
			res, answer = closed.Do(tc.method, tc.path, body, headers...)
			if res.StatusCode != tc.wantClosed || res.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("without the flag: %s %v\n%s", res.Status, res.Header, answer)
			}
		})
	}
}

// TestCORSToken: a preflight, which carries no token, is answered, and so can a page read that it has no token.
func TestCORSToken(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, allowExample, func(s *server.Server) { s.Token = "s3cret" })
	origin := []string{"Origin", "https://example.com"}
	if res, _ := s.Do("OPTIONS", "/api", "", append(origin, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization")...); res.StatusCode != http.StatusNoContent {
		t.Errorf("the preflight: %s", res.Status)
	}
	if res, _ := s.Do("GET", "/api", "", origin...); res.StatusCode != http.StatusUnauthorized || res.Header.Get("Access-Control-Allow-Origin") != "https://example.com" {
		t.Errorf("without a token: %s %v", res.Status, res.Header)
	}
	if res, _ := s.Do("GET", "/api", "", append(origin, "Authorization", "Bearer s3cret")...); res.StatusCode != http.StatusOK {
		t.Errorf("with the token: %s", res.Status)
	}
}

// TestCORSServerSent: a page that is allowed reads server-sent events, and goes on after the last id: with an EventSource, and by fetch with a token, which asks first.
func TestCORSServerSent(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, allowExample)
	page := []string{"Origin", "https://example.com", "Sec-Fetch-Site", "cross-site"}
	res, _ := s.Do("OPTIONS", widgetsPath+"?watch=true", "", append(page, "Access-Control-Request-Method", "GET", "Access-Control-Request-Headers", "authorization,last-event-id")...)
	if allowed := strings.ToLower(res.Header.Get("Access-Control-Allow-Headers")); res.StatusCode != http.StatusNoContent || !strings.Contains(allowed, "authorization") || !strings.Contains(allowed, "last-event-id") {
		t.Errorf("the preflight: %s %v", res.Status, res.Header)
	}
	e := openEventSource(t, s, widgetsPath+"?watch=true", "")
	e.expect("ADDED a", "id #*")
	s.PostYAML(widgetsPath, widget("b"))
	res, body := s.Do("GET", widgetsPath+"?watch=true&timeoutSeconds=1", "", append(page, "Accept", "text/event-stream", "Last-Event-ID", e.lastID)...)
	if res.Header.Get("Access-Control-Allow-Origin") != "https://example.com" || !strings.Contains(body, `"name":"b"`) || strings.Contains(body, `"name":"a"`) {
		t.Errorf("after the last id: %s %v\n%s", res.Status, res.Header, body)
	}
}

// TestCORSWebSocket: a page that is allowed may watch over WebSocket.
func TestCORSWebSocket(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, allowExample)
	c := openSocket(t, s, widgetsPath+"?watch=true", nil, "Origin", "https://example.com", "Sec-Fetch-Site", "cross-site")
	if got := c.next().String(); got != "ADDED a" {
		t.Errorf("the first event is %s", got)
	}
	if _, res, err := dialSocket(t, s, widgetsPath+"?watch=true", nil, "Origin", "https://evil.example"); err == nil || res.StatusCode != http.StatusForbidden {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCORSPatterns: a pattern that is taken never matches its host with something before or after it, whatever it says.
func TestCORSPatterns(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, pattern, origin, want string }{
		{"whole", `^https://example\.com$`, "https://example.com", ""},
		{"host and port", `//localhost(:|$)`, "http://localhost:8080", ""},
		{"one port", `//localhost:8080`, "http://localhost:8080", ""},
		{"any port", `^https://example\.com(:[0-9]+)?$`, "https://example.com:8443", ""},
		{"of two alternatives one without an end", `^https://a\.test$|^https://b\.test`, "https://b.test", ""},
		{"no begin", `example\.com$`, "", "where the host begins"},
		{"no end", `//example\.com`, "", "where it ends"},
		{"the scheme's colon is no end", `https://example.com`, "", "where it ends"},
		{"nor is a group's", `^https://(?i:example)\.com`, "", "where it ends"},
		{"nor is a class's", `^https://[[:alpha:]]+\.com`, "", "where it ends"},
		{"anything", `.*`, "", "where the host begins"},
		{"empty", "", "", "empty pattern"},
		{"no expression", `^(https://$`, "", "missing closing )"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.want != "" {
				s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0", CORSAllowedOrigins: []string{tc.pattern}}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
				err := s.Start(context.Background())
				if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--cors-allowed-origins") {
					t.Errorf("%v, want %q", errors.Join(err, s.Close()), tc.want)
				}
				return
			}
			s := servertest.New(t, func(s *server.Server) { s.Serving.CORSAllowedOrigins = []string{tc.pattern} })
			scheme, host, _ := strings.Cut(tc.origin, "//")
			for origin, allowed := range map[string]bool{
				tc.origin: true, tc.origin + ".evil.test": false, scheme + "//evil." + host: false, tc.origin + "@evil.test": false,
				scheme + "//evil.test//" + host: false, scheme + "//evil" + host: false, "": false,
			} {
				res, _ := s.Do("GET", "/apis", "", "Origin", origin)
				if got := res.Header.Get("Access-Control-Allow-Origin") != ""; got != allowed {
					t.Errorf("%q: allowed=%t", origin, got)
				}
				if !strings.Contains(strings.Join(res.Header.Values("Vary"), ", "), "Origin") {
					t.Errorf("%q: a cache may show the answer to other sites: %q", origin, res.Header.Values("Vary"))
				}
			}
		})
	}
}
