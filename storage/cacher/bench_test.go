package cacher

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// BenchmarkFanOut delivers one event to watchers with the same selection: what it costs per delivery,
// and how often the event is encoded, which must be once.
func BenchmarkFanOut(b *testing.B) {
	for _, watchers := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(watchers, " watchers"), func(b *testing.B) {
			r := newBench(defaultBounds)
			cursors := make([]*Cursor, watchers)
			for i := range cursors {
				cursors[i] = r.watch(b, query{labels: "tier=front"}, WatchOptions{Start: StartNow})
			}
			raw := widget("a", `"tier":"front"`)
			key := string(widgets) + "ns1/a"
			buf := make([]byte, 0, 64<<10)
			encoded := r.cacher.Counts().Encoded
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r.rev++
				r.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: r.rev}}})
				for _, c := range cursors {
					out, _, err := c.Next(b.Context(), buf)
					if err != nil || len(out) == 0 {
						b.Fatal(len(out), err)
					}
				}
			}
			b.ReportMetric(float64(r.cacher.Counts().Encoded-encoded)/float64(b.N), "encodings/event")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*watchers), "ns/delivery")
		})
	}
}

// BenchmarkMerged delivers one event to a watch of three resources, and to a watch of one of them beside two others that it doesn't concern:
// what the order of several resources costs.
func BenchmarkMerged(b *testing.B) {
	gizmos := storage.PrefixOf("example.com", "gizmos")
	for _, bm := range []struct {
		name   string
		merged bool
	}{{"three watches", false}, {"one stream", true}} {
		b.Run(bm.name, func(b *testing.B) {
			r := newBench(defaultBounds)
			merged := &Merged{cacher: r.cacher, sleeper: sleeper{cohort: newCohort(nil)}}
			for _, prefix := range []storage.Prefix{widgets, gadgets, gizmos} {
				of, o, cohort := r.cacher.Resource(prefix), WatchOptions{View: testView, Start: StartNow}, merged.cohort
				if !bm.merged {
					cohort = nil
				}
				of.mu.Lock()
				c, err := of.openLocked(o, o.groupKey(), cohort)
				of.mu.Unlock()
				if err != nil {
					b.Fatal(err)
				}
				merged.cursors = append(merged.cursors, c)
			}
			merged.stating = len(merged.cursors)
			next := merged.Next
			if !bm.merged {
				next = merged.cursors[0].Next
			}
			raw, key, buf := widget("a", `"tier":"front"`), string(widgets)+"ns1/a", make([]byte, 0, 64<<10)
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r.rev++
				r.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: r.rev}}})
				if out, _, err := next(b.Context(), buf); err != nil || len(out) == 0 {
					b.Fatal(len(out), err)
				}
			}
		})
	}
}

// BenchmarkQueued is the feed's cost of one change that concerns watchers whose wake-up is queued already: it must not depend on how many they are.
func BenchmarkQueued(b *testing.B) {
	for _, watchers := range []int{10, 10_000} {
		b.Run(fmt.Sprint(watchers, " watchers"), func(b *testing.B) {
			r := newBench(defaultBounds)
			for range watchers {
				r.watch(b, query{labels: "tier=front"}, WatchOptions{Start: StartNow})
			}
			raw, key := widget("a", `"tier":"front"`), string(widgets)+"ns1/a"
			b.ReportAllocs()
			b.ResetTimer()
			for range b.N {
				r.rev++
				r.cacher.feed.applyAll([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: r.rev}}})
				r.cacher.feed.moveTo(r.rev)
			}
		})
	}
}

// BenchmarkApply is the feed's cost of one change, beside watchers that it doesn't concern: it must not
// depend on how many they are.
func BenchmarkApply(b *testing.B) {
	for _, by := range []string{"name", "label", "field", "what can't be"} {
		for _, watchers := range []int{10, 10_000} {
			b.Run(fmt.Sprintf("%d other watchers by %s", watchers, by), func(b *testing.B) {
				r := newBench(defaultBounds)
				for i := range watchers {
					q := map[string]query{
						"name":  {name: fmt.Sprint("w", i)},
						"label": {labels: fmt.Sprintf("shard=s%d", i)},
						"field": {fields: fmt.Sprintf("spec.owner=team-%d", i+2)},

						"what can't be": {where: fmt.Sprintf("spec.n=%d,spec.n=%d", i, i+1)},
					}[by]
					r.watch(b, q, WatchOptions{Start: StartNow})
				}
				raw := widget("a", `"tier":"front"`)
				key := string(widgets) + "ns1/a"
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					r.rev++
					r.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: key, Value: raw, Revision: r.rev}}})
				}
			})
		}
	}
}

// BenchmarkInitialState gives the state of 10,000 objects to watchers that ask at once.
func BenchmarkInitialState(b *testing.B) {
	for _, watchers := range []int{1, 50} {
		b.Run(fmt.Sprint(watchers, " watchers"), func(b *testing.B) { benchmarkInitialState(b, watchers) })
	}
}

func benchmarkInitialState(b *testing.B, watchers int) {
	const objects = 10_000
	r := newBench(defaultBounds)
	for i := range objects {
		r.rev++
		name := fmt.Sprint("w", i)
		r.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: string(widgets) + "ns1/" + name, Value: widget(name, `"tier":"front"`), Revision: r.rev}}})
	}
	buf := make([]byte, 0, 80<<10)
	cursors := make([]*Cursor, watchers)
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		for i := range cursors {
			cursors[i] = r.watch(b, query{}, WatchOptions{Start: StartState})
		}
		for !cursors[0].Synced() {
			for _, c := range cursors {
				if _, _, err := c.Next(b.Context(), buf); err != nil {
					b.Fatal(err)
				}
			}
		}
		for _, c := range cursors {
			c.Close()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*objects*watchers), "ns/object")
}

// widget is a custom resource of about 1.2 KB.
func widget(name string, labels string) []byte {
	return fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"creationTimestamp":"2026-01-01T00:00:00Z","generation":1,"labels":{%s},"name":%q,"namespace":"default","uid":"5b7e63e2-3a51-4a53-a33c-0d5a0a1c62aa"},"spec":{"color":"red","owner":"team-1","payload":%q,"ratio":0.5,"replicas":3,"size":1,"tags":["one","two"]}}`,
		labels, name, strings.Repeat("alpha bravo ", 75))
}
