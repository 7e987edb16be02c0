package server_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestReplicaBehind: a replica whose caches don't follow the store says so and since when, in readyz and in a metric, until
// they do again.
func TestReplicaBehind(t *testing.T) {
	n := 0
	var hold, release func()
	all := newReplicas(t, 2, func(s *server.Server) {
		if n++; n == 2 {
			hold, release = server.Hold(s)
		}
	})
	here, behind := all[0], all[1]
	lagging := func() float64 {
		t.Helper()
		line := regexp.MustCompile(`(?m)^apiserver_lite_replica_lag_seconds (.*)$`).FindStringSubmatch(behind.Get("/metrics"))
		if line == nil {
			t.Fatal("there is no metric of the lag")
		}
		seconds, err := strconv.ParseFloat(line[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	until(t, "the replica is ready", func() bool {
		res, _ := behind.Do(http.MethodGet, "/readyz/lag", "")
		return res.StatusCode == http.StatusOK
	})

	hold()
	defer release()
	here.PostYAML(mapsPath, "metadata: {name: unseen}")
	reason := regexp.MustCompile(`the caches are behind the store since 20\d\d-.*Z .*resourceVersion \d+`)
	for _, path := range []string{"/readyz", "/readyz/lag"} {
		until(t, path+" says since when the replica is behind", func() bool {
			res, body := behind.Do(http.MethodGet, path, "")
			return res.StatusCode == http.StatusInternalServerError && reason.MatchString(body)
		})
	}
	if seconds := lagging(); seconds <= 0 {
		t.Errorf("the metric says that it's %v s behind", seconds)
	}
	for _, path := range []string{"/livez", "/readyz/consistency"} { // it does hear of the store
		if res, body := behind.Do(http.MethodGet, path, ""); res.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %s", path, res.Status, body)
		}
	}
	if res, body := here.Do(http.MethodGet, "/readyz", ""); res.StatusCode != http.StatusOK {
		t.Errorf("the other replica's readyz: %s %s", res.Status, body)
	}

	release()
	until(t, "the replica is ready again", func() bool {
		res, _ := behind.Do(http.MethodGet, "/readyz", "")
		return res.StatusCode == http.StatusOK
	})
	until(t, "the metric falls", func() bool { return lagging() < 1 }) // by what is looked every second
	behind.Get(mapsPath + "/unseen")
}

// TestHandsOverFirst: a replica that is told to stop hands the leadership over before it waits for the requests under way.
func TestHandsOverFirst(t *testing.T) {
	all := newReplicas(t, 2)
	at := leader(t, all)
	acts, next := all[at], all[1-at]
	conn, err := net.Dial("tcp", strings.TrimPrefix(acts.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const body = "metadata: {name: held}"
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/yaml\r\nContent-Length: %d\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n", mapsPath, len(body))
	begun := make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))
	if _, err := io.ReadFull(conn, begun); err != nil || !strings.Contains(string(begun), "100 Continue") {
		t.Fatalf("the server doesn't wait for the body: %q, %v", begun, err)
	}
	closed := make(chan error, 1)
	go func() { closed <- acts.Close() }()
	until(t, "the other replica leads", func() bool { return server.Leads(next.Server) })
	select {
	case err := <-closed:
		t.Errorf("it had ended before the other one led: %v", err)
		return
	default:
	}
	// The request is under way all the time, and is answered.
	if _, err := io.WriteString(conn, body); err != nil {
		t.Error(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 201 ") {
		t.Errorf("the request that was under way: %v, %q", err, answer)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
	next.Get(mapsPath + "/held")
}
