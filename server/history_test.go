package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
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

// as is the story as a watch tells it that selects some of the objects.
func (s story) as(selects func(told) bool) (out story) {
	shown := map[string]bool{}
	for _, e := range s {
		was, is := shown[e.key], e.kind != "DELETED" && selects(e)
		shown[e.key] = is
		switch {
		case was && is:
			e.kind = "MODIFIED"
		case is:
			e.kind = "ADDED"
		case was:
			e.kind = "DELETED"
		default:
			continue
		}
		out = append(out, e)
	}
	return out
}

// between is the events after a version, up to another, without bookmarks.
func (s story) between(after, upTo int64) story {
	return slices.DeleteFunc(slices.Clone(s), func(e told) bool { return e.kind == "BOOKMARK" || e.version <= after || e.version > upTo })
}

// equal tells whether two stories tell the same.
func (s story) equal(other story) bool {
	return slices.EqualFunc(s, other, func(a, b told) bool { return a.kind == b.kind && a.key == b.key && a.version == b.version })
}

// state is the versions of the objects that there are at the end of it.
func (s story) state() map[string]int64 {
	state := map[string]int64{}
	for _, e := range s {
		if state[e.key] = e.version; e.kind == "DELETED" {
			delete(state, e.key)
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

// churn writes from eight goroutines, each with objects of its own, in four namespaces, until stop is closed.
// The whole story of it is returned, as a watch from a version on tells it.
func churn(t *testing.T, s *servertest.Server, from int64, stop <-chan struct{}) story {
	t.Helper()
	oracle := s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d", allWidgets, from))
	defer oracle.Close()
	var writes atomic.Int64
	var all sync.WaitGroup
	for k := range 8 {
		all.Go(func() {
			path := fmt.Sprintf("/apis/example.com/v1/namespaces/n%d/widgets", k%4)
			for i := 0; ; i++ {
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
				writes.Add(1)
			}
		})
	}
	all.Wait()
	last := versionIn(s.PostYAML(widgetsPath, widget("last")))
	var truth story
	for len(truth) == 0 || truth[len(truth)-1].version < last {
		line, err := oracle.Next()
		if err != nil {
			t.Fatal(err)
		}
		e, err := tell(line)
		if err != nil {
			t.Fatal(err)
		}
		truth = append(truth, e)
	}
	if err := truth.inOrder(); err != nil || int64(len(truth)) != writes.Load()+1 {
		t.Fatalf("there are %d events of %d writes: %v", len(truth), writes.Load()+1, err)
	}
	checkAgainstEtcd(t, s, from, truth)
	return truth
}

// checkAgainstEtcd compares a story of all widgets with etcd's own.
func checkAgainstEtcd(t *testing.T, s *servertest.Server, from int64, truth story) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	const prefix = "/registry/example.com/widgets/"
	i := 0
	for res := range server.Etcd(s.Server).Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(from+1)) {
		if res.Err() != nil {
			t.Fatal(res.Err())
		}
		for _, e := range res.Events {
			kind := "MODIFIED"
			switch {
			case e.Type == clientv3.EventTypeDelete:
				kind = "DELETED"
			case e.IsCreate():
				kind = "ADDED"
			}
			if got := truth[i]; got.kind != kind || prefix+got.key != string(e.Kv.Key) || got.version != e.Kv.ModRevision {
				t.Fatalf("event %d is %s %s at %d; in etcd it is %s %s at %d", i, got.kind, got.key, got.version, kind, e.Kv.Key, e.Kv.ModRevision)
			}
			if i++; i == len(truth) {
				return
			}
		}
	}
	t.Fatalf("etcd has told %d of %d events", i, len(truth))
}

func newBusyWidgets(t *testing.T) *servertest.Server {
	return newWidgets(t, func(s *server.Server) { s.API.AutoCreateNamespaces = true })
}

// TestInitialEventsWhileWriting connects clients that want the state first while eight writers write. Each gets
// a state that there was, the bookmark that says so, and what follows, nothing twice and nothing left out.
func TestInitialEventsWhileWriting(t *testing.T) {
	t.Parallel()
	s := newBusyWidgets(t)
	if res, body := s.Do("DELETE", widgetsPath+"/a", ""); res.StatusCode != http.StatusOK {
		t.Fatal(body)
	}
	from := now(t, s, allWidgets)
	kinds := []struct {
		name, path, query string
		selects           func(told) bool
	}{
		{"everything", allWidgets, "", func(told) bool { return true }},
		{"one label", allWidgets, "labelSelector=n%3D1", func(e told) bool { return e.labels["n"] == "1" }},
		{"not a label", allWidgets, "labelSelector=n!%3D1", func(e told) bool { return e.labels["n"] != "1" }},
		{"one namespace", "/apis/example.com/v1/namespaces/n2/widgets", "", func(e told) bool { return strings.HasPrefix(e.key, "n2/") }},
		{"one name", allWidgets, "fieldSelector=metadata.name%3Dw3-1", func(e told) bool { return strings.HasSuffix(e.key, "/w3-1") }},
		{"nothing", "/apis/example.com/v1/namespaces/nowhere/widgets", "", func(told) bool { return false }},
	}
	asks := []string{"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", ""} // which is the default
	stories := make([]story, 3*len(kinds))
	stop := make(chan struct{})
	var clients sync.WaitGroup
	for i := range stories {
		clients.Go(func() {
			kind := kinds[i%len(kinds)]
			// They come one after the other.
			awaitIt(t, func() bool { return now(t, s, allWidgets) > from+int64(10*i) })
			var err error
			stories[i], err = listen(s.Watch(kind.path + "?watch=true&allowWatchBookmarks=true&timeoutSeconds=3&" + kind.query + asks[i%len(asks)]))
			if err != nil {
				t.Errorf("%s: %v", kind.name, err)
			}
		})
	}
	go func() { clients.Wait(); close(stop) }()
	truth := churn(t, s, from, stop)
	for i, got := range stories {
		kind := kinds[i%len(kinds)]
		if err := checkInitial(got, truth.as(kind.selects)); err != nil {
			t.Errorf("%s: %v", kind.name, err)
		}
	}
}

// checkInitial compares a story that begins with a state with the whole one.
func checkInitial(got, truth story) error {
	end := slices.IndexFunc(got, func(e told) bool { return e.end })
	if end < 0 || got[end].kind != "BOOKMARK" || slices.ContainsFunc(got[end+1:], func(e told) bool { return e.end }) {
		return fmt.Errorf("the end of the state isn't there exactly once, in %d events", len(got))
	}
	state, version, last := got[:end], got[end].version, got[len(got)-1].version
	for i, e := range state {
		if e.kind != "ADDED" || i > 0 && e.key <= state[i-1].key {
			return fmt.Errorf("in the state is %s %s, after %d others", e.kind, e.key, i)
		}
	}
	if want := truth.between(0, version).state(); !maps.Equal(state.state(), want) {
		return fmt.Errorf("at %d the state is %v, want %v", version, state.state(), want)
	}
	if err := got[end:].inOrder(); err != nil {
		return err
	}
	if have, want := got[end:].between(0, last), truth.between(version, last); !have.equal(want) {
		return fmt.Errorf("from %d to %d it tells %v, want %v", version, last, have, want)
	}
	return nil
}

// TestOneOrder compares watches that have bookmarks with each other and with one that sees everything.
func TestOneOrder(t *testing.T) {
	t.Parallel()
	s := newBusyWidgets(t)
	from := now(t, s, allWidgets)
	stories := make([]story, 12)
	idle := func(i int) bool { return i%4 == 3 }
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for i := range stories {
		readers.Go(func() {
			path, seconds := allWidgets, 3+i%3 // a bookmark comes two seconds before the end
			if idle(i) {
				path = "/apis/example.com/v1/namespaces/idle/widgets"
			}
			var err error
			stories[i], err = listen(s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d&allowWatchBookmarks=true&timeoutSeconds=%d", path, from, seconds)))
			if err != nil {
				t.Error(err)
			}
		})
	}
	go func() { readers.Wait(); close(stop) }()
	truth := churn(t, s, from, stop)
	amid := 0
	for i, got := range stories {
		if err := got.inOrder(); err != nil {
			t.Errorf("watch %d: %v", i, err)
		}
		bookmark := slices.IndexFunc(got, func(e told) bool { return e.kind == "BOOKMARK" })
		if bookmark < 0 || got[bookmark].version <= from {
			t.Errorf("watch %d: no bookmark that leads anywhere among %d events", i, len(got))
			continue
		}
		last := got[len(got)-1].version
		want := truth.between(from, last)
		if idle(i) {
			want = nil
		} else if bookmark > 0 && bookmark < len(got)-1 {
			amid++
		}
		if have := got.between(0, last); !have.equal(want) {
			t.Errorf("watch %d has %d events up to %d, not the %d that there were", i, len(have), last, len(want))
		}
	}
	if amid == 0 {
		t.Error("no watch has events both before and after a bookmark: nothing is shown by them")
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

// TestCompactionUnderWatchers: a watch that has what it needs in memory goes on, and one that would need more is
// told to list again. None misses anything in silence.
func TestCompactionUnderWatchers(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.WatchWriteTimeout = time.Hour }) // however slow the machine is
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
	checkNoVersion(t, s, from)
	expectVersions(t, s.Watch(after(at)), want[len(want)-4:])
}

// checkNoVersion: a version from which no watch can start is told in the stream, and nothing else is. What is
// wrong with the request itself is an HTTP error.
func checkNoVersion(t *testing.T, s *servertest.Server, expired int64) {
	t.Helper()
	tooOld, future := fmt.Sprintf("&resourceVersion=%d", expired), "&resourceVersion=1000000"
	const list = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	overHTTP2 := *s
	overHTTP2.Client = h2c(t)
	for protocol, s := range map[string]*servertest.Server{"HTTP/1.1": s, "HTTP/2": &overHTTP2} {
		for _, tc := range []struct {
			name, query string
			code        int
			event       string
		}{
			{"too old", tooOld, 200, fmt.Sprintf(`"message":"too old resource version: %d (`, expired)},
			{"too old, with bookmarks", tooOld + "&allowWatchBookmarks=true", 200, `"reason":"Expired","code":410`},
			{"too old, of one name", tooOld + "&fieldSelector=metadata.name%3Da", 200, `"reason":"Expired","code":410`},
			{"too old, without initial events", tooOld + "&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", 200, `"reason":"Expired","code":410`},
			{"future", future, 200, `"reason":"Expired","code":410`},
			{"future, with initial events", future + list, 200, `"causes":[{"reason":"ResourceVersionTooLarge"`},
			{"too old and a bad selector", tooOld + "&labelSelector=a+in+b", 400, ""},
			{"future and a bad match", future + "&resourceVersionMatch=Exact", 422, ""},
		} {
			t.Run(protocol+", "+tc.name, func(t *testing.T) {
				s := s.In(t)
				res, body := s.Do("GET", widgetsPath+"?watch=true"+tc.query, "")
				if res.StatusCode != tc.code || res.Header.Get("Content-Type") != "application/json" || (res.ContentLength < 0) != (tc.code == 200) {
					t.Errorf("%s, of %d bytes, with %v", res.Status, res.ContentLength, res.Header)
				}
				if tc.event == "" {
					return
				}
				if !strings.HasPrefix(body, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1",`) || strings.Count(body, "\n") != 1 || !strings.HasSuffix(body, "}\n") || !strings.Contains(body, tc.event) {
					t.Errorf("the stream is %q", body)
				}
			})
		}
	}
	if res, body := s.Do("GET", "/apis/example.com/v1/gadgets?watch=true"+tooOld, ""); res.StatusCode != http.StatusNotFound || body != "404 page not found\n" {
		t.Errorf("of an unknown type: %s %s", res.Status, body)
	}
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
	awaitIt(t, func() bool {
		res, _ := s.Do("GET", definition, "")
		return res.StatusCode == http.StatusNotFound
	})
	for _, path := range []string{widgetsPath, allWidgets, widgetsPath + "/a", widgetsPath + "?watch=true", after(from)} {
		unserved(t, s, path)
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
