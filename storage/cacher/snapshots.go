package cacher

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Snapshot is a resource at one instant. It never changes, and it keeps what it holds alive.
type Snapshot struct {
	tree         *btree.BTree[*kube.Object]
	fields       *fieldIndex
	demands      demands          // those that are complete
	since        storage.Revision // of the last change that's in the tree
	removedBytes int64            // Resource.removedBytes then: what that has grown by, this snapshot keeps alive
	counts       *counts

	// Version is another one for each state of each resource. Snapshots that have the same one have the same objects.
	Version uint64
	// Revision is the larger of the feed's position and the resource's last change: every change up
	// to it is in here.
	Revision storage.Revision
}

var versions atomic.Uint64 // of the snapshots of all caches

// Snapshot returns the resource as it is now. The tree is cloned at most once per change, and only when
// someone asks; a clone takes constant time.
func (r *Resource) Snapshot() *Snapshot {
	pos := r.cacher.Position() // read before the tree, so that the tree has at least every change up to it
	r.mu.RLock()
	s, rev := r.snapshot, r.rev
	r.mu.RUnlock()
	if s == nil {
		r.mu.Lock()
		s, rev = r.snapshotLocked(), r.rev
		r.mu.Unlock()
	}
	now := *s
	now.Revision = max(pos, rev)
	return &now
}

// snapshotLocked returns the clone that all who ask before the next change share; mu must be held for writing.
func (r *Resource) snapshotLocked() *Snapshot {
	if r.snapshot == nil {
		r.snapshot = &Snapshot{tree: r.tree.Clone(), fields: r.fields.clone(), demands: r.demands.clone(), since: r.rev, removedBytes: r.removedBytes.Load(), counts: new(counts),
			Version: versions.Add(1), Revision: r.rev}
	}
	return r.snapshot
}

// All yields the objects whose key begins with prefix, in key order.
func (s *Snapshot) All(prefix string) iter.Seq[*kube.Object] {
	return s.In(storage.Range{Prefix: prefix})
}

// Get returns the object under a key, or nil.
func (s *Snapshot) Get(key string) *kube.Object {
	o, _ := s.tree.Get(&kube.Object{Key: key})
	return o
}

// In yields the objects whose keys are in a range, in key order.
func (s *Snapshot) In(keys storage.Range) iter.Seq[*kube.Object] {
	return func(yield func(*kube.Object) bool) {
		if s.covers(keys.Prefix) {
			s.ascend(keys.First(), yield) // and no key is looked at
			return
		}
		s.ascend(keys.First(), func(o *kube.Object) bool {
			return strings.HasPrefix(o.Key, keys.Prefix) && yield(o)
		})
	}
}

// ascend visits the objects from a key on until visit returns false.
func (s *Snapshot) ascend(key string, visit func(*kube.Object) bool) {
	if first, ok := s.tree.Min(); ok && key <= first.Key {
		s.tree.Ascend(visit) // doesn't look for the key in each node
		return
	}
	s.tree.AscendGreaterOrEqual(&kube.Object{Key: key}, visit)
}

// maxLabelBits is for how many values Labelled compares bits. For more values the filter saves nothing.
const maxLabelBits = 16

// Labelled yields, in key order, the objects whose keys are in a range and that may have a label with this key and one
// of the values. It leaves out most objects that don't have it; the caller checks those that come.
func (s *Snapshot) Labelled(key string, values []string, keys storage.Range) iter.Seq[*kube.Object] {
	if len(values) > maxLabelBits {
		return s.In(keys)
	}
	wanted := make([]kube.LabelBits, len(values))
	for i, v := range values {
		wanted[i] = kube.BitsOf(key, v)
	}
	covers := s.covers(keys.Prefix) // then no key is looked at
	return func(yield func(*kube.Object) bool) {
		s.ascend(keys.First(), func(o *kube.Object) bool {
			if !covers && !strings.HasPrefix(o.Key, keys.Prefix) {
				return false
			}
			for _, w := range wanted {
				if o.MayHave(w) {
					return yield(o)
				}
			}
			return true
		})
	}
}

// covers tells whether every object of the resource has the prefix.
func (s *Snapshot) covers(prefix string) bool {
	first, _ := s.tree.Min()
	last, _ := s.tree.Max()
	return first != nil && strings.HasPrefix(first.Key, prefix) && strings.HasPrefix(last.Key, prefix)
}

// Len returns the number of objects.
func (s *Snapshot) Len() int { return s.tree.Len() }

// Count returns how many objects In yields. It goes through what lies between the range and one that was counted before, if that's known: the pages
// of a list each count what follows, and all of them together go through the objects once.
func (s *Snapshot) Count(keys storage.Range) int {
	from := keys.First()
	near := s.counts.find(keys.Prefix, from)
	if near == nil && s.covers(keys.Prefix) {
		near = &counted{keys.Prefix, keys.Prefix, s.Len()}
	}
	n := 0
	if near == nil {
		for range s.In(keys) {
			n++
		}
	} else {
		n = near.n
		for o := range s.In(storage.Range{Prefix: keys.Prefix, From: near.from}) {
			if o.Key >= from {
				break
			}
			n--
		}
	}
	s.counts.add(counted{keys.Prefix, from, n})
	return n
}

// counts are what was counted of a snapshot lately.
type counts struct {
	mu    sync.Mutex // guards known; a leaf
	known []counted  // oldest first
}

// counted says how many objects there are from a key on.
type counted struct {
	prefix, from string
	n            int
}

// maxCounts is how many are remembered: so many clients may page through one snapshot at a time, each of which counts from where it has counted before.
const maxCounts = 16

// find returns what was counted nearest before a key, or nil.
func (c *counts) find(prefix, from string) (near *counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.known {
		if k := c.known[i]; k.prefix == prefix && k.from <= from && (near == nil || k.from > near.from) {
			near = &k
		}
	}
	return near
}

func (c *counts) add(n counted) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = slices.DeleteFunc(c.known, func(k counted) bool { return k == n })
	if len(c.known) == maxCounts {
		c.known = slices.Delete(c.known, 0, 1)
	}
	c.known = append(c.known, n)
}

// kept has the snapshots from which further pages may be read: all pages of a list show one revision, whatever is
// written meanwhile. A snapshot keeps alive what was replaced after it, and each Resource counts what is replaced.
type kept struct {
	bounds *bounds
	count  atomic.Int64 // the length of list, which the feed reads without the lock

	mu   sync.Mutex     // guards list
	list []keptSnapshot // least recently used first
}

// keptSnapshot is a snapshot and the revisions (since..last) that it's valid for.
type keptSnapshot struct {
	resource *Resource
	*Snapshot
	last storage.Revision
}

// retains returns how many bytes the snapshot keeps alive that nothing else needs.
func (k *keptSnapshot) retains() int64 { return k.resource.removedBytes.Load() - k.removedBytes }

func (k *kept) add(r *Resource, s *Snapshot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	entry := keptSnapshot{r, s, s.Revision}
	if i := slices.IndexFunc(k.list, func(o keptSnapshot) bool { return o.tree == s.tree }); i >= 0 {
		entry.last = max(entry.last, k.list[i].last)
		k.list = slices.Delete(k.list, i, i+1)
	}
	k.list = append(k.list, entry)
	k.trimLocked()
}

// find returns the kept snapshot of a resource at a revision, or nil.
func (k *kept) find(r *Resource, at storage.Revision) *Snapshot {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, s := range k.list {
		if s.resource == r && s.since <= at && at <= s.last {
			k.list = append(slices.Delete(k.list, i, i+1), s)
			return s.Snapshot
		}
	}
	return nil
}

// trim drops the snapshots beyond the bounds. The feed calls it after each trimBytes that were replaced.
func (k *kept) trim() {
	if k.count.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trimLocked()
}

// drop drops all snapshots.
func (k *kept) drop() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = nil
	k.count.Store(0)
}

// dropBefore drops the snapshots that aren't valid at a revision any more, nor later.
func (k *kept) dropBefore(rev storage.Revision) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(s keptSnapshot) bool { return s.last < rev })
	k.count.Store(int64(len(k.list)))
}

func (k *kept) trimLocked() {
	if over := len(k.list) - k.bounds.keptSnapshots; over > 0 {
		k.list = slices.Delete(k.list, 0, over)
	}
	for {
		sum, most := k.sumLocked()
		if sum <= k.bounds.keptBytes {
			break
		}
		k.list = slices.Delete(k.list, most, most+1)
	}
	k.count.Store(int64(len(k.list)))
}

// sumLocked returns how many bytes are kept alive, and the place of the snapshot that keeps most. Only the oldest
// snapshot of each resource counts: it keeps alive all that the others of the resource do.
func (k *kept) sumLocked() (sum int64, most int) {
	for i := range k.list {
		retains := k.list[i].retains()
		oldest := !slices.ContainsFunc(k.list, func(o keptSnapshot) bool {
			return o.resource == k.list[i].resource && o.removedBytes < k.list[i].removedBytes
		})
		if oldest {
			sum += retains
		}
		if retains > k.list[most].retains() {
			most = i
		}
	}
	return sum, most
}

// Keep lets At find the snapshot again, until the bounds of kept snapshots drop it.
func (r *Resource) Keep(s *Snapshot) { r.cacher.kept.add(r, s) }

// At returns the resource as it was at a revision that the feed has reached, if memory still has that: nothing has
// changed since, or a snapshot was kept. Otherwise it returns nil: use Past.
func (r *Resource) At(rev storage.Revision) *Snapshot {
	s := r.Snapshot()
	if rev < s.since {
		if s = r.cacher.kept.find(r, rev); s == nil {
			return nil
		}
	}
	at := *s
	at.Revision = rev
	return &at
}

// Past yields the objects whose keys are in a range, as they were at a revision, in key order. It reads etcd's
// history, a page at a time, so its memory doesn't grow with the number of objects. An error comes last:
// storage.ErrCompacted when history begins after the revision, or another of storage.Store.List.
func (r *Resource) Past(ctx context.Context, rev storage.Revision, keys storage.Range) iter.Seq2[*kube.Object, error] {
	return func(yield func(*kube.Object, error) bool) {
		if oldest := r.cacher.Oldest(); rev < oldest {
			yield(nil, fmt.Errorf("list at %d: %w (history begins at %d)", rev, storage.ErrCompacted, oldest))
			return
		}
		_, err := r.cacher.store.List(ctx, keys, rev, func(kv storage.Change) error {
			if !yield(kube.Changed(kv), nil) {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			yield(nil, err)
		}
	}
}

var errEnough = errors.New("enough")
