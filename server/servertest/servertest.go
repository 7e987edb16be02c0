// Package servertest starts API servers for tests: real ones, with an etcd of their own, in a few
// milliseconds.
//
//	func TestController(t *testing.T) {
//		s := servertest.New(t)
//		s.PostYAML("/api/v1/namespaces", "metadata: {name: shop}")
//		…
//	}
//
// Subtests that share a server each take it with In:
//
//	t.Run("closes", func(t *testing.T) {
//		s := s.In(t)
//		…
//	})
//
// A test's server is closed when the test ends, which fails it if the server's caches differ from
// its etcd, or if a goroutine that the server started is left. Tests with servers can run in
// parallel.
package servertest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/pprof"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// patience is how long starting, closing and looking for leaks may each take before the test fails, also
// with the race detector on a machine that does much else.
const patience = time.Minute

// Server is a running server.
type Server struct {
	*server.Server
	// URL is "http://127.0.0.1:PORT" unless an option changed it.
	URL string
	// Client has no timeout, so that it can watch. Requests of the test's own client are as good.
	Client *http.Client

	t testing.TB
}

// New starts a server with nothing in it but what every server has, and returns when it's ready. It is
// Ephemeral and listens on a free port of 127.0.0.1; its log, from warnings on, goes to the test's.
// Options may set more, and what they set wins.
func New(t testing.TB, options ...func(*server.Server)) *Server {
	t.Helper()
	s := &server.Server{
		Serving: server.Serving{Listen: "127.0.0.1:0"},
		Data:    server.Data{Ephemeral: true, Dir: t.TempDir()},
		Log:     slog.New(slog.NewTextHandler(logWriter{t}, &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, option := range options {
		option(s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var err error
	// Goroutines inherit labels from the one that starts them: that's how this server's are known.
	label := fmt.Sprintf("%p", s)
	pprof.Do(ctx, pprof.Labels(labelKey, label), func(ctx context.Context) { err = s.Start(ctx) })
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
	t.Cleanup(func() { end(t, s, client, label) })
	return &Server{Server: s, URL: s.URL(), Client: client, t: t}
}

// In returns the same server for another test, which its methods then fail instead of the one that started it: a subtest needs
// that, because nobody may call its parent's FailNow.
func (s *Server) In(t testing.TB) *Server {
	in := *s
	in.t = t
	return &in
}

// end is prove with its patience.
func end(t testing.TB, s *server.Server, client *http.Client, label string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	prove(ctx, t, s, client, label)
}

// prove closes the server and proves that it was sound.
func prove(ctx context.Context, t testing.TB, s *server.Server, client *http.Client, label string) {
	select {
	case <-s.Closed(): // by the test
	default:
		if err := s.Verify(ctx); err != nil {
			t.Errorf("the caches differ from etcd: %v", err)
		}
	}
	client.CloseIdleConnections()
	if err := s.Close(); err != nil {
		t.Errorf("close the server: %v", err)
	}
	if left := awaitNone(ctx, func() string { return labelled(label) }); left != "" {
		t.Errorf("the server left goroutines behind:\n%s", left)
	}
	left := awaitNone(ctx, func() string {
		if err := s.Leftovers(); err != nil {
			return err.Error()
		}
		return ""
	})
	if left != "" {
		t.Errorf("the server holds what nobody gave back:\n%s", left)
	}
}

const labelKey = "apiserver-lite"

// awaitNone returns what is still left when ctx ends: "" as soon as there is nothing. (A goroutine that has told its owner
// that it's done needs a moment to go.)
func awaitNone(ctx context.Context, what func() string) string {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		left := what()
		if left == "" {
			return ""
		}
		select {
		case <-ctx.Done():
			return left
		case <-tick.C:
		}
	}
}

// labelled returns the part of the goroutine profile that carries the label.
func labelled(label string) string {
	var profile bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	mark := fmt.Sprintf("%q:%q", labelKey, label)
	var found []string
	for block := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(block, mark) {
			found = append(found, block)
		}
	}
	return strings.Join(found, "\n\n")
}

// Do sends a request and returns the answer, whose body has been read into the string. headers are
// names and values in turn. It fails the test only if there is no answer, or a header has no value.
func (s *Server) Do(method, path, body string, headers ...string) (*http.Response, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.URL+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if len(headers)%2 != 0 {
		s.t.Fatalf("%s %s: the header %q has no value", method, path, headers[len(headers)-1])
	}
	for i := 0; i < len(headers); i += 2 {
		if strings.EqualFold(headers[i], "Host") {
			r.Host = headers[i+1]
		}
		r.Header.Add(headers[i], headers[i+1])
	}
	res, err := s.Client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Fatalf("%s %s: read the answer: %v", method, path, err)
	}
	return res, string(answer)
}

// Get returns the answer's body, and fails the test unless it's a 200.
func (s *Server) Get(path string) string {
	s.t.Helper()
	return s.expect(http.StatusOK, http.MethodGet, path, "")
}

// PostYAML creates an object from YAML or JSON and returns it as JSON. It fails the test unless it was
// created.
func (s *Server) PostYAML(path, object string) string {
	s.t.Helper()
	return s.expect(http.StatusCreated, http.MethodPost, path, object, "Content-Type", "application/yaml")
}

// Reset takes the server back to how it started, definitions too. It's for servers that are Ephemeral. Open watches end with
// an ERROR event of code 410.
func (s *Server) Reset() {
	s.t.Helper()
	s.expect(http.StatusOK, http.MethodPost, "/debug/reset", "")
}

// Snapshot gives what the server holds now a name, for ResetTo. A name may be used again, and then means the newer state.
func (s *Server) Snapshot(name string) {
	s.t.Helper()
	s.expect(http.StatusOK, http.MethodPost, "/debug/snapshot?name="+url.QueryEscape(name), "")
}

// ResetTo takes the server back to what Snapshot gave a name. Otherwise it's like Reset.
func (s *Server) ResetTo(name string) {
	s.t.Helper()
	s.expect(http.StatusOK, http.MethodPost, "/debug/reset?to="+url.QueryEscape(name), "")
}

// Held is an object that is being deleted, and that the server doesn't remove: finalizers of others keep it, or a grace
// period, as a Pod on a node has.
type Held struct {
	APIVersion, Kind, Namespace, Name, UID string
	Finalizers                             []string
	DeletionGracePeriodSeconds             int64
}

// Quiescent waits until the server has done everything that follows from what was written before the call: dependents and
// the contents of namespaces and definitions are gone, except what the answer lists, 1,000 objects at most. It fails the
// test if that takes too long, and says what is left to do.
func (s *Server) Quiescent() []Held {
	s.t.Helper()
	var page struct{ Held []Held }
	if err := json.Unmarshal([]byte(s.Get("/debug/quiescent?timeout="+patience.String())), &page); err != nil {
		s.t.Fatal(err)
	}
	return page.Held
}

func (s *Server) expect(code int, method, path, body string, headers ...string) string {
	s.t.Helper()
	res, answer := s.Do(method, path, body, headers...)
	if res.StatusCode != code {
		s.t.Fatalf("%s %s: %s, want %d\n%s", method, path, res.Status, code, answer)
	}
	return answer
}

// Watch opens a watch, whose path has its query, and returns its lines. It ends with the test.
func (s *Server) Watch(path string) *Stream {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, s.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	res, err := s.Client.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	if res.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(res.Body)
		res.Body.Close()
		s.t.Fatalf("GET %s: %s\n%s", path, res.Status, answer)
	}
	return &Stream{res.Body, bufio.NewReader(res.Body)}
}

// Stream is an open watch.
type Stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// Next blocks for the next event and returns its line, without the newline. io.EOF is the clean end.
func (w *Stream) Next() (string, error) {
	line, err := w.lines.ReadString('\n')
	if err != nil && line != "" {
		return line, io.ErrUnexpectedEOF
	}
	return strings.TrimSuffix(line, "\n"), err
}

// Close ends the watch.
func (w *Stream) Close() error { return w.body.Close() }

// logWriter sends lines to the test's log. What comes after the test has ended is dropped by the
// testing package's rules, so it must not come: the server is closed by then.
type logWriter struct{ t testing.TB }

func (w logWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}
