package cacher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// stall stops the feed at the next change, by a lock that it needs to find the change's resource.
func (r *rig) stall() (resume func()) {
	r.cacher.mu.Lock()
	return r.cacher.mu.Unlock
}

// everything is what a watch of all objects asks for.
func everything(start Start, after storage.Revision) WatchOptions {
	return WatchOptions{View: testView, Start: start, After: after}
}

// TestFeedFallsOutOfHistory: history is compacted beyond a feed that is behind. It lists anew. A watch that
// begins at a revision which history still covers gets everything that follows, and one that missed something for
// good is told so, even if it had all there was. Nobody sees half a state.
func TestFeedFallsOutOfHistory(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	begin := r.createWidgets(0, 20)
	if _, err := r.cacher.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	res := r.cacher.Resource(widgets)
	open := func(p storage.Prefix, start Start, after storage.Revision) *Cursor {
		t.Helper()
		c, err := r.cacher.Resource(p).Open(ctx, everything(start, after))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	upToDate, elsewhere := open(widgets, StartNow, 0), open(gadgets, StartNow, 0)
	behind := open(widgets, StartAfter, begin-15)
	asleep := map[string]<-chan struct{}{}
	for name, c := range map[string]*Cursor{"up to date": upToDate, "of another resource": elsewhere} {
		out, wait, err := c.Next(ctx, nil)
		if len(out) > 0 || wait == nil || err != nil {
			t.Fatalf("%s: got %s, %v", name, out, err)
		}
		asleep[name] = wait
	}

	resume := r.stall()
	last := r.createWidgets(20, 420) // more than waits in memory for the feed
	compacted := last - 100
	if _, err := r.server.Client.Compact(ctx, int64(compacted)); err != nil {
		t.Fatal(err)
	}
	var resumed []chan *Cursor // they wait for the feed
	afters := []storage.Revision{compacted, compacted + 10, last - smallBounds.warm, last - 1, last}
	for _, after := range afters {
		opened := make(chan *Cursor, 1)
		resumed = append(resumed, opened)
		go func() {
			c, err := res.Open(ctx, everything(StartAfter, after))
			if err != nil {
				t.Error(err)
			}
			opened <- c
		}()
	}
	resume()
	if _, err := r.cacher.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	if n := r.cacher.Counts().Relisted; n != 1 {
		t.Fatalf("the feed listed anew %d times", n)
	}
	if n := res.Snapshot().Len(); n != 420 {
		t.Errorf("%d objects, want 420", n)
	}
	for name, wait := range asleep {
		select {
		case <-wait:
		case <-ctx.Done():
			t.Fatalf("the watcher that is %s wasn't woken", name)
		}
	}
	for name, c := range map[string]*Cursor{"up to date": upToDate, "of another resource": elsewhere, "behind": behind} {
		if out, _, err := c.Next(ctx, nil); !errors.Is(err, watchstream.ErrExpired) || len(out) > 0 {
			t.Errorf("the watcher that is %s got %s, %v", name, out, err)
		}
	}
	next := r.createWidgets(420, 421)
	for i, after := range afters {
		c := <-resumed[i]
		if c == nil {
			continue
		}
		var want []string
		for rev := after + 1; rev <= next; rev++ {
			want = append(want, fmt.Sprintf("A w%03d %d", 420-(next-rev), rev))
		}
		if err := r.cacher.WaitFor(ctx, next); err != nil {
			t.Fatal(err)
		}
		if got := summary(read(t, c)); got != strings.Join(want, ", ") {
			t.Errorf("after %d, of a history from %d to %d: got %s", after, compacted, next, got)
		}
		c.Close()
	}
}

// silentStore doesn't answer its first reads.
type silentStore struct {
	storage.Store
	windows, lists int // that still fail
}

func (s *silentStore) Window(ctx context.Context) (compacted, newest storage.Revision, err error) {
	if s.windows--; s.windows >= 0 {
		return 0, 0, storage.ErrUnavailable
	}
	return s.Store.Window(ctx)
}

func (s *silentStore) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	if s.lists--; s.lists >= 0 {
		return 0, storage.ErrUnavailable
	}
	return s.Store.List(ctx, keys, at, fn)
}

// TestFirstListIsTriedAgain: a store that doesn't answer while the caches are first filled ends nothing.
func TestFirstListIsTriedAgain(t *testing.T) {
	store, last := ownStore(t, widgetNamed("a", ""), widgetNamed("b", ""))
	synced := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := New(&silentStore{Store: store, windows: 1, lists: 1}, Options{Log: slog.New(slog.DiscardHandler)})
	go func() { synced <- c.Run(ctx) }()
	select {
	case <-c.Primed():
	case err := <-synced:
		t.Fatal("the feed ended: ", err)
	}
	if c.Resource(widgets).Len() != 2 || c.Position() < last {
		t.Errorf("%d objects at %d", c.Resource(widgets).Len(), c.Position())
	}
	cancel()
	if err := <-synced; err != nil {
		t.Error(err)
	}
}

// TestRelistKeepsObjects: what is listed anew takes memory for what has changed: the other objects stay the ones that they are, with
// the values by which they're found, also if these were asked for meanwhile. What is gone is gone.
func TestRelistKeepsObjects(t *testing.T) {
	ctx := t.Context()
	store, _ := ownStore(t, widgetNamed("a", "front"), widgetNamed("b", "back"), widgetNamed("c", "front"), &thing{key: string(gadgets) + "ns1/g"})
	c := New(store, Options{})
	c.bounds.warm = 0
	if _, err := c.feed.load(ctx, behind); err != nil {
		t.Fatal(err)
	}
	res := c.Resource(widgets)
	fields := []string{"metadata.labels.tier"}
	res.SetFields(fields)
	key := func(name string) string { return widgetNamed(name, "").key }
	before := map[string]*kube.Object{}
	for _, name := range []string{"a", "b", "c"} {
		before[name] = res.Get(key(name))
	}
	if _, err := store.Update(ctx, key("b"), []byte(widgetNamed("b", "middle").json(0)), before["b"].Revision); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Delete(ctx, key("c"), before["c"].Revision); err != nil {
		t.Fatal(err)
	}
	removed := res.removedBytes.Load()
	if _, err := c.feed.load(ctx, behind); err != nil {
		t.Fatal(err)
	}
	if res.Get(key("a")) != before["a"] {
		t.Error("an object that hasn't changed is in memory twice")
	}
	if now := res.Get(key("b")); now == before["b"] || res.Get(key("c")) != nil || c.Resource(gadgets).Len() != 1 || res.Len() != 2 {
		t.Errorf("there are %d widgets and %d gadgets", res.Len(), c.Resource(gadgets).Len())
	}
	if got, want := res.removedBytes.Load()-removed, int64(len(before["b"].Raw())+len(before["c"].Raw())+2*changeOverhead); got != want {
		t.Errorf("%d bytes left the tree, want %d", got, want)
	}
	for tier, want := range map[string]string{"front": "a", "middle": "b", "back": ""} {
		found, ok := res.Snapshot().Where(fields[0], tier, storage.Range{Prefix: string(widgets)})
		if !ok {
			t.Fatal("the field isn't indexed")
		}
		got := ""
		for o := range found {
			got += o.Name()
		}
		if got != want {
			t.Errorf("of tier %s: %q, want %q", tier, got, want)
		}
	}
	objects, err := c.feed.list(ctx, c.Position())
	if err != nil {
		t.Fatal(err)
	}
	found := c.feed.prepare(objects)
	res.SetFields(nil) // between
	c.feed.install(found, c.Position())
	if res.Len() != 2 || res.fields.set != res.fieldSet() || len(res.fields.trees) != 0 {
		t.Errorf("%d widgets, with the fields %v", res.Len(), res.fields.set.Names())
	}
}

// TestCompactedWhilePriming: history is compacted while a feed that starts lists an older revision.
func TestCompactedWhilePriming(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const objects = 1100 // more than one page of the store's list
	last := r.createWidgets(0, objects)
	store, err := embedded.New(r.server.Client, r.server.Local)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	var first sync.Once
	store.SetTransformer(storagetest.OnRead(func(string) error {
		first.Do(func() {
			if _, err := r.server.Client.Compact(ctx, int64(last)); err != nil {
				t.Error(err)
			}
		})
		return nil
	}))
	c := New(store, Options{})
	c.bounds = smallBounds
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-c.Primed():
	case err := <-ended:
		t.Fatal("the feed ended: ", err)
	}
	if n := c.Resource(widgets).Len(); n != objects || c.Position() < last {
		t.Errorf("%d objects at %d, want %d at %d", n, c.Position(), objects, last)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestUndecodable: changes that the store can't decode are counted, and logged once in a while. Those around them are
// applied.
func TestUndecodable(t *testing.T) {
	var log bytes.Buffer
	c := New(nil, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	var changes []storage.Change
	for rev := storage.Revision(2); rev <= 40; rev++ {
		change := storage.Change{KeyValue: storage.KeyValue{Revision: rev}, Err: errors.New("not a key-value pair")}
		switch rev % 3 {
		case 0:
			o := widgetNamed(fmt.Sprint("w", rev), "front")
			change = storage.Change{KeyValue: storage.KeyValue{Key: o.key, Value: []byte(o.json(0)), Revision: rev}}
		case 1:
			change = storage.Change{KeyValue: storage.KeyValue{Key: "/elsewhere", Revision: rev}}
		}
		changes = append(changes, change)
	}
	c.feed.applyAll(changes)
	if n := c.Counts().Undecodable; n != 13 {
		t.Errorf("%d changes were counted, want 13", n)
	}
	if n := c.Resource(widgets).Len(); n != 13 || c.Position() != 40 {
		t.Errorf("%d objects at %d", n, c.Position())
	}
	if text := log.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "revision=2 ") {
		t.Errorf("logged %s", text)
	}
	c.feed.complained = time.Now().Add(-complaintInterval)
	c.feed.applyAll(changes[:1])
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "total=14 ") {
		t.Errorf("logged %s", text)
	}
}

// stuck begins a write that etcd has announced and can't finish until finish is called: the locks of its database are
// taken as if a commit or a defragmentation had them.
func (r *rig) stuck(ctx context.Context, o *thing) (rev storage.Revision, finish func() error) {
	r.t.Helper()
	for {
		last, err := r.cacher.Barrier(ctx)
		if err != nil {
			r.t.Fatal(err)
		}
		tx := r.server.Local.Backend().ReadTx()
		tx.RLock() // the write waits for this, and whoever wants to read etcd then waits for the write
		written := make(chan error, 1)
		go func() {
			_, err := r.store.Create(ctx, o.key, []byte(o.json(0)))
			written <- err
		}()
		finish = func() error {
			tx.RUnlock()
			return <-written
		}
		soon, cancel := context.WithTimeout(ctx, time.Second)
		err = r.cacher.WaitFor(soon, last+1)
		cancel()
		if err == nil {
			return last + 1, finish
		}
		// A commit was first, and the write waited for that one.
		if err := finish(); err != nil {
			r.t.Fatal(err)
		}
		if _, err := r.store.Delete(ctx, o.key, last+1); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestReadsWithoutDisk: while a write can't finish, because a commit or a defragmentation has the locks of etcd's
// database, consistent reads and watches go on, and show that write.
func TestReadsWithoutDisk(t *testing.T) {
	r := newRig(t, smallBounds)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r.createWidgets(0, 3)
	rev, finish := r.stuck(ctx, widgetNamed("w003", "front"))
	read := make(chan error, 1)
	go func() { read <- r.readAround(ctx, rev) }()
	select {
	case err := <-read:
		if err != nil {
			t.Error(err)
		}
	case <-ctx.Done():
		t.Error("a read waits for etcd's database")
	}
	if err := finish(); err != nil {
		t.Error(err)
	}
}

// readAround reads in all ways that are answered from memory; the last of four widgets was created at a revision.
func (r *rig) readAround(ctx context.Context, rev storage.Revision) error {
	res := r.cacher.Resource(widgets)
	for range 100 {
		if got, err := r.cacher.Barrier(ctx); err != nil || got != rev {
			return fmt.Errorf("barrier at %d, %w", got, err)
		}
		if res.Get(widgetNamed("w003", "").key) == nil || res.Snapshot().Len() != 4 || res.At(rev) == nil {
			return errors.New("the reads lack the last object")
		}
		for _, w := range []struct {
			start  Start
			after  storage.Revision
			events int
		}{{StartNow, 0, 0}, {StartState, 0, 4}, {StartState, rev, 4}, {StartAfter, rev - 1, 1}, {StartAfter, rev, 0}} {
			c, err := res.Open(ctx, everything(w.start, w.after))
			if err != nil {
				return err
			}
			out, _, err := c.Next(ctx, nil)
			c.Close()
			if n := len(lines(out)); err != nil || n != w.events {
				return fmt.Errorf("%+v: %d events, %w", w, n, err)
			}
		}
	}
	return nil
}
