package server_test

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// eventSource reads a stream as a browser's EventSource does (HTML Living Standard, section 9.2.6).
type eventSource struct {
	t      *testing.T
	lines  *bufio.Scanner
	body   io.Closer
	lastID string // what a browser sends when it comes back
}

func openEventSource(t *testing.T, s *servertest.Server, path, lastID string, accept ...string) *eventSource {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", cmp.Or(strings.Join(accept, ","), "text/event-stream"))
	if lastID != "" {
		req.Header.Set("Last-Event-ID", lastID)
	}
	res, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	if got := res.Header.Get("Content-Type"); res.StatusCode != http.StatusOK || got != "text/event-stream" {
		t.Fatalf("%s: %s, %s", path, res.Status, got)
	}
	t.Cleanup(func() { res.Body.Close() })
	return &eventSource{t, bufio.NewScanner(res.Body), res.Body, lastID}
}

// next returns the next block: the type and what the program gets, as name or code; or "id" for one without data. It ends with " #" and the
// id if the block has one.
func (e *eventSource) next() string {
	e.t.Helper()
	var typ, data, id string
	for e.lines.Scan() {
		field, value, _ := strings.Cut(e.lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			typ = value
		case "data":
			data += value
		case "id":
			e.lastID, id = value, " #"+value
		case "":
			var object struct {
				Code     int
				Metadata struct{ Name string }
			}
			if data == "" {
				return strings.TrimSpace("id" + id)
			}
			if err := json.Unmarshal([]byte(data), &object); err != nil {
				e.t.Fatalf("%v in %s", err, data)
			}
			if object.Code != 0 {
				return fmt.Sprint(typ, " ", object.Code, id)
			}
			return typ + " " + object.Metadata.Name + id
		default:
			e.t.Fatalf("a line %q", e.lines.Text())
		}
	}
	return "end"
}

// expect compares the next blocks, of which an id that ends in * may be any.
func (e *eventSource) expect(want ...string) {
	e.t.Helper()
	for _, w := range want {
		begin, any := strings.CutSuffix(w, "*")
		if got := e.next(); got != w && !(any && strings.HasPrefix(got, begin) && len(got) > len(begin)) {
			e.t.Fatalf("it is %q, want %q", got, w)
		}
	}
}

// TestServerSentEvents: the state has no ids and ends with one, each event has one, and a browser that comes back with the last id misses nothing,
// whatever the URL says.
func TestServerSentEvents(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.PostYAML(widgetsPath, widget("b"))
	e := openEventSource(t, s, widgetsPath+"?watch=true", "")
	e.expect("ADDED a", "ADDED b", "id #*")
	if e.lastID == "" {
		t.Error("who has the state has no id")
	}
	patch := func(name string, size int) string {
		res, body := s.Do("PATCH", widgetsPath+"/"+name, fmt.Sprintf(`{"spec":{"size":%d}}`, size), "Content-Type", "application/merge-patch+json")
		var object struct {
			Metadata struct{ ResourceVersion string }
		}
		if err := json.Unmarshal([]byte(body), &object); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", res.Status, body)
		}
		return object.Metadata.ResourceVersion
	}
	e.expect("MODIFIED a #" + patch("a", 7))
	e.body.Close()
	missed := patch("b", 8)
	s.Do("DELETE", widgetsPath+"/a", "")
	for _, query := range []string{"", "&resourceVersion=0", "&resourceVersion=" + missed, "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"} {
		openEventSource(t, s, widgetsPath+"?watch=true"+query, e.lastID).expect("MODIFIED b #"+missed, "DELETED a #*")
	}
	openEventSource(t, s, widgetsPath+"?watch=true&resourceVersion="+missed, "").expect("DELETED a #*")
	openEventSource(t, s, widgetsPath+"?watch=true&labelSelector=none&timeoutSeconds=1", "").expect("id #*", "end")
}

// TestServerSentExpired: a browser is told that its version is gone, forgets its id, and gets the state when it comes back, also if the URL has that
// version.
func TestServerSentExpired(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const gone = "9000000000" // not of this store
	path := widgetsPath + "?watch=true&resourceVersion=" + gone
	e := openEventSource(t, s, path, gone)
	e.expect("ERROR 410 #", "end")
	if e.lastID != "" {
		t.Errorf("the browser would come back with %q", e.lastID)
	}
	if _, body := s.Do("GET", path, "", "Accept", "text/event-stream", "Last-Event-ID", gone); !strings.Contains(body, ": come back without an id, and get the state") {
		t.Errorf("it doesn't say what to do: %s", body)
	}
	for _, query := range []string{"", "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"} {
		openEventSource(t, s, path+query, e.lastID).expect("ADDED a", "id #*")
	}
}

// TestServerSentNow: who begins now has an id at once, so that a cut right after that loses nothing.
func TestServerSentNow(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	e := openEventSource(t, s, widgetsPath+"?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", "")
	e.expect("id #*")
	e.body.Close()
	s.PostYAML(widgetsPath, widget("b"))
	s.Get(widgetsPath) // what a list has, a watch gives at once, before any id
	openEventSource(t, s, widgetsPath+"?watch=true", e.lastID).expect("ADDED b #*")
}

// TestServerSentLater: what can't be served now is said in a stream, because a browser doesn't come back after an HTTP error.
func TestServerSentLater(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Bounds.MaxConnections, s.Log = 1, slog.New(slog.DiscardHandler) })
	s.Client = &http.Client{Transport: newTransport(false, false)}
	defer s.Watch("/api/v1/namespaces?watch=true").Close()
	s.Client = &http.Client{Transport: newTransport(false, false)} // with a connection too many
	e := openEventSource(t, s, "/api/v1/namespaces?watch=true", "")
	if !e.lines.Scan() || e.lines.Text() != "retry: 1000" {
		t.Errorf("it begins with %q", e.lines.Text())
	}
	e.expect("ERROR 503", "end")
	if res, body := s.Do("GET", "/api/v1/namespaces?watch=true", ""); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("others get %s: %s", res.Status, body)
	}
	if res, body := s.Do("POST", "/api/v1/namespaces", "{}", "Accept", "text/event-stream"); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("a write gets %s: %s", res.Status, body)
	}
}

// TestServerSentTables: tables come as events, too, and only the first has the columns.
func TestServerSentTables(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	e := openEventSource(t, s, "/apis/example.com/v1/namespaces/none/widgets?watch=true", "", "text/event-stream;as=Table;v=v1;g=meta.k8s.io", "application/json")
	e.expect("id #*")
	e = openEventSource(t, s, widgetsPath+"?watch=true", "", "text/event-stream;as=Table;v=v1;g=meta.k8s.io")
	e.lines.Scan()
	if !e.lines.Scan() || !strings.HasPrefix(e.lines.Text(), `data: {"kind":"Table","apiVersion":"meta.k8s.io/v1"`) || strings.Contains(e.lines.Text(), `"columnDefinitions":null`) {
		t.Errorf("the first is %q", e.lines.Text())
	}
}

func TestServerSentRefusals(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	for _, c := range []struct {
		name, path, lastID, accept string
		code                       int
		message                    string
	}{
		{"a text", widgetsPath + "?watch=true", "x", "text/event-stream", 400, `is \"x\": begin without it`},
		{"a sign", widgetsPath + "?watch=true", "+1", "text/event-stream", 400, "begin without it"},
		{"a zero before it", widgetsPath + "?watch=true", "01", "text/event-stream", 400, "begin without it"},
		{"no version", widgetsPath + "?watch=true", "0", "text/event-stream", 400, "begin without it"},
		{"a list", widgetsPath, "", "text/event-stream", 406, "only the following media types are accepted"},
		{"an id of what isn't server-sent", widgetsPath + "?watch=true&timeoutSeconds=1&resourceVersion=0", "x", "application/json", 200, `"ADDED"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			res, body := s.In(t).Do("GET", c.path, "", "Accept", c.accept, "Last-Event-ID", c.lastID)
			if res.StatusCode != c.code || !strings.Contains(body, c.message) {
				t.Errorf("%s: %s", res.Status, body)
			}
		})
	}
}
