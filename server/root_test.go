package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestExtras: / says what Kubernetes doesn't have, for programs and people, and docs/wire.md has each of it.
func TestExtras(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t, servertest.Faults, servertest.FakeClock)
	var got struct {
		Extras []struct{ Name, Description string } `json:"apiserver-lite/extras"`
	}
	if err := json.Unmarshal([]byte(s.Get("/")), &got); err != nil || len(got.Extras) == 0 {
		t.Fatalf("%v, %+v", err, got)
	}
	_, people := s.Do("GET", "/index.html", "", "Accept", "text/html")
	for _, e := range got.Extras {
		if !strings.Contains(string(page), "| `"+e.Name+"` |") {
			t.Errorf("docs/wire.md has no line for %s", e.Name)
		}
		if !strings.Contains(people, "<dt>"+e.Name+"</dt><dd>") {
			t.Errorf("the page for people lacks %s", e.Name)
		}
		method, path, _ := strings.Cut(e.Name, " ")
		if !strings.HasPrefix(path, "/") {
			continue
		}
		if res, _ := s.Do(method, path, ""); res.StatusCode == http.StatusNotFound || res.StatusCode == http.StatusMethodNotAllowed {
			t.Errorf("%s: %s", e.Name, res.Status)
		}
	}
}

// TestExtrasOfDurable: / of a server that keeps its objects doesn't list resets, which it refuses.
func TestExtrasOfDurable(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Data.Ephemeral = false })
	_, people := s.Do("GET", "/index.html", "", "Accept", "text/html")
	for _, page := range []string{s.Get("/"), people} {
		for _, name := range []string{"/debug/reset", "/debug/snapshot"} {
			if strings.Contains(page, name) {
				t.Errorf("%s is listed: %s", name, page)
			}
		}
		if !strings.Contains(page, "GET /debug/quiescent") {
			t.Errorf("the other extras are missing: %s", page)
		}
	}
}

// TestRoot: / has the paths, each of which is served, and a page for people.
func TestRoot(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, accept := range []string{"", "application/json", "application/json;q=0.9, text/html;q=0.1"} {
		res, body := s.Do("GET", "/", "", "Accept", accept)
		var got struct{ Paths []string }
		if err := json.Unmarshal([]byte(body), &got); err != nil || res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/json" {
			t.Fatalf("with Accept %q: %s, %v: %s", accept, res.Status, err, body)
		}
		for _, path := range got.Paths {
			if res, body := s.Do("GET", path, ""); res.StatusCode != http.StatusOK {
				t.Errorf("GET %s: %s %s", path, res.Status, body)
			}
		}
		for _, path := range []string{"/api/v1", "/apis/example.com", "/apis/example.com/v1", "/openapi/v3", "/readyz"} {
			if !slices.Contains(got.Paths, path) {
				t.Errorf("%q lacks %s", got.Paths, path)
			}
		}
	}
	res, body := s.Do("GET", "/index.html", "", "Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || !strings.Contains(body, `<a href="/apis/example.com/v1">`) ||
		!strings.Contains(body, `<a href="/apis/example.com/v1/widgets">widgets</a></td><td>wd</td><td>Widget</td><td>namespace</td>`) {
		t.Errorf("for a browser: %s, %s: %s", res.Status, res.Header.Get("Content-Type"), body)
	}
	if res, body := s.Do("POST", "/", ""); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST /: %s %s", res.Status, body)
	}
}
