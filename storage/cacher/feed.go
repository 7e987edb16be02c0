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

// feed brings every change of the store into the caches, in revision order. It's one goroutine.
type feed struct {
	cacher *Cacher
	store  *storage.Store
	log    *slog.Logger
	primed chan struct{} // closed when what the store held at start is in the caches

	pos    atomic.Int64  // every change up to this revision is in the caches of all resources
	waitMu sync.Mutex    // guards moved
	moved  chan struct{} // closed when pos has moved; nil while nobody waits

	// The goroutine's own.
	untrimmed int   // changes since the last trim
	pinned    int64 // bytes replaced since the kept snapshots were looked at
}

// emptyRevision is that of a new etcd. No change belongs to it.
const emptyRevision storage.Revision = 1

// feedBytes bounds how much the feed takes from the store in one go.
const feedBytes = 1 << 20

// run primes the caches and then applies every change until ctx ends, which isn't an error.
func (f *feed) run(ctx context.Context) error {
	err := f.follow(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func (f *feed) follow(ctx context.Context) error {
	// The state some way back, and the ordinary feed from there: no special path for the recent past.
	at := max(f.store.Compacted(), f.store.Current()-f.cacher.bounds.warm, emptyRevision)
	if err := f.list(ctx, at); err != nil {
		return fmt.Errorf("prime the caches: %w", err)
	}
	if err := f.catchUp(ctx, f.store.Current()); err != nil {
		return err
	}
	close(f.primed)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-f.store.Rung():
		}
		if err := f.catchUp(ctx, f.store.Announced()); err != nil {
			return err
		}
	}
}

// list loads the state at a revision, and the logs begin there.
func (f *feed) list(ctx context.Context, at storage.Revision) error {
	objects := map[storage.Prefix][]*Object{}
	_, err := f.store.List(ctx, storage.Root, at, func(kv storage.Change) error {
		if p, _, _, ok := storage.SplitKey(kv.Key); ok {
			objects[p] = append(objects[p], newObjectFrom(kv))
		}
		return nil
	})
	if err != nil {
		return err
	}
	f.cacher.mu.Lock()
	defer f.cacher.mu.Unlock()
	f.cacher.base = at
	for p := range objects {
		if f.cacher.resources[p] == nil {
			f.cacher.resources[p] = newResource(f.cacher, p, at)
		}
	}
	var dirty []*cohort
	for p, r := range f.cacher.resources {
		dirty = r.install(objects[p], at, dirty)
	}
	f.moveTo(at)
	f.cacher.waker.wake(dirty)
	return nil
}

// catchUp applies changes until the feed is at least at a revision that etcd has announced.
func (f *feed) catchUp(ctx context.Context, to storage.Revision) error {
	for f.position() < to {
		changes, upTo, err := f.store.Changes(ctx, storage.Stretch{After: f.position(), MaxBytes: feedBytes})
		if errors.Is(err, storage.ErrCompacted) {
			// History was compacted under the feed. Watchers read on from etcd's history where it still
			// has what they missed, and are told 410 where it hasn't.
			f.cacher.stats.relisted.Add(1)
			f.log.Warn("the feed fell out of history: listing anew", "position", f.position(), "err", err)
			err = f.list(ctx, f.store.Current())
			changes, upTo = nil, f.position()
		}
		if err != nil {
			return fmt.Errorf("feed: %w", err)
		}
		if upTo == f.position() && len(changes) == 0 {
			runtime.Gosched() // announced, and visible in an instant
			continue
		}
		f.applyAll(changes)
		f.moveTo(upTo)
	}
	return nil
}

// applyAll applies changes revision by revision, and then wakes whom they concern.
func (f *feed) applyAll(changes []storage.Change) {
	var dirty []*cohort
	for from := 0; from < len(changes); {
		to := from + 1
		for to < len(changes) && changes[to].Revision == changes[from].Revision {
			to++
		}
		dirty = f.applyRevision(changes[from:to], dirty)
		f.moveTo(changes[from].Revision)
		if f.pinned >= trimBytes {
			f.pinned = 0
			f.cacher.kept.trim()
			f.cacher.states.trim()
		}
		from = to
	}
	f.cacher.waker.wake(dirty)
	if f.untrimmed += len(changes); f.untrimmed >= trimInterval {
		f.untrimmed = 0
		f.cacher.trimLogs()
	}
}

// applyRevision brings one revision into all the resources that it changed.
func (f *feed) applyRevision(changes []storage.Change, dirty []*cohort) []*cohort {
	for len(changes) > 0 {
		p, _, _, ok := storage.SplitKey(changes[0].Key)
		n, rest := 1, []storage.Change(nil)
		if len(changes) > 1 { // only transactions that aren't ours
			changes, rest = partition(changes, p)
			n = len(changes)
		}
		if ok {
			dirty = f.cacher.Resource(p).apply(changes[:n], dirty)
			f.cacher.stats.applied.Add(int64(n))
		} else {
			f.cacher.stats.ignored.Add(int64(n))
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

// position returns how far the feed has come.
func (f *feed) position() storage.Revision { return storage.Revision(f.pos.Load()) }

func (f *feed) moveTo(rev storage.Revision) {
	f.pos.Store(int64(rev))
	f.waitMu.Lock()
	defer f.waitMu.Unlock()
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// waitFor returns when the feed's position is at least rev, or with ctx's error.
func (f *feed) waitFor(ctx context.Context, rev storage.Revision) error {
	for {
		if f.position() >= rev {
			return nil
		}
		f.waitMu.Lock()
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.waitMu.Unlock()
		if f.position() >= rev { // it may have moved before the channel was there
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d (at %d): %w", rev, f.position(), ctx.Err())
		case <-moved:
		}
	}
}
