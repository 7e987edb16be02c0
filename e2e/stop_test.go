package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// TestStop sends SIGTERM while watches are open and writes under way: the streams end cleanly, with
// everything that was acknowledged and a last bookmark for those who take them, and all of it is there
// after a restart.
func TestStop(t *testing.T) {
	t.Parallel()
	const writers, watchers = 8, 20
	dir := t.TempDir()
	p := start(t, "--data-dir", dir)
	p.define()
	from := p.do(http.StatusOK, "GET", widgets, "").object.Metadata.ResourceVersion
	var streams []*stream
	for i := range watchers {
		// Of half of them each way.
		streams = append(streams, p.watch(fmt.Sprintf("%s?watch=true&resourceVersion=%s&allowWatchBookmarks=%t", widgets, from, i%2 == 0)))
	}
	ends := make([]func(*testing.T, map[int64]write), watchers)
	var reading sync.WaitGroup
	for i, s := range streams {
		reading.Go(func() {
			events, err := s.rest()
			ends[i] = func(t *testing.T, acked map[int64]write) { checkEnd(t, events, err, i%2 == 0, acked) }
		})
	}
	load := writeLoad(p.client, writers, 0)
	load.count(t, 200)
	p.stop()
	reading.Wait()
	load.end(t)
	acked, _ := load.all(t)
	for _, check := range ends {
		check(t, acked)
	}

	p = start(t, "--data-dir", dir)
	items := map[string]object{}
	for _, o := range p.do(http.StatusOK, "GET", widgets, "").object.Items {
		items[o.Metadata.Name] = o
	}
	load.checkState(t, items)
	p.stop()
}

// checkEnd looks at what a watcher got until the server went away.
func checkEnd(t *testing.T, events []event, err error, bookmarks bool, acked map[int64]write) {
	t.Helper()
	if err != nil {
		t.Errorf("a stream didn't end cleanly: %v", err)
		return
	}
	if len(events) == 0 {
		t.Error("a stream ended without an event")
		return
	}
	seen, last := map[int64]bool{}, int64(0)
	for i, e := range events {
		rv := e.Object.rv(t)
		if e.Type == "BOOKMARK" {
			if i != len(events)-1 || rv < last {
				t.Errorf("bookmark at %d is event %d of %d, after %d", rv, i+1, len(events), last)
			}
			last = rv
			continue
		}
		if rv <= last {
			t.Errorf("event at %d after %d", rv, last)
		}
		last, seen[rv] = rv, true
	}
	if got := events[len(events)-1].Type == "BOOKMARK"; got != bookmarks {
		t.Errorf("the last event is %s; bookmarks were allowed: %t", events[len(events)-1].Type, bookmarks)
	}
	for rv, a := range acked {
		if !seen[rv] {
			t.Errorf("%s was acknowledged at %d, and a stream that ended at %d didn't have it", a.name, rv, last)
		}
	}
}

// TestStopTwice holds the shutdown up by a request that never ends, and sends another signal.
func TestStopTwice(t *testing.T) {
	t.Parallel()
	for _, second := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(second.String(), func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			p := start(t, "--data-dir", dir)
			p.define()
			p.do(http.StatusCreated, "POST", widgets, widget("kept", 1))

			conn, err := net.Dial("tcp", strings.TrimPrefix(p.base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n", widgets)
			if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "100 Continue") {
				t.Fatalf("the server doesn't wait for the body: %q, %v", line, err)
			}
			p.signal(syscall.SIGTERM)
			eventually(t, "readyz fails while the server stops", func() bool {
				a, err := p.try("GET", "/readyz", "")
				return err == nil && a.code == http.StatusInternalServerError
			})
			// readyz fails first: a load balancer takes the server out of its list while requests are still taken.
			eventually(t, "a write is refused while the server stops", func() bool {
				a, err := p.try("POST", widgets, widget("late", 1))
				return err == nil && a.code == http.StatusServiceUnavailable
			})
			p.signal(second)
			if code := p.wait(stopTime); code != 3 {
				t.Errorf("exit code %d after the second signal, want 3", code)
			}

			p = start(t, "--data-dir", dir)
			p.do(http.StatusOK, "GET", widgets+"/kept", "")
		})
	}
}

// TestInterrupt is ctrl-C.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.signal(syscall.SIGINT)
	if code := p.wait(stopTime); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if exists(t, p.urlFile) {
		t.Error("the URL file is still there")
	}
}

// TestStopWhileStartHangs stops a server whose start waits for a file that isn't answered, as a disk may be: the
// process ends all the same.
func TestStopWhileStartHangs(t *testing.T) {
	t.Parallel()
	token := filepath.Join(t.TempDir(), "token")
	if err := syscall.Mkfifo(token, 0o600); err != nil { // who reads it waits
		t.Fatal(err)
	}
	p := launch(t, run{args: []string{"--ephemeral", "--token-file", token}})
	eventually(t, "the server reads the file", func() bool {
		w, err := os.OpenFile(token, os.O_WRONLY|syscall.O_NONBLOCK, 0) // an error while nobody reads
		if err == nil {
			t.Cleanup(func() { w.Close() }) // the end of which the server would read
		}
		return err == nil
	})
	p.signal(syscall.SIGTERM)
	if code := p.wait(stopTime); code != 1 {
		t.Errorf("exit code %d, want 1", code)
	}
	if last := lastLine(p.stderr.String()); !strings.HasPrefix(last, "apiserver-lite: not stopped") {
		t.Errorf("the last line doesn't say why: %s", last)
	}
}
