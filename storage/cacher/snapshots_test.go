package cacher

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// content is what a snapshot holds, in short.
func content(s *Snapshot) string {
	var out []string
	for o := range s.All(string(widgets)) {
		out = append(out, fmt.Sprint(o.Name(), "@", o.Revision))
	}
	return strings.Join(out, " ")
}

func TestKeptSnapshots(t *testing.T) {
	small := defaultBounds
	small.keptSnapshots = 3
	b := newBench(small)
	first := b.put(widgetNamed("a", "front"))
	s := b.Snapshot()
	b.Keep(s)
	b.rev += 5 // others write
	b.cacher.feed.moveTo(b.rev)
	b.Keep(b.Snapshot()) // the same state, which it stands for up to there
	b.put(widgetNamed("b", "front"))
	for at := first; at <= first+5; at++ {
		if got := b.At(at); got == nil || got.Revision != at || content(got) != content(s) {
			t.Fatalf("at %d: %+v", at, got)
		}
	}
	if got := b.At(first - 1); got != nil {
		t.Errorf("before it: %s", content(got))
	}
	if got := b.At(b.rev); got == nil || content(got) != content(b.Snapshot()) {
		t.Error("the newest state isn't there")
	}
	kept := []storage.Revision{first}
	for i := range 3 { // and a fourth
		b.Keep(b.Snapshot())
		kept = append(kept, b.rev)
		b.At(first) // used
		b.put(widgetNamed(fmt.Sprint("c", i), "front"))
	}
	for i, want := range []bool{true, false, true, true} {
		if got := b.At(kept[i]) != nil; got != want {
			t.Errorf("after a fourth was kept of three, number %d: %v, want %v", i, got, want)
		}
	}
	b.put(widgetNamed("a", "front"))
	before := b.cacher.kept.list[0].retains()
	b.install(b.prepare(nil), b.rev, nil) // a relist replaces everything
	if after := b.cacher.kept.list[0].retains(); after <= before {
		t.Errorf("a kept snapshot keeps %d bytes alive after all was replaced, %d before", after, before)
	}
}

// TestCount: whatever was counted before, and by how many at once, Count says how many objects In yields.
func TestCount(t *testing.T) {
	b := newBench(defaultBounds)
	var all []*thing
	for i := range 300 {
		all = append(all, &thing{key: fmt.Sprintf("%sns%d/w%03d", widgets, i%3, i), tier: "front"})
	}
	b.put(all...)
	s := b.Snapshot()
	var clients sync.WaitGroup
	for client := range uint64(8) {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(client, 1))
			for range 500 {
				keys := storage.Range{Prefix: string(widgets) + []string{"", "ns0/", "ns1/", "ns2/", "ns4/"}[random.IntN(5)]}
				switch random.IntN(4) {
				case 0: // from the beginning
				case 1: // before the prefix, or after it
					keys.From = string(widgets) + []string{"a", "z"}[random.IntN(2)]
				default: // just after an object, as pages do
					keys.From = all[random.IntN(len(all))].key + "\x00"
				}
				want := 0
				for range s.In(keys) {
					want++
				}
				if got := s.Count(keys); got != want {
					t.Errorf("Count of %+v is %d, want %d", keys, got, want)
					return
				}
			}
		})
	}
	clients.Wait()
	if n := len(s.counts.known); n > maxCounts {
		t.Errorf("%d counts are remembered, want at most %d", n, maxCounts)
	}
}

// TestKeptBytes: what a snapshot alone keeps alive is bounded.
func TestKeptBytes(t *testing.T) {
	small := defaultBounds
	small.keptBytes = 2 * trimBytes
	b := newBench(small)
	fat := &thing{key: string(widgets) + "ns1/fat", tier: strings.Repeat("x", 64<<10)}
	first := b.put(fat)
	b.Keep(b.Snapshot())
	dropped := 0
	for i := range 100 {
		b.rev++
		b.cacher.feed.applyAll([]storage.Change{{KeyValue: storage.KeyValue{Key: fat.key, Value: []byte(fat.json(0)), Revision: b.rev}}})
		if b.At(first) == nil {
			dropped = i + 1
			break
		}
	}
	if n := int64(dropped) * (64 << 10); n < small.keptBytes || n > small.keptBytes+2*trimBytes {
		t.Errorf("dropped when it kept %d bytes alive, the bound is %d", int64(dropped)*(64<<10), small.keptBytes)
	}
	other := b.cacher.Resource(gadgets)
	other.Keep(other.Snapshot())
	if other.At(other.rev) == nil {
		t.Error("another resource's snapshot isn't kept")
	}
}

// TestKeptAtOnce keeps, finds and drops at once, beside changes.
func TestKeptAtOnce(t *testing.T) {
	small := defaultBounds
	small.keptSnapshots, small.keptBytes = 4, 64<<10
	b := newBench(small)
	b.put(widgetNamed("a", "front"))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for range 200 {
				s := b.Snapshot()
				b.Keep(s)
				if at := b.At(s.Revision); at != nil && content(at) != content(s) {
					t.Errorf("at %d: %s, want %s", s.Revision, content(at), content(s))
				}
			}
		})
	}
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(5, 6))
		for range 300 {
			b.change(rng)
			b.cacher.kept.trim()
		}
	})
	wg.Wait()
	if n := len(b.cacher.kept.list); n > small.keptSnapshots {
		t.Errorf("%d are kept", n)
	}
}

// TestPast reads history that no snapshot has.
func TestPast(t *testing.T) {
	r := newRig(t, defaultBounds)
	ctx := t.Context()
	write := func(name string) storage.Revision {
		t.Helper()
		o := widgetNamed(name, "front")
		rev, err := r.store.Create(ctx, o.key, []byte(o.json(0)))
		if err != nil {
			t.Fatal(err)
		}
		return rev
	}
	write("a")
	at := write("b")
	last := write("c")
	if err := r.cacher.WaitFor(ctx, last); err != nil {
		t.Fatal(err)
	}
	w := r.cacher.Resource(widgets)
	read := func(rev storage.Revision, key string) (string, error) {
		var names []string
		for o, err := range w.Past(ctx, rev, storage.Range{Prefix: string(widgets), From: string(widgets) + key}) {
			if err != nil {
				return "", err
			}
			names = append(names, o.Name())
		}
		return strings.Join(names, " "), nil
	}
	for _, c := range []struct {
		rev       storage.Revision
		key, want string
	}{{at, "", "a b"}, {at, "ns1/b", "b"}, {at, "ns1/b\x00", ""}, {last, "", "a b c"}} {
		if got, err := read(c.rev, c.key); got != c.want || err != nil {
			t.Errorf("at %d from %q: %q, %v, want %q", c.rev, c.key, got, err, c.want)
		}
	}
	for range w.Past(ctx, at, storage.Range{Prefix: string(widgets)}) {
		break // is fine
	}
	if n, err := r.store.Count(ctx, storage.Range{Prefix: string(widgets), From: string(widgets) + "ns1/b"}, at); n != 1 || err != nil {
		t.Errorf("count: %d, %v", n, err)
	}
	if _, err := r.server.Client.Compact(ctx, int64(last)); err != nil {
		t.Fatal(err)
	}
	if _, err := read(at, ""); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("of compacted history: %v", err)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	for _, err := range w.Past(gone, last, storage.Range{Prefix: string(widgets)}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	}
}
