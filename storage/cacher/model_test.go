package cacher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// rig is a store and a cacher over it, which can be restarted.
type rig struct {
	t      testing.TB
	opts   etcd.Options
	bounds bounds
	server *etcd.Server
	store  *embedded.Store
	cacher *Cacher
	stop   func()
}

// smallBounds make every path be taken with few events.
var smallBounds = bounds{warm: 40, logEvents: 64, logBytes: 1 << 20, totalLogBytes: 1 << 20, framedEvents: 16, groupEntries: 8, stretchRevisions: 32, stretchBytes: 64 << 10}

func newRig(t testing.TB, b bounds) *rig {
	return newRigWith(t, b, etcd.Options{DataDir: t.TempDir()})
}

func newRigWith(t testing.TB, b bounds, o etcd.Options) *rig {
	r := &rig{t: t, opts: o, bounds: b}
	if tt, ok := t.(*testing.T); ok {
		t.Cleanup(func() { goleak.VerifyNone(tt, goleak.IgnoreCurrent()) })
	}
	r.start()
	t.Cleanup(func() { r.stop() })
	return r
}

func (r *rig) start() {
	r.t.Helper()
	var err error
	if r.server, err = etcd.Open(context.Background(), r.opts); err != nil {
		r.t.Fatal(err)
	}
	if r.store, err = embedded.New(r.server.Client, r.server.Local); err != nil {
		r.t.Fatal(err)
	}
	r.cacher = New(r.store, Options{})
	r.cacher.bounds = r.bounds
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.cacher.Run(ctx) }()
	select {
	case <-r.cacher.Primed():
	case err := <-done:
		r.t.Fatal("the feed ended: ", err)
	}
	r.stop = func() {
		cancel()
		if err := <-done; err != nil {
			r.t.Error("the feed ended: ", err)
		}
		r.store.Close()
		if err := r.server.Close(); err != nil {
			r.t.Error(err)
		}
		r.stop = func() {}
	}
}

func (r *rig) restart() {
	r.stop()
	r.start()
}

// written is one acknowledged write.
type written struct {
	rev       storage.Revision
	key       string
	prev, cur *thing // nil for none
}

// thing is the content of an object.
type thing struct {
	key, tier, color string
	n                int
}

// json is the object with a resourceVersion, or as it's stored when rev is 0.
func (o *thing) json(rev storage.Revision) string {
	_, ns, name, _ := storage.SplitKey(o.key)
	version := ""
	if rev != 0 {
		version = fmt.Sprintf(`"resourceVersion":"%d",`, rev)
	}
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":{"tier":"%s"},"name":"%s","namespace":"%s",%s"uid":"u-%s"},"spec":{"color":"%s","n":%d}}`,
		o.tier, name, ns, version, name, o.color, o.n)
}

// model is what the store must contain and have contained, from the writers' own knowledge.
type model struct {
	mu     sync.Mutex // guards writes
	writes []written
}

func (m *model) add(w written) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.writes = append(m.writes, w)
}

// sorted returns the writes in order of revision.
func (m *model) sorted() []written {
	m.mu.Lock()
	defer m.mu.Unlock()
	sort.Slice(m.writes, func(i, j int) bool { return m.writes[i].rev < m.writes[j].rev })
	return m.writes
}

var (
	widgets = storage.PrefixOf("example.com", "widgets")
	gadgets = storage.PrefixOf("example.com", "gadgets")
	tiers   = []string{"front", "back", "middle"}
	colors  = []string{"red", "green"}
)

// write makes n random writes to keys that only this writer touches.
func (m *model) write(t testing.TB, store storage.Store, id, n int, rng *rand.Rand, have map[string]written) {
	ctx := context.Background()
	for range n {
		prefix := widgets
		if rng.IntN(4) == 0 {
			prefix = gadgets
		}
		key, err := prefix.Key([]string{"ns1", "ns2"}[rng.IntN(2)], fmt.Sprintf("w%d-%d", id, rng.IntN(6)))
		if err != nil {
			t.Error(err)
			return
		}
		was, exists := have[key]
		w := written{key: key, prev: was.cur, cur: &thing{key, tiers[rng.IntN(3)], colors[rng.IntN(2)], rng.IntN(1000)}}
		switch {
		case !exists:
			w.rev, err = store.Create(ctx, key, []byte(w.cur.json(0)))
		case rng.IntN(5) == 0:
			w.cur = nil
			w.rev, err = store.Delete(ctx, key, was.rev)
		default:
			w.rev, err = store.Update(ctx, key, []byte(w.cur.json(0)), was.rev)
		}
		if err != nil {
			t.Errorf("write %s: %v", key, err)
			return
		}
		if have[key] = w; w.cur == nil {
			delete(have, key)
		}
		m.add(w)
	}
}

// query is what a watcher selects.
type query struct{ prefix, namespace, name, labels, fields, where string }

var queries = []query{
	{},
	{prefix: "gadgets"},
	{namespace: "ns1"},
	{namespace: "ns1", name: "w0-1"},
	{name: "w1-2"},
	{labels: "tier=front"},
	{labels: "tier in (front,back)"},
	{labels: "tier notin (front)", namespace: "ns2"},
	{labels: "tier!=back"},
	{fields: "spec.color=red"},
	{fields: "spec.color!=red", labels: "tier"},
	{labels: "!tier"},
	{fields: "spec.color=green", labels: "tier=back", namespace: "ns1"},
	{where: "spec.n>1", namespace: "ns2"},
	{where: "spec.color=red||spec.n=3"},
	{where: "spec.color in (green,blue),spec.n!=2", labels: "tier"},
	{where: "spec.n=1,spec.n=2"},
}

func (q query) matches(key string, o *thing) bool {
	if o == nil {
		return false
	}
	prefix, ns, name, _ := storage.SplitKey(key)
	if prefix != q.of() || q.namespace != "" && q.namespace != ns || q.name != "" && q.name != name {
		return false
	}
	verdicts := map[string]bool{
		"": true, "tier": true, "!tier": false,
		"tier=front": o.tier == "front", "tier=back": o.tier == "back", "tier!=back": o.tier != "back",
		"tier in (front,back)": o.tier == "front" || o.tier == "back", "tier notin (front)": o.tier != "front",
		"spec.color=red": o.color == "red", "spec.color!=red": o.color != "red", "spec.color=green": o.color == "green",
		"spec.n>1": o.n > 1, "spec.color=red||spec.n=3": o.color == "red" || o.n == 3,
		"spec.color in (green,blue),spec.n!=2": o.color == "green" && o.n != 2, "spec.n=1,spec.n=2": false,
	}
	l, ok1 := verdicts[q.labels]
	f, ok2 := verdicts[q.fields]
	w, ok3 := verdicts[q.where]
	if !ok1 || !ok2 || !ok3 {
		panic("the model doesn't know the query")
	}
	return l && f && w
}

func (q query) of() storage.Prefix {
	if q.prefix == "gadgets" {
		return gadgets
	}
	return widgets
}

var testView = &kube.View{APIVersion: "example.com/v1", Kind: "Widget"}

func (q query) options(t testing.TB) WatchOptions {
	labels, err := selectors.ParseLabels(q.labels)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := selectors.ParseFields(q.fields)
	if err != nil {
		t.Fatal(err)
	}
	return WatchOptions{Namespace: q.namespace, Name: q.name, Labels: labels, Fields: fields, Where: whereOf(t, q.where), View: testView}
}

// whereOf is a selection by spec.color and spec.n.
func whereOf(t testing.TB, text string) *kube.Where {
	e, err := selectors.ParseExpression(text)
	if err == nil {
		e, err = e.Resolve(text, func(path selectors.Path, _ int) (selectors.Type, error) {
			if path.String() == "spec.n" {
				return selectors.Integer, nil
			}
			return selectors.Text, nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return kube.NewWhere(e, selectors.Shards{})
}

// segment is what a watcher got on one connection.
type segment struct {
	state  bool             // began with the state at from
	from   storage.Revision // events follow this revision
	to     storage.Revision // the cursor's last revision
	frames []string         // the state's, then events
	synced int              // how many frames were state
}

// observer watches one query, reconnects now and then, and keeps what it got.
type observer struct {
	query    query
	rng      *rand.Rand
	segments []segment
}

// watch reads until the cursor is at a revision, or the connection is given up at random.
func (o *observer) watch(t testing.TB, r *rig, until storage.Revision) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for at := o.last(); at < until; at = o.last() {
		opts := o.query.options(t)
		s := segment{from: at}
		opts.After = at
		if at == 0 {
			opts.Start, s.state = StartState, true
		}
		c, err := r.cacher.Resource(o.query.of()).Open(ctx, opts)
		if err == nil {
			err = o.read(ctx, r, c, &s, until)
			c.Close()
			o.segments = append(o.segments, s)
		}
		if errors.Is(err, storage.ErrCompacted) || errors.Is(err, watchstream.ErrExpired) {
			if c := r.store.Compacted(); o.last() >= c {
				t.Errorf("%v: refused after %d, but history begins at %d", o.query, o.last(), c)
				return
			}
			o.segments = append(o.segments, segment{}) // list anew
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%v: %v", o.query, err)
			return
		}
	}
}

func (o *observer) last() storage.Revision {
	if len(o.segments) == 0 {
		return 0
	}
	return o.segments[len(o.segments)-1].to
}

func (o *observer) read(ctx context.Context, r *rig, c *Cursor, s *segment, until storage.Revision) error {
	ctx, cancel := context.WithCancel(ctx)
	reached := make(chan struct{}) // what doesn't concern the watcher doesn't wake it
	go func() { defer close(reached); r.cacher.WaitFor(ctx, until) }()
	defer func() { cancel(); <-reached }()
	if s.state {
		s.from = storage.Revision(c.Revision())
	}
	s.to = s.from
	for !c.Synced() {
		out, _, err := c.Next(ctx, nil)
		if err != nil {
			return err
		}
		s.frames = append(s.frames, lines(out)...)
	}
	s.synced = len(s.frames)
	for giveUp := o.rng.IntN(60); ; giveUp-- {
		out, wait, err := c.Next(ctx, nil)
		if err != nil {
			return err
		}
		s.frames = append(s.frames, lines(out)...)
		s.to = storage.Revision(c.Revision())
		if s.to >= until || giveUp == 0 {
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

func lines(b []byte) []string {
	return strings.SplitAfter(strings.TrimSuffix(string(b), "\n"), "\n")[:strings.Count(string(b), "\n")]
}

// verify compares everything an observer got with the model.
func (o *observer) verify(t testing.TB, writes []written) {
	t.Helper()
	for i, s := range o.segments {
		var want []string
		if s.state {
			want = o.stateAt(writes, s.from)
		}
		for _, w := range writes {
			if w.rev > s.from && w.rev <= s.to {
				want = append(want, o.told(w)...)
			}
		}
		for j := range max(len(want), len(s.frames)) {
			got, wanted := "nothing", "nothing"
			if j < len(s.frames) {
				got = strings.TrimSpace(s.frames[j])
			}
			if j < len(want) {
				wanted = want[j]
			}
			if got != wanted {
				t.Errorf("%+v, connection %d (%d to %d, state %t), frame %d of %d:\ngot  %s\nwant %s",
					o.query, i, s.from, s.to, s.state, j, len(want), got, wanted)
				return
			}
		}
	}
}

func (o *observer) told(w written) []string {
	before, after := o.query.matches(w.key, w.prev), o.query.matches(w.key, w.cur)
	switch {
	case before && after:
		return []string{frameOf("MODIFIED", w.cur, w.rev)}
	case before:
		return []string{frameOf("DELETED", w.prev, w.rev)}
	case after:
		return []string{frameOf("ADDED", w.cur, w.rev)}
	}
	return nil
}

func (o *observer) stateAt(writes []written, rev storage.Revision) (frames []string) {
	state := map[string]written{}
	for _, w := range writes {
		if w.rev <= rev {
			state[w.key] = w
		}
	}
	var keys []string
	for k, w := range state {
		if o.query.matches(k, w.cur) {
			keys = append(keys, k)
		}
	}
	sort.Strings(keys)
	for _, k := range keys {
		frames = append(frames, frameOf("ADDED", state[k].cur, state[k].rev))
	}
	return frames
}

func frameOf(typ string, o *thing, rev storage.Revision) string {
	return `{"type":"` + typ + `","object":` + o.json(rev) + `}`
}

// TestModel runs random writers beside watchers of every kind of selector, which reconnect at random,
// over several lives of the server, with compactions. Each watcher must have been told exactly what the
// writers' own record says: in order, without gap or repeat, with the right transitions.
func TestModel(t *testing.T) {
	for _, seed := range []uint64{1, 2, 3} {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runModel(t, seed, 1) })
	}
	t.Run("thousands of watchers", func(t *testing.T) { runModel(t, 4, 50) })
}

// runModel runs one history; crowd is how many watchers of each query come in each life.
func runModel(t *testing.T, seed uint64, crowd int) {
	const lives, writers, writesPerLife = 4, 4, 150
	r := newRig(t, smallBounds)
	rng := rand.New(rand.NewPCG(seed, 0))
	m := &model{}
	have := make([]map[string]written, writers)
	for i := range have {
		have[i] = map[string]written{}
	}
	var observers []*observer
	for life := range lives {
		for range crowd { // newcomers; those of earlier lives go on
			for _, q := range queries {
				observers = append(observers, &observer{query: q, rng: rand.New(rand.NewPCG(seed, rng.Uint64()))})
			}
		}
		var writing, watching sync.WaitGroup
		written := make(chan struct{})
		target := r.store.Current() + writers*writesPerLife // one write is one revision
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
		verifyState(t, r, m)
		r.restart()
		verifyState(t, r, m)
	}
	final := r.store.Current()
	for _, o := range observers {
		o.watch(t, r, final)
		o.verify(t, m.sorted())
	}
	for _, p := range []storage.Prefix{widgets, gadgets} {
		if res := r.cacher.Resource(p); len(res.groups) != 0 || len(res.index.rest.groups)+len(res.index.names)+len(res.index.labels)+len(res.index.fields)+len(res.index.namespaces) != 0 {
			t.Errorf("groups are left behind: %v, %+v", res.groups, res.index)
		}
	}
}

// verifyState compares the caches with the model.
func verifyState(t *testing.T, r *rig, m *model) {
	t.Helper()
	rev, err := r.cacher.Barrier(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	state := map[string]written{}
	for _, w := range m.sorted() {
		if state[w.key] = w; w.cur == nil {
			delete(state, w.key)
		}
	}
	n := 0
	for _, p := range []storage.Prefix{widgets, gadgets} {
		s := r.cacher.Resource(p).Snapshot()
		if s.Revision < rev {
			t.Errorf("the snapshot is at %d after a barrier at %d", s.Revision, rev)
		}
		for o := range s.All(string(p)) {
			n++
			w := state[o.Key]
			if w.cur == nil || string(o.Raw()) != w.cur.json(0) || o.Revision != w.rev {
				t.Errorf("%s is %s at %d, want %+v", o.Key, o.Raw(), o.Revision, w)
			}
			if !json.Valid(testView.Append(nil, o)) {
				t.Errorf("%s is no JSON", o.Key)
			}
		}
	}
	if n != len(state) {
		t.Errorf("%d objects, want %d", n, len(state))
	}
}
