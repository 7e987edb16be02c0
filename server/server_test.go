package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	allWidgets      = "/apis/example.com/v1/widgets"
	widgetsPath     = "/apis/example.com/v1/namespaces/default/widgets"
)

// newWidgets starts a server that serves widgets and has one, named a.
func newWidgets(t testing.TB, options ...func(*server.Server)) *servertest.Server {
	t.Helper()
	s := servertest.New(t, options...)
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML(widgetsPath, widget("a"))
	s.Quiescent() // nothing of the start is written any more: versions are those of the test's own writes
	return s
}

func widget(name string) string {
	return `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"` + name + `"},"spec":{"size":1}}`
}

// status is what every error must be. What the library says of a merge has no reason.
func status(t *testing.T, res *http.Response, body string) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal([]byte(body), &s); err != nil {
		t.Fatalf("%s, and no Status: %s", res.Status, body)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != metav1.StatusFailure || int(s.Code) != res.StatusCode || s.Reason == "" && s.Code != http.StatusInternalServerError || s.Message == "" {
		t.Errorf("%s with an odd Status: %s", res.Status, body)
	}
	return s
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	item := widgetsPath + "/a"

	res, body := s.Do("PATCH", item, `{"spec":{"size":2}}`, "Content-Type", "application/merge-patch+json; charset=utf-8")
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"size":2`) {
		t.Fatalf("merge patch: %s %s", res.Status, body)
	}
	res, body = s.Do("PUT", item, strings.Replace(body, `"size":2`, `"size":3`, 1), "Content-Type", "application/json")
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"size":3`) {
		t.Fatalf("update: %s %s", res.Status, body)
	}
	res, body = s.Do("PUT", item+"/status", strings.Replace(body, `"spec":`, `"status":{"ok":true},"spec":`, 1))
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"ok":true`) {
		t.Fatalf("update of the status: %s %s", res.Status, body)
	}
	if got := s.Get(allWidgets); !strings.Contains(got, `"kind":"WidgetList"`) || !strings.Contains(got, `"size":3`) {
		t.Errorf("list across namespaces: %s", got)
	}
	res, body = s.Do("DELETE", item, "")
	if res.StatusCode != http.StatusOK || !strings.Contains(body, `"status":"Success"`) {
		t.Fatalf("delete: %s %s", res.Status, body)
	}
	if res, body = s.Do("GET", item, ""); res.StatusCode != http.StatusNotFound {
		t.Fatalf("get after delete: %s %s", res.Status, body)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	t.Run("before the start", func(t *testing.T) {
		s := &server.Server{}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err == nil {
			t.Error("it started after Close")
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("it ran after Close")
		}
	})
	t.Run("by several, during requests", func(t *testing.T) {
		s := servertest.New(t)
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for {
					res, err := s.Client.Get(s.URL + "/api/v1/namespaces")
					if err != nil {
						return // closed
					}
					io.Copy(io.Discard, res.Body)
					res.Body.Close()
					if res.StatusCode != http.StatusOK && res.StatusCode != http.StatusServiceUnavailable {
						t.Errorf("answered %s", res.Status)
					}
				}
			})
		}
		for range 3 {
			all.Go(func() {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if _, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://")); err == nil {
			t.Error("the port is still open")
		}
	})
}

func TestRun(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		stop func(cancel context.CancelFunc, s *server.Server)
	}{
		{"ends with its context", func(cancel context.CancelFunc, _ *server.Server) { cancel() }},
		{"ends by Close", func(_ context.CancelFunc, s *server.Server) { s.Close() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "url")
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0", URLFile: file}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
			if err := s.Start(ctx); err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(file); err != nil || string(got) != s.URL()+"\n" {
				t.Errorf("the URL file has %q, %v, want %s", got, err, s.URL())
			}
			done := make(chan error)
			go func() { done <- s.Run(ctx) }()
			tc.stop(cancel, s)
			if err := <-done; err != nil {
				t.Errorf("Run = %v", err)
			}
			if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the URL file is still there: %v", err)
			}
		})
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	running := servertest.New(t, func(s *server.Server) { s.Data.Ephemeral = false })
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, tc := range []struct {
		name   string
		ctx    context.Context
		server *server.Server
		want   string
	}{
		{"port in use", t.Context(), &server.Server{Serving: server.Serving{Listen: taken.Addr().String()}, Data: server.Data{Ephemeral: true}}, "address already in use"},
		{"no token", t.Context(), &server.Server{Serving: server.Serving{Listen: ":0"}, Data: server.Data{Ephemeral: true}}, "--token-file"},
		{"foreign directory", t.Context(), &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Dir: foreign}}, foreign},
		{"locked directory", t.Context(), &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Dir: running.Dir()}}, "locked"},
		{"half a certificate", t.Context(), &server.Server{TLS: server.TLS{CertFile: "x"}}, "--tls-key-file"},
		{"two certificates", t.Context(), &server.Server{TLS: server.TLS{On: true, CertFile: "x", KeyFile: "y"}}, "--tls"},
		{"missing certificate", t.Context(), &server.Server{TLS: server.TLS{CertFile: "/nonexistent/x", KeyFile: "/nonexistent/y"}}, "--tls-key-file"},
		{"missing tokens", t.Context(), &server.Server{TokenFile: "/nonexistent/x"}, "--token-file"},
		{"impossible token", t.Context(), &server.Server{Token: "a b"}, "token"},
		{"negative history", t.Context(), &server.Server{Data: server.Data{History: -1}}, "--history"},
		{"negative deadline", t.Context(), &server.Server{Bounds: server.Bounds{WatchWriteTimeout: -1}}, "--watch-write-timeout"},
		{"too many streams", t.Context(), &server.Server{Bounds: server.Bounds{HTTP2MaxStreams: 1 << 30}}, "--http2-max-streams"},
		{"URL file in no directory", t.Context(), &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0", URLFile: "/nonexistent/x"}, Data: server.Data{Ephemeral: true}}, "--url-file"},
		{"out of time", ended, &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true}}, "context canceled"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.server.Data.Dir == "" && tc.server.Data.Ephemeral {
				tc.server.Data.Dir = t.TempDir()
			}
			err := tc.server.Start(tc.ctx)
			if err == nil {
				tc.server.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("Start = %v, want an error with %q", err, tc.want)
			}
			if err := tc.server.Close(); err != nil {
				t.Errorf("Close = %v", err)
			}
		})
	}
}

func TestRestartKeepsObjects(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	durable := func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
	first := newWidgets(t, durable)
	before := first.Get(widgetsPath + "/a")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second := servertest.New(t, durable)
	if after := second.Get(widgetsPath + "/a"); after != before {
		t.Errorf("it was\n%s\nand is\n%s", before, after)
	}
	if file, err := os.Stat(dir); err != nil || file.Mode().Perm() != 0o700 {
		t.Errorf("the data directory: %v, %v", file.Mode(), err)
	}
}
