package server_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// watchersPage is the answer of /debug/watchers.
type watchersPage struct {
	Groups []struct {
		selects
		Members int
	}
	Watchers []struct {
		selects
		UserAgent, ResourceVersion string
		LagEvents                  int
		BytesSent                  int64
		LagSeconds, AgeSeconds     float64
	}
}

type selects struct{ Resource, Namespace, Name, LabelSelector, FieldSelector, ShardSelector string }

func watchersOf(t *testing.T, s *servertest.Server) watchersPage {
	t.Helper()
	var p watchersPage
	if err := json.Unmarshal([]byte(s.Get("/debug/watchers")), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

// named sends requests under a user agent.
type named struct {
	http.RoundTripper
	agent string
}

func (n named) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("User-Agent", n.agent)
	return n.RoundTripper.RoundTrip(r)
}

// as returns the server with a client that calls itself so.
func as(s *servertest.Server, agent string) *servertest.Server {
	other := *s
	other.Client = &http.Client{Transport: named{s.Client.Transport, agent}}
	return &other
}

func TestWatchersPage(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	if got := s.Get("/debug/watchers"); got != `{"groups":[],"watchers":[]}`+"\n" {
		t.Errorf("with nobody watching it is %s", got)
	}
	big := makeWidgets(t, s, 1, 1<<20)
	from := now(t, s, widgetsPath)

	reader := as(s, "reader/1").Watch(after(from))
	second := as(s, "reader/2").Watch(after(from))
	other := as(s, "other/1").Watch(allWidgets + "?watch=true&labelSelector=tier+in+(b,a),x!=y")
	stalled := as(stalling(t, s), strings.Repeat("long", 100)).Watch(after(from) + "&fieldSelector=metadata.name%3Dw0")
	var last int64
	var page watchersPage
	awaitIt(t, func() bool {
		last = rewrite(t, s, big, 1)[0]
		expectVersions(t, reader, []int64{last})
		expectVersions(t, second, []int64{last})
		page = watchersOf(t, s)
		return page.Watchers[0].LagEvents > 2
	})

	if len(page.Watchers) != 4 {
		t.Fatalf("there are %d watchers: %+v", len(page.Watchers), page)
	}
	w := page.Watchers[0] // the most behind comes first
	version, err := strconv.ParseInt(w.ResourceVersion, 10, 64)
	if w.selects != (selects{Resource: "widgets.v1.example.com", Namespace: "default", Name: "w0"}) || !strings.HasPrefix(w.UserAgent, strings.Repeat("long", 32)) || len(w.UserAgent) > 132 ||
		err != nil || version < from || version >= last || w.LagSeconds <= 0 || w.AgeSeconds < w.LagSeconds || w.BytesSent == 0 {
		t.Errorf("the stalled one: %+v (it began at %d, the newest is %d)", w, from, last)
	}
	for _, w := range page.Watchers[1:] {
		switch w.UserAgent {
		case "reader/1", "reader/2":
			if w.selects != (selects{Resource: "widgets.v1.example.com", Namespace: "default"}) || w.BytesSent < 1<<20 || w.ResourceVersion != strconv.FormatInt(last, 10) {
				t.Errorf("a reader: %+v (the newest version is %d)", w, last)
			}
		case "other/1":
			if w.selects != (selects{Resource: "widgets.v1.example.com", LabelSelector: "tier in (a,b),x!=y"}) || w.BytesSent != 0 {
				t.Errorf("the one with a selector: %+v", w)
			}
		default:
			t.Errorf("who is %+v?", w)
		}
		if w.LagEvents != 0 || w.LagSeconds != 0 || w.AgeSeconds <= 0 {
			t.Errorf("one that isn't behind: %+v", w)
		}
	}
	if len(page.Groups) != 3 || page.Groups[0].Members != 2 || page.Groups[0].selects != (selects{Resource: "widgets.v1.example.com", Namespace: "default"}) ||
		page.Groups[1].Members != 1 || page.Groups[2].Members != 1 {
		t.Errorf("the groups: %+v", page.Groups)
	}
	steers := s.Watch(allWidgets + "?watch=true&fieldSelector=metadata.name%3D%1b%5d0%3bx")
	table := s.Get("/debug/watchers?pretty")
	if strings.Contains(table, "\x1b") {
		t.Errorf("the table steers the terminal: %q", table)
	}
	steers.Close()
	for _, want := range []string{"MEMBERS  RESOURCE", "\n2        widgets.v1.example.com  default", "LAG EVENTS", "tier in (a,b),x!=y", "reader/1\n"} {
		if !strings.Contains(table, want) {
			t.Errorf("there is no %q in the table:\n%s", want, table)
		}
	}
	metrics := s.Get("/metrics")
	for _, want := range []string{"\napiserver_lite_watch_lag_events_max ", "\napiserver_lite_watch_lag_seconds_max ", "\napiserver_lite_watchers_lagging "} {
		if _, value, ok := strings.Cut(metrics, want); !ok || want != "\napiserver_lite_watchers_lagging " && strings.HasPrefix(value, "0\n") {
			t.Errorf("no lag in the metric %q", want)
		}
	}
	for _, w := range []*servertest.Stream{reader, second, other, stalled} {
		w.Close()
	}
	awaitIt(t, func() bool { return len(watchersOf(t, s).Watchers) == 0 })
	if p := watchersOf(t, s); len(p.Groups) != 0 {
		t.Errorf("groups without members: %+v", p.Groups)
	}
}

// TestWatchersPageShards: a watch's fields and its shards are told apart.
func TestWatchersPageShards(t *testing.T) {
	t.Parallel()
	s := newWidgets(t)
	const shards = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	s.Watch(allWidgets + "?watch=true&lite=true&fieldSelector=metadata.name%5E=w&shardSelector=" + url.QueryEscape(shards))
	s.Watch(allWidgets + "?watch=true&lite=true&shardSelector=" + url.QueryEscape(shards))
	var seen []string
	for _, w := range watchersOf(t, s).Watchers {
		seen = append(seen, w.FieldSelector+" "+w.ShardSelector)
	}
	if slices.Sort(seen); !slices.Equal(seen, []string{" " + shards, "metadata.name^=w " + shards}) {
		t.Errorf("they select %q", seen)
	}
	if table := s.Get("/debug/watchers?pretty"); !strings.Contains(table, "  metadata.name^=w  "+shards) {
		t.Errorf("the table is\n%s", table)
	}
}

// TestWatchersPageIsGuarded: it's for whoever may read /metrics.
func TestWatchersPageIsGuarded(t *testing.T) {
	t.Parallel()
	const token = "sesame"
	closed := servertest.New(t, func(s *server.Server) { s.Token = token })
	open := servertest.New(t)
	for _, tc := range []struct {
		name    string
		s       *servertest.Server
		method  string
		query   string
		headers []string
		code    int
	}{
		{"no token", closed, "GET", "", nil, http.StatusUnauthorized},
		{"no token, as a table", closed, "GET", "?pretty", nil, http.StatusUnauthorized},
		{"wrong token", closed, "GET", "", []string{"Authorization", "Bearer sesam"}, http.StatusUnauthorized},
		{"right token", closed, "GET", "", []string{"Authorization", "Bearer " + token}, http.StatusOK},
		{"foreign host", open, "GET", "", []string{"Host", "evil.example"}, http.StatusForbidden},
		{"neither true nor false", open, "GET", "?pretty=perhaps", nil, http.StatusOK},
		{"write", open, "POST", "", nil, http.StatusMethodNotAllowed},
		{"head", open, "HEAD", "", nil, http.StatusOK},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, path := range []string{"/debug/watchers", "/metrics"} {
				if path == "/metrics" && tc.query != "" {
					continue
				}
				if res, body := tc.s.Do(tc.method, path+tc.query, "", tc.headers...); res.StatusCode != tc.code {
					t.Errorf("%s: %s, want %d\n%s", path, res.Status, tc.code, body)
				}
			}
		})
	}
}
