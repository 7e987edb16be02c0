package server_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// socket is the client's side of a watch over WebSocket.
type socket struct {
	*websocket.Conn
	t *testing.T
}

func (s socket) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	s.t.Cleanup(cancel)
	return ctx
}

// openSocket opens a watch over WebSocket. headers are names and values in turn.
func openSocket(t *testing.T, s *servertest.Server, path string, protocols []string, headers ...string) socket {
	t.Helper()
	c, res, err := dialSocket(t, s, path, protocols, headers...)
	if err != nil {
		t.Fatalf("%v: %+v", err, res)
	}
	return c
}

func dialSocket(t *testing.T, s *servertest.Server, path string, protocols []string, headers ...string) (socket, *http.Response, error) {
	t.Helper()
	header := http.Header{}
	for i := 0; i < len(headers); i += 2 {
		header.Add(headers[i], headers[i+1])
	}
	conn, res, err := websocket.Dial(t.Context(), s.URL+path, &websocket.DialOptions{HTTPClient: s.Client, HTTPHeader: header, Subprotocols: protocols})
	if err == nil {
		conn.SetReadLimit(-1)
		t.Cleanup(func() { conn.CloseNow() })
	}
	return socket{conn, t}, res, err
}

// next returns the next message, which must be a whole event as text.
func (s socket) next() event {
	s.t.Helper()
	kind, message, err := s.Read(s.context())
	if err != nil {
		s.t.Fatalf("the watch ended: %v", err)
	}
	var e event
	if kind != websocket.MessageText {
		s.t.Errorf("a message is %v", kind)
	} else if err := json.Unmarshal(message, &e); err != nil {
		s.t.Fatalf("%v in %q", err, message)
	}
	return e
}

// closed returns the code with which the server ended the watch, after what is still to be read.
func (s socket) closed() websocket.StatusCode {
	s.t.Helper()
	for {
		if _, _, err := s.Read(s.context()); err != nil {
			return websocket.CloseStatus(err)
		}
	}
}

// TestWebSocket: the same events as over HTTP, one text message each, and a clean end.
func TestWebSocket(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*servertest.Server{"plain": newWidgets(t), "TLS": newSecureWidgets(t, false)} {
		t.Run(name, func(t *testing.T) {
			s := s.In(t)
			for i := range 300 {
				s.PostYAML(widgetsPath, strings.Replace(widget(fmt.Sprintf("w%03d", i)), `"size":1`, fmt.Sprintf(`"text":%q`, strings.Repeat("x", i*3)), 1))
			}
			path := widgetsPath + "?watch=true&timeoutSeconds=5&allowWatchBookmarks=true"
			c, lines := openSocket(t, s, path, nil), s.Watch(path)
			s.PostYAML(widgetsPath, widget("z-late"))
			for i := 0; ; i++ {
				_, message, err := c.Read(c.context())
				line, lineErr := lines.Next()
				if err != nil || lineErr != nil {
					if websocket.CloseStatus(err) != websocket.StatusNormalClosure || lineErr != io.EOF || i < 302 {
						t.Errorf("after %d events the WebSocket ends with %v and the stream with %v", i, err, lineErr)
					}
					break
				}
				if string(message) != line+"\n" {
					t.Fatalf("event %d is %q over WebSocket, %q over HTTP", i, message, line)
				}
			}
		})
	}
}

// TestWebSocketSubprotocols: one of those that the client names is chosen, and none changes what comes.
func TestWebSocketSubprotocols(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct {
		name, want string
		offered    []string
	}{
		{"none", "", nil},
		{"base64, which is for logs", "base64.binary.k8s.io", []string{"base64.binary.k8s.io"}},
		{"several", "binary.k8s.io", []string{"binary.k8s.io", "base64.binary.k8s.io"}},
		{"a token where none is asked for", "x", []string{"base64url.bearer.authorization.k8s.io.YQ", "x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := openSocket(t, s, widgetsPath+"?watch=true", tc.offered)
			if got := c.Subprotocol(); got != tc.want {
				t.Errorf("it is %q, want %q", got, tc.want)
			}
			if got := c.next().String(); got != "ADDED a" {
				t.Errorf("the first event is %s", got)
			}
		})
	}
}

// TestWebSocketToken: a web page, which can't set a header, sends its token as a subprotocol.
func TestWebSocketToken(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Token = "s3cret" })
	protocol := func(token string) string {
		return "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte(token))
	}
	for _, tc := range []struct {
		name, authorization string
		offered             []string
		want                int
	}{
		{"right", "", []string{protocol("s3cret"), "binary.k8s.io"}, http.StatusSwitchingProtocols},
		{"in the header", "Bearer s3cret", nil, http.StatusSwitchingProtocols},
		{"wrong", "", []string{protocol("secret"), "binary.k8s.io"}, http.StatusUnauthorized},
		{"wrong in the header", "Bearer secret", []string{protocol("s3cret"), "binary.k8s.io"}, http.StatusUnauthorized},
		{"no base64", "", []string{"base64url.bearer.authorization.k8s.io.!", "binary.k8s.io"}, http.StatusUnauthorized},
		{"none", "", []string{"binary.k8s.io"}, http.StatusUnauthorized},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, res, err := dialSocket(t, s, "/api/v1/namespaces?watch=true", tc.offered, "Authorization", tc.authorization)
			if res == nil || res.StatusCode != tc.want {
				t.Fatalf("%+v, %v", res, err)
			}
			if err == nil && c.next().Type != "ADDED" {
				t.Error("no event came")
			}
		})
	}
	if res, body := s.Do("GET", "/api/v1/namespaces", "", "Sec-WebSocket-Protocol", protocol("s3cret")); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("without an upgrade the token of a subprotocol lets in: %s %s", res.Status, body)
	}
}

// TestWebSocketOrigin: a page of another site must not read what a browser would hand over to it.
func TestWebSocketOrigin(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct {
		name    string
		headers []string
		want    int
	}{
		{"a program", nil, http.StatusSwitchingProtocols},
		{"our own page", []string{"Origin", s.URL}, http.StatusSwitchingProtocols},
		{"our own page, says the browser", []string{"Origin", s.URL, "Sec-Fetch-Site", "same-origin"}, http.StatusSwitchingProtocols},
		{"another site", []string{"Origin", "https://evil.example"}, http.StatusForbidden},
		{"another site, says the browser", []string{"Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site"}, http.StatusForbidden},
		{"another port", []string{"Origin", "http://127.0.0.1:1"}, http.StatusForbidden},
		{"null", []string{"Origin", "null"}, http.StatusForbidden},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, res, err := dialSocket(t, s, widgetsPath+"?watch=true", nil, tc.headers...)
			if res == nil || res.StatusCode != tc.want {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
}

// TestWebSocketRefusals: what is wrong with a request is a Status and not an end of a WebSocket.
func TestWebSocketRefusals(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const key, version = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", "Sec-WebSocket-Version: 13\r\n"
	for _, tc := range []struct {
		name, path, headers, want string
		reason                    string
	}{
		{"no key", widgetsPath + "?watch=1", version, "HTTP/1.1 400 ", "BadRequest"},
		{"a key that is none", widgetsPath + "?watch=1", version + "Sec-WebSocket-Key: x\r\n", "HTTP/1.1 400 ", "BadRequest"},
		{"an old version", widgetsPath + "?watch=1", "Sec-WebSocket-Version: 8\r\n" + key, "HTTP/1.1 400 ", "BadRequest"},
		{"a bad selector", widgetsPath + "?watch=1&labelSelector=a==b==c", version + key, "HTTP/1.1 400 ", "BadRequest"},
		{"a path that isn't served", "/api/v1/gadgets?watch=1", version + key, "HTTP/1.1 404 ", "NotFound"},
		{"a list, which is only answered", "/api/v1/namespaces?limit=1", version + key, "HTTP/1.1 200 ", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := dial(t, s)
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n%s\r\n", tc.path, tc.headers)
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var status struct{ Kind, Reason string }
			if err := json.NewDecoder(res.Body).Decode(&status); err != nil || !strings.HasPrefix("HTTP/1.1 "+res.Status, tc.want) || status.Reason != tc.reason {
				t.Errorf("%s: %+v, %v", res.Status, status, err)
			}
		})
	}
	if n := openWatches(s); n != 0 {
		t.Errorf("%d watches are left open", n)
	}
}

// TestWebSocketError: an ERROR event is a message, too, and the last one.
func TestWebSocketError(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	c := openSocket(t, s, widgetsPath+"?watch=true&resourceVersion=99999999", nil)
	var e struct {
		Type   string
		Object struct{ Code int }
	}
	_, message, err := c.Read(c.context())
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(message, &e); err != nil || e.Type != "ERROR" || e.Object.Code != http.StatusGone {
		t.Errorf("%v: %s", err, message)
	}
	if code := c.closed(); code != websocket.StatusNormalClosure {
		t.Errorf("it ended with %v", code)
	}
}

// TestWebSocketTalk: pings are answered, those that come with the request too; whatever else a client sends is ignored.
func TestWebSocketTalk(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	c := openSocket(t, s, empty+"?watch=true", nil)
	if err := c.Write(c.context(), websocket.MessageBinary, bytes.Repeat([]byte("talk"), 1<<20)); err != nil {
		t.Fatal(err)
	}
	pinged := make(chan error, 1)
	go func() { pinged <- c.Ping(c.context()) }()
	pings := 0
	created := make(chan struct{})
	go func() {
		defer close(created)
		if err := <-pinged; err == nil {
			pings++
		}
		s.Do("POST", empty, widget("late"))
	}()
	if got := c.next().String(); got != "ADDED late" {
		t.Errorf("the first event is %s", got)
	}
	<-created
	if pings != 1 {
		t.Error("a ping isn't answered")
	}

	raw := dial(t, s)
	ping := "\x89\x83\x00\x00\x00\x00abc" // masked with zeros
	fmt.Fprintf(raw, "GET %s?watch=1&fieldSelector=metadata.name=none HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n%s%s", empty, ping, ping)
	in := bufio.NewReader(raw)
	res, err := http.ReadResponse(in, nil)
	if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Sec-WebSocket-Accept") != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" {
		t.Fatalf("%+v, %v", res, err)
	}
	pongs := make([]byte, 2*len("\x8a\x03abc"))
	if _, err := io.ReadFull(in, pongs); err != nil || string(pongs) != "\x8a\x03abc\x8a\x03abc" {
		t.Errorf("pings are answered with %q, %v", pongs, err)
	}
}

// TestWebSocketClientCloses: the client's end of the WebSocket ends the watch, and is answered.
func TestWebSocketClientCloses(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, tc := range []struct {
		name  string
		leave func(socket) error
	}{
		{"in order", func(c socket) error { return c.Close(websocket.StatusGoingAway, "the page is closed") }},
		{"abruptly", func(c socket) error { return c.CloseNow() }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := openSocket(t, s, widgetsPath+"?watch=true", nil)
			c.next()
			awaitIt(t, func() bool { return openWatches(s) == 1 })
			if err := tc.leave(c); err != nil {
				t.Errorf("the end isn't answered: %v", err)
			}
			awaitIt(t, func() bool { return openWatches(s) == 0 })
		})
	}
}

// TestWebSocketShutdown: every acknowledged write, a last bookmark, and a clean end.
func TestWebSocketShutdown(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	c := openSocket(t, s, widgetsPath+"?watch=true&allowWatchBookmarks=true", nil)
	for i := range 50 {
		s.PostYAML(widgetsPath, widget(fmt.Sprintf("w%d", i)))
	}
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	names := map[string]bool{}
	last := ""
	for {
		_, message, err := c.Read(c.context())
		if err != nil {
			if code := websocket.CloseStatus(err); code != websocket.StatusNormalClosure {
				t.Errorf("it ended with %v", err)
			}
			break
		}
		var e event
		if err := json.Unmarshal(message, &e); err != nil {
			t.Fatal(err)
		}
		if last = e.Type; last == "ADDED" {
			names[e.Object.Metadata.Name] = true
		}
	}
	if len(names) != 51 || last != "BOOKMARK" {
		t.Errorf("%d objects and a %s at the end, want 51 and a BOOKMARK", len(names), last)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestWebSocketDeaf: a client that takes nothing is cut off in time.
func TestWebSocketDeaf(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 200 * time.Millisecond })
	big := makeWidgets(t, s, 1, 1<<20)
	c := connect(t, s)
	fmt.Fprintf(c, "GET %s?watch=1 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", widgetsPath)
	rewrite(t, s, big, 8) // more than kernels take
	awaitIt(t, func() bool { return openWatches(s) == 0 })
}

// TestWebSocketIdle: an idle watch over WebSocket costs as many goroutines as one over HTTP: one that writes and one that
// reads.
func TestWebSocketIdle(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const watches = 20
	for range watches {
		openSocket(t, s, empty+"?watch=true", nil)
	}
	awaitIt(t, func() bool {
		return openWatches(s) == watches && goroutines(t, s, "server.(*handler).streamOn") == watches &&
			goroutines(t, s, "wire.(*webSocket).listen") == watches && goroutines(t, s, "server.(*handler).ServeHTTP") <= 1
	})
}
