package cacher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// found lists by the indexes that there are; ok is false if one is missing.
func found(s *Snapshot, w *kube.Where, in storage.Range) (keys []string, ok bool) {
	lookups, _ := w.Lookups()
	objects, ok := s.Find(lookups, in)
	if !ok {
		return nil, false
	}
	for o := range objects {
		if w.Matches(o) {
			keys = append(keys, o.Key)
		}
	}
	return keys, true
}

// checkFound compares what the indexes find with what a scan does.
func checkFound(t testing.TB, s *Snapshot, text string) {
	t.Helper()
	w := whereOf(t, text)
	for _, in := range []storage.Range{{Prefix: string(widgets)}, {Prefix: string(widgets) + "ns1/"}, {Prefix: string(widgets) + "ns1/", From: string(widgets) + "ns1/w2"}} {
		got, ok := found(s, w, in)
		if !ok {
			t.Errorf("%s isn't indexed", text)
			return
		}
		var want []string
		for o := range s.In(in) {
			if w.Matches(o) {
				want = append(want, o.Key)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s in %v: %d are found, want %d", text, in, len(got), len(want))
		}
	}
}

// manyThings fills a bench so that an index pays. n is each number four times.
func manyThings(b *bench) {
	for i := range 2 * leastDemand {
		b.put(&thing{key: fmt.Sprintf("%sns%d/w%d", widgets, 1+i%2, i), tier: tiers[i%3], color: fmt.Sprint("color-", i/4), n: i / 4})
	}
}

// ask does what a list does.
func ask(t testing.TB, b *bench, text string) {
	lookups, ok := whereOf(t, text).Lookups()
	if !ok {
		t.Fatalf("%s can't be looked up", text)
	}
	b.Demand(lookups)
}

func indexed(t testing.TB, b *bench, text string) bool {
	_, ok := found(b.Snapshot(), whereOf(t, text), storage.Range{Prefix: string(widgets)})
	return ok
}

// TestDemandBuildsIndex: the second list within a minute builds the index, which then is right whatever is written.
func TestDemandBuildsIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaultBounds)
		manyThings(b)
		ask(t, b, "spec.n=1")
		time.Sleep(2 * demandOften)
		ask(t, b, "spec.n=2")
		if indexed(t, b, "spec.n=1") {
			t.Error("what is seldom asked for is indexed")
		}
		time.Sleep(demandOften / 2)
		ask(t, b, "spec.n>500")
		before := b.Snapshot()
		rng := rand.New(rand.NewPCG(5, 6))
		for range 200 {
			b.change(rng)
		}
		for _, s := range []*Snapshot{before, b.Snapshot()} {
			for _, text := range []string{"spec.n=1", "spec.n in (1,7,9999)", "spec.n>480", "spec.n<=3,spec.color!=red", "spec.n=1||spec.n=200"} {
				checkFound(t, s, text)
			}
		}
		if indexed(t, b, "spec.n=1||spec.color=red") {
			t.Error("one field is indexed, and found for two")
		}
		if indexed(t, b, "spec.n>=0") {
			t.Error("all objects are found by an index")
		}
	})
}

// TestDemandOfLabels: a label that is asked for twice gets an index, which finds what a scan finds whatever is written, but for a value that many have.
func TestDemandOfLabels(t *testing.T) {
	b := newBench(defaultBounds)
	for i := range 2 * leastDemand {
		b.put(&thing{key: fmt.Sprintf("%sns%d/w%d", widgets, 1+i%2, i), tier: fmt.Sprint("t", i/4), color: "red", n: i})
	}
	column := kube.NewLabelColumn("tier")
	b.Demand([]kube.Lookup{{Column: column}})
	if _, ok := b.Snapshot().Having(column, "t1", storage.Range{Prefix: string(widgets)}); ok {
		t.Error("what was asked for once is indexed")
	}
	b.Demand([]kube.Lookup{{Column: column}})
	before := b.Snapshot()
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		o := &thing{key: fmt.Sprintf("%sns%d/w%d", widgets, 1+i%2, rng.IntN(2*leastDemand)), tier: fmt.Sprint("t", rng.IntN(9)), color: "red"}
		if rng.IntN(3) == 0 {
			b.remove(o.key)
		} else {
			b.put(o)
		}
	}
	for _, s := range []*Snapshot{before, b.Snapshot()} {
		for _, value := range []string{"t0", "t1", "t8", "t100", "missing", ""} {
			for _, in := range []storage.Range{{Prefix: string(widgets)}, {Prefix: string(widgets) + "ns1/"}, {Prefix: string(widgets) + "ns1/", From: string(widgets) + "ns1/w2"}} {
				var want, got []string
				for o := range s.In(in) {
					if has, ok := o.Labels.Get("tier"); ok && has == value {
						want = append(want, o.Key)
					}
				}
				found, ok := s.Having(column, value, in)
				if !ok {
					t.Errorf("%q isn't indexed", value)
					continue
				}
				for o := range found {
					got = append(got, o.Key)
				}
				if !slices.Equal(got, want) {
					t.Errorf("%q in %v: %d are found, want %d", value, in, len(got), len(want))
				}
			}
		}
	}
	for i := range leastDemand {
		b.put(&thing{key: fmt.Sprintf("%sns1/w%d", widgets, i), tier: "many"})
	}
	if _, ok := b.Snapshot().Having(column, "many", storage.Range{Prefix: string(widgets)}); ok {
		t.Error("a third of all objects is found by an index")
	}
}

// TestDemandBuiltMeanwhile: an index that's built while objects change is right when it's done.
func TestDemandBuiltMeanwhile(t *testing.T) {
	b := newBench(defaultBounds)
	manyThings(b)
	rng := rand.New(rand.NewPCG(7, 8))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 3 {
				ask(t, b, "spec.n=1")
				ask(t, b, "spec.color=color-1")
			}
		})
	}
	wg.Go(func() { b.SetFields([]string{"spec.color"}) })
	wg.Go(func() {
		for range 300 {
			b.change(rng)
		}
	})
	wg.Wait()
	for _, text := range []string{"spec.n=1", "spec.n<5", "spec.color=color-1", "spec.color^=color-20", "spec.color=color-1||spec.n=77"} {
		checkFound(t, b.Snapshot(), text)
	}
}

// TestDemandGoesUnused: an index that nobody asks for any more is dropped, without a write or a list that would see to it.
func TestDemandGoesUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(defaultBounds)
		manyThings(b)
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		wg.Go(func() { b.cacher.sweepDemands(ctx) })
		ask(t, b, "spec.n=1")
		ask(t, b, "spec.n=1")
		if !indexed(t, b, "spec.n=1") || b.cacher.Usage().DemandBytes == 0 {
			t.Fatal("nothing is indexed")
		}
		time.Sleep(defaultBounds.demandUnused * 3)
		synctest.Wait()
		if indexed(t, b, "spec.n=1") || b.cacher.Usage().DemandBytes != 0 {
			t.Errorf("it's indexed still, with %d bytes", b.cacher.Usage().DemandBytes)
		}
	})
}

// TestDemandIsBounded: the bytes of indexes, and the fields that are remembered.
func TestDemandIsBounded(t *testing.T) {
	room := defaultBounds
	room.demandBytes = 3 * leastDemand * demandEntryBytes // for one index, and not for two
	b := newBench(room)
	manyThings(b)
	for _, text := range []string{"spec.n=1", "spec.n=1", "spec.color=color-1", "spec.color=color-1"} {
		ask(t, b, text)
	}
	if !indexed(t, b, "spec.color=color-1") || indexed(t, b, "spec.n=1") {
		t.Error("it isn't the older index that went")
	}
	for i := range 2 * leastDemand { // what there's room for is written, and more
		b.put(&thing{key: fmt.Sprintf("%sns1/v%d", widgets, i), n: i, color: "red"})
	}
	if n := b.cacher.Usage().DemandBytes; n > room.demandBytes {
		t.Errorf("indexes have %d bytes of %d", n, room.demandBytes)
	}
	for i := range 3 * maxDemands {
		ask(t, b, fmt.Sprintf("spec.f%d=x", i))
	}
	if n := len(b.demands); n > maxDemands {
		t.Errorf("%d fields are remembered", n)
	}
	small := newBench(defaultBounds)
	small.put(widgetNamed("a", "front"))
	ask(t, small, "spec.n=1")
	ask(t, small, "spec.n=1")
	if len(small.demands) > 0 {
		t.Error("a resource with one object has an index")
	}
}

// TestDemandOfLongLists: a field of which an object has more values than may be moved isn't indexed, or not any more. Lists find by a scan then.
func TestDemandOfLongLists(t *testing.T) {
	column := kube.NewColumn(selectors.Path{{Name: "spec"}, {Name: "tags"}, {Elements: true}}, selectors.Text)
	lookups := []kube.Lookup{{Column: column, Ranges: []selectors.KeyRange{{From: "tag-1", To: "tag-1\x00"}}}}
	write := func(b *bench, name string, tags int) {
		var list []string
		for i := range tags {
			list = append(list, fmt.Sprintf("tag-%d", i))
		}
		text, _ := json.Marshal(list)
		b.rev++
		raw := fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":%q,"namespace":"ns1"},"spec":{"tags":%s}}`, name, text)
		b.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: string(widgets) + "ns1/" + name, Value: raw, Revision: b.rev}}})
	}
	demand := func(b *bench) (found int, indexed bool) {
		b.Demand(lookups)
		b.Demand(lookups)
		objects, indexed := b.Snapshot().Find(lookups, storage.Range{Prefix: string(widgets)})
		if indexed {
			for range objects {
				found++
			}
		}
		return found, indexed
	}
	b := newBench(defaultBounds)
	for i := range leastDemand {
		write(b, fmt.Sprintf("w%d", i), i%2)
	}
	write(b, "many", maxDemandKeys)
	if found, indexed := demand(b); !indexed || found != 1 {
		t.Errorf("with %d values it's indexed: %v, and %d are found", maxDemandKeys, indexed, found)
	}
	write(b, "many", maxDemandKeys+1)
	if bytes := b.cacher.Usage().DemandBytes; bytes != 0 || len(b.demands) != 0 {
		t.Errorf("with a value more there are %d indexes of %d bytes", len(b.demands), bytes)
	}
	if _, indexed := demand(b); indexed || b.cacher.Usage().DemandBytes != 0 {
		t.Errorf("it's built with an object that has too many values: %v, %d bytes", indexed, b.cacher.Usage().DemandBytes)
	}
	write(b, "many", 2)
	if found, indexed := demand(b); !indexed || found != 1 {
		t.Errorf("when the object has less it's indexed: %v, and %d are found", indexed, found)
	}
}

// TestInOrder: an index gives objects in the order of their values and keys, in either direction, and from anywhere.
func TestInOrder(t *testing.T) {
	b := newBench(defaultBounds)
	manyThings(b)
	column := kube.NewColumn(selectors.Path{{Name: "spec"}, {Name: "n"}}, selectors.Integer)
	if _, ok := b.Snapshot().InOrder(column, "", "", false); ok {
		t.Error("it gives an order without an index")
	}
	ask(t, b, "spec.n=1")
	ask(t, b, "spec.n=1")
	rng := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		b.change(rng)
	}
	s := b.Snapshot()
	for _, descending := range []bool{false, true} {
		var want []fieldEntry
		for o := range s.All("") {
			for _, value := range column.Keys(nil, o) {
				want = append(want, fieldEntry{value, o.Key})
			}
		}
		slices.SortFunc(want, func(a, b fieldEntry) int {
			by := strings.Compare(a.value, b.value)
			if descending {
				by = -by
			}
			return cmp.Or(by, strings.Compare(a.key, b.key))
		})
		for _, from := range []int{0, 1, 2, 3, 4, 5, len(want) / 2, len(want) - 1} {
			first, count := fieldEntry{}, 0
			if from > 0 {
				first = want[from]
			}
			entries, ok := s.InOrder(column, first.value, first.key, descending)
			if !ok {
				t.Fatal("there's no index")
			}
			for value, key := range entries {
				if at := from + count; at >= len(want) || want[at] != (fieldEntry{value, key}) {
					t.Fatalf("descending %v, from %d: entry %d is %q", descending, from, count, key)
				}
				count++
			}
			if count != len(want)-from {
				t.Errorf("descending %v, from %d: %d entries, want %d", descending, from, count, len(want)-from)
			}
			for range entries { // and it may be left
				break
			}
		}
	}
	empty := newBench(defaultBounds)
	empty.demands = demands{column.Name(): {column: column, tree: newFieldTree(), complete: true}}
	for _, descending := range []bool{false, true} {
		entries, _ := empty.Snapshot().InOrder(column, "", "", descending)
		for value := range entries {
			t.Errorf("an empty index has %q", value)
		}
	}
}

// TestCrowdedWatches: what an event costs because of watches that read its object is bounded, in columns and under each term. Others aren't refused,
// nor those who ask for the same, and who is refused leaves nothing behind.
func TestCrowdedWatches(t *testing.T) {
	b := newBench(defaultBounds)
	open := func(q query, with func(*WatchOptions)) (*Cursor, error) {
		o := q.options(t)
		o.Start = StartNow
		if with != nil {
			with(&o)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.Resource.openLocked(o, o.groupKey(), nil)
	}
	refused := func(name string, q query, with func(*WatchOptions)) {
		t.Helper()
		before := len(b.groups)
		if c, err := open(q, with); !errors.Is(err, ErrCrowded) {
			t.Errorf("%s: %v, want ErrCrowded", name, err)
		} else if c != nil || len(b.groups) != before {
			t.Errorf("%s: there are %d groups, and there were %d", name, len(b.groups), before)
		}
	}
	var all []*Cursor
	let := func(q query, with func(*WatchOptions)) {
		t.Helper()
		c, err := open(q, with)
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		all = append(all, c)
	}
	some := func(o *WatchOptions) {
		o.View = kube.NewProjection([]selectors.Path{{{Name: "spec"}}}).View(testView)
	}
	for i := range maxColumns {
		let(query{where: fmt.Sprintf("spec.f%d=x", i)}, nil)
	}
	let(query{where: "spec.f0=y"}, nil)
	let(query{where: "spec.f0=x"}, nil)
	refused("a column more", query{where: "spec.other=x"}, nil)
	refused("one among others", query{where: "spec.f0=x||spec.other=x"}, nil)
	let(query{where: "spec.other=x", namespace: "ns1"}, nil)
	var alternatives []string
	for i := range maxColumnsOfOne + 1 {
		alternatives = append(alternatives, fmt.Sprintf("spec.g%d=x", i))
	}
	let(query{where: strings.Join(alternatives, "||")}, nil) // which is no column's

	for i := range maxCostly - 1 {
		let(query{where: fmt.Sprintf("spec.n>%d", i)}, nil)
	}
	refused("a selection more", query{where: "spec.n<1"}, nil)
	refused("some fields", query{}, some)
	let(query{where: "spec.n>1"}, nil)
	let(query{where: "spec.n<1", namespace: "ns1"}, nil)
	let(query{where: "spec.n<1", labels: "tier=front"}, nil)
	let(query{labels: "tier!=front"}, nil)
	let(query{}, nil)
	for _, c := range all {
		c.Close()
	}
	if x := b.index; len(b.groups)+len(x.columns)+len(x.namespaces)+len(x.labels)+len(x.rest.groups)+x.rest.costly != 0 {
		t.Errorf("in the end there are %d groups, %d columns and %d that are costly", len(b.groups), len(x.columns), x.rest.costly)
	}
	let(query{where: "spec.other=x"}, nil)
	all[len(all)-1].Close()
}

// TestNeverIsNowhere: who selects what can't be is in no part of the index that events look at.
func TestNeverIsNowhere(t *testing.T) {
	b := newBench(defaultBounds)
	c := b.watch(t, query{where: "spec.n=1,spec.n=2"}, WatchOptions{Start: StartNow})
	if len(b.index.rest.groups)+len(b.index.columns)+len(b.index.namespaces) != 0 {
		t.Error("it's there")
	}
	b.put(&thing{key: string(widgets) + "ns1/a", n: 1})
	if frames := read(t, c); len(frames) != 0 {
		t.Errorf("it got %q", frames)
	}
	c.Close()
	d := b.watch(t, query{where: "spec.n=1||spec.color=red"}, WatchOptions{Start: StartNow})
	if len(b.index.columns) != 2 {
		t.Errorf("it's in %d columns", len(b.index.columns))
	}
	d.Close()
	if len(b.index.columns) != 0 {
		t.Error("columns are left")
	}
}
