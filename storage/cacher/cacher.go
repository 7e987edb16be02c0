package cacher

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Options of a Cacher; the zero value works.
type Options struct {
	// Log gets what goes wrong. Defaults to slog.Default().
	Log *slog.Logger
}

// Cacher holds the caches of all resources and feeds them. Make one with New, then call Run.
type Cacher struct {
	store   *storage.Store
	log     *slog.Logger
	history history
	waker   waker
	kept    kept
	bounds  bounds
	primed  chan struct{}
	stats   stats

	pos       atomic.Int64 // the feed's position
	untrimmed int          // the feed's own: changes since the last trim
	pinned    int64        // the feed's own: bytes replaced since the kept snapshots were looked at

	mu        sync.RWMutex // guards resources and base
	resources map[storage.Prefix]*Resource
	base      storage.Revision // where the logs of new resources begin

	waitMu sync.Mutex    // guards moved
	moved  chan struct{} // closed when pos has moved; nil while nobody waits
}

type stats struct {
	encoded  atomic.Int64
	applied  atomic.Int64
	relisted atomic.Int64
	ignored  atomic.Int64
}

// New returns a cacher over a store.
func New(store *storage.Store, o Options) *Cacher {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Cacher{store: store, log: o.Log, bounds: defaultBounds, primed: make(chan struct{}), resources: map[storage.Prefix]*Resource{}}
	c.history = history{store: store, encoded: &c.stats.encoded, bounds: &c.bounds, known: map[stretchKey]*stretch{}}
	c.kept.bounds = &c.bounds
	c.waker = waker{bell: make(chan struct{}, 1)}
	return c
}

// bounds are what the caches may grow to beside the objects themselves. Tests use smaller ones.
type bounds struct {
	// warm is how many of etcd's newest revisions are replayed at start, so that clients of the
	// previous process resume from memory.
	warm storage.Revision
	// logEvents and logBytes bound one resource's log: the number of events, and the bytes that it
	// alone keeps alive (replaced objects and encoded frames). What falls off is read from history.
	logEvents uint64
	logBytes  int64
	// totalLogBytes bounds the logs of all resources together: the largest gives way.
	totalLogBytes int64
	// groupEntries bounds a group's ring. A watcher that falls further behind reads the log.
	groupEntries uint64
	// stretch is how many revisions a stretch of history covers.
	stretch storage.Revision
	// historyBytes bounds the decoded stretches that are kept. What a cursor uses lives on while it does.
	historyBytes int64
	// keptSnapshots bounds how many snapshots are kept for those who read on from them, and keptBytes the
	// bytes that they keep alive together: what has been replaced since. What is dropped is read from history.
	keptSnapshots int
	keptBytes     int64
}

var defaultBounds = bounds{warm: 16_384, logEvents: 1 << 17, logBytes: 32 << 20, totalLogBytes: 256 << 20, groupEntries: 1024, stretch: 2048, historyBytes: 64 << 20,
	keptSnapshots: 64, keptBytes: 64 << 20}

// emptyRevision is that of a new etcd. No change belongs to it.
const emptyRevision storage.Revision = 1

// feedBytes bounds how much the feed takes from the store in one go.
const feedBytes = 1 << 20

// Run primes the caches and then applies every change until ctx ends, which isn't an error. It must be
// called once.
func (c *Cacher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { c.waker.run(ctx) })

	// The state some way back, and the ordinary feed from there: no special path for the recent past.
	at := max(c.store.Compacted(), c.store.Current()-c.bounds.warm, emptyRevision)
	if err := c.list(ctx, at); err != nil {
		return c.ended(ctx, fmt.Errorf("prime the caches: %w", err))
	}
	if err := c.catchUp(ctx, c.store.Current()); err != nil {
		return c.ended(ctx, err)
	}
	close(c.primed)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-c.store.Rung():
		}
		if err := c.catchUp(ctx, c.store.Announced()); err != nil {
			return c.ended(ctx, err)
		}
	}
}

func (c *Cacher) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// list loads the state at a revision, and the logs begin there.
func (c *Cacher) list(ctx context.Context, at storage.Revision) error {
	objects := map[storage.Prefix][]*Object{}
	_, err := c.store.List(ctx, storage.Root, at, func(kv storage.Change) error {
		if p, _, _, ok := storage.SplitKey(kv.Key); ok {
			objects[p] = append(objects[p], newObjectFrom(kv))
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = at
	for p := range objects {
		if c.resources[p] == nil {
			c.resources[p] = newResource(c, p, at)
		}
	}
	var dirty []*cohort
	for p, r := range c.resources {
		dirty = r.install(objects[p], at, dirty)
	}
	c.moveTo(at)
	c.waker.wake(dirty)
	return nil
}

// catchUp applies changes until the feed is at least at a revision that etcd has announced.
func (c *Cacher) catchUp(ctx context.Context, to storage.Revision) error {
	for c.Position() < to {
		changes, upTo, err := c.store.Changes(ctx, storage.Stretch{After: c.Position(), MaxBytes: feedBytes})
		if errors.Is(err, storage.ErrCompacted) {
			// History was compacted under the feed. Watchers read on from etcd's history where it still
			// has what they missed, and are told 410 where it hasn't.
			c.stats.relisted.Add(1)
			c.log.Warn("the feed fell out of history: listing anew", "position", c.Position(), "err", err)
			err = c.list(ctx, c.store.Current())
			changes, upTo = nil, c.Position()
		}
		if err != nil {
			return fmt.Errorf("feed: %w", err)
		}
		if upTo == c.Position() && len(changes) == 0 {
			runtime.Gosched() // announced, and visible in an instant
			continue
		}
		c.applyAll(changes)
		c.moveTo(upTo)
	}
	return nil
}

// applyAll applies changes revision by revision, and then wakes whom they concern.
func (c *Cacher) applyAll(changes []storage.Change) {
	var dirty []*cohort
	for from := 0; from < len(changes); {
		to := from + 1
		for to < len(changes) && changes[to].Revision == changes[from].Revision {
			to++
		}
		dirty = c.applyRevision(changes[from:to], dirty)
		c.moveTo(changes[from].Revision)
		if c.pinned >= trimBytes {
			c.pinned = 0
			c.kept.trim()
		}
		from = to
	}
	c.waker.wake(dirty)
	if c.untrimmed += len(changes); c.untrimmed >= trimInterval {
		c.untrimmed = 0
		c.trim()
	}
}

const (
	// trimInterval is how many changes are applied between two looks at the sum of all logs.
	trimInterval = 1024
	// trimBytes is how much is replaced between two looks at what the kept snapshots keep alive.
	trimBytes = 1 << 20
)

// trim halves the largest logs until all together are within their bound.
func (c *Cacher) trim() {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for {
		var sum, most int64
		var largest *Resource
		for _, r := range c.resources {
			n := r.log.bytes.Load()
			if sum += n; n > most {
				most, largest = n, r
			}
		}
		if sum <= c.bounds.totalLogBytes || largest == nil {
			return
		}
		largest.trimLog(most / 2)
	}
}

// applyRevision brings one revision into all the resources that it changed.
func (c *Cacher) applyRevision(changes []storage.Change, dirty []*cohort) []*cohort {
	for len(changes) > 0 {
		p, _, _, ok := storage.SplitKey(changes[0].Key)
		n, rest := 1, []storage.Change(nil)
		if len(changes) > 1 { // only transactions that aren't ours
			changes, rest = partition(changes, p)
			n = len(changes)
		}
		if ok {
			dirty = c.Resource(p).apply(changes[:n], dirty)
			c.stats.applied.Add(int64(n))
		} else {
			c.stats.ignored.Add(int64(n))
		}
		changes = rest
	}
	return dirty
}

// partition splits changes into those of the prefix and the others, in order.
func partition(changes []storage.Change, of storage.Prefix) (in, out []storage.Change) {
	for _, ch := range changes {
		if p, _, _, _ := storage.SplitKey(ch.Key); p == of {
			in = append(in, ch)
		} else {
			out = append(out, ch)
		}
	}
	return in, out
}

// Primed is closed when everything that etcd held at start is in the caches.
func (c *Cacher) Primed() <-chan struct{} { return c.primed }

// Position returns the feed's position: every change up to it is in the caches of all resources.
func (c *Cacher) Position() storage.Revision { return storage.Revision(c.pos.Load()) }

func (c *Cacher) moveTo(rev storage.Revision) {
	c.pos.Store(int64(rev))
	c.waitMu.Lock()
	defer c.waitMu.Unlock()
	if c.moved != nil {
		close(c.moved)
		c.moved = nil
	}
}

// WaitFor returns when the feed's position is at least rev, or with ctx's error.
func (c *Cacher) WaitFor(ctx context.Context, rev storage.Revision) error {
	for {
		if c.Position() >= rev {
			return nil
		}
		c.waitMu.Lock()
		if c.moved == nil {
			c.moved = make(chan struct{})
		}
		moved := c.moved
		c.waitMu.Unlock()
		if c.Position() >= rev { // it may have moved before the channel was there
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d (at %d): %w", rev, c.Position(), ctx.Err())
		case <-moved:
		}
	}
}

// Barrier returns when every write acknowledged before the call is in the caches, with a revision that
// covers them all: what is read from memory after it is linearizable.
func (c *Cacher) Barrier(ctx context.Context) (storage.Revision, error) {
	rev, err := c.store.Barrier(ctx)
	if err != nil {
		return 0, err
	}
	return rev, c.WaitFor(ctx, rev)
}

// Resource returns the cache of a prefix. It's made when it's first asked for or first seen: it belongs to
// the keys, and definitions come and go above it.
func (c *Cacher) Resource(p storage.Prefix) *Resource {
	c.mu.RLock()
	r := c.resources[p]
	c.mu.RUnlock()
	if r != nil {
		return r
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r = c.resources[p]; r == nil {
		r = newResource(c, p, c.base)
		c.resources[p] = r
	}
	return r
}

// Encoded returns how many event frames were encoded. One event is encoded once per view and type,
// however many watchers get it.
func (c *Cacher) Encoded() int64 { return c.stats.encoded.Load() }
