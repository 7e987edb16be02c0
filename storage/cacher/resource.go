package cacher

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Resource is the cache of one key prefix: what is (tree), what happened (log), and who wants to
// know (groups). Only the feed changes which objects it holds. SetFields replaces objects by equal ones that
// carry other fields, and EndWatches replaces an empty tree by a smaller one.
type Resource struct {
	cacher *Cacher
	prefix storage.Prefix

	removedBytes atomic.Int64 // bytes that changes have ever taken out of the tree; grows only
	changed      atomic.Int64 // rev, for those who don't want to wait for mu; written under it
	unreadable   atomic.Int64 // objects with an Err; written under mu

	// mu guards all below. The feed holds it while it applies a revision and matches the selectors of the groups
	// that the changes may concern. Readers hold it to copy pointers, to clone the tree, to join and leave groups, and to
	// drop the log's oldest events. They match nothing under it.
	mu       sync.RWMutex
	tree     *btree.BTree[*kube.Object]
	fields   *fieldIndex      // of the tree's objects
	demands  demands          // indexes of other fields
	snapshot *Snapshot        // the tree as it is now, when someone asked; nil after a change
	rev      storage.Revision // of the last change applied
	log      eventLog
	groups   map[groupKey]*group
	index    index
	epoch    *epoch // of the watches that are opened now
}

// epoch is shared by the watches that EndWatches or a Replace ends together.
type epoch struct {
	end     storage.Revision // guarded by Resource.mu: the watches give no event after it; endless until one of the two
	expired atomic.Bool      // everything was replaced: the watches end at once, and with ErrExpired
}

// endless is the end of an epoch that goes on.
const endless storage.Revision = math.MaxInt64

// treeDegree is the branching of the tree: wide enough that a copied path is a few kilobytes.
const treeDegree = 32

func newTree() *btree.BTree[*kube.Object] {
	return btree.New(treeDegree, func(a, b *kube.Object) bool { return a.Key < b.Key })
}

func newResource(c *Cacher, p storage.Prefix, base storage.Revision) *Resource {
	r := &Resource{cacher: c, prefix: p, rev: base, groups: map[groupKey]*group{}, index: newIndex(), epoch: &epoch{end: endless}}
	r.changed.Store(int64(base))
	r.tree = newTree()
	r.fields = newFieldIndex(noFields)
	r.log = eventLog{low: 1, next: 1, base: base, bounds: &c.bounds}
	return r
}

// Get returns the object under a key, or nil.
func (r *Resource) Get(key string) *kube.Object {
	r.mu.RLock()
	defer r.mu.RUnlock()
	o, _ := r.tree.Get(&kube.Object{Key: key})
	return o
}

// Changed returns the revision of the last change, without waiting for anybody. A Snapshot that is taken afterwards has
// that change.
func (r *Resource) Changed() storage.Revision { return storage.Revision(r.changed.Load()) }

// Prefix returns the prefix of the resource's keys.
func (r *Resource) Prefix() storage.Prefix { return r.prefix }

// Len returns the number of objects.
func (r *Resource) Len() int {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.tree.Len()
}

// contents are what a resource is to hold instead of what it holds.
type contents struct {
	objects []listed
	tree    *btree.BTree[*kube.Object]
	fields  *fieldIndex
	broken  int64 // objects with an Err
}

// prepare makes the contents of what was listed. What the caches have already isn't changed. No lock is held meanwhile.
func (r *Resource) prepare(objects []listed) *contents {
	c := &contents{objects: objects, tree: newTree(), fields: newFieldIndex(r.fieldSet())}
	set := c.fields.set
	for i, o := range objects {
		if o.known && len(set.Names()) > 0 && !o.Carries(set) { // SetFields hadn't reached it
			o = listed{o.At(o.Revision), false}
			objects[i] = o
		}
		if o.known {
			c.fields.insert(o.Object)
		} else {
			set.Carry(o.Object)
			r.cacher.messages.Admit(o.Object)
			c.fields.move(exchange{cur: o.Object})
		}
		c.tree.ReplaceOrInsert(o.Object)
		c.broken += broken(o.Object)
	}
	return c
}

// install replaces all that the resource holds by contents, as of a revision, in one step. The feed does that when it
// primes the cache, and when it has missed events. Every open cursor is then below the new log and has to read on
// from history.
func (r *Resource) install(c *contents, at storage.Revision, dirty []*cohort) []*cohort {
	r.mu.Lock()
	for r.fields.set != c.fields.set { // SetFields was called since
		r.mu.Unlock()
		c = r.prepare(c.objects)
		r.mu.Lock()
	}
	before, now := r.tree, c.tree.Clone()
	c.fields.complete = r.fields.complete
	r.tree, r.fields = c.tree, c.fields
	r.unreadable.Store(c.broken)
	for name := range r.demands {
		r.dropDemandLocked(name)
	}
	dirty = r.beginLocked(at, dirty)
	r.mu.Unlock()
	before.Ascend(func(o *kube.Object) bool { // nobody changes it any more
		if kept, _ := now.Get(o); kept != o {
			r.countRemoved(o)
			o.DropMessages()
		}
		return true
	})
	return dirty
}

// replace brings in the changes that a storage.Store.Replace made to the resource, in one step. Its open watches expire.
func (r *Resource) replace(changes []storage.Change, at storage.Revision, dirty []*cohort) []*cohort {
	objects, fields := make([]*kube.Object, len(changes)), r.fieldSet()
	for i, c := range changes {
		objects[i] = r.objectFrom(c, fields)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, c := range changes {
		r.exchangeLocked(c.Key, objects[i])
	}
	r.expireLocked(at)
	return r.beginLocked(at, dirty)
}

// expire makes all watches expire, also those that are opened before the resource begins anew.
func (r *Resource) expire(at storage.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(at)
}

// expireLocked does what expire does; mu must be held for writing.
func (r *Resource) expireLocked(at storage.Revision) {
	r.epoch.end = at - 1
	r.epoch.expired.Store(true)
}

// renew makes all watches expire that were opened since the resource began, and adds all cohorts to dirty.
func (r *Resource) renew(at storage.Revision, dirty []*cohort) []*cohort {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expireLocked(at)
	r.epoch = &epoch{end: endless}
	for _, g := range r.groups {
		dirty = g.queueLocked(dirty)
	}
	return dirty
}

// beginLocked makes a revision the one at which the resource begins: the log has none of the events up to it. It adds all
// cohorts to dirty. mu must be held for writing.
func (r *Resource) beginLocked(at storage.Revision, dirty []*cohort) []*cohort {
	r.snapshot = nil
	if r.epoch.expired.Load() {
		r.epoch = &epoch{end: endless}
	}
	r.setChanged(at)
	r.log.reset(at)
	for _, g := range r.groups {
		g.first, g.floor = g.next, r.log.head()
		dirty = g.queueLocked(dirty)
	}
	return dirty
}

// apply brings in the changes that one revision made to the resource, under one hold of the lock, and adds
// the cohorts of groups that got an entry to dirty.
func (r *Resource) apply(changes []storage.Change, dirty []*cohort) []*cohort {
	objects := make([]*kube.Object, 0, 1) // on the stack: nearly always there's one
	fields := r.fieldSet()
	for _, c := range changes {
		objects = append(objects, r.objectFrom(c, fields))
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = nil
	for i, c := range changes {
		e := &watchEvent{rev: c.Revision, at: now, cur: objects[i], encodings: &r.cacher.stats.encodings}
		e.prev = r.exchangeLocked(c.Key, e.cur)
		r.setChanged(c.Revision)
		if e.prev == nil && e.cur == nil {
			continue // a key written and deleted by one transaction
		}
		r.log.append(e)
		if f := &r.cacher.feed; f.noting {
			f.noted = append(f.noted, note{r, e.seq})
		}
		if len(r.groups) > 0 {
			dirty = r.route(e, dirty)
		}
	}
	return dirty
}

// objectFrom makes the object that a change leaves, nil for a deletion. It's called before mu is taken, because it scans
// the bytes.
func (r *Resource) objectFrom(c storage.Change, fields *kube.Fields) *kube.Object {
	if c.Deleted {
		return nil
	}
	o := kube.Changed(c)
	fields.Carry(o)
	r.cacher.messages.Admit(o)
	return o
}

// exchangeLocked puts cur under a key, or nothing for nil, and returns what was there; mu must be held for writing.
func (r *Resource) exchangeLocked(key string, cur *kube.Object) (prev *kube.Object) {
	if cur != nil {
		r.fields.set.Carry(cur) // mostly it does: the fields have seldom changed since it was made
		prev, _ = r.tree.ReplaceOrInsert(cur)
	} else {
		prev, _ = r.tree.Delete(&kube.Object{Key: key})
	}
	if n := broken(cur) - broken(prev); n != 0 {
		r.unreadable.Add(n)
	}
	r.fields.move(exchange{prev: prev, cur: cur})
	r.moveDemandsLocked(exchange{prev: prev, cur: cur})
	r.countRemoved(prev)
	if prev != nil {
		prev.DropMessages()
	}
	return prev
}

// broken is 1 for an object that can't be read, else 0.
func broken(o *kube.Object) int64 {
	if o == nil || o.Err == nil {
		return 0
	}
	return 1
}

// setChanged notes the revision of a change; mu must be held for writing.
func (r *Resource) setChanged(rev storage.Revision) {
	r.rev = rev
	r.changed.Store(int64(rev))
}

// route notes the event with the groups that it concerns; mu must be held for writing.
func (r *Resource) route(e *watchEvent, dirty []*cohort) []*cohort {
	r.index.touch(e, func(g *group) {
		if g.touched == e.seq {
			return
		}
		g.touched = e.seq
		if t := g.transition(e); t != watchstream.None {
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
	r.log.shrink()
}

// trimLogTo forgets the events up to a revision.
func (r *Resource) trimLogTo(rev storage.Revision) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.log.low < r.log.next && r.log.at(r.log.low).rev <= rev {
		r.log.evict()
	}
	r.log.shrink()
}

// EndWatches ends every open watch of the resource cleanly, because its definition changed or went away. The feed
// must have reached the revision last. Each watch still gives the events up to it, however slow it is, and none after
// it, because later events may be of another definition.
func (r *Resource) EndWatches(last storage.Revision) {
	r.mu.Lock()
	if r.tree.Len() == 0 {
		r.tree, r.snapshot = newTree(), nil // an emptied tree keeps its nodes, and no objects may ever come
	}
	r.epoch.end = last
	r.epoch = &epoch{end: endless}
	var dirty []*cohort
	for _, g := range r.groups {
		dirty = g.queueLocked(dirty)
	}
	r.mu.Unlock()
	r.cacher.waker.wake(dirty)
}

// changeOverhead is about how many bytes an old snapshot keeps alive for one change, besides those of the replaced
// object: the object's attributes, and the tree's nodes that the change copied.
const changeOverhead = 512

// countRemoved counts what a change took out of the tree; prev is nil for a creation.
func (r *Resource) countRemoved(prev *kube.Object) {
	n := int64(changeOverhead)
	if prev != nil {
		n += int64(len(prev.Raw()))
	}
	r.removedBytes.Add(n)
	r.cacher.feed.removed += n
}
