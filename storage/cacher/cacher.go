package cacher

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// Options of a Cacher; the zero value works.
type Options struct {
	// Log gets what goes wrong. Defaults to slog.Default().
	Log *slog.Logger
}

// Cacher holds the caches of all resources and feeds them. Make one with New, then call Run.
type Cacher struct {
	store       storage.Store
	stretches   stretches
	waker       waker
	kept        kept
	states      states
	tapes       tapes
	messages    *kube.Messages
	conversions kube.Conversions
	asked       asked
	bounds      bounds
	feed        feed
	stats       stats
	replacedAt  atomic.Int64 // the revision of the last Replace; 0 for none. What was before it can't be read any more

	mu        sync.RWMutex // guards resources and base
	resources map[storage.Prefix]*Resource
	base      storage.Revision // where the logs of new resources begin
}

// stats are counts and sums over all resources.
type stats struct {
	encodings, relisted, undecodable, tapesExpired atomic.Int64

	groups    atomic.Int64 // of all resources
	ringBytes atomic.Int64 // in the rings of all groups
	framed    atomic.Int64 // bytes of frames that readers made of events, since addFrames last trimmed the logs
}

// New returns a cacher over a store.
func New(store storage.Store, o Options) *Cacher {
	if o.Log == nil {
		o.Log = slog.Default()
	}
	c := &Cacher{store: store, bounds: defaultBounds, resources: map[storage.Prefix]*Resource{}}
	c.stretches = stretches{store: store, encodings: &c.stats.encodings, bounds: &c.bounds, known: map[stretchKey]*stretch{}}
	c.kept.bounds = &c.bounds
	c.states = states{bounds: &c.bounds, open: map[*sharedState]struct{}{}}
	c.messages = kube.NewMessages(&c.bounds.messageBytes)
	c.waker = waker{pending: make(chan struct{}, 1)}
	c.asked.built = make(chan struct{}, 1)
	c.feed = feed{cacher: c, log: o.Log, primed: make(chan struct{})}
	return c
}

// bounds are what the caches may grow to besides the objects themselves. defaultBounds has the values and their
// reasons. Tests use smaller ones.
type bounds struct {
	// warm is how many of etcd's newest revisions are replayed at start, so that clients of the
	// previous process resume from memory.
	warm storage.Revision
	// logEvents and logBytes bound one resource's log: the number of events, and the bytes that nothing but the
	// log keeps alive (replaced objects and encoded frames). Older events are read from history.
	logEvents uint64
	logBytes  int64
	// framedEvents is how many of a log's newest events keep the frames that they were encoded in. Those that somebody reads later are
	// encoded once more, and keep that.
	framedEvents uint64
	// totalLogBytes bounds the logs of all resources together. Beyond it the largest log is cut.
	totalLogBytes int64
	// groupEntries bounds a group's ring. A watcher that falls behind by more entries reads the log.
	groupEntries uint64
	// stretchRevisions is how many revisions a stretch of history covers.
	stretchRevisions storage.Revision
	// stretchBytes bounds the decoded stretches that are kept. A stretch that is dropped while a cursor reads it
	// stays in memory until the cursor has read it. While the oldest stretch is still being read from etcd none is
	// dropped, so the bound is passed by what is read meanwhile.
	stretchBytes int64
	// keptSnapshots bounds how many snapshots are kept for the next pages of lists. keptBytes bounds the bytes
	// that they keep alive together, which is what has been replaced since. The pages of a dropped snapshot are
	// read from history.
	keptSnapshots int
	keptBytes     int64
	// groupStateBytes bounds the frames of an initial state that are kept for the members of one group, and
	// stateBytes those of all groups. Beyond them each client encodes the rest of its state for itself.
	groupStateBytes, stateBytes int64
	// messageBytes bounds what is kept of all objects as protobuf. Beyond it each reader encodes them for itself.
	messageBytes int64
	// stateRetained bounds the bytes that the snapshots of unfinished initial states keep alive together, which is
	// what has been replaced since. Beyond it the rest of a state is read from history.
	stateRetained int64
	// demandBytes bounds the indexes on demand of all resources. Beyond it the one goes that wasn't asked for the longest. What isn't indexed is
	// scanned.
	demandBytes int64
	// demandUnused is after how long an index goes for which nobody has asked.
	demandUnused time.Duration
}

var defaultBounds = bounds{
	warm:             16_384,    // at a thousand writes a second, the time that a restart and the clients' return take
	logEvents:        1 << 14,   // 4 MiB of events without anything else: as much as logBytes
	logBytes:         4 << 20,   // some 1,200 changes of an object of 3 KB: who is later reads history, a stretch of it for all at once
	framedEvents:     64,        // readers are rarely so late; the frames of an event are larger than the object
	totalLogBytes:    32 << 20,  // eight full logs: a few resources have most of the writes
	groupEntries:     1024,      // 16 KiB; a second of a fast writer
	stretchRevisions: 2048,      // some milliseconds of decoding, which the readers of a stretch wait for
	stretchBytes:     64 << 20,  // eight stretches of maxStretchBytes
	keptSnapshots:    64,        // lists that are being paged at one time
	keptBytes:        64 << 20,  // lists are mostly paged within seconds
	groupStateBytes:  32 << 20,  // 10,000 objects of 3 KB
	stateBytes:       128 << 20, // four groups of groupStateBytes
	messageBytes:     64 << 20,  // 30,000 objects of 2 KB
	stateRetained:    64 << 20,  // as keptBytes: both keep replaced objects alive
	demandBytes:      64 << 20,  // a field of 800,000 objects
	demandUnused:     10 * time.Minute,
}

// Run primes the caches and then applies every change until ctx ends, which isn't an error. It must be
// called once.
func (c *Cacher) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wg.Go(func() { c.waker.run(ctx) })
	wg.Go(func() { c.sweepDemands(ctx) })
	return c.feed.run(ctx)
}

// Conversions makes the Conversions of views. Usage counts what they make.
func (c *Cacher) Conversions() *kube.Conversions { return &c.conversions }

// Primed is closed when everything that etcd held at start is in the caches.
func (c *Cacher) Primed() <-chan struct{} { return c.feed.primed }

// Position returns the feed's position: every change up to it is in the caches of all resources.
func (c *Cacher) Position() storage.Revision { return c.feed.position() }

// Oldest returns the revision at which history begins: what happened after it can be watched, and the state at it can be
// listed. Of a compaction it may not know yet (see storage.Store.Compacted).
func (c *Cacher) Oldest() storage.Revision {
	return max(c.store.Compacted(), storage.Revision(c.replacedAt.Load()))
}

// Replaced returns the revision at which everything was replaced the last time, by a Replace or because the store is another one
// now; 0 if that never happened.
func (c *Cacher) Replaced() storage.Revision { return storage.Revision(c.replacedAt.Load()) }

// WaitFor returns when the feed's position is at least rev, or with ctx's error.
func (c *Cacher) WaitFor(ctx context.Context, rev storage.Revision) error {
	if rev <= c.Position() {
		return nil
	}
	_, step := tracing.Begin(ctx, tracing.Barrier, "wait for the feed")
	err := c.feed.waitFor(ctx, rev)
	step.End(err)
	return err
}

// Barrier returns when every write acknowledged before the call is in the caches, with a revision that
// covers them all: what is read from memory after it is linearizable. Errors: storage.ErrUnavailable when etcd is
// stopping, and ctx's.
func (c *Cacher) Barrier(ctx context.Context) (storage.Revision, error) {
	rev, err := c.store.Barrier(ctx)
	if err != nil {
		return 0, err
	}
	return rev, c.WaitFor(ctx, rev)
}

// Resource returns the cache of a prefix. It's made when somebody first asks for it, or when the feed first sees a
// key of it. A Resource is never removed, also when its definition is, because watches and requests may still
// have it. So there are as many as prefixes were used since the start. Without objects each takes some 3 KB.
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

// ForgetHistory drops the decoded stretches of history: they're read anew, as with other keys.
func (c *Cacher) ForgetHistory() { c.stretches.drop() }

// each calls f for all resources that there are.
func (c *Cacher) each(f func(*Resource)) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, r := range c.resources {
		f(r)
	}
}

// rebase makes the logs of new resources begin at a revision, and returns all resources that there are.
func (c *Cacher) rebase(at storage.Revision) []*Resource {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.base = at
	return slices.Collect(maps.Values(c.resources))
}
