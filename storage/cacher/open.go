package cacher

import (
	"context"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Start says where a watch begins.
type Start int

const (
	// StartAfter gives the events after a revision.
	StartAfter Start = iota
	// StartNow gives the events from the newest revision on.
	StartNow
	// StartState gives the current objects as ADDED events, in key order, and then events.
	StartState
)

// WatchOptions say what a watch selects and where it starts.
type WatchOptions struct {
	Namespace, Name string // "" for all
	Labels          selectors.LabelSelector
	Fields          selectors.FieldSelector
	Where           *kube.Where // nil for all
	View            *kube.View
	Start           Start
	// After is, for StartAfter, the revision after which the events come. For StartState, the state is at
	// least as new as After, or as new as the call if After is 0.
	After storage.Revision
}

// Open starts a watch. It doesn't wait for a disk. Errors: storage.ErrCompacted when history is known to begin after
// o.After (a compaction that Open doesn't know of yet is the error of the first Next that reads history);
// storage.ErrFutureRevision when etcd hasn't reached o.After, which is then another store's revision;
// storage.ErrUnavailable when etcd is stopping; ErrCrowded; and ctx's when that ends before the feed is there.
func (r *Resource) Open(ctx context.Context, o WatchOptions) (*Cursor, error) {
	if o.Start == StartNow || o.Start == StartState && o.After == 0 {
		if _, err := r.cacher.Barrier(ctx); err != nil {
			return nil, err
		}
	} else if err := r.cacher.reach(ctx, o.After); err != nil {
		return nil, err
	}
	key := o.groupKey()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.refuseLocked(o); err != nil {
		return nil, err
	}
	return r.openLocked(o, key, nil)
}

// refuseLocked returns an error if a watch can't start any more where Open has found that it could. mu must be held: what
// the resource has applied of a Replace, or of another store in place of this one (see feed.begin), must not be overlooked.
func (r *Resource) refuseLocked(o WatchOptions) error {
	if at := r.cacher.Position(); o.After > at {
		return fmt.Errorf("watch after %d: %w (the newest is %d)", o.After, storage.ErrFutureRevision, at)
	}
	if oldest := r.cacher.Oldest(); o.Start == StartAfter && o.After < r.log.base && o.After < oldest {
		return fmt.Errorf("watch after %d: %w (history begins at %d)", o.After, storage.ErrCompacted, oldest)
	}
	return nil
}

// openLocked makes the cursor, with the cohort of its Merged or nil; mu must be held for writing. The state and the place in the log
// are taken under one hold of the lock, so that no event is missed or given twice.
func (r *Resource) openLocked(o WatchOptions, key groupKey, of *cohort) (*Cursor, error) {
	g, err := r.joinLocked(o, key)
	if err != nil {
		return nil, err
	}
	c := &Cursor{resource: r, group: g, epoch: r.epoch, rev: max(r.cacher.Position(), r.rev)}
	if o.Start == StartAfter {
		c.rev = o.After
		if of == nil { // a Merged sees to that itself
			c.goBackLocked()
		}
	}
	if o.Start == StartState {
		c.state = &state{shared: r.joinStateLocked(c.group)}
	}
	if c.cohort = of; of != nil {
		c.group.bringLocked(of)
	} else {
		c.cohort = c.group.joinLocked()
	}
	if c.rev >= r.log.base {
		c.reads, c.seq = fromLog, r.log.seqAt(c.rev)
		if c.seq >= c.group.floor {
			c.reads = live
		}
	}
	c.publish()
	return c, nil
}

// goBackLocked lets a cursor begin with the revision after which the client wants to go on, if that has several events of the resource: those
// of a transaction. The client may have got only some of them, so all come again. mu must be held.
func (c *Cursor) goBackLocked() {
	switch l := &c.resource.log; {
	case c.rev <= emptyRevision || c.rev == c.resource.cacher.Replaced() || c.rev == l.base && l.baseIs == single: // no watch is told of a Replace
	case c.rev <= l.base: // history tells, or has them
		c.again, c.rev = c.rev, c.rev-1
	case l.seqAt(c.rev)-l.seqAt(c.rev-1) > 1:
		c.rev--
	}
}

// reach waits until the feed is at a revision that a client names. storage.ErrFutureRevision means that etcd isn't there.
func (c *Cacher) reach(ctx context.Context, rev storage.Revision) error {
	if rev <= c.Position() {
		return nil
	}
	newest, err := c.store.Barrier(ctx)
	if err != nil {
		return err
	}
	if rev > newest {
		return fmt.Errorf("watch after %d: %w (the newest is %d)", rev, storage.ErrFutureRevision, newest)
	}
	return c.WaitFor(ctx, rev)
}

// joinLocked adds a member to the group that watches the same, or to a new one; mu must be held for writing. The error is ErrCrowded.
func (r *Resource) joinLocked(o WatchOptions, key groupKey) (*group, error) {
	g := r.groups[key]
	if g == nil {
		g = newGroup(key, o, &r.cacher.stats.ringBytes)
		if err := r.index.add(g); err != nil {
			return nil, err
		}
		g.floor = r.log.head()
		r.groups[key] = g
		r.cacher.stats.groups.Add(1)
	}
	g.members++
	return g, nil
}

// leave takes a member out of its group. A group without members is removed.
func (r *Resource) leave(g *group, h *cohort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.leaveLocked(h)
	if g.members--; g.members == 0 {
		delete(r.groups, g.groupKey)
		r.index.remove(g)
		r.cacher.stats.groups.Add(-1)
		r.cacher.stats.ringBytes.Add(-entryBytes * int64(len(g.ring)))
	}
}
