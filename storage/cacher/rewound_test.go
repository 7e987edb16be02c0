package cacher

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// replaceable is a store in whose place another one can be put, as storage.Store describes it at Follow.
type replaceable struct {
	storage.Store // none: whatever a cacher calls is below

	mu       sync.Mutex // guards the rest
	now      storage.Store
	rewound  bool               // Follow hasn't been called since the replacement
	told     bool               // Follow has returned ErrRewound
	silent   int                // how many calls of Window still fail
	unfollow context.CancelFunc // ends the Follow that waits
}

func (s *replaceable) present() storage.Store {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now
}

// replace puts another store there, which doesn't answer at first.
func (s *replaceable) replace(by storage.Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now, s.rewound, s.told, s.silent = by, true, false, 1
	s.unfollow()
}

func (s *replaceable) Follow(ctx context.Context, after storage.Revision) ([]storage.Change, storage.Revision, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.mu.Lock()
	if s.rewound && !s.told {
		s.told = true
		s.mu.Unlock()
		return nil, 0, storage.ErrRewound
	}
	s.rewound, s.unfollow = false, cancel
	now := s.now
	s.mu.Unlock()
	changes, upTo, err := now.Follow(ctx, after)
	if now != s.present() {
		return s.Follow(ctx, after)
	}
	return changes, upTo, err
}

func (s *replaceable) Window(ctx context.Context) (compacted, newest storage.Revision, err error) {
	s.mu.Lock()
	now, silent := s.now, s.silent > 0
	if silent {
		s.silent--
	}
	s.mu.Unlock()
	if silent {
		return 0, 0, storage.ErrUnavailable
	}
	return now.Window(ctx)
}

func (s *replaceable) Barrier(ctx context.Context) (storage.Revision, error) {
	s.mu.Lock()
	now, rewound := s.now, s.rewound
	s.mu.Unlock()
	if rewound {
		return 0, storage.ErrUnavailable
	}
	return now.Barrier(ctx)
}

func (s *replaceable) List(ctx context.Context, keys storage.Range, at storage.Revision, fn func(storage.Change) error) (storage.Revision, error) {
	return s.present().List(ctx, keys, at, fn)
}

func (s *replaceable) Changes(ctx context.Context, st storage.Stretch) ([]storage.Change, storage.Revision, error) {
	return s.present().Changes(ctx, st)
}

func (s *replaceable) GetAt(ctx context.Context, key string, at storage.Revision) (storage.KeyValue, error) {
	return s.present().GetAt(ctx, key, at)
}

func (s *replaceable) Compacted() storage.Revision { return s.present().Compacted() }

// ownStore returns a store over an etcd of its own, with some objects, and its newest revision.
func ownStore(t *testing.T, objects ...*thing) (storage.Store, storage.Revision) {
	t.Helper()
	s, _ := storagetest.Embedded(t)
	var last storage.Revision
	for _, o := range objects {
		var err error
		if last, err = s.Create(t.Context(), o.key, []byte(o.json(0))); err != nil {
			t.Fatal(err)
		}
	}
	return s, last
}

// TestAnotherStore: another store is in the place of the one that was followed, with a lower revision. Every watch and tape
// expires, nothing of the other one is left in memory, and the caches go on with what is there now.
func TestAnotherStore(t *testing.T) {
	t.Cleanup(func() { goleak.VerifyNone(t, goleak.IgnoreCurrent()) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var before []*thing
	for i := range 30 {
		before = append(before, widgetNamed(fmt.Sprintf("w%03d", i), "front"))
	}
	gadget := &thing{key: string(gadgets) + "ns1/g", tier: "front"}
	first, last := ownStore(t, append(before, gadget)...)
	second, newest := ownStore(t, widgetNamed("w001", "back"), widgetNamed("w100", "back"))
	if newest >= last {
		t.Fatalf("the second store is at %d, the first at %d", newest, last)
	}
	store := &replaceable{now: first}
	c := New(store, Options{})
	c.bounds = smallBounds
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- c.Run(running) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	if err := c.WaitFor(ctx, last); err != nil {
		t.Fatal(err)
	}

	open := func(p storage.Prefix, start Start) *Cursor {
		t.Helper()
		cursor, err := c.Resource(p).Open(ctx, everything(start, 0))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cursor.Close)
		return cursor
	}
	watches := map[string]*Cursor{
		"up to date":              open(widgets, StartNow),
		"of a resource that ends": open(gadgets, StartNow),
		"with its state to come":  open(widgets, StartState),
	}
	_, asleep, err := watches["up to date"].Next(ctx, nil)
	if err != nil || asleep == nil {
		t.Fatalf("the watch has something: %v", err)
	}
	tape := c.Tape()
	defer tape.Close()
	for upTo := storage.Revision(0); upTo == 0; {
		if _, upTo, err = tape.Next(ctx); err != nil {
			t.Fatal(err)
		}
	}
	res := c.Resource(widgets)
	res.Keep(res.Snapshot())

	store.replace(second)
	// Nothing tells when the caches have begun anew, which takes milliseconds. Until then a barrier is refused at once.
	for {
		_, err := c.Barrier(ctx)
		if err == nil {
			break
		}
		if ctx.Err() != nil || !errors.Is(err, storage.ErrUnavailable) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}

	if at := c.Position(); at != newest || c.Oldest() != newest {
		t.Errorf("the caches are at %d, with history from %d; the store is at %d", at, c.Oldest(), newest)
	}
	var keys []string
	for o := range res.Snapshot().All(string(widgets)) {
		keys = append(keys, o.Name())
	}
	if !slices.Equal(keys, []string{"w001", "w100"}) || c.Resource(gadgets).Len() != 0 {
		t.Errorf("there are the widgets %v and %d gadgets", keys, c.Resource(gadgets).Len())
	}
	if res.At(last) != nil && res.At(last).Len() != 2 || c.Usage().Snapshots != 0 {
		t.Error("a list of the other store goes on")
	}
	select {
	case <-asleep:
	case <-ctx.Done():
		t.Fatal("nobody woke the watch")
	}
	for name, cursor := range watches {
		if out, _, err := cursor.Next(ctx, nil); !errors.Is(err, watchstream.ErrExpired) || len(out) > 0 {
			t.Errorf("the watch %s got %q, %v", name, out, err)
		}
	}
	if _, _, err := tape.Next(ctx); !errors.Is(err, watchstream.ErrExpired) {
		t.Errorf("the tape: %v", err)
	}
	if events, _, err := tape.Next(ctx); err != nil || len(events) != 2 {
		t.Errorf("the tape begins with %d objects, %v", len(events), err)
	}
	for after, want := range map[storage.Revision]error{newest - 1: storage.ErrCompacted, last: storage.ErrFutureRevision} {
		if _, err := res.Open(ctx, everything(StartAfter, after)); !errors.Is(err, want) {
			t.Errorf("a watch after %d: %v, want %v", after, err, want)
		}
	}
	next := open(widgets, StartNow)
	rev, err := second.Create(ctx, widgetNamed("w200", "").key, []byte(widgetNamed("w200", "back").json(0)))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitFor(ctx, rev); err != nil {
		t.Fatal(err)
	}
	if got, want := summary(read(t, next)), fmt.Sprintf("A w200 %d", rev); got != want {
		t.Errorf("a new watch got %q, want %q", got, want)
	}
}

// TestWatchBetweenStores: a watch that is opened while the caches begin anew, after a revision of the other store, expires. One
// that is opened when they have begun is refused, also if it was let in before.
func TestWatchBetweenStores(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first, _ := ownStore(t, widgetNamed("a", ""), widgetNamed("b", ""), widgetNamed("c", ""))
	second, newest := ownStore(t, widgetNamed("a", ""))
	c := New(first, Options{})
	c.bounds.warm = 0
	if _, err := c.feed.load(ctx, behind); err != nil {
		t.Fatal(err)
	}
	old := c.Position()
	if newest >= old {
		t.Fatalf("the second store is at %d, the first at %d", newest, old)
	}
	c.store = second
	epoch := c.Resource(widgets).epoch
	c.kept.mu.Lock() // load waits for it between expire and install
	ended := make(chan error, 1)
	go func() {
		_, err := c.feed.load(ctx, rewound)
		ended <- err
	}()
	for !epoch.expired.Load() { // nothing tells the moment, which comes when the second store, of one object, has been listed
		if ctx.Err() != nil {
			c.kept.mu.Unlock()
			t.Fatalf("the watches haven't expired; the restart ended with %v", <-ended)
		}
		runtime.Gosched()
	}
	cursor, err := c.Resource(gadgets).Open(ctx, everything(StartAfter, old))
	c.kept.mu.Unlock()
	if restarted := <-ended; err != nil || restarted != nil {
		t.Fatal(err, restarted)
	}
	defer cursor.Close()
	if _, _, err := cursor.Next(ctx, nil); !errors.Is(err, watchstream.ErrExpired) {
		t.Errorf("the watch: %v", err)
	}
	if err := c.Resource(widgets).refuseLocked(everything(StartAfter, old)); !errors.Is(err, storage.ErrFutureRevision) {
		t.Errorf("a watch that was let in before: %v", err)
	}
}
