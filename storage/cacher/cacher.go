package cacher

import (
	"context"
	"log/slog"
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
	store     *storage.Store
	stretches stretches
	waker     waker
	kept      kept
	states    states
	bounds    bounds
	feed      feed
	stats     stats
	framed    atomic.Int64 // bytes of frames that readers made of events, since the last look

	mu        sync.RWMutex // guards resources and base
	resources map[storage.Prefix]*Resource
	base      storage.Revision // where the logs of new resources begin
}

type stats struct{ encoded, relisted, undecodable atomic.Int64 }

// New returns a cacher over a store.
func New(store *storage.Store, o Options) *Cacher {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Cacher{store: store, bounds: defaultBounds, resources: map[storage.Prefix]*Resource{}}
	c.stretches = stretches{store: store, encoded: &c.stats.encoded, bounds: &c.bounds, known: map[stretchKey]*stretch{}}
	c.kept.bounds = &c.bounds
	c.states = states{bounds: &c.bounds, open: map[*sharedState]struct{}{}}
	c.waker = waker{bell: make(chan struct{}, 1)}
	c.feed = feed{cacher: c, store: store, log: o.Log, primed: make(chan struct{})}
	return c
}

// bounds are what the caches may grow to besides the objects themselves. Tests use smaller ones.
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
	// stretchRevisions is how many revisions a stretch of history covers.
	stretchRevisions storage.Revision
	// historyBytes bounds the decoded stretches that are kept. What a cursor uses lives on while it does.
	historyBytes int64
	// keptSnapshots bounds how many snapshots are kept for those who read on from them, and keptBytes the
	// bytes that they keep alive together: what has been replaced since. What is dropped is read from history.
	keptSnapshots int
	keptBytes     int64
	// groupStateBytes bounds the frames of an initial state that are kept for the members of one group, and
	// stateBytes those of all groups. What comes after that in key order each client encodes for itself.
	groupStateBytes, stateBytes int64
	// statePins bounds what the snapshots of unfinished initial states keep alive together: what has been
	// replaced since. Beyond it the rest of a state is read from history.
	statePins int64
}

var defaultBounds = bounds{warm: 16_384, logEvents: 1 << 17, logBytes: 32 << 20, totalLogBytes: 256 << 20, groupEntries: 1024, stretchRevisions: 2048, historyBytes: 64 << 20,
	keptSnapshots: 64, keptBytes: 64 << 20, groupStateBytes: 32 << 20, stateBytes: 128 << 20, statePins: 64 << 20}

// Run primes the caches and then applies every change until ctx ends, which isn't an error. It must be
// called once.
func (c *Cacher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { c.waker.run(ctx) })
	return c.feed.run(ctx)
}

// Primed is closed when everything that etcd held at start is in the caches.
func (c *Cacher) Primed() <-chan struct{} { return c.feed.primed }

// Position returns the feed's position: every change up to it is in the caches of all resources.
func (c *Cacher) Position() storage.Revision { return c.feed.position() }

// WaitFor returns when the feed's position is at least rev, or with ctx's error.
func (c *Cacher) WaitFor(ctx context.Context, rev storage.Revision) error {
	return c.feed.waitFor(ctx, rev)
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
// the keys, and definitions come and go above it. It stays when its definition goes, because watches and requests
// may still have it; without objects it weighs some 3 KB. So the caches are as many as the definitions that there
// were since the start.
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
