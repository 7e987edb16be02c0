package server_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// story is what a stream tells: an event per line.
type story []told

type told struct {
	kind, key string // the key is namespace/name
	labels    map[string]string
	version   int64
	end       bool // of the initial state
}

// tell parses a line.
func tell(line string) (told, error) {
	var e struct {
		Type   string
		Object struct {
			Metadata struct {
				Namespace, Name, ResourceVersion string
				Labels, Annotations              map[string]string
			}
			Message string
		}
	}
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return told{}, fmt.Errorf("%w in %q", err, line)
	}
	m := e.Object.Metadata
	version, err := strconv.ParseInt(m.ResourceVersion, 10, 64)
	if err != nil {
		return told{}, fmt.Errorf("no version in %q", line)
	}
	return told{e.Type, m.Namespace + "/" + m.Name, m.Labels, version, m.Annotations["k8s.io/initial-events-end"] == "true"}, nil
}

// listen reads to the clean end of a stream.
func listen(w *servertest.Stream) (story, error) {
	var s story
	for {
		line, err := w.Next()
		if errors.Is(err, io.EOF) && line == "" {
			return s, nil
		}
		if err != nil {
			return s, fmt.Errorf("%w after %d events (%.200q)", err, len(s), line)
		}
		e, err := tell(line)
		if err != nil {
			return s, err
		}
		s = append(s, e)
	}
}

// state is what objects there are, by key, after those events of a story that select, up to a version.
func (s story) state(upTo int64, selects func(told) bool) map[string]int64 {
	state := map[string]int64{}
	for _, e := range s {
		switch {
		case e.version > upTo:
			return state
		case e.kind == "BOOKMARK":
		case e.kind == "DELETED" || !selects(e):
			delete(state, e.key)
		default:
			state[e.key] = e.version
		}
	}
	return state
}

// inOrder checks that versions only go up, and that no event comes at or below a bookmark before it.
func (s story) inOrder() error {
	var last told
	for i, e := range s {
		if e.version < last.version || e.version == last.version && e.kind != "BOOKMARK" {
			return fmt.Errorf("event %d, %s %s at %d, follows %s %s at %d", i, e.kind, e.key, e.version, last.kind, last.key, last.version)
		}
		last = e
	}
	return nil
}

// churn writes from eight goroutines, each with objects of its own, in four namespaces, until stop is closed
// or so many times each. All writes are acknowledged ones; how many there were is returned.
func churn(t *testing.T, s *servertest.Server, times int, stop <-chan struct{}) (writes int) {
	var all sync.WaitGroup
	var mu sync.Mutex // guards writes
	for k := range 8 {
		all.Go(func() {
			path := fmt.Sprintf("/apis/example.com/v1/namespaces/n%d/widgets", k%4)
			done := 0
			defer func() { mu.Lock(); writes += done; mu.Unlock() }()
			for i := range times {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("w%d-%d", k, i/4%5)
				var res *http.Response
				var body string
				switch i % 4 {
				case 0:
					res, body = s.Do("POST", path, labelled(name, i%3))
				case 3:
					res, body = s.Do("DELETE", path+"/"+name, "")
				default:
					merge := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"}},"spec":{"i":%d}}`, (i+k)%3, i)
					res, body = s.Do("PATCH", path+"/"+name, merge, "Content-Type", "application/merge-patch+json")
				}
				if res.StatusCode >= 300 {
					t.Errorf("write %d of %s: %s %s", i, name, res.Status, body)
					return
				}
				done++
			}
		})
	}
	all.Wait()
	return writes
}

func newBusyWidgets(t *testing.T) *servertest.Server {
	return newWidgets(t, func(s *server.Server) { s.AutoCreateNamespaces = true })
}

// TestInitialEventsWhileWriting connects clients that want the state first while eight writers write. Each gets
// a state that there was, the bookmark that says so, and what follows, nothing twice and nothing left out.
func TestInitialEventsWhileWriting(t *testing.T) {
	t.Parallel()
	s := newBusyWidgets(t)
	everything := func(told) bool { return true }
	from := now(t, s, allWidgets)
	oracle := s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d&timeoutSeconds=8", allWidgets, from-1)) // has the object that's there
	explicit := url.Values{"watch": {"true"}, "sendInitialEvents": {"true"}, "resourceVersionMatch": {"NotOlderThan"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"5"}}
	kinds := []struct {
		name, path string
		query      map[string]string // beside explicit
		selects    func(told) bool
	}{
		{"everything", allWidgets, nil, everything},
		{"everything, by default", allWidgets, map[string]string{"sendInitialEvents": "", "resourceVersionMatch": ""}, everything},
		{"one label", allWidgets, map[string]string{"labelSelector": "n=1"}, func(e told) bool { return e.labels["n"] == "1" }},
		{"not a label", allWidgets, map[string]string{"labelSelector": "n!=1"}, func(e told) bool { return e.labels["n"] != "1" }},
		{"one namespace", "/apis/example.com/v1/namespaces/n2/widgets", nil, func(e told) bool { return strings.HasPrefix(e.key, "n2/") }},
		{"one name", allWidgets, map[string]string{"fieldSelector": "metadata.name=w3-1"}, func(e told) bool { return strings.HasSuffix(e.key, "/w3-1") }},
		{"nothing", "/apis/example.com/v1/namespaces/nowhere/widgets", nil, func(told) bool { return false }},
	}
	type client struct {
		kind int
		story
	}
	clients := make([]client, 3*len(kinds))
	var all sync.WaitGroup
	stop := make(chan struct{})
	writes := 0
	var writers sync.WaitGroup
	writers.Go(func() { writes = churn(t, s, 1<<30, stop) })
	for i := range clients {
		all.Go(func() {
			clients[i].kind = i % len(kinds)
			kind := kinds[clients[i].kind]
			q := maps.Clone(explicit)
			for name, value := range kind.query {
				if q.Set(name, value); value == "" {
					q.Del(name)
				}
			}
			// They come one after the other.
			await(t, func() bool { return now(t, s, allWidgets) > from+int64(10*i) })
			var err error
			if clients[i].story, err = listen(s.Watch(kind.path + "?" + q.Encode())); err != nil {
				t.Errorf("%s: %v", kind.name, err)
			}
		})
	}
	all.Wait()
	close(stop)
	writers.Wait()
	truth, err := listen(oracle)
	if err != nil {
		t.Fatal(err)
	}
	if err := truth.inOrder(); err != nil || len(truth) < writes/2 {
		t.Fatalf("the whole story has %d events of %d writes: %v", len(truth), writes, err)
	}
	for _, c := range clients {
		if err := checkInitial(c.story, truth, kinds[c.kind].selects); err != nil {
			t.Errorf("%s: %v", kinds[c.kind].name, err)
		}
	}
}

// checkInitial compares a story that begins with a state with the whole story of everything.
func checkInitial(got, truth story, selects func(told) bool) error {
	end := slices.IndexFunc(got, func(e told) bool { return e.end })
	if end < 0 || got[end].kind != "BOOKMARK" || slices.ContainsFunc(got[end+1:], func(e told) bool { return e.end }) {
		return fmt.Errorf("the end of the state isn't there exactly once, in %d events", len(got))
	}
	version, state := got[end].version, map[string]int64{}
	for _, e := range got[:end] {
		if _, again := state[e.key]; again || e.kind != "ADDED" || e.version > version {
			return fmt.Errorf("in the state, which ends at %d, is %s %s at %d, again: %t", version, e.kind, e.key, e.version, again)
		}
		state[e.key] = e.version
	}
	if want := truth.state(version, selects); !maps.Equal(state, want) {
		return fmt.Errorf("at %d the state is %v, want %v", version, state, want)
	}
	if err := got[end:].inOrder(); err != nil {
		return err
	}
	// What follows, replayed up to anywhere, gives the state there.
	last := got[len(got)-1].version
	if last > truth[len(truth)-1].version {
		last = truth[len(truth)-1].version
	}
	var replayed story
	for _, e := range got {
		if e.kind != "BOOKMARK" {
			replayed = append(replayed, e)
		}
	}
	slices.SortStableFunc(replayed, func(a, b told) int { return int(a.version - b.version) }) // a state is by key
	for at := version; at <= last; at++ {
		if have, want := replayed.state(at, selects), truth.state(at, selects); !maps.Equal(have, want) {
			return fmt.Errorf("at %d, after the state at %d, there is %v, want %v", at, version, have, want)
		}
	}
	return nil
}

// TestOneOrder compares watches that have bookmarks with each other and with one that sees everything.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	s := newBusyWidgets(t)
	from := now(t, s, allWidgets)
	oracle := s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d&timeoutSeconds=8", allWidgets, from))
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	writers.Go(func() { churn(t, s, 1<<30, stop) })
	stories := make([]story, 12)
	for i := range stories {
		readers.Go(func() {
			path, seconds := allWidgets, 3+i%3 // the last bookmark comes two seconds before the end
			if i%4 == 3 {
				path = "/apis/example.com/v1/namespaces/idle/widgets"
			}
			var err error
			stories[i], err = listen(s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=%d", path, from, seconds)))
			if err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	close(stop)
	writers.Wait()
	truth, err := listen(oracle)
	if err != nil {
		t.Fatal(err)
	}
	for i, got := range stories {
		if err := got.inOrder(); err != nil {
			t.Errorf("watch %d: %v", i, err)
		}
		bookmark := slices.IndexFunc(got, func(e told) bool { return e.kind == "BOOKMARK" })
		if bookmark < 0 || got[bookmark].version <= from {
			t.Errorf("watch %d: no bookmark that leads anywhere among %d events", i, len(got))
			continue
		}
		events := slices.DeleteFunc(slices.Clone(got), func(e told) bool { return e.kind == "BOOKMARK" })
		if i%4 == 3 {
			if len(events) > 0 {
				t.Errorf("watch %d of nothing got %v", i, events)
			}
			continue
		}
		if bookmark == 0 || bookmark == len(got)-1 {
			t.Errorf("watch %d: the bookmark is number %d of %d: nothing is shown by it", i, bookmark, len(got))
		}
		if len(events) > len(truth) || !slices.EqualFunc(events, truth[:len(events)], func(a, b told) bool { return a.kind == b.kind && a.key == b.key && a.version == b.version }) {
			t.Errorf("watch %d has %d events that aren't the first of the %d that there were", i, len(events), len(truth))
		}
	}
}

// compact drops etcd's history up to now.
func compact(t *testing.T, s *servertest.Server) (at int64) {
	t.Helper()
	at = now(t, s, widgetsPath)
	if _, err := server.Etcd(s.Server).Compact(t.Context(), at, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	return at
}

// TestCompactionUnderWatchers: whoever has what he needs in memory goes on, and whoever would need more is
// told to list again. Nobody misses anything in silence.
func TestCompactionUnderWatchers(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	widgets := makeWidgets(t, s, 4, 256<<10)
	from := now(t, s, widgetsPath)
	reader, idle := s.Watch(after(from)), s.Watch(after(from)+"&labelSelector=n%3D1")
	slow := stalling(t, s).Watch(after(from))
	var want []int64
	for range 20 { // 20 MB each of objects and of what is sent: half of it falls off the log of 32 MB
		more := rewrite(t, s, widgets, 4)
		expectVersions(t, reader, more)
		want = append(want, more...)
	}
	at := compact(t, s)
	want = append(want, rewrite(t, s, widgets, 1)...)
	expectVersions(t, reader, want[len(want)-4:])
	s.PostYAML(widgetsPath, labelled("labelled", 1))
	if got := next(t, idle).String(); got != "ADDED labelled" {
		t.Errorf("the idle watch got %s", got)
	}

	for i := 0; ; i++ {
		line, err := slow.Next()
		if err != nil {
			t.Fatalf("the slow watch ended after %d events with %v and without a word", i, err)
		}
		if strings.HasPrefix(line, `{"type":"ERROR"`) {
			if !strings.Contains(line, `"code":410`) || !strings.Contains(line, `"reason":"Expired"`) {
				t.Errorf("the slow watch got %s", line)
			}
			if i == len(want) {
				t.Error("the slow watch had it all before it was told that it can't")
			}
			if line, err := slow.Next(); !errors.Is(err, io.EOF) || line != "" {
				t.Errorf("then came %q, %v", line, err)
			}
			break
		}
		if v := versionIn(line); v != want[i] {
			t.Fatalf("event %d of the slow watch has version %d, want %d", i, v, want[i])
		}
	}
	res, body := s.Do("GET", after(from), "")
	if got := status(t, res, body); got.Code != http.StatusGone || got.Reason != "Expired" {
		t.Errorf("a watch from before the compaction: %s", body)
	}
	expectVersions(t, s.Watch(after(at)), want[len(want)-4:])
}

// TestDefinitionDeletedUnderWatchers: its objects are seen to go, the watches end, and nothing of it is left
// for a definition of the same name.
func TestDefinitionDeletedUnderWatchers(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	s.PostYAML(widgetsPath, labelled("b", 1))
	uid := func(path string) string {
		var o struct{ Metadata struct{ UID string } }
		if err := json.Unmarshal([]byte(s.Get(path)), &o); err != nil || o.Metadata.UID == "" {
			t.Fatalf("%s has no uid: %v", path, err)
		}
		return o.Metadata.UID
	}
	definition := definitionsPath + "/widgets.example.com"
	oldDefinition, oldObject := uid(definition), uid(widgetsPath+"/a")
	from := now(t, s, widgetsPath)
	overHTTP2 := *s
	overHTTP2.Client = h2c(t)
	watches := map[string]struct {
		stream *servertest.Stream
		want   []string
	}{
		"all":              {s.Watch(after(from)), []string{"DELETED a", "DELETED b"}},
		"HTTP/2":           {overHTTP2.Watch(after(from)), []string{"DELETED a", "DELETED b"}},
		"with a selector":  {s.Watch(after(from) + "&labelSelector=n%3D1"), []string{"DELETED b"}},
		"of what isn't":    {s.Watch(after(from) + "&labelSelector=n%3D2"), nil},
		"of one":           {s.Watch(widgetsPath + fmt.Sprintf("/a?watch=true&resourceVersion=%d", from)), []string{"DELETED a"}},
		"of the namespace": {s.Watch(empty + fmt.Sprintf("?watch=true&resourceVersion=%d", from)), nil},
	}
	if res, body := s.Do("DELETE", definition, ""); res.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", res.Status, body)
	}
	for name, w := range watches {
		var got []string
		for {
			line, err := w.stream.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || line != "" {
					t.Errorf("%s ended with %q, %v", name, line, err)
				}
				break
			}
			var e event
			if err := json.Unmarshal([]byte(line), &e); err != nil {
				t.Fatal(err)
			}
			got = append(got, e.String())
		}
		if slices.Sort(got); !slices.Equal(got, w.want) {
			t.Errorf("%s got %q, want %q", name, got, w.want)
		}
	}
	await(t, func() bool {
		res, _ := s.Do("GET", definition, "")
		return res.StatusCode == http.StatusNotFound
	})
	for _, path := range []string{widgetsPath, allWidgets, widgetsPath + "/a", widgetsPath + "?watch=true", after(from)} {
		res, body := s.Do("GET", path, "")
		if got := status(t, res, body); got.Code != http.StatusNotFound {
			t.Errorf("GET %s: %s", path, body)
		}
	}
	again := versionIn(s.PostYAML(definitionsPath, widgets))
	fresh, since := s.Watch(widgetsPath+"?watch=true"), s.Watch(after(again))
	s.PostYAML(widgetsPath, widget("a"))
	for name, w := range map[string]*servertest.Stream{"a fresh watch": fresh, "one since the definition": since} {
		if got := next(t, w).String(); got != "ADDED a" {
			t.Errorf("%s got %s", name, got)
		}
	}
	if uid(definition) == oldDefinition || uid(widgetsPath+"/a") == oldObject {
		t.Error("a uid has come back")
	}
}

