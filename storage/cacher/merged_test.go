package cacher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// mergedQueries are what watchers of several resources select.
var mergedQueries = [][]query{
	{{}, {prefix: "gadgets"}},
	{{namespace: "ns1"}, {prefix: "gadgets", labels: "tier=front"}},
	{{fields: "spec.color=red"}, {prefix: "gadgets", fields: "spec.color!=red"}},
	{{prefix: "gadgets"}, {labels: "tier notin (front)", namespace: "ns2"}},
	{{name: "w1-2"}, {prefix: "gadgets", name: "w1-2"}},
}

// mergedObserver is an observer of several queries at once.
type mergedObserver struct {
	queries  []observer // only their queries count
	rng      *rand.Rand
	segments []segment
}

// gadgetView shows gadgets in another version, so that frames tell them from widgets of the same name.
var gadgetView = &kube.View{APIVersion: "example.com/v2", Kind: "Widget"}

// shown returns the frames of the model as the views have them.
func (o observer) shown(frames []string) (shown []string) {
	for _, frame := range frames {
		if o.query.prefix == "gadgets" {
			frame = strings.Replace(frame, testView.APIVersion, gadgetView.APIVersion, 1)
		}
		shown = append(shown, frame)
	}
	return shown
}

func parts(t testing.TB, c *Cacher, of []observer, start Start, after storage.Revision) []Part {
	var all []Part
	for _, o := range of {
		opts := o.query.options(t)
		opts.Start, opts.After = start, after
		if o.query.prefix == "gadgets" {
			opts.View = gadgetView
		}
		all = append(all, Part{c.Resource(o.query.of()), opts})
	}
	return all
}

// watch reads until the position is at a revision, or the connection is given up at random.
func (o *mergedObserver) watch(t testing.TB, r *rig, until storage.Revision) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		var at storage.Revision
		if n := len(o.segments); n > 0 {
			at = o.segments[n-1].to
		}
		if at >= until {
			return
		}
		s, start := segment{from: at}, StartAfter
		if at == 0 {
			s.state, start = true, StartState
		}
		m, err := r.cacher.OpenMerged(ctx, parts(t, r.cacher, o.queries, start, at))
		if err == nil {
			err = o.read(ctx, r, m, &s, until)
			m.Close()
			o.segments = append(o.segments, s)
		}
		if errors.Is(err, storage.ErrCompacted) || errors.Is(err, watchstream.ErrExpired) {
			o.segments = append(o.segments, segment{}) // list anew
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%v: %v", o.queries, err)
			return
		}
	}
}

func (o *mergedObserver) read(ctx context.Context, r *rig, m *Merged, s *segment, until storage.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	reached := make(chan struct{})
	go func() { defer close(reached); r.cacher.WaitFor(ctx, until) }()
	defer func() { cancel(); <-reached }()
	for giveUp := o.rng.IntN(60); ; giveUp-- {
		synced := m.Synced()
		out, wait, err := m.Next(ctx, nil)
		if err != nil {
			return err
		}
		s.frames = append(s.frames, lines(out)...)
		switch {
		case synced:
		case m.Synced():
			s.synced, s.from = len(s.frames), storage.Revision(m.Revision())
		default:
			continue // the state isn't whole
		}
		s.to = storage.Revision(m.Revision())
		if s.to >= until || giveUp <= 0 {
			return nil
		}
		if wait != nil {
			select {
			case <-wait:
			case <-reached:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
}

// verify compares what the observer got with the model: the state that it was told of as a whole, and then each event in order.
func (o *mergedObserver) verify(t testing.TB, writes []written) {
	t.Helper()
	for i, s := range o.segments {
		if s.to == 0 {
			continue // it was given up before the state was whole
		}
		if s.state {
			var state []string
			for _, q := range o.queries {
				state = append(state, q.shown(q.stateAt(writes, s.from))...)
			}
			slices.Sort(state)
			if got := stateOf(s.frames[:s.synced]); !slices.Equal(got, state) {
				t.Errorf("%+v, connection %d: the state at %d is\n%s\nwant\n%s", o.queries, i, s.from, strings.Join(got, "\n"), strings.Join(state, "\n"))
			}
		}
		var want []string
		for _, w := range writes {
			if w.rev > s.from && w.rev <= s.to {
				for _, q := range o.queries {
					want = append(want, q.shown(q.told(w))...)
				}
			}
		}
		var got []string
		for _, frame := range s.frames[s.synced:] {
			got = append(got, strings.TrimSpace(frame))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%+v, connection %d (%d to %d), got\n%s\nwant\n%s", o.queries, i, s.from, s.to, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

// stateOf returns what there is after frames, each as its ADDED frame.
func stateOf(frames []string) []string {
	state := map[string]string{}
	for _, frame := range frames {
		frame = strings.TrimSpace(frame)
		_, document, _ := strings.Cut(frame, `"object":`)
		name, _, _ := strings.Cut(document[strings.Index(document, `"name":`):], `"resourceVersion"`) // with the namespace
		id := document[:len(`{"apiVersion":"example.com/v1"`)] + name
		if delete(state, id); !strings.HasPrefix(frame, `{"type":"DELETED"`) {
			state[id] = `{"type":"ADDED","object":` + document
		}
	}
	return slices.Sorted(maps.Values(state))
}

// TestMergedModel is TestModel for watchers of several resources.
func TestMergedModel(t *testing.T) {
	for _, seed := range []uint64{1, 2} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runMergedModel(t, seed) })
	}
}

func runMergedModel(t *testing.T, seed uint64) {
	const lives, writers, writesPerLife, crowd = 4, 4, 150, 3
	r := newRig(t, smallBounds)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{}
	have := make([]map[string]written, writers)
	for i := range have {
		have[i] = map[string]written{}
	}
	var observers []*mergedObserver
	for life := range lives {
		for range crowd {
			for _, queries := range mergedQueries {
				o := &mergedObserver{rng: rand.New(rand.NewPCG(seed, rng.Uint64()))}
				for _, q := range queries {
					o.queries = append(o.queries, observer{query: q})
				}
				observers = append(observers, o)
			}
		}
		var writing, watching sync.WaitGroup
		written := make(chan struct{})
		target := r.store.Current() + writers*writesPerLife
		for i := range writers {
			rng := rand.New(rand.NewPCG(seed, rng.Uint64()))
			writing.Go(func() { m.write(t, r.store, i, writesPerLife, rng, have[i]) })
		}
		for i, o := range observers {
			if i%3 == 0 { // some sleep while everything is written, and are late
				watching.Go(func() { <-written; o.watch(t, r, target-storage.Revision(i%writesPerLife)) })
			} else {
				watching.Go(func() { o.watch(t, r, target) })
			}
		}
		writing.Wait()
		if life%2 == 1 { // some have fallen out of history
			if _, err := r.server.Client.Compact(context.Background(), int64(r.store.Current()-storage.Revision(50+rng.IntN(200)))); err != nil {
				t.Fatal(err)
			}
		}
		close(written)
		watching.Wait()
		r.restart()
	}
	final := r.store.Current()
	for _, o := range observers {
		o.watch(t, r, final)
		o.verify(t, m.sorted())
	}
	for _, p := range []storage.Prefix{widgets, gadgets} {
		if res := r.cacher.Resource(p); len(res.groups) != 0 {
			t.Errorf("groups are left behind: %v", res.groups)
		}
	}
}

// TestMergedRevision: the events of one revision come together, only the last has an id, and who goes on after that revision gets
// them again, unless it had one event.
func TestMergedRevision(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx := context.Background()
	widget, gadget := thing{key: string(widgets) + "ns1/w", tier: "front", color: "red"}, thing{key: string(gadgets) + "ns1/g", tier: "front", color: "red"}
	single, err := r.store.Create(ctx, string(widgets)+"ns1/first", []byte((&thing{key: string(widgets) + "ns1/first"}).json(0)))
	if err != nil {
		t.Fatal(err)
	}
	txn, err := r.server.Client.Txn(ctx).Then(clientv3.OpPut(widget.key, widget.json(0)), clientv3.OpPut(gadget.key, gadget.json(0))).Commit()
	if err != nil {
		t.Fatal(err)
	}
	both := storage.Revision(txn.Header.Revision)
	if err := r.cacher.WaitFor(ctx, both); err != nil {
		t.Fatal(err)
	}
	queries := []observer{{query: query{}}, {query: query{prefix: "gadgets"}}}
	next := func(of []Part) string {
		t.Helper()
		m, err := r.cacher.OpenMerged(ctx, of)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		out, _, err := m.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	events := frameOf("ADDED", &widget, both) + "\n" + queries[1].shown([]string{frameOf("ADDED", &gadget, both)})[0] + "\n"
	for _, test := range []struct {
		name  string
		after storage.Revision
		want  string
	}{
		{"after the revision of one event", single, events},
		{"after the revision of both", both, events},
		{"before the revision of one event", single - 1, frameOf("ADDED", &thing{key: string(widgets) + "ns1/first"}, single) + "\n" + events},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := next(parts(t, r.cacher, queries, StartAfter, test.after)); got != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
	t.Run("server-sent events", func(t *testing.T) {
		of := parts(t, r.cacher, queries, StartAfter, single)
		for i := range of {
			of[i].View = testView.AsServerSent() // of both
		}
		want := fmt.Sprintf("event: ADDED\ndata: %s\n\nevent: ADDED\nid: %d\ndata: %s\n\n", widget.json(both), both, gadget.json(both))
		if got := next(of); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// TestMergedEnds: when the watches of one resource end, the stream gives all that happened until then, and ends.
func TestMergedEnds(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx := context.Background()
	m, err := r.cacher.OpenMerged(ctx, parts(t, r.cacher, []observer{{query: query{}}, {query: query{prefix: "gadgets"}}}, StartNow, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	w := thing{key: string(widgets) + "ns1/w"}
	rev, err := r.store.Create(ctx, w.key, []byte(w.json(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.cacher.WaitFor(ctx, rev); err != nil {
		t.Fatal(err)
	}
	r.cacher.Resource(gadgets).EndWatches(rev)
	out, _, err := m.Next(ctx, nil)
	if want := frameOf("ADDED", &w, rev) + "\n"; err != nil || string(out) != want {
		t.Fatalf("got %q and %v, want %q", out, err, want)
	}
	if out, _, err = m.Next(ctx, nil); !errors.Is(err, io.EOF) || len(out) > 0 {
		t.Errorf("got %q and %v, want io.EOF", out, err)
	}
}

// TestMergedFits: a batch ends with the revision after which it would be too large, and has at least one revision.
func TestMergedFits(t *testing.T) {
	large := strings.Repeat("x", maxBatchBytes/2)
	event := func(rev storage.Revision, value string) mergedDelivery {
		return mergedDelivery{delivery: delivery{event: &watchEvent{rev: rev, cur: kube.NewObject("", []byte(`"`+value+`"`), rev)}}}
	}
	for _, test := range []struct {
		name string
		got  []mergedDelivery
		want storage.Revision
	}{
		{"nothing", nil, 9},
		{"small ones", []mergedDelivery{event(1, ""), event(2, ""), event(3, "")}, 9},
		{"the third is too much", []mergedDelivery{event(1, large), event(2, ""), event(3, large), event(4, "")}, 2},
		{"the first alone is too much", []mergedDelivery{event(1, large+large), event(2, "")}, 1},
		{"a revision isn't cut", []mergedDelivery{event(1, large), event(2, large), event(2, large), event(3, "")}, 1},
		{"nor the first", []mergedDelivery{event(2, large), event(2, large), event(2, large), event(3, "")}, 2},
	} {
		if got := fits(test.got, 9); got != test.want {
			t.Errorf("%s: up to %d, want %d", test.name, got, test.want)
		}
	}
}
