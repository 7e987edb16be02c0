package cacher

import (
	"context"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Resource is the cache of one key prefix: what is (tree), what happened (log), and who wants to
// know (groups). Only the feed changes what it holds.
type Resource struct {
	cacher *Cacher
	prefix storage.Prefix

	mu     sync.RWMutex // guards all below; held for pointer work only, never while matching for a reader
	tree   *btree.BTree[*Object]
	fields *fieldIndex      // of the tree's objects
	shared *Snapshot        // the tree as it is now, when someone asked; nil after a change
	rev    storage.Revision // of the last change applied
	log    eventLog
	groups map[groupKey]*group
	index  index
	epoch  uint64 // counts EndWatches: a cursor of an older one ends

	replaced atomic.Int64 // bytes that changes have ever taken out of the tree; grows only
}

// treeDegree is the branching of the tree: wide enough that a copied path is a few kilobytes.
const treeDegree = 32

func newTree() *btree.BTree[*Object] {
	return btree.New(treeDegree, func(a, b *Object) bool { return a.Key < b.Key })
}

func newResource(c *Cacher, p storage.Prefix, base storage.Revision) *Resource {
	r := &Resource{cacher: c, prefix: p, rev: base, groups: map[groupKey]*group{}, index: newIndex()}
	r.tree = newTree()
	r.fields = newFieldIndex(noFields)
	r.log = eventLog{low: 1, next: 1, base: base, bounds: &c.bounds}
	return r
}

// Prefix returns what the keys of the resource begin with.
func (r *Resource) Prefix() storage.Prefix { return r.prefix }

// Get returns the object under a key, or nil.
func (r *Resource) Get(key string) *Object {
	r.mu.RLock()
	defer r.mu.RUnlock()
	o, _ := r.tree.Get(&Object{Key: key})
	return o
}

// Len returns the number of objects.
func (r *Resource) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tree.Len()
}

// Snapshot is a resource at one instant. It never changes, and it keeps what it holds alive.
type Snapshot struct {
	tree     *btree.BTree[*Object]
	fields   *fieldIndex
	since    storage.Revision // of the last change that's in the tree
	replaced int64            // Resource.replaced then: what it has grown by is what this keeps alive

	// Revision is the larger of the feed's position and the resource's last change: every change up
	// to it is in here.
	Revision storage.Revision
}

// Snapshot returns the resource as it is now. The tree is cloned at most once per change, and only when
// someone asks; a clone takes constant time.
func (r *Resource) Snapshot() *Snapshot {
	pos := r.cacher.Position() // before the tree: it can only be too old
	r.mu.RLock()
	s, rev := r.shared, r.rev
	r.mu.RUnlock()
	if s == nil {
		r.mu.Lock()
		s, rev = r.sharedLocked(), r.rev
		r.mu.Unlock()
	}
	now := *s
	now.Revision = max(pos, rev)
	return &now
}

// sharedLocked returns the shared clone of the tree; mu must be held for writing.
func (r *Resource) sharedLocked() *Snapshot {
	if r.shared == nil {
		r.shared = &Snapshot{tree: r.tree.Clone(), fields: r.fields.clone(), since: r.rev, replaced: r.replaced.Load(), Revision: r.rev}
	}
	return r.shared
}

// All yields the objects whose key begins with prefix, in key order.
func (s *Snapshot) All(prefix string) iter.Seq[*Object] { return s.From(prefix, prefix) }

// Get returns the object under a key, or nil.
func (s *Snapshot) Get(key string) *Object {
	o, _ := s.tree.Get(&Object{Key: key})
	return o
}

// From yields the objects whose key begins with prefix and isn't less than key, in key order.
func (s *Snapshot) From(key, prefix string) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		if s.covers(prefix) {
			s.ascend(key, yield) // and no key is looked at
			return
		}
		s.ascend(key, func(o *Object) bool {
			return strings.HasPrefix(o.Key, prefix) && yield(o)
		})
	}
}

// ascend visits the objects from a key on until visit returns false.
func (s *Snapshot) ascend(key string, visit func(*Object) bool) {
	if first, ok := s.tree.Min(); ok && key <= first.Key {
		s.tree.Ascend(visit) // doesn't look for the key in each node
		return
	}
	s.tree.AscendGreaterOrEqual(&Object{Key: key}, visit)
}

// covers tells whether every object of the resource has the prefix.
func (s *Snapshot) covers(prefix string) bool {
	first, _ := s.tree.Min()
	last, _ := s.tree.Max()
	return first != nil && strings.HasPrefix(first.Key, prefix) && strings.HasPrefix(last.Key, prefix)
}

// Len returns the number of objects.
func (s *Snapshot) Len() int { return s.tree.Len() }

// Count returns how many objects From yields.
func (s *Snapshot) Count(key, prefix string) (n int) {
	if key <= prefix && s.covers(prefix) {
		return s.Len()
	}
	for range s.From(key, prefix) {
		n++
	}
	return n
}

// install makes objects all that the resource holds, as of a revision, in one step: when the cache is primed, and
// when it has missed events. Then whoever reads on goes to history from here: all cohorts are added to dirty.
func (r *Resource) install(objects []*Object, at storage.Revision, dirty []*cohort) []*cohort {
	tree := newTree()
	for _, o := range objects {
		tree.ReplaceOrInsert(o)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tree.Ascend(func(o *Object) bool {
		r.countReplaced(o)
		return true
	})
	r.tree, r.shared, r.rev = tree, nil, at
	r.fields.clear()
	for _, o := range objects {
		r.fields.carry(o)
		r.fields.move(nil, o)
	}
	r.log.reset(at)
	for _, g := range r.groups {
		g.first, g.floor = g.next, r.log.head()
		dirty = g.queueLocked(dirty)
	}
	return dirty
}

// apply brings in the changes that one revision made to the resource, in one hold of the lock, and adds
// the cohorts of groups that got an entry to dirty.
func (r *Resource) apply(changes []storage.Change, dirty []*cohort) []*cohort {
	objects := make([]*Object, 0, 1) // scanned outside the lock
	fields := r.fieldSet()
	for _, c := range changes {
		var o *Object
		if !c.Deleted {
			o = newObjectFrom(c)
			fields.read(o)
		}
		objects = append(objects, o)
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shared = nil
	for i, c := range changes {
		e := &Event{rev: c.Revision, at: now, cur: objects[i], encoded: &r.cacher.stats.encoded}
		if e.cur != nil {
			r.fields.carry(e.cur)
			e.prev, _ = r.tree.ReplaceOrInsert(e.cur)
		} else {
			e.prev, _ = r.tree.Delete(&Object{Key: c.Key})
		}
		r.fields.move(e.prev, e.cur)
		r.countReplaced(e.prev)
		r.rev = c.Revision
		if e.prev == nil && e.cur == nil {
			continue // a key written and deleted by one transaction
		}
		r.log.append(e)
		if len(r.groups) > 0 {
			dirty = r.route(e, dirty)
		}
	}
	return dirty
}

// route notes the event with the groups that it concerns.
func (r *Resource) route(e *Event, dirty []*cohort) []*cohort {
	r.index.touch(e.prev, e.cur, func(g *group) {
		if g.touched == e.seq {
			return
		}
		g.touched = e.seq
		if t := g.transition(e); t != 0 {
			g.push(entry{e.seq, t}, r.cacher.bounds.groupEntries)
			dirty = g.queueLocked(dirty)
		}
	})
	return dirty
}

// trimLog forgets the oldest events until the log keeps at most so many bytes alive.
func (r *Resource) trimLog(bytes int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.log.low < r.log.next && r.log.bytes.Load() > bytes {
		r.log.evict()
	}
}

// EndWatches ends every open watch of the resource cleanly, after the events that have been applied by
// now: its definition changed or went away.
func (r *Resource) EndWatches() {
	r.mu.Lock()
	r.epoch++
	var dirty []*cohort
	for _, g := range r.groups {
		dirty = g.queueLocked(dirty)
	}
	r.mu.Unlock()
	r.cacher.waker.wake(dirty)
}

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
	View            *View
	Start           Start
	// After is, for StartAfter, the revision that the events follow. For StartState, the state is at
	// least this new, and at 0 at least as new as the call.
	After storage.Revision
}

// Open starts a watch. It's answered ErrCompacted when history no longer reaches back to o.After, and
// ErrFutureRevision when etcd itself hasn't come there: such a revision is another store's.
func (r *Resource) Open(ctx context.Context, o WatchOptions) (*Cursor, error) {
	if err := r.reach(ctx, o); err != nil {
		return nil, err
	}
	compacted := r.cacher.store.Compacted()
	r.mu.Lock()
	defer r.mu.Unlock()
	if o.Start == StartAfter && o.After < r.log.base && o.After < compacted {
		return nil, fmt.Errorf("watch after %d: %w (history begins at %d)", o.After, storage.ErrCompacted, compacted)
	}
	return r.openLocked(o), nil
}

// openLocked makes the cursor; mu must be held for writing. The state and the place in the log are of
// one moment: no gap, no repeat.
func (r *Resource) openLocked(o WatchOptions) *Cursor {
	c := &Cursor{resource: r, epoch: r.epoch, rev: max(r.cacher.Position(), r.rev)}
	if o.Start == StartAfter {
		c.rev = o.After
	}
	c.group = r.joinLocked(o)
	if o.Start == StartState {
		c.state = &state{shared: c.group.shareLocked(r.sharedLocked())}
	}
	c.rest.cohort = c.group.joinLocked()
	if c.rev >= r.log.base {
		c.reads, c.seq = fromLog, r.log.seqAt(c.rev)
		if c.seq >= c.group.floor {
			c.reads = live
		}
	}
	c.publish()
	return c
}

// reach waits until the feed is where a watch can start.
func (r *Resource) reach(ctx context.Context, o WatchOptions) error {
	if o.Start == StartAfter || o.Start == StartState && o.After > 0 {
		if o.After <= r.cacher.Position() {
			return nil
		}
		newest, err := r.cacher.store.Barrier(ctx)
		if err != nil {
			return err
		}
		if o.After > newest {
			return fmt.Errorf("watch after %d: %w (the newest is %d)", o.After, storage.ErrFutureRevision, newest)
		}
		return r.cacher.WaitFor(ctx, o.After)
	}
	_, err := r.cacher.Barrier(ctx)
	return err
}

// joinLocked finds or makes the group that watches the same; mu must be held for writing.
func (r *Resource) joinLocked(o WatchOptions) *group {
	k := groupKey{o.Namespace, o.Name, o.Labels.String(), o.Fields.String(), o.View}
	g := r.groups[k]
	if g == nil {
		g = newGroup(k, o, r.log.head())
		r.groups[k] = g
		r.index.add(g)
	}
	g.refs++
	return g
}

// leave ends a cursor's membership; a group without members leaves the index at once.
func (r *Resource) leave(g *group, h *cohort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g.leaveLocked(h)
	g.refs--
	if g.refs == 0 {
		delete(r.groups, g.groupKey)
		r.index.remove(g)
	}
}
