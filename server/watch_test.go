package server_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// event is a watch event's type and what's in its object that tests look at.
type event struct {
	Type   string
	Object struct {
		Metadata struct {
			Name, ResourceVersion string
			Labels                map[string]string
		}
		Spec struct{ Text string }
	}
}

func next(t *testing.T, w *servertest.Stream) event {
	t.Helper()
	line, err := w.Next()
	if err != nil {
		t.Fatalf("the watch ended: %v (%q)", err, line)
	}
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		t.Fatalf("%v in %s", err, line)
	}
	return e
}

func (e event) String() string { return e.Type + " " + e.Object.Metadata.Name }

func TestWatch(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	w := s.Watch(widgetsPath + "?watch=true&labelSelector=tier%3Dfront")
	steps := []struct{ method, path, body, media, want string }{
		{"POST", widgetsPath, strings.Replace(widget("b"), `"name"`, `"labels":{"tier":"front"},"name"`, 1), "application/json", "ADDED b"},
		{"PATCH", widgetsPath + "/b", `{"spec":{"size":2}}`, "application/merge-patch+json", "MODIFIED b"},
		{"PATCH", widgetsPath + "/a", `{"spec":{"size":2}}`, "application/merge-patch+json", ""},
		{"PATCH", widgetsPath + "/b", `{"metadata":{"labels":{"tier":"back"}}}`, "application/merge-patch+json", "DELETED b"},
		{"PATCH", widgetsPath + "/a", `{"metadata":{"labels":{"tier":"front"}}}`, "application/merge-patch+json", "ADDED a"},
		{"DELETE", widgetsPath + "/a", "", "application/json", "DELETED a"},
	}
	for _, step := range steps {
		if res, body := s.Do(step.method, step.path, step.body, "Content-Type", step.media); res.StatusCode >= 300 {
			t.Fatalf("%s %s: %s: %s", step.method, step.path, res.Status, body)
		}
		if step.want != "" {
			if got := next(t, w).String(); got != step.want {
				t.Errorf("after %s %s: %s, want %s", step.method, step.path, got, step.want)
			}
		}
	}
}

func TestWatchForms(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct{ name, path, want string }{
		{"collection", widgetsPath + "?watch=true", "ADDED a"},
		{"number", widgetsPath + "?watch=1", "ADDED a"},
		{"no value", widgetsPath + "?watch", "ADDED a"},
		{"all namespaces", allWidgets + "?watch=true", "ADDED a"},
		{"one object", widgetsPath + "/a?watch=true", "ADDED a"},
		{"built-in", "/api/v1/namespaces/default?watch=true", "ADDED default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			w := s.Watch(tc.path)
			defer w.Close()
			if got := next(t, w).String(); got != tc.want {
				t.Errorf("the first event is %s, want %s", got, tc.want)
			}
		})
	}
}

// TestLegacyWatch: a path below /watch/ is a watch, whatever its parameters say.
func TestLegacyWatch(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct{ name, path, want string }{
		{"collection", "/apis/example.com/v1/watch/namespaces/default/widgets", "ADDED a"},
		{"parameter says no", "/apis/example.com/v1/watch/namespaces/default/widgets?watch=false", "ADDED a"},
		{"all namespaces", "/apis/example.com/v1/watch/widgets", "ADDED a"},
		{"one object", "/apis/example.com/v1/watch/namespaces/default/widgets/a", "ADDED a"},
		{"namespaces", "/api/v1/watch/namespaces?fieldSelector=metadata.name=kube-system", "ADDED kube-system"},
		{"one namespace", "/api/v1/watch/namespaces/default", "ADDED default"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.In(t)
			w := s.Watch(tc.path)
			defer w.Close()
			if got := next(t, w).String(); got != tc.want {
				t.Errorf("the first event is %s, want %s", got, tc.want)
			}
		})
	}
	for _, tc := range []struct {
		method, path string
		want         int
	}{
		{"POST", "/apis/example.com/v1/watch/namespaces/default/widgets", http.StatusMethodNotAllowed},
		{"DELETE", "/apis/example.com/v1/watch/namespaces/default/widgets/a", http.StatusMethodNotAllowed},
		{"HEAD", "/apis/example.com/v1/watch/widgets", http.StatusMethodNotAllowed},
		{"GET", "/apis/example.com/v1/watch/gadgets", http.StatusNotFound},
		{"GET", "/apis/example.com/v1/watch/namespaces/default/widgets/a/status", http.StatusNotFound},
		{"GET", "/apis/example.com/v1/watch", http.StatusNotFound},
		{"GET", "/apis/example.com/v1/watch/widgets?labelSelector=a==b==c", http.StatusBadRequest},
	} {
		if res, body := s.Do(tc.method, tc.path, ""); res.StatusCode != tc.want {
			t.Errorf("%s %s: %s, want %d\n%s", tc.method, tc.path, res.Status, tc.want, body)
		}
	}
}

func TestWatchOfOneObjectHasOnlyThat(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	w := s.Watch(widgetsPath + "/b?watch=true")
	s.PostYAML(widgetsPath, widget("c"))
	s.PostYAML(widgetsPath, widget("b"))
	if got := next(t, w).String(); got != "ADDED b" {
		t.Errorf("the first event is %s", got)
	}
}

// TestWatchIsNeverIndented: clients split at newlines.
func TestWatchIsNeverIndented(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	res, body := s.Do("GET", widgetsPath+"?watch=true&pretty=true&timeoutSeconds=1", "", "User-Agent", "curl/8.5.0")
	if res.Header.Get("Content-Type") != "application/json" || res.Header.Get("Audit-Id") == "" || res.Header.Get("X-Content-Type-Options") != "nosniff" || res.Header.Get("Cache-Control") != "no-cache, private" {
		t.Errorf("headers: %v", res.Header)
	}
	if strings.Count(body, "\n") != 1 || !strings.HasPrefix(body, `{"type":"ADDED","object":{"`) || !strings.HasSuffix(body, "}\n") {
		t.Errorf("it is %q", body)
	}
}

// TestWatchAnswersAtOnce: the headers come before there is an event.
func TestWatchAnswersAtOnce(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	w := s.Watch("/apis/example.com/v1/namespaces/kube-system/widgets?watch=true") // returns with the headers
	defer w.Close()
	s.PostYAML("/apis/example.com/v1/namespaces/kube-system/widgets", widget("late"))
	if got := next(t, w).String(); got != "ADDED late" {
		t.Errorf("the first event is %s", got)
	}
}

func TestWatchOverHTTP10(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	c := dial(t, s)
	fmt.Fprintf(c, "GET %s?watch=true&timeoutSeconds=1 HTTP/1.0\r\n\r\n", widgetsPath)
	answer, err := io.ReadAll(c) // the end of the connection is the end
	if err != nil {
		t.Fatal(err)
	}
	head, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	if !strings.HasPrefix(head, "HTTP/1.0 200 OK") || strings.Contains(head, "chunked") {
		t.Errorf("the head is %s", head)
	}
	if !strings.HasPrefix(body, `{"type":"ADDED"`) || strings.Count(body, "\n") != 1 {
		t.Errorf("the body is %q", body)
	}
}

func dial(t *testing.T, s *servertest.Server) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// h2c returns a client that speaks HTTP/2 without TLS by prior knowledge.
func h2c(t *testing.T) *http.Client {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func TestHTTP2WithoutTLS(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 2 * time.Second })
	s.Client = h2c(t)
	if res, _ := s.Do("GET", widgetsPath, ""); res.ProtoMajor != 2 {
		t.Errorf("it was %s", res.Proto)
	}
	w := s.Watch(widgetsPath + "?watch=true")
	if got := next(t, w).String(); got != "ADDED a" {
		t.Errorf("the first event is %s", got)
	}
	// The stream must outlive the write timeout while nothing is being written.
	timer := time.NewTimer(2500 * time.Millisecond)
	<-timer.C
	s.PostYAML(widgetsPath, widget("b"))
	if got := next(t, w).String(); got != "ADDED b" {
		t.Errorf("the second event is %s", got)
	}
}

// TestUpgradeIsIgnored: h2c is never switched to, WebSocket only for watches, and CONNECT opens no tunnel.
func TestUpgradeIsIgnored(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for name, tc := range map[string]struct{ request, want string }{
		"h2c":             {"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, HTTP2-Settings, close\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", "HTTP/1.1 200 "},
		"websocket":       {"GET /version HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n", "HTTP/1.1 200 "},
		"websocket 1.0":   {"GET " + widgetsPath + "?watch=true&timeoutSeconds=1 HTTP/1.0\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: x\r\n\r\n", "HTTP/1.0 426 "},
		"connect":         {"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 "},
		"connect a path":  {"CONNECT /api HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 405 "},
		"absolute":        {"GET http://localhost/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 200 "},
		"absolute, other": {"GET http://evil.example/version HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 403 "},
		"asterisk":        {"OPTIONS * HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", "HTTP/1.1 400 "},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			io.WriteString(c, tc.request)
			answer, err := io.ReadAll(c)
			if err != nil || !strings.HasPrefix(string(answer), tc.want) {
				t.Errorf("%v: %.300s\nwant %s", err, answer, tc.want)
			}
		})
	}
}

// TestShutdownEndsWatches: whoever watches has every acknowledged write, a last bookmark, and a clean end.
func TestShutdownEndsWatches(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	var streams []*servertest.Stream
	for range 10 {
		streams = append(streams, s.Watch(widgetsPath+"?watch=true&allowWatchBookmarks=true"))
	}
	const writes = 50
	for i := range writes {
		s.PostYAML(widgetsPath, widget(fmt.Sprintf("w%d", i)))
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	for _, w := range streams {
		got := map[string]bool{}
		last := ""
		for {
			line, err := w.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || line != "" {
					t.Errorf("it ended with %v, %q", err, line)
				}
				break
			}
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			last = e.Type
			if e.Type == "ADDED" {
				got[e.Object.Metadata.Name] = true
			}
		}
		if len(got) != writes+1 || last != "BOOKMARK" {
			t.Errorf("%d objects and a %s at the end, want %d and a BOOKMARK", len(got), last, writes+1)
		}
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestDeafWatcher: one that takes nothing is cut off, and others aren't. No client takes it for a stream's end.
func TestDeafWatcher(t *testing.T) {
	t.Parallel()
	t.Run("HTTP/1.1", func(t *testing.T) {
		t.Parallel()
		testDeafWatcher(t, func(s *servertest.Server) io.Reader {
			c := dial(t, s)
			if err := c.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil { // else the kernel may take any number of megabytes
				t.Fatal(err)
			}
			fmt.Fprintf(c, "GET %s?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n", widgetsPath)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", res, err)
			}
			return res.Body
		})
	})
	t.Run("HTTP/2", func(t *testing.T) {
		t.Parallel()
		testDeafWatcher(t, func(s *servertest.Server) io.Reader {
			res, err := h2c(t).Get(s.URL + widgetsPath + "?watch=true")
			if err != nil || res.StatusCode != http.StatusOK {
				t.Fatalf("%v, %v", res, err)
			}
			t.Cleanup(func() { res.Body.Close() })
			return res.Body
		})
	})
}

func testDeafWatcher(t *testing.T, open func(s *servertest.Server) io.Reader) {
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 3 * time.Second })
	deaf := open(s)
	reader := s.Watch(widgetsPath + "?watch=true")
	next(t, reader)
	text := strings.Repeat("x", 1<<20)
	watches := func() string {
		for line := range strings.Lines(s.Get("/metrics")) {
			if strings.HasPrefix(line, "apiserver_longrunning_requests{") {
				return line[strings.LastIndexByte(line, ' ')+1:]
			}
		}
		return ""
	}
	for i := range 24 { // megabytes; the kernel takes some ten before it stops
		large := strings.Replace(widget(fmt.Sprintf("w%d", i)), `"size":1`, `"text":"`+text+`"`, 1)
		if res, body := s.Do("POST", widgetsPath, large); res.StatusCode != http.StatusCreated {
			t.Fatalf("%s: %s", res.Status, body)
		}
		if e := next(t, reader); len(e.Object.Spec.Text) != len(text) {
			t.Fatalf("the other watcher got %s", e)
		}
	}
	until(t, "the one that takes nothing is cut off", func() bool { return watches() == "1\n" })
	s.PostYAML(widgetsPath, widget("late"))
	next(t, reader)
	if _, err := io.ReadAll(deaf); err == nil {
		t.Error("it ended as if it were whole")
	}
}
