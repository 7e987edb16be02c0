package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// versionIn returns the first resourceVersion in a JSON document; 0 if there is none.
func versionIn(document string) int64 {
	_, rest, _ := strings.Cut(document, `"resourceVersion":"`)
	digits, _, _ := strings.Cut(rest, `"`)
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// now returns the version at which a collection is: a watch from there gets what follows.
func now(t *testing.T, s *servertest.Server, path string) int64 {
	t.Helper()
	n := versionIn(s.Get(path + "?limit=1"))
	if n == 0 {
		t.Fatalf("a list of %s has no version", path)
	}
	return n
}

// after is the path of a watch of the widgets that follow a version.
func after(version int64) string {
	return fmt.Sprintf("%s?watch=true&resourceVersion=%d", widgetsPath, version)
}

// change merges into a widget, and returns the version that this made.
func change(t *testing.T, s *servertest.Server, path, merge string) int64 {
	t.Helper()
	res, body := s.Do("PATCH", path, merge, "Content-Type", "application/merge-patch+json")
	if res.StatusCode != http.StatusOK {
		t.Fatalf("PATCH %s: %s\n%s", path, res.Status, body)
	}
	return versionIn(body)
}

// makeWidgets creates so many, each with a text of so many bytes, and returns their paths.
func makeWidgets(t *testing.T, s *servertest.Server, n, size int) []string {
	t.Helper()
	var paths []string
	text := strings.Repeat("x", size)
	for i := range n {
		name := fmt.Sprintf("w%d", i)
		object := strings.Replace(widget(name), `"size":1`, `"text":"`+text+`"`, 1)
		if res, body := s.Do("POST", widgetsPath, object, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
			t.Fatalf("POST %s: %s\n%s", name, res.Status, body)
		}
		paths = append(paths, widgetsPath+"/"+name)
	}
	return paths
}

// update changes widgets, each by a writer of its own and so many times, and returns all the versions that
// this made, in order.
func update(t *testing.T, s *servertest.Server, paths []string, times int) []int64 {
	t.Helper()
	made := make([][]int64, len(paths))
	var writers sync.WaitGroup
	for i, path := range paths {
		writers.Go(func() {
			for range times {
				made[i] = append(made[i], change(t, s, path, fmt.Sprintf(`{"spec":{"n":%d}}`, time.Now().UnixNano())))
			}
		})
	}
	writers.Wait()
	versions := slices.Concat(made...)
	slices.Sort(versions)
	return versions
}

// rewrite is update straight in etcd, which is the many times faster that some tests need.
func rewrite(t *testing.T, s *servertest.Server, paths []string, times int) []int64 {
	t.Helper()
	made := make([][]int64, len(paths))
	var writers sync.WaitGroup
	for i, path := range paths {
		key := "/registry/example.com/widgets/default/" + path[strings.LastIndexByte(path, '/')+1:]
		stored, err := server.Etcd(s.Server).Get(t.Context(), key)
		if err != nil || len(stored.Kvs) != 1 {
			t.Fatalf("%s is not in etcd: %v", key, err)
		}
		writers.Go(func() {
			for range times {
				res, err := server.Etcd(s.Server).Put(t.Context(), key, string(stored.Kvs[0].Value))
				if err != nil {
					t.Error(err)
					return
				}
				made[i] = append(made[i], res.Header.Revision)
			}
		})
	}
	writers.Wait()
	versions := slices.Concat(made...)
	slices.Sort(versions)
	return versions
}

// expectVersions reads as many events as there are versions, which must be those of the events, in order.
func expectVersions(t *testing.T, w *servertest.Stream, want []int64) {
	t.Helper()
	for i, version := range want {
		line, err := w.Next()
		if err != nil {
			t.Errorf("event %d of %d: %v (%.200q)", i, len(want), err, line)
			return
		}
		if got := versionIn(line); got != version {
			t.Errorf("event %d of %d has version %d, want %d: %.200q", i, len(want), got, version, line)
			return
		}
	}
}

// stalling returns the server with a client of its own, whose kernel takes little of what the client doesn't read.
func stalling(t *testing.T, s *servertest.Server) *servertest.Server {
	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		if err == nil {
			err = c.(*net.TCPConn).SetReadBuffer(256 << 10) // less would make reading slow, too
		}
		return c, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	slow := *s
	slow.Client = &http.Client{Transport: transport}
	return &slow
}

// openWatches returns how many watches the server counts as open.
func openWatches(s *servertest.Server) int {
	sum := 0
	for line := range strings.Lines(s.Get("/metrics")) {
		if strings.HasPrefix(line, "apiserver_longrunning_requests{") {
			n, _ := strconv.Atoi(strings.TrimSpace(line[strings.LastIndexByte(line, ' ')+1:]))
			sum += n
		}
	}
	return sum
}

// awaitIt is until where the line says what it waits for.
func awaitIt(t *testing.T, done func() bool) {
	t.Helper()
	until(t, "what this line waits for", done)
}

// TestSlowReader stalls a reader until what it has to read has fallen off the memory of the server. Others
// don't notice, and when it reads again it gets everything.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = time.Hour }) // however slow it is
	widgets := makeWidgets(t, s, 8, 12<<10)
	from := now(t, s, widgetsPath)
	slow := stalling(t, s).Watch(after(from))
	const updates = 5000
	var others [2]*servertest.Stream
	var got [len(others)][]int64
	var readers sync.WaitGroup
	for i := range others {
		others[i] = s.Watch(after(from))
		readers.Go(func() {
			for range updates {
				line, err := others[i].Next()
				if err != nil {
					t.Errorf("watcher %d: %v", i, err)
					return
				}
				got[i] = append(got[i], versionIn(line))
			}
		})
	}
	// Each keeps about 12 KB, and a resource's log 32 MB of them.
	want := rewrite(t, s, widgets, updates/len(widgets))
	readers.Wait() // while the slow one reads nothing
	for i := range others {
		if !slices.Equal(got[i], want) {
			t.Errorf("watcher %d got %d events, not the %d in order", i, len(got[i]), len(want))
		}
	}
	before := server.HistoryReads(s.Server)
	expectVersions(t, slow, want)
	if server.HistoryReads(s.Server) == before {
		t.Error("the slow reader got all of it from memory: it wasn't slow enough for this test")
	}
	want = update(t, s, widgets, 2)
	for _, w := range append(others[:], slow) {
		expectVersions(t, w, want)
	}
}

// TestStalledReaderResumes: a reader that takes nothing for too long is cut off, and goes on from the last
// version it got.
func TestStalledReaderResumes(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = 300 * time.Millisecond })
	widgets := makeWidgets(t, s, 4, 64<<10)
	from := now(t, s, widgetsPath)
	slow := stalling(t, s).Watch(after(from))
	var want []int64
	for i := 0; openWatches(s) > 0; i++ { // until the kernel takes no more
		if want = append(want, rewrite(t, s, widgets, 4)...); i == 200 {
			t.Fatal("it's still open after 200 MB")
		}
	}
	want = append(want, update(t, s, widgets, 1)...)
	got := 0
	for {
		line, err := slow.Next()
		if err != nil {
			if errors.Is(err, io.EOF) && line == "" && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Error("it was cut off, and looks as if it had ended cleanly")
			}
			break
		}
		if v := versionIn(line); v != want[got] {
			t.Fatalf("event %d has version %d, want %d", got, v, want[got])
		}
		got++
	}
	// On a busy machine this reader may be cut off as well: then it goes on like the other.
	for got < len(want) {
		if got > 0 {
			from = want[got-1]
		}
		w, before := s.Watch(after(from)), got
		for line, err := w.Next(); err == nil; line, err = w.Next() {
			if v := versionIn(line); v != want[got] {
				t.Fatalf("event %d has version %d, want %d", got, v, want[got])
			}
			if got++; got == len(want) {
				break
			}
		}
		w.Close()
		if got == before {
			t.Fatalf("a watch from %d has nothing of the %d events that are left", from, len(want)-got)
		}
	}
}

// TestResumeStorm restarts a server under 300 watchers, which resume from where each of them was. What they
// need of history is read for all of them together.
func TestResumeStorm(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		// others is how many revisions come before the restart that have nothing to do with the watchers.
		others int
		// least and most are how often history is read for the watchers.
		least, most int64
	}{
		{"from memory", 0, 0, 0},
		{"from history", 17_000, 1, 4}, // more than a restarted server has in memory
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			resumeStorm(t, tc.others, tc.least, tc.most)
		})
	}
}

func resumeStorm(t *testing.T, others int, least, most int64) {
	const clients = 300
	dir := filepath.Join(t.TempDir(), "data")
	durable := func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
	first := newWidgets(t, durable)
	widgets := makeWidgets(t, first, 4, 10)
	from := now(t, first, widgetsPath)
	var streams []*servertest.Stream
	for range clients {
		streams = append(streams, first.Watch(after(from)))
	}
	versions := update(t, first, widgets, 10)
	// Client i has seen i%len(versions) of them when the server goes.
	for i, w := range streams {
		expectVersions(t, w, versions[:i%len(versions)])
	}
	putOthers(t, first, others)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	first.Client.CloseIdleConnections()

	second := servertest.New(t, durable)
	versions = append(versions, update(t, second, widgets, 1)...)
	now(t, second, widgetsPath) // the feed has read all of it, and reads nothing from now on
	before := server.HistoryReads(second.Server)
	var all sync.WaitGroup
	for i := range clients {
		seen := i % (len(versions) - len(widgets))
		at := from
		if seen > 0 {
			at = versions[seen-1]
		}
		all.Go(func() {
			w := second.Watch(after(at))
			streams[i] = w
			expectVersions(t, w, versions[seen:])
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if reads := server.HistoryReads(second.Server) - before; reads < least || reads > most {
		t.Errorf("history was read %d times for %d clients, want %d to %d", reads, clients, least, most)
	}
	versions = update(t, second, widgets, 1)
	for _, w := range streams {
		expectVersions(t, w, versions)
	}
}

// putOthers writes keys that are none of ours, straight to etcd.
func putOthers(t *testing.T, s *servertest.Server, n int) {
	t.Helper()
	var writers sync.WaitGroup
	const atOnce = 64
	for k := range atOnce {
		writers.Go(func() {
			for i := k; i < n; i += atOnce {
				if _, err := server.Etcd(s.Server).Put(t.Context(), fmt.Sprintf("/other/%d", k), ""); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	writers.Wait()
}
