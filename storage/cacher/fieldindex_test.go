package cacher

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// keysWhere lists by the index, which must be there.
func keysWhere(t testing.TB, s *Snapshot, label, value string, in storage.Range) (keys []string) {
	t.Helper()
	found, ok := s.Where(label, value, in)
	if !ok {
		t.Fatalf("%s isn't indexed", label)
	}
	for o := range found {
		keys = append(keys, o.Key)
	}
	return keys
}

// scanned reads a field from an object's bytes, whatever the object carries.
func scanned(o *kube.Object, field string) string {
	return kube.NewObject(o.Key, o.Raw(), o.Revision).Field(field)
}

// keysScanned lists the same without it.
func keysScanned(s *Snapshot, label, value string, in storage.Range) (keys []string) {
	for o := range s.In(in) {
		if o.Err == nil && scanned(o, label) == value {
			keys = append(keys, o.Key)
		}
	}
	return keys
}

// checkIndex compares the index with the objects, and the values that these carry with their bytes.
func checkIndex(t testing.TB, s *Snapshot, labels ...string) {
	t.Helper()
	for _, label := range labels {
		values := map[string]bool{"": true, "nothing": true}
		for o := range s.All(string(widgets)) {
			values[scanned(o, label)] = true
			if got, want := o.Field(label), scanned(o, label); got != want {
				t.Errorf("%s of %s is carried as %q, want %q", label, o.Key, got, want)
			}
		}
		for value := range values {
			for _, prefix := range []string{string(widgets), string(widgets) + "ns1/"} {
				for _, key := range []string{prefix, prefix + "ns1/w5", prefix + "w5"} {
					in := storage.Range{Prefix: prefix, From: key}
					got, want := keysWhere(t, s, label, value, in), keysScanned(s, label, value, in)
					if !slices.Equal(got, want) {
						t.Errorf("%s=%q from %s: %q, want %q", label, value, key, got, want)
					}
				}
			}
		}
	}
}

func randomThing(rng *rand.Rand) *thing {
	return &thing{
		key:  fmt.Sprintf("%sns%d/w%d", widgets, 1+rng.IntN(2), rng.IntN(40)),
		tier: tiers[rng.IntN(len(tiers))], color: colors[rng.IntN(len(colors))], n: rng.IntN(5),
	}
}

// change writes or deletes something.
func (b *bench) change(rng *rand.Rand) {
	if o := randomThing(rng); rng.IntN(3) == 0 {
		b.remove(o.key)
	} else {
		b.put(o)
	}
}

func TestFieldIndex(t *testing.T) {
	b := newBench(defaultBounds)
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		b.change(rng)
	}
	if _, ok := b.Snapshot().Where("spec.color", "red", storage.Range{}); ok {
		t.Error("a field is indexed that nobody asked for")
	}
	b.SetFields([]string{"spec.n", "metadata.name", "spec.color", "spec.color", "spec.missing"})
	var snapshots []*Snapshot
	for range 100 {
		b.change(rng)
		snapshots = append(snapshots, b.Snapshot())
	}
	b.feed([]storage.Change{{KeyValue: storage.KeyValue{Key: string(widgets) + "ns1/bad", Value: []byte("{"), Revision: b.rev}}})
	for _, s := range append(snapshots, b.Snapshot()) { // each has its own index, whatever came after it
		checkIndex(t, s, "spec.n", "spec.color", "spec.missing")
	}
	b.SetFields([]string{"spec.color"})
	checkIndex(t, b.Snapshot(), "spec.color")
	if _, ok := b.Snapshot().Where("spec.n", "1", storage.Range{}); ok {
		t.Error("a field is still indexed")
	}
	b.install(b.prepare(nil), b.rev, nil)
	b.put(randomThing(rng))
	checkIndex(t, b.Snapshot(), "spec.color")
	b.SetFields(nil)
	for o := range b.Snapshot().All(string(widgets)) {
		if o.Values() != nil {
			t.Errorf("%s still carries %q", o.Key, o.Values())
		}
	}
}

// TestFieldIndexBuiltMeanwhile: an index that's built while objects change is right when it's done.
func TestFieldIndexBuiltMeanwhile(t *testing.T) {
	b := newBench(defaultBounds)
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 3 * fieldBatch {
		o := randomThing(rng)
		o.key += fmt.Sprint("-", i)
		b.put(o)
	}
	for _, fields := range [][]string{{"spec.color"}, {"spec.color", "spec.n"}, nil, {"spec.n"}} {
		var wg sync.WaitGroup
		wg.Go(func() { b.SetFields(fields) })
		wg.Go(func() {
			for range 200 {
				b.change(rng)
			}
		})
		wg.Go(func() {
			for range 50 {
				s := b.Snapshot()
				for _, label := range fields {
					if found, ok := s.Where(label, "1", storage.Range{Prefix: string(widgets)}); ok {
						for o := range found {
							if o.Field(label) != "1" {
								t.Errorf("%s was found by %s=1", o.Key, label)
							}
						}
					}
				}
			}
		})
		wg.Wait()
		checkIndex(t, b.Snapshot(), fields...)
	}
}
