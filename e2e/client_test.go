package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

const (
	definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	widgets     = "/apis/example.com/v1/namespaces/default/widgets"
)

// client talks to one server.
type client struct {
	t    *testing.T
	base string // what paths are appended to
	http *http.Client
}

// newClient takes the URL as the server says it.
func newClient(t *testing.T, url string) *client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	if path, ok := strings.CutPrefix(url, "unix:"); ok {
		url = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		}
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t, url, &http.Client{Transport: transport}}
}

// object is what the tests look at in an object, or in a Status.
type object struct {
	Kind     string
	Metadata struct {
		Name, UID, ResourceVersion, CreationTimestamp string
		Labels                                        map[string]string
	}
	Spec struct {
		Color string
		Size  int64
	}
	Data    map[string]string // of a ConfigMap
	Status  json.RawMessage
	Reason  string
	Message string
	Code    int
	Items   []object
}

// rv returns the resourceVersion as a number.
func (o object) rv(t testing.TB) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion %q of %s %q is no number", o.Metadata.ResourceVersion, o.Kind, o.Metadata.Name)
	}
	return n
}

// answer is a response that arrived whole.
type answer struct {
	code   int
	header http.Header
	body   string
	object object
}

// try sends a request. An error means that there was no whole answer. headers are names and values in turn.
func (c *client) try(method, path, body string, headers ...string) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return c.tryWithin(ctx, method, path, body, headers...)
}

func (c *client) tryWithin(ctx context.Context, method, path, body string, headers ...string) (answer, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	if host := r.Header.Get("Host"); host != "" {
		r.Host = host
	}
	res, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer res.Body.Close()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		return answer{}, err
	}
	a := answer{code: res.StatusCode, header: res.Header, body: string(content)}
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(content, &a.object); err != nil {
			return answer{}, fmt.Errorf("%s %s answered %q: %w", method, path, content, err)
		}
	}
	return a, nil
}

// do sends a request and fails the test unless it's answered with the code.
func (c *client) do(code int, method, path, body string, headers ...string) answer {
	c.t.Helper()
	a, err := c.try(method, path, body, headers...)
	if err != nil {
		c.t.Fatal(err)
	}
	if a.code != code {
		c.t.Fatalf("%s %s answered %d, want %d:\n%s", method, path, a.code, code, a.body)
	}
	return a
}

// define posts the definition of widgets.
func (c *client) define(headers ...string) {
	c.t.Helper()
	definition, err := os.ReadFile("../testdata/crds/widgets.yaml")
	if err != nil {
		c.t.Fatal(err)
	}
	c.do(http.StatusCreated, "POST", definitions, string(definition), append(headers, "Content-Type", "application/yaml")...)
}

// widget returns a widget's JSON.
func widget(name string, size int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":{"tier":"front"}},"spec":{"size":%d}}`, name, size)
}

// metric returns a value of /metrics: that of the first line which begins so; 0 without one.
func (c *client) metric(line string) float64 {
	c.t.Helper()
	for l := range strings.Lines(c.do(http.StatusOK, "GET", "/metrics", "").body) {
		if strings.HasPrefix(l, line) {
			fields := strings.Fields(l)
			value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
			if err != nil {
				c.t.Fatalf("metric %q: %v", l, err)
			}
			return value
		}
	}
	return 0
}

// event is one line of a watch.
type event struct {
	Type   string
	Object object
}

// stream is an open watch.
type stream struct {
	t     *testing.T
	body  io.ReadCloser
	lines *bufio.Reader
}

// watch opens a watch; the path has the query. Its reads fail after patience.
func (c *client) watch(path string) *stream {
	c.t.Helper()
	s, err := c.open(path)
	if err != nil {
		c.t.Fatal(err)
	}
	return s
}

func (c *client) open(path string) (*stream, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	c.t.Cleanup(cancel)
	r, err := http.NewRequestWithContext(ctx, "GET", c.base+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	c.t.Cleanup(func() { res.Body.Close() })
	if res.StatusCode != http.StatusOK {
		content, _ := io.ReadAll(res.Body)
		return nil, fmt.Errorf("GET %s answered %d:\n%s", path, res.StatusCode, content)
	}
	return &stream{c.t, res.Body, bufio.NewReader(res.Body)}, nil
}

// next returns the next event, or io.EOF at the clean end.
func (s *stream) next() (event, error) {
	line, err := s.lines.ReadString('\n')
	if errors.Is(err, io.EOF) && line == "" {
		return event{}, io.EOF
	}
	if err != nil {
		return event{}, fmt.Errorf("after %q: %w", line, err)
	}
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return event{}, fmt.Errorf("the frame %q: %w", line, err)
	}
	return e, nil
}

// expect fails the test unless the next event is this one.
func (s *stream) expect(kind, name string) event {
	s.t.Helper()
	e, err := s.next()
	if err != nil {
		s.t.Fatalf("waiting for %s %s: %v", kind, name, err)
	}
	if e.Type != kind || e.Object.Metadata.Name != name {
		s.t.Fatalf("event is %s %s, want %s %s", e.Type, e.Object.Metadata.Name, kind, name)
	}
	return e
}

// rest reads to the end, which must be clean.
func (s *stream) rest() ([]event, error) {
	var all []event
	for {
		e, err := s.next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, e)
	}
}
