package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestInflightBounds has as many requests under way as the server promises, 400 that read and 200 that write. One more
// of either kind is told to come back, while watches and the other kind are served, and all are when some have left.
func TestInflightBounds(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, server.GiveTime) // the first of the writers waits until the last is there
	object := widgetsPath + "/a"
	underWay := func(kind string, n int) func() bool {
		return func() bool {
			return strings.Contains(s.Get("/metrics"), fmt.Sprintf("apiserver_current_inflight_requests{request_kind=%q} %d\n", kind, n))
		}
	}
	expect := func(code int, method, path string) {
		t.Helper()
		res, body := s.Do(method, path, "{}", "Content-Type", "application/merge-patch+json")
		if res.StatusCode != code {
			t.Errorf("%s %s: %s, want %d: %.200s", method, path, res.Status, code, body)
		}
		if code == http.StatusTooManyRequests && (res.Header.Get("Retry-After") == "" || !strings.Contains(body, "too many requests")) {
			t.Errorf("%s %s doesn't say when to come back: %s", method, path, body)
		}
	}

	var writers []net.Conn // whose bodies don't come
	for range 200 {
		c := dial(t, s)
		fmt.Fprintf(c, "PATCH %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\nContent-Length: 2\r\n\r\n{", object)
		writers = append(writers, c)
	}
	until(t, "200 writes are under way", underWay("mutating", 200))
	expect(http.StatusTooManyRequests, "PATCH", object)
	expect(http.StatusOK, "GET", object)
	io.WriteString(writers[0], "}")
	until(t, "199 writes are under way", underWay("mutating", 199))
	expect(http.StatusOK, "PATCH", object)
	for _, c := range writers {
		c.Close()
	}
	until(t, "no write is under way", underWay("mutating", 0))

	release := server.OccupyReads(t, s.Server, 399)
	expect(http.StatusOK, "GET", object)
	one := server.OccupyReads(t, s.Server, 1)
	expect(http.StatusTooManyRequests, "GET", object)
	expect(http.StatusTooManyRequests, "GET", "/openapi/v2?watch=1")
	expect(http.StatusOK, "PATCH", object)
	s.Watch(object + "?watch=true").Close()
	one()
	expect(http.StatusOK, "GET", object)
	release()
}
