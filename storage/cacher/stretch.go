package cacher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// stretches gives stretches of etcd's history as events, to cursors that need older ones than the log has. A stretch is
// read and decoded once for all who need it at about the same time: its beginning is aligned, so that
// those who were cut off at different revisions ask for the same ones.
type stretches struct {
	store   *storage.Store
	encoded *atomic.Int64
	bounds  *bounds

	mu    sync.Mutex // guards known and order
	known map[stretchKey]*stretch
	order []stretchKey // the least recently made first
	bytes atomic.Int64 // what the known stretches hold, frames included
}

type stretchKey struct {
	resource *Resource
	after    storage.Revision
}

// stretch is the events of one resource with after < revision <= upTo. Its fields are set when ready is closed.
type stretch struct {
	ready  chan struct{}
	events []*event
	upTo   storage.Revision
	err    error
}

// maxStretchBytes ends a stretch of large values before bounds.stretchRevisions does.
const maxStretchBytes = 8 << 20

// stretch returns a stretch that has events after rev, or that at least leads further than rev. through is
// how far the feed is: no stretch goes past it.
func (h *stretches) stretch(ctx context.Context, r *Resource, rev, through storage.Revision) (*stretch, error) {
	at := h.begin(rev)
	for {
		s, err := h.get(ctx, stretchKey{r, at}, through)
		if errors.Is(err, storage.ErrCompacted) && at < h.begin(rev) {
			at = h.begin(rev) // compaction took the stretch's beginning, but not what is asked for
			continue
		}
		if err != nil {
			return nil, err
		}
		if s.upTo > rev {
			return s, nil
		}
		if s.upTo <= at { // can't happen while rev is below the log: the feed has seen what follows
			return nil, fmt.Errorf("history after %d ends at %d, before the feed's position %d", at, s.upTo, through)
		}
		at = s.upTo // a stretch of large values: go on from its end
	}
}

// begin is where the stretch that has rev's successor begins.
func (h *stretches) begin(rev storage.Revision) storage.Revision {
	return min(rev, max(rev/h.bounds.stretchRevisions*h.bounds.stretchRevisions, h.store.Compacted()))
}

// get returns the stretch of a key, read by the first who asks.
func (h *stretches) get(ctx context.Context, k stretchKey, through storage.Revision) (*stretch, error) {
	h.mu.Lock()
	s := h.known[k]
	first := s == nil
	if first {
		s = &stretch{ready: make(chan struct{})}
		h.known[k] = s
		h.order = append(h.order, k)
		h.evictLocked()
	}
	h.mu.Unlock()
	if first {
		if s.err = h.read(ctx, k, through, s); s.err != nil {
			h.forget(k) // so that the next reader tries again
		}
		close(s.ready)
		return s, s.err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ready:
	}
	if errors.Is(s.err, context.Canceled) || errors.Is(s.err, context.DeadlineExceeded) {
		return h.get(ctx, k, through) // it was the other reader that gave up
	}
	return s, s.err
}

// trim drops the oldest stretches beyond the bound.
func (h *stretches) trim() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.evictLocked()
}

// evictLocked drops the oldest stretches beyond the bound; mu must be held. The newest stays.
func (h *stretches) evictLocked() {
	for h.bytes.Load() > h.bounds.historyBytes && len(h.order) > 1 {
		s := h.known[h.order[0]]
		select {
		case <-s.ready:
		default:
			return // still being read: it goes with the next one
		}
		for _, e := range s.events {
			e.drop()
		}
		delete(h.known, h.order[0])
		h.order = h.order[1:]
	}
}

// forget drops a stretch that its reader couldn't read.
func (h *stretches) forget(k stretchKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.known, k)
	h.order = slices.DeleteFunc(h.order, func(o stretchKey) bool { return o == k })
}

// read fills in a stretch. On an error it leaves it empty, and nothing counted.
func (h *stretches) read(ctx context.Context, k stretchKey, through storage.Revision, s *stretch) error {
	end := k.after/h.bounds.stretchRevisions*h.bounds.stretchRevisions + h.bounds.stretchRevisions
	changes, upTo, err := h.store.Changes(ctx, storage.Stretch{After: k.after, Through: min(end, through), MaxBytes: maxStretchBytes})
	if err != nil {
		return err
	}
	var events []*event
	latest := map[string]*Object{} // the state of keys that were seen; nil when deleted
	for _, c := range changes {
		if p, _, _, ok := storage.SplitKey(c.Key); !ok || p != k.resource.prefix {
			continue
		}
		e := &event{rev: c.Revision, encoded: h.encoded}
		if !c.Deleted {
			e.cur = newObjectFrom(c)
		}
		prev, seen := latest[c.Key]
		if !seen {
			if prev, err = h.before(ctx, c.Key, c.Revision); err != nil {
				return err
			}
		}
		e.prev = prev
		latest[c.Key] = e.cur
		if e.prev != nil || e.cur != nil {
			events = append(events, e)
		}
	}
	for _, e := range events {
		h.hold(e)
	}
	s.events, s.upTo = events, upTo
	return nil
}

// hold counts an event: unlike one of a log, it keeps its last state alive too.
func (h *stretches) hold(e *event) {
	e.hold(&h.bytes)
	if e.cur != nil {
		e.cost += int64(len(e.cur.raw))
		h.bytes.Add(int64(len(e.cur.raw)))
	}
}

// before returns what a key held before a revision, or nil.
func (h *stretches) before(ctx context.Context, key string, rev storage.Revision) (*Object, error) {
	kv, err := h.store.GetAt(ctx, key, rev-1)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	case errors.Is(err, storage.ErrCompacted):
		return nil, err
	case err != nil && kv.Key == "":
		return nil, err
	}
	return newObjectFrom(storage.Change{KeyValue: kv, Err: err}), nil
}

// between returns the stretch's events with after < revision <= through.
func (s *stretch) between(after, through storage.Revision) []*event {
	return s.events[s.count(after):s.count(through)]
}

// count returns how many of the stretch's events have a revision of at most rev.
func (s *stretch) count(rev storage.Revision) int {
	return sort.Search(len(s.events), func(i int) bool { return s.events[i].rev > rev })
}
