package cacher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// fatWidget is one that fills a good part of a batch.
func fatWidget(name, tier string) *thing {
	return &thing{key: string(widgets) + "ns1/" + name, tier: tier, color: strings.Repeat("x", 20<<10)}
}

// write creates or updates a thing.
func (r *rig) write(o *thing) storage.Revision {
	r.t.Helper()
	ctx := context.Background()
	kv, err := r.store.Get(ctx, o.key)
	var rev storage.Revision
	if errors.Is(err, storage.ErrNotFound) {
		rev, err = r.store.Create(ctx, o.key, []byte(o.json(0)))
	} else if err == nil {
		rev, err = r.store.Update(ctx, o.key, []byte(o.json(0)), kv.Revision)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return rev
}

// catchUp waits until the caches have all that was written.
func (r *rig) catchUp() {
	r.t.Helper()
	if _, err := r.cacher.Barrier(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// TestSharedStateBounds: what is kept of initial states is bounded, for a group and for all of them, everybody gets
// all of it, and nothing stays.
func TestSharedStateBounds(t *testing.T) {
	for _, c := range []struct {
		name         string
		group, total int64
		groups       int
		most         int64
	}{
		{"no bound", 1 << 30, 1 << 30, 3, 1 << 30},
		{"a group's", 100 << 10, 1 << 30, 1, 100<<10 + maxBatchBytes},
		{"of all groups", 1 << 30, 200 << 10, 5, 200<<10 + maxBatchBytes},
		{"nothing", 0, 0, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			small := defaultBounds
			small.groupStateBytes, small.stateBytes = c.group, c.total
			b := newBench(small)
			const objects = 40
			var want []string
			for i := range objects {
				name := fmt.Sprintf("w%02d", i)
				b.put(fatWidget(name, "front"))
				want = append(want, fmt.Sprintf("A %s %d", name, b.rev))
			}
			var cursors []*Cursor
			for i := range 2 * c.groups { // two members each
				cursors = append(cursors, b.watch(t, query{labels: fmt.Sprintf("tier!=t%d", i/2)}, WatchOptions{Start: StartState}))
			}
			got := make([][]string, len(cursors))
			for done := 0; done < len(cursors); {
				for i, cursor := range cursors {
					if cursor.Synced() {
						continue
					}
					out, _, err := cursor.Next(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					got[i] = append(got[i], lines(out)...)
					if cursor.Synced() {
						done++
					}
					if n := b.cacher.Usage().StateBytes; n > c.most {
						t.Fatalf("%d bytes are kept, the bound is %d", n, c.most)
					}
				}
			}
			for i := range cursors {
				if summary(got[i]) != strings.Join(want, ", ") {
					t.Errorf("watcher %d got %s", i, summary(got[i]))
				}
				cursors[i].Close()
			}
			if n := b.cacher.Usage().StateBytes; n != 0 || len(b.cacher.states.open) != 0 {
				t.Errorf("%d bytes and %d states are left", n, len(b.cacher.states.open))
			}
		})
	}
}

// TestSlowState: a client that takes its initial state slowly gets it as it was when the watch was opened, though the
// snapshot was dropped because it kept too much alive, and then all that happened since.
func TestSlowState(t *testing.T) {
	for _, c := range []struct {
		name    string
		first   bool // the view shows the first event in another way
		pieces  int  // taken before the snapshot is dropped
		members int
	}{
		{"at once", false, 0, 1},
		{"half way", false, 3, 1},
		{"half way, shared", false, 3, 2},
		{"at once, with a first event of its own", true, 0, 2},
		{"half way, with a first event of its own", true, 3, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			small := defaultBounds
			small.stateRetained = 2 * trimBytes
			r := newRig(t, small)
			const objects = 20
			var want []string
			for i := range objects {
				name := fmt.Sprintf("w%02d", i)
				want = append(want, fmt.Sprintf("A %s %d", name, r.write(fatWidget(name, []string{"front", "back"}[i%2]))))
			}
			opts := query{labels: "tier"}.options(t)
			opts.Start = StartState
			if c.first {
				opts.View = &kube.View{APIVersion: "example.com/v1", Kind: "Widget", First: &kube.View{APIVersion: "first", Kind: "Widget"}}
			}
			cursors, got := make([]*Cursor, c.members), make([][]string, c.members)
			step := func(i int) bool {
				out, wait, err := cursors[i].Next(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				got[i] = append(got[i], lines(out)...)
				return wait == nil
			}
			for i := range cursors {
				var err error
				if cursors[i], err = r.cacher.Resource(widgets).Open(t.Context(), opts); err != nil {
					t.Fatal(err)
				}
				defer cursors[i].Close()
			}
			for range c.pieces {
				for i := range cursors {
					step(i)
				}
			}
			shared := cursors[0].state.shared
			for n := 0; shared.snapshot.Load() != nil; n++ {
				if kept := r.cacher.Usage().StateRetained; kept > small.stateRetained+2*trimBytes {
					t.Fatalf("the snapshot keeps %d bytes alive, the bound is %d", kept, small.stateRetained)
				}
				name := fmt.Sprintf("w%02d", n%objects)
				want = append(want, fmt.Sprintf("M %s %d", name, r.write(fatWidget(name, "middle"))))
				r.catchUp()
			}
			if kept := r.cacher.Usage().StateRetained; kept != 0 {
				t.Errorf("%d bytes are kept alive after the snapshot was dropped", kept)
			}
			for i := range cursors {
				for step(i) {
				}
				if summary(got[i]) != strings.Join(want, ", ") {
					t.Errorf("watcher %d got  %s\nwant %s", i, summary(got[i]), strings.Join(want, ", "))
				}
				for n, f := range got[i] {
					if strings.Contains(f, `"apiVersion":"first"`) != (c.first && n == 0) {
						t.Errorf("event %d has the wrong form: %.100s", n, f)
					}
				}
			}
		})
	}
}

// TestSlowStateExpires: when history is gone too, the client is told to begin anew.
func TestSlowStateExpires(t *testing.T) {
	r := newRig(t, defaultBounds)
	ctx := t.Context()
	for i := range 10 {
		r.write(fatWidget(fmt.Sprint("w", i), "front"))
	}
	opts := query{}.options(t)
	opts.Start = StartState
	c, err := r.cacher.Resource(widgets).Open(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, _, err := c.Next(ctx, nil); err != nil {
		t.Fatal(err)
	}
	last := r.write(fatWidget("w9", "back"))
	r.catchUp()
	r.cacher.bounds.stateRetained = 1
	r.cacher.states.trim()
	if _, err := r.server.Client.Compact(ctx, int64(last)); err != nil {
		t.Fatal(err)
	}
	if out, _, err := c.Next(ctx, nil); !errors.Is(err, watchstream.ErrExpired) || len(out) != 0 || c.Synced() {
		t.Errorf("got %d bytes, synced %t, and %v", len(out), c.Synced(), err)
	}
}

// TestStatesAtOnce: states are opened, given, dropped and ended at once, while objects change; each is of one moment.
func TestStatesAtOnce(t *testing.T) {
	small := smallBounds
	small.groupStateBytes, small.stateBytes = 128<<10, 256<<10
	r := newRig(t, small)
	const objects = 20
	for i := range objects {
		r.write(fatWidget(fmt.Sprintf("w%02d", i), "front"))
	}
	res := r.cacher.Resource(widgets)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for i := range 4 {
		readers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				default:
				}
				opts := query{labels: fmt.Sprintf("tier!=t%d", i/2)}.options(t)
				opts.Start = StartState
				c, err := res.Open(context.Background(), opts)
				if err != nil {
					t.Error(err)
					return
				}
				at := c.Revision()
				var frames []string
				for !c.Synced() {
					out, _, err := c.Next(context.Background(), nil)
					if err != nil {
						t.Error(err)
						break
					}
					frames = append(frames, lines(out)...)
				}
				c.Close()
				var names []string
				for _, f := range strings.Split(summary(frames), ", ") {
					var typ, name string
					var rev int64
					if fmt.Sscan(f, &typ, &name, &rev); typ != "A" || rev > at {
						t.Errorf("%s in the state at %d", f, at)
					}
					names = append(names, name)
				}
				if len(names) != objects || !slices.IsSorted(names) {
					t.Errorf("the state at %d has %v", at, names)
				}
			}
		})
	}
	for i := range 150 {
		r.write(fatWidget(fmt.Sprintf("w%02d", i%objects), tiers[i%3]))
		r.cacher.states.trim() // with a bound of 0: all that keep anything alive
	}
	close(done)
	readers.Wait()
	if u := r.cacher.Usage(); u.StateBytes != 0 || u.StateRetained != 0 || len(r.cacher.states.open) != 0 {
		t.Errorf("left: %+v, %d states", u, len(r.cacher.states.open))
	}
}

// TestLateFramesAreBounded: frames that late watchers make of old events stay within the bounds though nothing is
// written meanwhile, and nobody misses an event by that.
func TestLateFramesAreBounded(t *testing.T) {
	for _, c := range []struct {
		name                string
		log, total, history int64
	}{
		{"of one log", 2 << 20, 1 << 30, 2 << 20},
		{"of all logs", 1 << 30, 2 << 20, 2 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			small := defaultBounds
			small.logBytes, small.totalLogBytes, small.stretchBytes, small.stretchRevisions = c.log, c.total, c.history, 16
			r := newRig(t, small)
			begin := r.write(fatWidget("a", "front"))
			var want []string
			for range 60 {
				want = append(want, fmt.Sprintf("M a %d", r.write(fatWidget("a", "front"))))
			}
			r.catchUp()
			opts := query{}.options(t)
			opts.After = begin
			for i := range 12 {
				opts.View = &kube.View{APIVersion: fmt.Sprint("example.com/v", i), Kind: "Widget"}
				cursor, err := r.cacher.Resource(widgets).Open(t.Context(), opts)
				if err != nil {
					t.Fatal(err)
				}
				if got := summary(read(t, cursor)); got != strings.Join(want, ", ") {
					t.Errorf("watcher %d got %s", i, got)
				}
				cursor.Close()
				u := r.cacher.Usage()
				if most := min(c.log, c.total) + trimBytes + maxBatchBytes; u.LogBytes > most {
					t.Errorf("after %d views the logs have %d bytes, the bound is %d", i+1, u.LogBytes, most)
				}
				if most := c.history + trimBytes + maxBatchBytes; u.StretchBytes > most {
					t.Errorf("after %d views history has %d bytes, the bound is %d", i+1, u.StretchBytes, most)
				}
			}
		})
	}
}
