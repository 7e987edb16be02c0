//go:build soak

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"
)

// soakEvent is an event with more of its object.
type soakEvent struct {
	Type   string
	Object soakObject
}

type soakObject struct {
	object
	extra struct {
		Metadata struct {
			Generation  int64
			Annotations map[string]string
		}
	}
}

func (o *soakObject) UnmarshalJSON(text []byte) error {
	return errors.Join(json.Unmarshal(text, &o.object), json.Unmarshal(text, &o.extra))
}

// rv is the event's version.
func (e soakEvent) rv(t *testing.T) int64 { return e.Object.rv(t) }

// soakWatch is a watch that is resumed whenever it ends.
type soakWatch struct {
	*round
	name    string
	query   string
	selects func(traits) bool
	all     bool // in all namespaces
	http2   bool
	drops   bool          // leaves after some events, again and again
	initial bool          // begins with the state, each time
	stall   time.Duration // reads nothing for so long, once
	seconds int           // after which the server ends it
	at      int64
	resumed int
	got     []soakEvent // with initial, since it was opened
}

// watches returns every kind of watch; the first one sees everything.
func (r *round) watches(length time.Duration) []*soakWatch {
	name := fmt.Sprintf("r%d-w0-3", r.n)
	all := func(traits) bool { return true }
	front := func(o traits) bool { return o.tier == "front" }
	stall := min(length/3, 20*time.Second) // shorter than patience
	watches := []*soakWatch{
		{name: "all", selects: all},
		{name: "bookmarks", query: "&allowWatchBookmarks=true", selects: all},
		{name: "short", query: "&allowWatchBookmarks=true", seconds: 2, selects: all},
		{name: "HTTP/2", http2: true, selects: all},
		{name: "all namespaces", all: true, selects: all},
		{name: "one namespace of all", all: true, query: "&fieldSelector=metadata.namespace%3Ddefault", selects: all},
		{name: "label", query: "&labelSelector=tier%3Dfront", selects: front},
		{name: "not a label", query: "&labelSelector=tier!%3Dback", selects: front},
		{name: "label over HTTP/2", query: "&labelSelector=tier+in+(front,middle)", http2: true, selects: front},
		{name: "label not in", query: "&labelSelector=tier+notin+(back)", selects: front},
		{name: "label exists", query: "&labelSelector=marked", selects: func(o traits) bool { return o.marked }},
		{name: "label doesn't exist", query: "&labelSelector=!marked,tier", selects: func(o traits) bool { return !o.marked }},
		{name: "field", query: "&fieldSelector=spec.color%3Dred", selects: func(o traits) bool { return o.color == "red" }},
		{name: "not a field", query: "&fieldSelector=spec.color!%3Dred", selects: func(o traits) bool { return o.color != "red" }},
		{name: "label and field", query: "&labelSelector=tier%3Dfront,marked&fieldSelector=spec.color%3Dred", selects: func(o traits) bool { return front(o) && o.marked && o.color == "red" }},
		{name: "name", query: "&fieldSelector=metadata.name%3D" + name, selects: func(o traits) bool { return o.name == name }},
		{name: "nothing", query: "&labelSelector=tier%3Dnone", selects: func(traits) bool { return false }},
		{name: "stalled", stall: stall, selects: all},
		{name: "stalled over HTTP/2", stall: stall, http2: true, selects: all},
		{name: "initial events", initial: true, selects: all},
		{name: "initial events of a label", initial: true, query: "&labelSelector=tier%3Dfront", selects: front},
	}
	for i := range 10 {
		watches = append(watches, &soakWatch{name: fmt.Sprint("dropped ", i), drops: true, http2: i%2 == 1, selects: all})
	}
	for _, w := range watches {
		w.round, w.at = r, r.from
		if w.seconds == 0 {
			w.seconds = 4
		}
		if !w.selects(traits{tier: "front"}) {
			w.seconds = 1 // it isn't given the round's last write, and ends some time after it
		}
		if w.initial {
			w.query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
		}
	}
	return watches
}

func (w *soakWatch) path() string {
	path, from := widgets, fmt.Sprint("&resourceVersion=", w.at)
	if w.all {
		path = "/apis/example.com/v1/widgets"
	}
	if w.initial {
		from = ""
	}
	return fmt.Sprintf("%s?watch=true&timeoutSeconds=%d%s%s", path, w.seconds, from, w.query)
}

// run watches until everything up to the last write has been given.
func (w *soakWatch) run() {
	transport := &http.Transport{}
	if w.http2 {
		transport.Protocols = new(http.Protocols)
		transport.Protocols.SetUnencryptedHTTP2(true)
	}
	defer transport.CloseIdleConnections()
	for w.resumed = -1; !w.over() && !w.t.Failed(); {
		w.resumed++
		c, kills := &client{t: w.t, base: w.now().base, http: &http.Client{Transport: transport}}, w.kills.Load()
		stream, err := c.open(w.path())
		if err != nil {
			// Without an answer the server was away.
			if strings.Contains(err.Error(), " answered ") && !strings.Contains(err.Error(), " answered 503") && !strings.Contains(err.Error(), " answered 429") {
				w.t.Errorf("%s, resumed at %d: %v", w.name, w.at, err)
			}
			continue
		}
		stalled := w.stall > 0
		if stalled {
			<-time.NewTimer(w.stall).C
			w.stall = 0
		}
		if err := w.read(stream); err != nil && !stalled && w.kills.Load() == kills {
			w.t.Errorf("%s at %d ended badly, and the server wasn't killed: %v", w.name, w.at, err)
		}
		stream.body.Close()
	}
}

// over tells whether the watch has been given everything.
func (w *soakWatch) over() bool {
	end := w.last.Load()
	return end > 0 && w.at >= end
}

// read takes events until the stream ends, or the watch drops it. The error says that it didn't end cleanly.
func (w *soakWatch) read(stream *stream) error {
	until, pending := -1, w.initial
	if w.drops {
		until = len(w.got) + rand.IntN(500)
	}
	if w.initial {
		w.got = nil
	}
	known := w.last.Load()
	for len(w.got) != until && (pending || !w.over()) {
		line, err := stream.lines.ReadString('\n')
		if err == io.EOF && line == "" {
			// A clean end: there was nothing more that it selects, which a watch can't see that selects little.
			if !pending {
				w.at = max(w.at, known)
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %q: %w", line, err)
		}
		var e soakEvent
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return fmt.Errorf("the frame %q: %w", line, err)
		}
		if e.Type == "ERROR" {
			w.t.Errorf("%s got %s", w.name, line)
			return nil
		}
		w.take(e, &pending)
	}
	return nil
}

// take looks at an event's version and keeps it. pending says that initial events come, in any order.
func (w *soakWatch) take(e soakEvent, pending *bool) {
	rv, end := e.rv(w.t), e.Object.extra.Metadata.Annotations["k8s.io/initial-events-end"] == "true"
	wrong := func(why string) {
		w.t.Errorf("%s got %s %s at %d, after %d: %s", w.name, e.Type, e.Object.Metadata.Name, rv, w.at, why)
	}
	switch {
	case end && !*pending:
		wrong("the end of initial events, which had ended or weren't asked for")
	case *pending && !end && e.Type != "ADDED":
		wrong("initial events haven't ended")
	case *pending && !end:
	case rv < w.at, rv == w.at && e.Type != "BOOKMARK":
		wrong("it went back")
	}
	if end {
		*pending = false
	}
	if !*pending {
		w.at = rv
	}
	if e.Type != "BOOKMARK" {
		w.got = append(w.got, e)
	}
}

// view is what somebody has who did what the watch said.
func (w *soakWatch) view() state {
	s := w.round.initial.selected(w.selects)
	if w.initial {
		s = state{}
	}
	for _, e := range w.got {
		s.apply(w.t, e)
	}
	return s
}

// check compares what a watch got with what each writer wrote, object by object; the order of all was looked at before.
func (w *soakWatch) check() {
	got := map[string][]soakEvent{}
	for _, e := range w.got {
		got[e.Object.Metadata.Name] = append(got[e.Object.Metadata.Name], e)
	}
	for _, record := range w.record {
		if err := w.checkWriter(got, record); err != nil {
			w.t.Errorf("%s: %v", w.name, err)
			return
		}
	}
	for name, rest := range got {
		if len(rest) > 0 && !strings.HasPrefix(name, "end-") && !strings.HasPrefix(name, "counter-") {
			w.t.Errorf("%s got %d events of %s that nobody caused: %s at %d", w.name, len(rest), name, rest[0].Type, rest[0].rv(w.t))
		}
	}
}

// checkWriter takes a writer's events from got.
func (w *soakWatch) checkWriter(got map[string][]soakEvent, record []wrote) error {
	type seen struct {
		wrote
		shown      bool
		generation int64
		event      soakEvent // the last one
	}
	before := map[string]seen{}
	for _, r := range record {
		was, is := before[r.name], !r.deleted && w.selects(r.traits)
		now := seen{wrote: r, shown: is, generation: was.generation + 1, event: was.event}
		if r.size%5 == 0 {
			now.generation = 1
		}
		want, size := "MODIFIED", r.size
		switch {
		case !was.shown && !is:
			before[r.name] = now
			continue
		case !was.shown:
			want = "ADDED"
		case !is:
			want, size = "DELETED", was.size // the last state that it showed
		}
		rest := got[r.name]
		if len(rest) == 0 {
			return fmt.Errorf("it misses %s %s at %d", want, r.name, r.rv)
		}
		e := rest[0]
		got[r.name], now.event = rest[1:], e
		generation := now.generation
		if want == "DELETED" {
			generation = was.generation
		}
		if rv := e.rv(w.t); e.Type != want || r.rv != 0 && rv != r.rv || e.Object.Spec.Size != size {
			return fmt.Errorf("%s %s of size %d at %d, want %s of size %d at %d", e.Type, r.name, e.Object.Spec.Size, rv, want, size, r.rv)
		}
		if e.Object.extra.Metadata.Generation != generation {
			return fmt.Errorf("%s %s at %d has generation %d, want %d", e.Type, r.name, e.rv(w.t), e.Object.extra.Metadata.Generation, generation)
		}
		if was, is := was.event.Object.Metadata, e.Object.Metadata; want != "ADDED" && (is.UID != was.UID || is.CreationTimestamp != was.CreationTimestamp) {
			return fmt.Errorf("%s %s at %d has uid %s of %s, and had %s of %s", e.Type, r.name, e.rv(w.t), is.UID, is.CreationTimestamp, was.UID, was.CreationTimestamp)
		}
		before[r.name] = now
	}
	return nil
}
