package server_test

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// forBrowsers is the Accept header of one.
const forBrowsers = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// TestConsoleNeedsNoCredential: the page and its files are there for strangers, the same for all, with a policy that lets no script of
// others run; nothing else is.
func TestConsoleNeedsNoCredential(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Token = "secret" })
	page := askStrangely(t, s.URL+"/console", "")
	if page.code != http.StatusOK || !strings.Contains(page.body, "<title>apiserver-lite</title>") {
		t.Fatalf("/console: %d %s", page.code, page.body)
	}
	if root := askStrangely(t, s.URL+"/", forBrowsers); root.body != page.body {
		t.Errorf("/ has another page: %s", root.body)
	}
	files := regexp.MustCompile(`/console/[a-z]+\.[0-9A-Za-z]+\.(?:js|css|txt)`).FindAllString(page.body, -1)
	if len(files) != 4 {
		t.Fatalf("the page names %q", files)
	}
	for _, file := range append(files, "/console") {
		got := askStrangely(t, s.URL+file, "")
		policy := got.header.Get("Content-Security-Policy")
		if got.code != http.StatusOK || len(got.body) < 200 || !strings.Contains(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
			t.Errorf("%s: %d, %d bytes, policy %q", file, got.code, len(got.body), policy)
		}
		if cached := got.header.Get("Cache-Control"); strings.Contains(cached, "immutable") == (file == "/console") {
			t.Errorf("%s: Cache-Control: %s", file, cached)
		}
	}
	for path, accept := range map[string]string{"/": "application/json", "/index.html": forBrowsers, "/api": forBrowsers, "/metrics": ""} {
		if got := askStrangely(t, s.URL+path, accept); got.code != http.StatusUnauthorized {
			t.Errorf("%s for a stranger: %d", path, got.code)
		}
	}
}

// TestConsoleAssetIsMissing: what isn't there is 404, and never the page.
func TestConsoleAssetIsMissing(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	for _, path := range []string{"/console/none.js", "/console/dist/index.html", "/console/index.html.gz", "/console/a/b", "/console/objects"} {
		if got := askStrangely(t, s.URL+path, forBrowsers); got.code != http.StatusNotFound || strings.Contains(got.body, "<html") {
			t.Errorf("%s: %d %s", path, got.code, got.body)
		}
	}
	if res, _ := s.Do("POST", "/console", ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s", res.Status)
	}
}

// TestConsoleEncodings: the page comes compressed to who takes that, inflated to others, and not at all to who has it.
func TestConsoleEncodings(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	etag := ""
	for _, tc := range []struct {
		name, header, value string
		code                int
		encoding            string
	}{
		{"compressed", "Accept-Encoding", "br, gzip;q=0.5", http.StatusOK, "gzip"},
		{"refused", "Accept-Encoding", "gzip;q=0", http.StatusOK, ""},
		{"not named", "Accept-Encoding", "identity", http.StatusOK, ""},
		{"already there", "If-None-Match", "the etag", http.StatusNotModified, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			value := strings.Replace(tc.value, "the etag", etag, 1)
			res, body := s.Do("GET", "/console", "", tc.header, value, "Accept-Encoding", "identity")
			if tc.header == "Accept-Encoding" {
				res, body = s.Do("GET", "/console", "", tc.header, value)
			}
			etag = res.Header.Get("ETag")
			if res.StatusCode != tc.code || res.Header.Get("Content-Encoding") != tc.encoding || (tc.code == http.StatusOK && tc.encoding == "") != strings.HasPrefix(body, "<!doctype html>") {
				t.Errorf("%s, encoding %q: %.40q", res.Status, res.Header.Get("Content-Encoding"), body)
			}
		})
	}
}

// TestNoConsole: without it its paths lead nowhere, and a browser gets the list of what is served, as before.
func TestNoConsole(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Serving.NoConsole = true })
	for _, path := range []string{"/console", "/console/none.js"} {
		if res, _ := s.Do("GET", path, ""); res.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
	if _, body := s.Do("GET", "/", "", "Accept", forBrowsers); !strings.Contains(body, `<a href="/api/v1">`) || strings.Contains(body, "/console") {
		t.Errorf("/: %s", body)
	}
}

// strangely is what a client without a credential got.
type strangely struct {
	code   int
	header http.Header
	body   string
}

func askStrangely(t *testing.T, url, accept string) strangely {
	t.Helper()
	r, err := http.NewRequest("GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if accept != "" {
		r.Header.Set("Accept", accept)
	}
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strangely{res.StatusCode, res.Header, string(body)}
}
