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
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// stretches gives cursors the events that the log no longer has. It reads etcd's history in stretches, and decodes each
// once for all cursors that need it at about the same time. Stretches begin at aligned revisions, so that cursors at
// different revisions ask for the same stretches.
type stretches struct {
	store     storage.Store
	encodings *atomic.Int64
	bounds    *bounds
	bytes     atomic.Int64 // what the known stretches hold, frames included

	mu    sync.Mutex // guards known and order
	known map[stretchKey]*stretch
	order []stretchKey // the least recently made first
}

type stretchKey struct {
	resource *Resource
	after    storage.Revision
}

// stretch is the events of one resource with after < revision <= upTo, where after is in its key. Its fields are set
// when ready is closed, by the cursor that reads it; the others wait for that.
type stretch struct {
	ready  chan struct{}
	events []*watchEvent
	upTo   storage.Revision
	err    error
}

// maxStretchBytes ends a stretch of large values before bounds.stretchRevisions does: one stretch
// takes about an eighth of stretchBytes at most.
const maxStretchBytes = 8 << 20

// stretchOverhead is about how many bytes a stretch takes besides its events: itself, its key in map and list, and its
// channel. It counts, because a stretch of a resource in which nothing happened has nothing else.
const stretchOverhead = 300

// seek returns a stretch that reaches further than of.After. Its events may begin before of.After, and it may have
// none after it. of.Through is the feed's position, beyond which no stretch is read.
func (st *stretches) seek(ctx context.Context, r *Resource, of storage.Stretch) (*stretch, error) {
	rev, through := of.After, of.Through
	at := st.begin(rev)
	for {
		s, err := st.get(ctx, stretchKey{r, at}, through)
		if errors.Is(err, storage.ErrCompacted) && at < st.begin(rev) {
			at = st.begin(rev) // compaction took the stretch's beginning, but nothing after rev
			continue
		}
		if err != nil {
			return nil, err
		}
		if s.upTo > rev {
			return s, nil
		}
		if s.upTo <= at { // can't happen: rev is below the log, and so the feed has seen what follows
			return nil, fmt.Errorf("history after %d ends at %d, before the feed's position %d", at, s.upTo, through)
		}
		at = s.upTo // a stretch of large values: go on from its end
	}
}

// begin returns where the stretch that has the revision after rev begins.
func (st *stretches) begin(rev storage.Revision) storage.Revision {
	return min(rev, max(rev/st.bounds.stretchRevisions*st.bounds.stretchRevisions, st.store.Compacted()))
}

// get returns the stretch of a key. The first who asks reads it, and the others wait.
func (st *stretches) get(ctx context.Context, k stretchKey, through storage.Revision) (*stretch, error) {
	st.mu.Lock()
	s := st.known[k]
	first := s == nil
	if first {
		s = &stretch{ready: make(chan struct{})}
		st.known[k] = s
		st.order = append(st.order, k)
		st.evictLocked()
	}
	st.mu.Unlock()
	if first {
		if s.err = st.read(ctx, k, through, s); s.err != nil {
			st.forget(k, s) // so that the next reader tries again
		}
		st.mu.Lock()
		close(s.ready)
		if s.err == nil && st.known[k] != s { // drop was called meanwhile
			st.uncount(s)
		}
		st.mu.Unlock()
		return s, s.err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-s.ready:
	}
	if errors.Is(s.err, context.Canceled) || errors.Is(s.err, context.DeadlineExceeded) {
		return st.get(ctx, k, through) // the reader gave up, and this cursor hasn't
	}
	return s, s.err
}

// drop forgets all stretches: they're of a store that isn't the one it was.
func (st *stretches) drop() {
	st.mu.Lock()
	defer st.mu.Unlock()
	for _, k := range st.order {
		select {
		case <-st.known[k].ready:
			st.uncount(st.known[k])
		default: // whoever reads it sees that it isn't known any more
		}
		delete(st.known, k)
	}
	st.order = nil
}

// uncount takes a stretch that was read out of bytes.
func (st *stretches) uncount(s *stretch) {
	for _, e := range s.events {
		e.drop()
	}
	st.bytes.Add(-stretchOverhead)
}

// trim drops the oldest stretches beyond bounds.stretchBytes.
func (st *stretches) trim() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.evictLocked()
}

// evictLocked drops the oldest stretches beyond bounds.stretchBytes, but never the newest; mu must be held.
func (st *stretches) evictLocked() {
	for st.bytes.Load() > st.bounds.stretchBytes && len(st.order) > 1 {
		s := st.known[st.order[0]]
		select {
		case <-s.ready:
		default:
			return // still being read: it goes with the next one
		}
		st.uncount(s)
		delete(st.known, st.order[0])
		st.order = st.order[1:]
	}
}

// forget drops a stretch that couldn't be read.
func (st *stretches) forget(k stretchKey, s *stretch) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.known[k] != s { // drop was called meanwhile, and another reader may have read it
		return
	}
	delete(st.known, k)
	st.order = slices.DeleteFunc(st.order, func(o stretchKey) bool { return o == k })
}

// read fills in a stretch. On an error the stretch stays empty, and none of its bytes are counted.
func (st *stretches) read(ctx context.Context, k stretchKey, through storage.Revision, s *stretch) error {
	end := k.after/st.bounds.stretchRevisions*st.bounds.stretchRevisions + st.bounds.stretchRevisions
	changes, upTo, err := st.store.Changes(ctx, storage.Stretch{After: k.after, Through: min(end, through), MaxBytes: maxStretchBytes})
	if err != nil {
		return err
	}
	var events []*watchEvent
	latest := map[string]*kube.Object{} // the state of keys that were seen; nil when deleted
	for _, c := range changes {
		if p, _, _, ok := storage.SplitKey(c.Key); !ok || p != k.resource.prefix {
			continue
		}
		e := &watchEvent{rev: c.Revision, encodings: st.encodings}
		if !c.Deleted {
			e.cur = kube.Changed(c)
		}
		prev, seen := latest[c.Key]
		if !seen {
			if prev, err = st.before(ctx, c); err != nil {
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
		st.hold(e)
	}
	st.bytes.Add(stretchOverhead)
	s.events, s.upTo = events, upTo
	return nil
}

// hold counts the bytes of an event. Unlike an event of a log it also keeps cur alive, which may be in no tree.
func (st *stretches) hold(e *watchEvent) {
	e.hold(&st.bytes)
	if e.cur != nil {
		e.grow(int64(len(e.cur.Raw())))
	}
}

// before returns what a key held before a change, or nil.
func (st *stretches) before(ctx context.Context, c storage.Change) (*kube.Object, error) {
	if c.Before != nil {
		if c.Before.Revision == 0 {
			return nil, nil
		}
		return kube.Changed(storage.Change{KeyValue: *c.Before}), nil
	}
	kv, err := st.store.GetAt(ctx, c.Key, c.Revision-1)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil, nil
	case errors.Is(err, storage.ErrCompacted):
		return nil, err
	case err != nil && kv.Key == "":
		return nil, err
	}
	return kube.Changed(storage.Change{KeyValue: kv, Err: err}), nil
}

// within returns the events that are in another part of history, too, which has its Through set.
func (s *stretch) within(of storage.Stretch) []*watchEvent {
	return s.events[s.count(of.After):s.count(of.Through)]
}

// count returns how many of the stretch's events have a revision of at most rev.
func (s *stretch) count(rev storage.Revision) int {
	return sort.Search(len(s.events), func(i int) bool { return s.events[i].rev > rev })
}
