package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime/pprof"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// newSecureWidgets is newWidgets over TLS. Its client speaks HTTP/1.1 only, or HTTP/2.
func newSecureWidgets(t *testing.T, http2 bool) *servertest.Server {
	t.Helper()
	s := servertest.New(t, func(s *server.Server) { s.TLS.On = true })
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: rootsOf(t, s)}, Protocols: new(http.Protocols)}
	transport.Protocols.SetHTTP1(!http2)
	transport.Protocols.SetHTTP2(http2)
	t.Cleanup(transport.CloseIdleConnections)
	s.Client = &http.Client{Transport: transport}
	s.PostYAML(definitionsPath, widgets)
	s.PostYAML(widgetsPath, widget("a"))
	return s
}

func rootsOf(t *testing.T, s *servertest.Server) *x509.CertPool {
	t.Helper()
	certificate, err := os.ReadFile(filepath.Join(s.Dir(), "tls.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificate)
	return roots
}

// connect opens a connection, with TLS if that's what the server speaks, whose kernel takes little of what isn't read.
func connect(t *testing.T, s *servertest.Server) net.Conn {
	t.Helper()
	address, secure := strings.CutPrefix(s.URL, "https://")
	c, err := net.Dial("tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil {
		t.Fatal(err)
	}
	if secure {
		return tls.Client(c, &tls.Config{RootCAs: rootsOf(t, s), ServerName: "localhost"})
	}
	return c
}

// begin sends a request and returns the connection's reader, after the head of the answer, which must be a 200.
func begin(t *testing.T, c net.Conn, request string) (head string, rest *bufio.Reader) {
	t.Helper()
	io.WriteString(c, request)
	rest = bufio.NewReader(c)
	for !strings.HasSuffix(head, "\r\n\r\n") {
		line, err := rest.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, head+line)
		}
		head += line
	}
	if !regexp.MustCompile(`^HTTP/1\.[01] 200 `).MatchString(head) {
		t.Fatalf("the head is %s", head)
	}
	return head, rest
}

const empty = "/apis/example.com/v1/namespaces/kube-system/widgets"

// TestTakenOverWire looks at the bytes of watches over HTTP/1: the head comes before there's an event, each
// batch is one chunk, and only an answer that's whole has the last one.
func TestTakenOverWire(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*servertest.Server{"plain": newWidgets(t), "TLS": newSecureWidgets(t, false)} {
		from := now(t, s, empty)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, version := range []string{"1.1", "1.0"} {
				t.Run(version, func(t *testing.T) {
					s := s.In(t)
					t.Parallel()
					chunked := version == "1.1"
					c := connect(t, s)
					head, rest := begin(t, c, fmt.Sprintf("GET %s?watch=true&resourceVersion=%d&timeoutSeconds=8&fieldSelector=metadata.name%%3Dlate%s HTTP/%s\r\nHost: localhost\r\n\r\n", empty, from, version[2:], version))
					if strings.Contains(head, "\r\nTransfer-Encoding: chunked\r\n") != chunked || !strings.Contains(head, "\r\nConnection: close\r\n") && chunked ||
						strings.Contains(head, "Content-Length") || !strings.Contains(head, "\r\nContent-Type: application/json\r\n") {
						t.Errorf("the head is %s", head)
					}
					s.PostYAML(empty, widget("late"+version[2:]))
					if chunked {
						size, err := rest.ReadString('\n')
						if err != nil {
							t.Fatal(err)
						}
						n, err := strconv.ParseInt(strings.TrimSuffix(size, "\r\n"), 16, 64)
						if err != nil {
							t.Fatalf("a chunk begins with %q", size)
						}
						chunk := make([]byte, n+2)
						if _, err := io.ReadFull(rest, chunk); err != nil || !bytes.HasPrefix(chunk, []byte(`{"type":"ADDED"`)) || !bytes.HasSuffix(chunk, []byte("}\n\r\n")) {
							t.Errorf("the chunk is %q, %v", chunk, err)
						}
					} else if line, err := rest.ReadString('\n'); err != nil || !strings.HasPrefix(line, `{"type":"ADDED"`) {
						t.Errorf("the line is %q, %v", line, err)
					}
					end, err := io.ReadAll(rest)
					if want := map[bool]string{true: "0\r\n\r\n", false: ""}[chunked]; err != nil || string(end) != want {
						t.Errorf("at the end comes %q, %v, want %q", end, err, want)
					}
				})
			}
		})
	}
}

// TestTalkIsIgnored: what the client of a watch sends after its request is nothing that anyone answers, or
// that fills memory.
func TestTalkIsIgnored(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	second := "GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
	c := connect(t, s)
	_, rest := begin(t, c, "GET "+empty+"?watch=true&timeoutSeconds=8 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody"+second)
	for range 100 {
		if _, err := io.WriteString(c, second+strings.Repeat("talk", 10_000)); err != nil {
			t.Fatal(err)
		}
	}
	s.PostYAML(empty, widget("late"))
	answer, err := io.ReadAll(rest)
	if err != nil && !strings.Contains(err.Error(), "reset") || strings.Contains(string(answer), "HTTP/1.1") || strings.Count(string(answer), "\n{") > 1 ||
		!strings.Contains(string(answer), `"name":"late"`) || !strings.HasSuffix(string(answer), "}\n\r\n0\r\n\r\n") {
		t.Errorf("%v after %.500q", err, answer)
	}
}

// TestCutOffIsSeen: an answer that the server had to break off doesn't look whole.
func TestCutOffIsSeen(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*servertest.Server{
		"plain": newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 200 * time.Millisecond }),
		"TLS":   newSecureWidgets(t, false),
	} {
		t.Run(name, func(t *testing.T) {
			big := makeWidgets(t, s, 1, 1<<20)
			c := connect(t, s)
			begin(t, c, fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", after(now(t, s, widgetsPath))))
			rewrite(t, s, big, 8) // more than kernels take
			if name == "TLS" {    // its deadline is a minute: it's the shutdown that breaks it off
				awaitIt(t, func() bool { return watchersOf(t, s).Watchers[0].LagEvents > 0 })
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			} else {
				awaitIt(t, func() bool { return openWatches(s) == 0 })
			}
			answer, err := io.ReadAll(c)
			if bytes.HasSuffix(answer, []byte("0\r\n\r\n")) {
				t.Errorf("it ends as if it were whole, with %v", err)
			}
		})
	}
}

// goroutines counts a server's goroutines that are in a function, by its name in the package.
func goroutines(t *testing.T, s *servertest.Server, function string) (n int) {
	t.Helper()
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		t.Fatal(err)
	}
	label := fmt.Sprintf(`:"%p"`, s.Server)
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, label) && strings.Contains(block, "/"+function+"+") {
			var many int
			if _, err := fmt.Sscan(block[strings.LastIndexByte(block[:strings.Index(block, " @")], '\n')+1:], &many); err != nil {
				t.Fatalf("%v in %s", err, block)
			}
			n += many
		}
	}
	return n
}

// TestClientLeaves: a watch ends when its client goes, however it goes.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*servertest.Server{"plain": newWidgets(t), "TLS": newSecureWidgets(t, false)} {
		t.Run(name, func(t *testing.T) {
			const clients = 30
			var connections []net.Conn
			for range clients {
				c := connect(t, s)
				begin(t, c, "GET "+empty+"?watch=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
				connections = append(connections, c)
			}
			// The client has its headers when the last of the goroutines is about to begin.
			awaitIt(t, func() bool {
				open, streams, readers := openWatches(s), goroutines(t, s, "server.(*handler).streamOn"), goroutines(t, s, "wire.awaitClient")
				handlers := goroutines(t, s, "server.(*handler).ServeHTTP") // one may be of the request for metrics
				return open == clients && streams >= clients && readers == clients && handlers <= 1
			})
			for i, c := range connections {
				tcp, _ := c.(*net.TCPConn)
				switch {
				case tcp != nil && i%3 == 0:
					tcp.SetLinger(0) // a reset
					c.Close()
				case tcp != nil && i%3 == 1:
					tcp.CloseWrite()
				default:
					c.Close()
				}
			}
			awaitIt(t, func() bool { return openWatches(s) == 0 })
			awaitIt(t, func() bool {
				return goroutines(t, s, "server.(*handler).streamOn")+goroutines(t, s, "wire.awaitClient") == 0
			})
		})
	}
}

// TestResetBeforeTheHead: a watch ends although its client has reset the connection before the head of the answer was out,
// so that no stream ever began.
func TestResetBeforeTheHead(t *testing.T) {
	t.Parallel()
	const clients = 300
	request := "GET " + empty + "?watch=true HTTP/1.1\r\nHost: localhost\r\n"
	for name, headers := range map[string]string{
		"chunks":    "",
		"WebSocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newWidgets(t)
			for range clients {
				c := connect(t, s)
				if _, err := io.WriteString(c, request+headers+"\r\n"); err != nil {
					t.Fatal(err)
				}
				c.(*net.TCPConn).SetLinger(0)
				c.Close()
			}
			awaitIt(t, func() bool { return openWatches(s) == 0 && len(watchersOf(t, s).Groups) == 0 })
		})
	}
}

// TestPanicInAStream: code that a Go program brings fails while a watch is shown. That watch is cut off, and
// nothing else happens.
func TestPanicInAStream(t *testing.T) {
	t.Parallel()
	var log await.Log
	const path = "/apis/example.com/v1/gadgets"
	s := servertest.New(t, func(s *server.Server) {
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[gadget]{Group: "example.com", Version: "v1", Kind: "Gadget", ClusterScoped: true,
				Columns: []registry.Column{{Name: "Boom", Type: "string", JSONPath: ".metadata.name", Cell: func(any) any { panic("deliberate") }}}})
		}
	})
	c := connect(t, s)
	_, rest := begin(t, c, "GET "+path+"?watch=true HTTP/1.1\r\nHost: localhost\r\nAccept: application/json;as=Table;v=v1;g=meta.k8s.io\r\nAudit-Id: id-8\r\n\r\n")
	other := s.Watch(path + "?watch=true")
	var overHTTP2 *http.Response
	{
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		if overHTTP2, err = h2c(t).Do(r); err != nil {
			t.Fatal(err)
		}
		defer overHTTP2.Body.Close()
	}
	for _, name := range []string{"a", "b"} {
		s.PostYAML(path, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"`+name+`"}}`)
		if got := next(t, other).String(); got != "ADDED "+name {
			t.Errorf("the other watch got %s", got)
		}
	}
	if answer, _ := io.ReadAll(rest); len(answer) != 0 {
		t.Errorf("the watch ended with %q", answer)
	}
	if answer, err := io.ReadAll(overHTTP2.Body); err == nil || len(answer) != 0 {
		t.Errorf("the watch over HTTP/2 ended with %q, %v", answer, err)
	}
	awaitIt(t, func() bool { return strings.Contains(s.Get("/metrics"), "apiserver_request_panics_total 2") })
	if text := log.String(); !strings.Contains(text, "deliberate") || !strings.Contains(text, "audit_id=id-8") {
		t.Errorf("the log has no cause or id: %s", text)
	}
	awaitIt(t, func() bool { return openWatches(s) == 1 })
	s.PostYAML(path, `{"apiVersion":"example.com/v1","kind":"Gadget","metadata":{"name":"c"}}`)
	if got := next(t, other).String(); got != "ADDED c" {
		t.Errorf("afterwards the other watch got %s", got)
	}
}

// TestShutdownOfMany ends a server with two hundred watches, some of which never read.
func TestShutdownOfMany(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	big := makeWidgets(t, s, 1, 1<<20)
	loud := after(now(t, s, widgetsPath))
	silent := stalling(t, s)
	for range 40 {
		silent.Watch(loud)
	}
	overHTTP2 := *s
	overHTTP2.Client = h2c(t)
	for range 10 {
		overHTTP2.Watch(loud + "&allowWatchBookmarks=true")
	}
	var readers []*servertest.Stream
	from := now(t, s, empty)
	for i := range 150 {
		with := []*servertest.Server{s, &overHTTP2}[i%2]
		readers = append(readers, with.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d&allowWatchBookmarks=true", empty, from)))
	}
	rewrite(t, s, big, 8)
	awaitIt(t, func() bool {
		behind := 0
		for _, w := range watchersOf(t, s).Watchers {
			if w.LagEvents > 0 {
				behind++
			}
		}
		return behind == 50
	})
	last := versionIn(s.PostYAML(empty, widget("last")))

	// Ten seconds are what docs/operations.md promises of a stop.
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Fatal("it takes longer than ten seconds")
	}
	for i, w := range readers {
		if got := next(t, w); got.String() != "ADDED last" {
			t.Fatalf("reader %d got %s at %s, and the event is at %d", i, got, got.Object.Metadata.ResourceVersion, last)
		}
		if got := next(t, w); got.Type != "BOOKMARK" || got.Object.Metadata.ResourceVersion != strconv.FormatInt(last, 10) {
			t.Errorf("reader %d got %s at %s, and not a bookmark at %d", i, got, got.Object.Metadata.ResourceVersion, last)
		}
		if line, err := w.Next(); !errors.Is(err, io.EOF) || line != "" {
			t.Errorf("reader %d got %q, %v, and not a clean end", i, line, err)
		}
	}
}
