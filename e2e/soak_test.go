//go:build soak

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// soak is how long TestSoak runs: the environment's SOAK, or ten minutes.
func soak(t *testing.T) time.Duration {
	if os.Getenv("SOAK") == "" {
		return 10 * time.Minute
	}
	d, err := time.ParseDuration(os.Getenv("SOAK"))
	if err != nil {
		t.Fatal("SOAK must be a duration: ", err)
	}
	return d
}

// TestSoak works a durable server hard. In each round, writers write, clients list, and watchers of every kind watch,
// some of which stall or drop their connections, while the server is stopped or killed and started again; then each
// watcher must have exactly what the writers wrote, and each list must be what was there at its version. History is
// shorter than the soak, so it's compacted meanwhile. After that, many watches are opened at once, dropped, and
// cut off.
func TestSoak(t *testing.T) {
	rounds := 8
	length := soak(t) / time.Duration(rounds)
	s := newSoaked(t, 2*length)
	var first int64
	for n := range rounds {
		r := newRound(t, s, n)
		if n == 0 {
			first = r.from
		}
		r.run(length)
		if t.Failed() {
			t.FailNow()
		}
	}
	eventually(t, "the first round's history is gone", func() bool {
		a, err := s.try("GET", fmt.Sprintf("%s?watch=true&timeoutSeconds=1&resourceVersion=%d", widgets, first), "")
		return err == nil && strings.HasPrefix(a.body, `{"type":"ERROR"`) && strings.Contains(a.body, `"code":410`)
	})
	t.Run("opened and dropped", func(t *testing.T) { soakDropped(t, s) })
	t.Run("all come back at once", func(t *testing.T) { soakStorm(t, s) })
	s.stop()
}

// soaked is a server that is restarted on one port.
type soaked struct {
	*process
	t      *testing.T
	args   []string
	outage sync.RWMutex // held for writing while the server is away
	kills  atomic.Int64
	acked  atomic.Int64 // the highest version of an acknowledged write
}

func newSoaked(t *testing.T, history time.Duration) *soaked {
	s := &soaked{t: t, args: []string{"--data-dir", t.TempDir(), "--history", history.String()}}
	s.process = start(t, s.args...)
	s.args = append(s.args, "--listen", strings.TrimPrefix(s.base, "http://"))
	s.define()
	return s
}

// restart stops or kills the server and starts it again.
func (s *soaked) restart(kill bool) {
	s.outage.Lock()
	defer s.outage.Unlock()
	acked := s.acked.Load()
	if kill {
		s.kills.Add(1)
		s.kill()
	} else {
		s.stop()
	}
	s.process = start(s.t, s.args...)
	if at := s.do(http.StatusOK, "GET", widgets+"?limit=1", "").object.rv(s.t); at < acked {
		s.t.Errorf("after a restart the version is %d; %d was acknowledged before", at, acked)
	}
}

// now returns the server's client, once there is a server.
func (s *soaked) now() *client {
	s.outage.RLock()
	defer s.outage.RUnlock()
	return s.process.client
}

// ack notes that a write was acknowledged which was sent when the version before was.
func (s *soaked) ack(what string, before, rv int64) {
	if rv <= before {
		s.t.Errorf("%s has version %d; %d was acknowledged before it was sent", what, rv, before)
	}
	for {
		highest := s.acked.Load()
		if rv <= highest || s.acked.CompareAndSwap(highest, rv) {
			return
		}
	}
}

// traits are what selectors look at.
type traits struct {
	name, tier, color string
	marked            bool // by a label without a value
}

func (o object) traits() traits {
	_, marked := o.Metadata.Labels["marked"]
	return traits{o.Metadata.Name, o.Metadata.Labels["tier"], o.Spec.Color, marked}
}

// state is the collection at a version: the version of each object, and its traits.
type state map[string]stored

type stored struct {
	traits
	rv int64
}

func stateOf(t *testing.T, items []object) state {
	s := state{}
	for _, o := range items {
		s[o.Metadata.Name] = stored{o.traits(), o.rv(t)}
	}
	return s
}

// selected is what a selector leaves.
func (s state) selected(selects func(traits) bool) state {
	left := maps.Clone(s)
	maps.DeleteFunc(left, func(_ string, o stored) bool { return !selects(o.traits) })
	return left
}

// difference names an object that isn't the same in both; empty if there is none.
func (s state) difference(other state) string {
	for name := range maps.Keys(s) {
		if s[name] != other[name] {
			return fmt.Sprintf("%s is %+v in one and %+v in the other", name, s[name], other[name])
		}
	}
	for name := range maps.Keys(other) {
		if _, ok := s[name]; !ok {
			return fmt.Sprintf("%s is %+v in the other alone", name, other[name])
		}
	}
	return ""
}

// apply does what an event says.
func (s state) apply(t *testing.T, e soakEvent) {
	if e.Type == "DELETED" {
		delete(s, e.Object.Metadata.Name)
		return
	}
	s[e.Object.Metadata.Name] = stored{e.Object.traits(), e.rv(t)}
}

// round is a part of the soak.
type round struct {
	*soaked
	n       int
	from    int64 // the version at which it began
	initial state // what was there then
	done    atomic.Bool
	last    atomic.Int64 // the last write's version; 0 until it's known
	record  [][]wrote    // of each writer
	counted [][]wrote    // of each that counts
	lists   []listed
}

func newRound(t *testing.T, s *soaked, n int) *round {
	s.t = t
	all := s.now().do(http.StatusOK, "GET", widgets, "").object
	return &round{soaked: s, n: n, from: all.rv(t), initial: stateOf(t, all.Items), record: make([][]wrote, 8), counted: make([][]wrote, 3)}
}

func (r *round) run(length time.Duration) {
	var clients, watchers sync.WaitGroup
	for i := range r.record {
		clients.Go(func() { r.record[i] = r.write(fmt.Sprintf("r%d-w%d", r.n, i)) })
	}
	r.now().do(http.StatusCreated, "POST", widgets, widget(r.counter(), 0))
	for i := range r.counted {
		clients.Go(func() { r.counted[i] = r.count() })
	}
	clients.Go(r.list)
	watches := r.watches(length)
	for _, w := range watches {
		watchers.Go(w.run)
	}
	r.disturb(length)
	r.done.Store(true)
	clients.Wait()
	r.last.Store(r.now().do(http.StatusCreated, "POST", widgets, widget(fmt.Sprintf("end-%d", r.n), 0)).object.rv(r.t))
	watchers.Wait()
	if !r.t.Failed() {
		r.check(watches)
	}
}

// disturb restarts the server twice in the time, and looks at its lag meanwhile.
func (r *round) disturb(length time.Duration) {
	end := time.Now().Add(length)
	for away := 0; time.Now().Before(end); {
		<-time.NewTimer(min(time.Second, time.Until(end))).C
		r.lag()
		if left := time.Until(end); away < 2 && left < length*time.Duration(2-away)/3 {
			r.restart((r.n+away)%2 == 1)
			away++
		}
	}
}

// lag looks how far the feed is behind etcd.
func (r *round) lag() {
	const most = 10_000
	c := r.now()
	fed := c.metric("apiserver_lite_feed_revision ")
	if written := c.metric("etcd_debugging_mvcc_current_revision "); written-fed > most || written == 0 {
		r.t.Errorf("the feed is at %.0f, and etcd was at %.0f after that", fed, written)
	}
}

// check compares what everybody saw.
func (r *round) check(watches []*soakWatch) {
	final := stateOf(r.t, r.now().do(http.StatusOK, "GET", widgets, "").object.Items)
	writes, events, resumed := 0, 0, 0
	for _, record := range slices.Concat(r.record, r.counted) {
		writes += len(record)
	}
	for _, w := range watches {
		events += len(w.got)
		resumed += w.resumed
		if !w.initial {
			w.check()
		}
		if d := w.view().difference(final.selected(w.selects)); d != "" {
			r.t.Errorf("what %s saw differs from what there is: %s", w.name, d)
		}
	}
	r.checkCount(watches[0].got)
	r.checkLists(watches[0].got)
	r.t.Logf("round %d: %d writes, %d lists, %d events to %d watchers, which resumed %d times; resident are %.0f MB", r.n, writes, len(r.lists), events, len(watches), resumed, r.now().metric("process_resident_memory_bytes ")/1e6)
}

// wrote is an acknowledged write, or one that was found to have happened.
type wrote struct {
	traits
	size    int64
	deleted bool
	rv      int64 // 0 for a deletion, which isn't answered with it
}

// write creates, changes and deletes widgets of its own.
func (r *round) write(id string) (record []wrote) {
	for n := int64(0); !r.done.Load(); n++ {
		w := wrote{size: n, deleted: n%5 == 4, traits: traits{
			name: fmt.Sprintf("%s-%d", id, n/5%10), tier: []string{"front", "back"}[n%2], color: []string{"red", "green"}[n/2%2], marked: n%3 == 0}}
		before := r.acked.Load()
		rv, acked, err := r.writeOne(w)
		if err != nil {
			r.t.Errorf("write %d of %s: %v", n, w.name, err)
			return record
		}
		if !w.deleted {
			w.rv = rv
			if acked {
				r.ack(w.name, before, rv)
			}
		}
		record = append(record, w)
		if n%5 == 3 && acked {
			r.writeAgain(w)
		}
	}
	return record
}

// writeOne writes until it's known that it happened: acked, or found to have.
func (r *round) writeOne(w wrote) (rv int64, acked bool, err error) {
	for again := false; ; {
		c := r.now()
		if again { // the last attempt may have done it, and nobody said so
			a, err := c.try("GET", widgets+"/"+w.name, "")
			if err != nil || a.code != http.StatusOK && a.code != http.StatusNotFound {
				continue
			}
			if w.deleted && a.code == http.StatusNotFound {
				return 0, false, nil
			}
			if !w.deleted && a.code == http.StatusOK && a.object.Spec.Size == w.size {
				return a.object.rv(r.t), false, nil
			}
		}
		a, err := c.send(w)
		switch {
		case err != nil:
			again = true
		case a.code < 300 && w.deleted:
			return 0, true, nil
		case a.code < 300:
			return a.object.rv(r.t), true, nil
		case retry(a.code):
			again = true // after a 504 nobody knows
		default:
			return 0, false, fmt.Errorf("%d %s", a.code, a.body)
		}
	}
}

// send sends a write: every fifth creates, and the one before it deletes.
func (c *client) send(w wrote) (answer, error) {
	labels := fmt.Sprintf(`{"tier":%q}`, w.tier)
	if w.marked {
		labels = fmt.Sprintf(`{"tier":%q,"marked":""}`, w.tier)
	} else if w.size%5 != 0 {
		labels = fmt.Sprintf(`{"tier":%q,"marked":null}`, w.tier)
	}
	body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"labels":%s},"spec":{"size":%d,"color":%q}}`, w.name, labels, w.size, w.color)
	switch {
	case w.deleted:
		return c.try("DELETE", widgets+"/"+w.name, "")
	case w.size%5 == 0:
		return c.try("POST", widgets, body)
	default:
		return c.try("PATCH", widgets+"/"+w.name, body, "Content-Type", "application/merge-patch+json")
	}
}

// writeAgain changes nothing, so there must be neither a version nor an event. It may fail.
func (r *round) writeAgain(w wrote) {
	a, err := r.now().send(w)
	if err == nil && a.code == http.StatusOK && a.object.rv(r.t) != w.rv {
		r.t.Errorf("%s was changed to what it was, and its version went from %d to %d", w.name, w.rv, a.object.rv(r.t))
	}
}

func (r *round) counter() string { return fmt.Sprintf("counter-%d", r.n) }

// count adds one to a widget that others count too, as long as nobody else wrote it since it was read.
func (r *round) count() (record []wrote) {
	for !r.done.Load() {
		c := r.now()
		a, err := c.try("GET", widgets+"/"+r.counter(), "")
		if err != nil || a.code != http.StatusOK {
			continue
		}
		before, size := r.acked.Load(), a.object.Spec.Size+1
		body := fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"resourceVersion":%q,"labels":{"tier":"front"}},"spec":{"size":%d}}`,
			r.counter(), a.object.Metadata.ResourceVersion, size)
		if a, err = c.try("PUT", widgets+"/"+r.counter(), body); err != nil {
			continue
		}
		switch a.code {
		case http.StatusOK:
			r.ack(r.counter(), before, a.object.rv(r.t))
			record = append(record, wrote{size: size, rv: a.object.rv(r.t)})
		case http.StatusConflict, http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusGatewayTimeout:
		default:
			r.t.Errorf("PUT of %s: %d %s", r.counter(), a.code, a.body)
			return record
		}
	}
	return record
}

// checkCount looks whether each write of the counter added one to the write before, and every acknowledged one is there.
func (r *round) checkCount(events []soakEvent) {
	sizes, next := map[int64]int64{}, int64(0)
	for _, e := range events {
		if e.Object.Metadata.Name != r.counter() {
			continue
		}
		if e.Object.Spec.Size != next {
			r.t.Errorf("%s is %d at %d, want %d", r.counter(), e.Object.Spec.Size, e.rv(r.t), next)
			return
		}
		sizes[e.rv(r.t)] = next
		next++
	}
	for _, w := range slices.Concat(r.counted...) {
		if sizes[w.rv] != w.size {
			r.t.Errorf("%s was acknowledged as %d at %d, where it is %d", r.counter(), w.size, w.rv, sizes[w.rv])
		}
	}
}

// listed is a list that a client got.
type listed struct {
	query   string
	selects func(traits) bool
	rv      int64
	state   state
}

// list lists in every way, over and over.
func (r *round) list() {
	everything := func(traits) bool { return true }
	ways := []listed{
		{query: "?", selects: everything},
		{query: "?resourceVersion=0", selects: everything},
		{query: "?limit=7", selects: everything},
		{query: "?limit=3&labelSelector=tier%3Dfront", selects: func(o traits) bool { return o.tier == "front" }},
		{query: "?fieldSelector=spec.color%3Dred", selects: func(o traits) bool { return o.color == "red" }},
	}
	pause := time.NewTicker(20 * time.Millisecond)
	defer pause.Stop()
	for i := 0; !r.done.Load(); i++ {
		<-pause.C
		l, before := ways[i%len(ways)], r.acked.Load()
		if err := l.get(r); err != nil {
			r.t.Errorf("list with %s: %v", l.query, err)
			return
		}
		if l.state == nil {
			continue // the server was away
		}
		if l.rv < before && !strings.Contains(l.query, "resourceVersion=0") {
			r.t.Errorf("list with %s is at %d; %d was acknowledged before", l.query, l.rv, before)
		}
		r.lists = append(r.lists, l)
	}
}

// get lists, page by page. The list has no state if there wasn't a whole answer.
func (l *listed) get(r *round) error {
	var items []object
	for token := ""; ; {
		a, err := r.now().try("GET", widgets+l.query+"&continue="+url.QueryEscape(token), "")
		if err != nil || retry(a.code) {
			return nil
		}
		if a.code != http.StatusOK {
			return fmt.Errorf("%d %s", a.code, a.body)
		}
		rv := a.object.rv(r.t)
		if token != "" && rv != l.rv {
			return fmt.Errorf("a page is of %d, and the first one of %d", rv, l.rv)
		}
		items, l.rv = append(items, a.object.Items...), rv
		var page struct{ Metadata struct{ Continue string } }
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			return err
		}
		if token = page.Metadata.Continue; token == "" {
			if l.state = stateOf(r.t, items); len(l.state) != len(items) {
				return errors.New("an object is in it twice")
			}
			return nil
		}
	}
}

// checkLists compares each list with what was there at its version.
func (r *round) checkLists(events []soakEvent) {
	slices.SortFunc(r.lists, func(a, b listed) int { return int(a.rv - b.rv) })
	is, next := maps.Clone(r.initial), 0
	for _, l := range r.lists {
		if l.rv < r.from {
			continue
		}
		for ; next < len(events) && events[next].rv(r.t) <= l.rv; next++ {
			is.apply(r.t, events[next])
		}
		if d := l.state.difference(is.selected(l.selects)); d != "" {
			r.t.Errorf("the list with %s at %d isn't what there was: %s", l.query, l.rv, d)
		}
	}
}
