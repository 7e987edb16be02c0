package cacher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// bench is a resource that a test feeds by hand, without a store.
type bench struct {
	*Resource
	rev storage.Revision
}

func newBench(b bounds) *bench {
	c := New(nil, Options{})
	c.bounds = b
	return &bench{Resource: c.Resource(widgets), rev: c.base}
}

// smallRings let members fall behind their group, but never off the log.
var smallRings = func() bounds { b := defaultBounds; b.groupEntries = 8; return b }()

// put applies one revision that writes the things.
func (b *bench) put(things ...*thing) storage.Revision {
	b.rev++
	var changes []storage.Change
	for _, o := range things {
		changes = append(changes, storage.Change{KeyValue: storage.KeyValue{Key: o.key, Value: []byte(o.json(0)), Revision: b.rev}})
	}
	b.feed(changes)
	return b.rev
}

func (b *bench) remove(key string) storage.Revision {
	b.rev++
	b.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Revision: b.rev}, Deleted: true}})
	return b.rev
}

func (b *bench) feed(changes []storage.Change) {
	b.cacher.feed.applyAll(changes)
	b.cacher.feed.moveTo(b.rev)
	b.wakeAll()
}

// wakeAll is the waker, at once.
func (b *bench) wakeAll() {
	for _, h := range b.cacher.waker.queue {
		h.wake(time.Now(), &b.cacher.waker.busy)
	}
	b.cacher.waker.queue = nil
}

// openLocked is Resource's, for tests in which there's room for all groups.
func (b *bench) openLocked(o WatchOptions, key groupKey, of *cohort) *Cursor {
	c, err := b.Resource.openLocked(o, key, of)
	if err != nil {
		panic(err)
	}
	return c
}

// watch opens a cursor; everything it needs is in memory.
func (b *bench) watch(t testing.TB, q query, o WatchOptions) *Cursor {
	t.Helper()
	opts := q.options(t)
	opts.Start, opts.After = o.Start, o.After
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.openLocked(opts, opts.groupKey(), nil)
}

// read takes everything that's ready.
func read(t testing.TB, c *Cursor) (frames []string) {
	t.Helper()
	for {
		out, wait, err := c.Next(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if wait != nil {
			return frames
		}
		frames = append(frames, lines(out)...)
	}
}

func widgetNamed(name, tier string) *thing {
	return &thing{key: string(widgets) + "ns1/" + name, tier: tier, color: "red"}
}

// summary is a frame's type, name and version: enough to compare sequences.
func summary(frames []string) string {
	var out []string
	for _, f := range frames {
		between := func(a, b string) string {
			_, rest, _ := strings.Cut(f, a)
			s, _, _ := strings.Cut(rest, b)
			return s
		}
		out = append(out, between(`"type":"`, `"`)[:1]+" "+between(`"name":"`, `"`)+" "+between(`"resourceVersion":"`, `"`))
	}
	return strings.Join(out, ", ")
}

// TestRingOverwritten: a member that sleeps while its group's ring is overwritten, and its resource's log
// as far as the bound goes, misses nothing.
func TestRingOverwritten(t *testing.T) {
	for _, n := range []int{1, 7, 8, 9, 16, 63} {
		t.Run(fmt.Sprint(n, " events"), func(t *testing.T) {
			b := newBench(smallBounds)
			sleeper := b.watch(t, query{}, WatchOptions{Start: StartNow})
			defer sleeper.Close()
			var want []string
			for i := range n {
				rev := b.put(widgetNamed(fmt.Sprint("w", i), "front"))
				want = append(want, fmt.Sprintf("A w%d %d", i, rev))
			}
			if got, want := summary(read(t, sleeper)), strings.Join(want, ", "); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if sleeper.reads != live {
				t.Error("the cursor didn't get back to the ring")
			}
		})
	}
}

// TestOneRevision: what one revision did to several objects is never split by a batch or a bookmark.
func TestOneRevision(t *testing.T) {
	b := newBench(defaultBounds)
	live, late := b.watch(t, query{}, WatchOptions{Start: StartNow}), (*Cursor)(nil)
	defer live.Close()
	var things []*thing
	for i := range maxBatchEvents - 1 {
		b.put(widgetNamed(fmt.Sprintf("w%03d", i), "front"))
	}
	for i := range 5 {
		things = append(things, widgetNamed(fmt.Sprint("x", i), "front"))
	}
	wide := b.put(things...)
	b.put(widgetNamed("y", "front"))
	late = b.watch(t, query{}, WatchOptions{Start: StartAfter})
	defer late.Close()
	for name, c := range map[string]*Cursor{"live": live, "late": late} {
		total := 0
		for total < maxBatchEvents+5 {
			out, wait, err := c.Next(t.Context(), nil)
			if err != nil || wait != nil {
				t.Fatalf("%s: %d frames, then %v, %v", name, total, wait, err)
			}
			frames := lines(out)
			total += len(frames)
			if n := strings.Count(string(out), fmt.Sprintf(`"resourceVersion":"%d"`, wide)); n != 0 && n != 5 {
				t.Errorf("%s: a batch has %d of the 5 events of revision %d", name, n, wide)
			}
		}
	}
}

// TestBookmarkNeverOvertakes: a position is taken before the entries, so that what a bookmark covers has been
// given.
func TestBookmarkNeverOvertakes(t *testing.T) {
	b := newBench(smallRings)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		c := b.watch(t, queries[i], WatchOptions{Start: StartNow})
		wg.Go(func() {
			defer c.Close()
			mark := int64(0)
			for last := false; ; {
				out, wait, err := c.Next(context.Background(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				for _, f := range lines(out) {
					var rev int64
					_, rest, _ := strings.Cut(f, `"resourceVersion":"`)
					fmt.Sscan(strings.SplitN(rest, `"`, 2)[0], &rev)
					if rev <= mark {
						t.Errorf("event %d follows a bookmark at %d", rev, mark)
					}
				}
				if wait == nil {
					continue
				}
				if c.Revision() < mark {
					t.Errorf("the bookmark went back from %d to %d", mark, c.Revision())
				}
				mark = c.Revision()
				if last {
					return
				}
				select {
				case <-wait:
				case <-done:
					last = true
				}
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		b.put(&thing{key: fmt.Sprintf("%sns%d/w%d", widgets, 1+rng.IntN(2), rng.IntN(5)), tier: tiers[rng.IntN(3)], color: colors[rng.IntN(2)]})
	}
	close(done)
	wg.Wait()
}

// TestLeaveWhileApplied: members come and go while events are applied, the last one too.
func TestLeaveWhileApplied(t *testing.T) {
	b := newBench(smallRings)
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				c := b.watch(t, queries[(i+n)%len(queries)], WatchOptions{Start: Start(n % 3)})
				if _, _, err := c.Next(context.Background(), nil); err != nil && !errors.Is(err, io.EOF) {
					t.Error(err)
				}
				c.Report(time.Now())
				c.Close()
				c.Close() // idempotent
			}
		})
	}
	for i := range 2000 {
		b.put(widgetNamed(fmt.Sprint("w", i%7), tiers[i%3]))
	}
	close(done)
	wg.Wait()
	if len(b.groups) != 0 {
		t.Errorf("%d groups are left", len(b.groups))
	}
}

func TestEndWatches(t *testing.T) {
	b := newBench(smallBounds)
	c := b.watch(t, query{}, WatchOptions{Start: StartNow})
	defer c.Close()
	b.put(widgetNamed("a", "front"))
	_, wait, _ := c.Next(t.Context(), nil)
	if wait != nil {
		t.Fatal("there is an event")
	}
	_, wait, err := c.Next(t.Context(), nil)
	if wait == nil || err != nil {
		t.Fatal("there is another", err)
	}
	b.put(widgetNamed("b", "front"))
	b.EndWatches(b.rev)
	b.wakeAll()
	<-wait
	if got := summary(read2(t, c)); got != "A b 2" {
		t.Errorf("got %q before the end", got)
	}
	late := b.watch(t, query{}, WatchOptions{Start: StartNow})
	defer late.Close()
	last := b.put(widgetNamed("c", "front"))
	b.put(widgetNamed("d", "front")) // written under a new definition, before the end is called for
	b.EndWatches(last)
	if got := summary(read2(t, late)); got != "A c 3" {
		t.Errorf("got %q before the end at a revision", got)
	}
	fresh := b.watch(t, query{}, WatchOptions{Start: StartNow})
	defer fresh.Close()
	if _, wait, err := fresh.Next(t.Context(), nil); err != nil || wait == nil {
		t.Errorf("a watch opened after the end has ended too: %v", err)
	}
}

// read2 takes everything up to the end.
func read2(t *testing.T, c *Cursor) (frames []string) {
	t.Helper()
	for {
		out, wait, err := c.Next(t.Context(), nil)
		frames = append(frames, lines(out)...)
		if errors.Is(err, io.EOF) {
			return frames
		}
		if err != nil || wait != nil {
			t.Fatalf("no end after %s: %v", summary(frames), err)
		}
	}
}

// TestEndForTheSlow: a watch gives everything up to its end and nothing of what comes later, wherever it reads.
func TestEndForTheSlow(t *testing.T) {
	for _, c := range []struct {
		name          string
		start         Start
		before, after int // events before the end and after it
	}{
		{"from the ring", StartNow, 3, 2},
		{"from the ring, nothing before", StartNow, 0, 2},
		{"from the ring, nothing after", StartNow, 3, 0},
		{"from the log", StartNow, 3, int(smallBounds.groupEntries) + 2},
		{"from the log, nothing before", StartNow, 0, int(smallBounds.groupEntries) + 2},
		{"from history", StartNow, 40, int(smallBounds.logEvents) + 2},
		{"from history, nothing before", StartNow, 0, int(smallBounds.logEvents) + 2},
		{"from history and the log", StartNow, 50, int(smallBounds.logEvents) - 20},
		{"from the state", StartState, 0, 3},
		{"from the state and history", StartState, 3, int(smallBounds.logEvents) + 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, smallBounds)
			ctx := t.Context()
			res := r.cacher.Resource(widgets)
			r.createWidgets(0, 5)
			opts := query{}.options(t)
			opts.Start = c.start
			slow, err := res.Open(ctx, opts)
			if err != nil {
				t.Fatal(err)
			}
			defer slow.Close()
			first := 5
			if c.start == StartState {
				first = 0
			}
			r.createWidgets(5, 5+c.before)
			if _, err := r.cacher.Barrier(ctx); err != nil {
				t.Fatal(err)
			}
			res.EndWatches(r.cacher.Position())
			if c.after > 0 {
				r.createWidgets(100, 100+c.after)
			}
			res.EndWatches(r.cacher.Position()) // another definition's, which isn't this watch's
			if _, err := r.cacher.Barrier(ctx); err != nil {
				t.Fatal(err)
			}
			var want []string
			for i := first; i < 5+c.before; i++ {
				want = append(want, fmt.Sprintf("w%03d", i))
			}
			var got []string
			for _, f := range strings.Split(summary(read2(t, slow)), ", ") {
				if f != "" {
					got = append(got, strings.Fields(f)[1])
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// TestIndexNeverMisses: for random selections and changes, the groups that the index finds include every
// group that the change concerns, and the ring got exactly those.
func TestIndexNeverMisses(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	b := newBench(defaultBounds)
	type member struct {
		o WatchOptions
		c *Cursor
	}
	var members []member
	for range 150 {
		labels, err := selectors.ParseLabels(pick("", "", "a=1", "a=2", "a in (1,2)", "a in (1,3),b=1", "a!=1", "!a", "a", "b=1,a=2", "c notin (1)", "a>1", "b="))
		if err != nil {
			t.Fatal(err)
		}
		fields, err := selectors.ParseFields(pick("", "", "spec.color=red", "spec.color!=red", "spec.color=", "spec.n=1,spec.color=green", "spec.none="))
		if err != nil {
			t.Fatal(err)
		}
		o := WatchOptions{Namespace: pick("", "", "ns1", "ns2"), Name: pick("", "", "", "w1", "w2"), Labels: labels, Fields: fields, View: testView, Start: StartNow}
		b.mu.Lock()
		members = append(members, member{o, b.openLocked(o, o.groupKey(), nil)})
		b.mu.Unlock()
	}
	object := func(key string) []byte {
		var l []string
		for _, k := range []string{"a", "b", "c"} {
			if rng.IntN(2) == 0 {
				l = append(l, fmt.Sprintf(`%q:%q`, k, pick("", "1", "2", "3")))
			}
		}
		spec := pick(`{}`, `{"color":"red"}`, `{"color":"green","n":1}`, `{"color":""}`, `{"n":1}`)
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"W","metadata":{"labels":{%s},"uid":"u"},"spec":%s}`, strings.Join(l, ","), spec)
	}
	matches := func(o WatchOptions, obj *kube.Object) bool { // all of it, without an index
		return obj != nil && (o.Namespace == "" || o.Namespace == obj.Namespace()) && (o.Name == "" || o.Name == obj.Name()) &&
			o.Labels.Matches(obj.Labels) && o.Fields.Matches(obj)
	}
	told := make(map[*group][]string)
	for range 1500 {
		key := fmt.Sprintf("%sns%d/w%d", widgets, 1+rng.IntN(3), rng.IntN(4))
		prev := b.Get(key)
		var cur *kube.Object
		if prev != nil && rng.IntN(4) == 0 {
			b.remove(key)
		} else {
			raw := object(key)
			b.rev++
			cur = kube.NewObject(key, raw, b.rev)
			b.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: b.rev}}})
		}
		seen := map[*group]bool{}
		for _, m := range members {
			if g := m.c.group; !seen[g] {
				seen[g] = true
				if typ := watchstream.Transition(watchstream.Matches{Before: matches(m.o, prev), Now: matches(m.o, cur)}); typ != watchstream.None {
					told[g] = append(told[g], fmt.Sprint(typ, " ", b.rev))
				}
			}
		}
	}
	for _, m := range members {
		var got []string
		for _, f := range read(t, m.c) {
			_, rest, _ := strings.Cut(f, `"resourceVersion":"`)
			got = append(got, strings.SplitN(strings.TrimPrefix(f, `{"type":"`), `"`, 2)[0]+" "+strings.SplitN(rest, `"`, 2)[0])
		}
		if !slices.Equal(got, told[m.c.group]) {
			t.Errorf("%+v: %d events, want %d", m.o, len(got), len(told[m.c.group]))
		}
		m.c.Close()
	}
}

func TestReport(t *testing.T) {
	b := newBench(smallBounds)
	c := b.watch(t, query{labels: "tier=front"}, WatchOptions{Start: StartNow})
	defer c.Close()
	lag := func(want int) {
		t.Helper()
		if rep := c.Report(time.Now().Add(time.Hour)); rep.LagEvents != want || rep.Members != 1 || rep.Labels != "tier=front" || (rep.Lag > 0) != (want > 0) {
			t.Errorf("got %+v, want %d events", rep, want)
		}
	}
	lag(0)
	b.put(widgetNamed("a", "front"))
	b.put(widgetNamed("b", "back"))
	b.put(widgetNamed("c", "front"))
	lag(2)
	read(t, c)
	lag(0)
	for i := range 20 { // more than the ring has
		b.put(widgetNamed(fmt.Sprint("w", i), "front"))
	}
	lag(20)
	read(t, c)
	lag(0)
}

// createWidgets creates w000, w001 and so on, and returns the last one's revision.
func (r *rig) createWidgets(from, to int) (rev storage.Revision) {
	r.t.Helper()
	for i := from; i < to; i++ {
		o := widgetNamed(fmt.Sprintf("w%03d", i), "front")
		var err error
		if rev, err = r.store.Create(context.Background(), o.key, []byte(o.json(0))); err != nil {
			r.t.Fatal(err)
		}
	}
	return rev
}
