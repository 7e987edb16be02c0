package cacher

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// contents is what an image holds.
func (im *Image) contents() map[string]string {
	found := map[string]string{}
	for p, s := range im.resources {
		for o := range s.All(string(p)) {
			found[o.Key] = string(o.Raw())
		}
	}
	return found
}

// TestImages: images of random states are brought back in random order; the caches have what the store has, no watch is
// told anything, and the index of a field finds what is there.
func TestImages(t *testing.T) {
	ctx := t.Context()
	opts := etcd.Options{DataDir: t.TempDir(), Ephemeral: true, Bulk: true}
	r := newRigWith(t, defaultBounds, opts)
	r.store.AllowReplace()
	widgets := r.cacher.Resource("/registry/example.com/widgets/")
	widgets.SetFields([]string{"spec.color"})
	random := rand.New(rand.NewPCG(1, 2))
	write := func() {
		for range random.IntN(40) {
			o := thing{
				key:  fmt.Sprintf("/registry/example.com/%s/ns%d/o%02d", []string{"widgets", "gadgets", "nuts"}[random.IntN(3)], random.IntN(2), random.IntN(12)),
				tier: "front", color: []string{"red", "blue"}[random.IntN(2)], n: random.IntN(3),
			}
			kv, err := r.store.Get(ctx, o.key)
			switch {
			case errors.Is(err, storage.ErrNotFound):
				_, err = r.store.Create(ctx, o.key, []byte(o.json(0)))
			case err == nil && random.IntN(2) == 0:
				_, err = r.store.Delete(ctx, o.key, kv.Revision)
			case err == nil:
				_, err = r.store.Update(ctx, o.key, []byte(o.json(0)), kv.Revision)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if _, err := r.cacher.Barrier(ctx); err != nil {
			t.Fatal(err)
		}
	}
	images := []*Image{r.cacher.Image()}
	for round := range 100 {
		write()
		if round%4 == 0 {
			images = append(images, r.cacher.Image())
			write()
		}
		start := WatchOptions{View: &kube.View{APIVersion: "example.com/v1", Kind: "Widget"}, Start: StartNow}
		cursor, err := widgets.Open(ctx, start)
		if err != nil {
			t.Fatal(err)
		}
		before := r.cacher.Position()
		to := images[random.IntN(len(images))]
		rev, err := r.store.Replace(ctx, func() (storage.Replacement, error) { return to.Since(r.cacher.Image()), nil })
		if err != nil {
			t.Fatal(err)
		}
		if err := r.cacher.WaitFor(ctx, rev); err != nil {
			t.Fatal(err)
		}
		if out, _, err := cursor.Next(ctx, nil); !errors.Is(err, watchstream.ErrExpired) || len(out) > 0 {
			t.Fatalf("the watch is told %s, %v", out, err)
		}
		cursor.Close()
		start.Start, start.After = StartAfter, before
		if _, err := widgets.Open(ctx, start); !errors.Is(err, storage.ErrCompacted) {
			t.Fatalf("a watch from before: %v", err)
		}
		now, err := storedNow(r)
		if err != nil {
			t.Fatal(err)
		}
		if want := to.contents(); !maps.Equal(now, want) || !maps.Equal(r.cacher.Image().contents(), want) {
			t.Fatalf("round %d: the store has %d objects, the caches %d, want %d", round, len(now), len(r.cacher.Image().contents()), len(want))
		}
		if more := to.Since(r.cacher.Image()); len(more.Puts)+len(more.Deletes) > 0 {
			t.Fatalf("round %d: there is more to do: %+v", round, more)
		}
		red, reds := 0, 0
		s := widgets.Snapshot()
		for o := range s.All("") {
			if fields, _ := selectors.ParseFields("spec.color=red"); fields.Matches(o) {
				reds++
			}
		}
		found, ok := s.Where("spec.color", "red", storage.Range{Prefix: string(widgets.prefix)})
		if !ok {
			t.Fatal("the field isn't indexed")
		}
		for range found {
			red++
		}
		if red != reds {
			t.Fatalf("the index has %d objects, want %d", red, reds)
		}
	}
}

// storedNow is what the rig's store holds.
func storedNow(r *rig) (map[string]string, error) {
	found := map[string]string{}
	_, err := r.store.List(r.t.Context(), storage.Range{Prefix: storage.Root}, 0, func(c storage.Change) error {
		found[c.Key] = string(c.Value)
		return nil
	})
	return found, err
}

// TestSpans: neighbours that go are one span, and nobody else is in it.
func TestSpans(t *testing.T) {
	snapshot := func(names string) *Snapshot {
		tree := newTree()
		for _, c := range names {
			tree.ReplaceOrInsert(kube.NewObject("/registry/g/r/"+string(c), fmt.Appendf(nil, `{"apiVersion":"g/v1","kind":"R","metadata":{"name":"%c"}}`, c), 0))
		}
		return &Snapshot{tree: tree}
	}
	for _, tc := range []struct{ name, have, want, deletes, puts string }{
		{"nothing", "", "", "", ""},
		{"the same", "abc", "abc", "", ""},
		{"all", "abc", "", "ac", ""},
		{"none before", "", "abc", "", "abc"},
		{"both ends", "abcde", "c", "ab de", ""},
		{"others between", "ac", "b", "aa cc", "b"},
		{"the middle", "abcd", "ad", "bc", ""},
		{"one after the end", "ab", "abc", "", "c"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const p = "/registry/g/r/"
			b := snapshot(tc.have).differing(p, snapshot(tc.want), storage.Replacement{})
			deletes, puts := "", ""
			for i, d := range b.Deletes {
				if i > 0 {
					deletes += " "
				}
				deletes += d.First[len(p):] + d.Last[len(p):]
			}
			for _, kv := range b.Puts {
				puts += kv.Key[len(p):]
			}
			if deletes != tc.deletes || puts != tc.puts {
				t.Errorf("deletes %q and puts %q, want %q and %q", deletes, puts, tc.deletes, tc.puts)
			}
		})
	}
}
