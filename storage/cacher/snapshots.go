package cacher

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

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

// snapshotLocked returns the shared clone of the tree; mu must be held for writing.
func (r *Resource) snapshotLocked() *Snapshot {
	if r.snapshot == nil {
		r.snapshot = &Snapshot{tree: r.tree.Clone(), fields: r.fields.clone(), since: r.rev, replaced: r.replaced.Load(), Revision: r.rev}
	}
	return r.snapshot
}

// All yields the objects whose key begins with prefix, in key order.
func (s *Snapshot) All(prefix string) iter.Seq[*Object] { return s.In(storage.Range{Prefix: prefix}) }

// Get returns the object under a key, or nil.
func (s *Snapshot) Get(key string) *Object {
	o, _ := s.tree.Get(&Object{Key: key})
	return o
}

// In yields the objects whose keys are in a range, in key order.
func (s *Snapshot) In(keys storage.Range) iter.Seq[*Object] {
	return func(yield func(*Object) bool) {
		if s.covers(keys.Prefix) {
			s.ascend(keys.First(), yield) // and no key is looked at
			return
		}
		s.ascend(keys.First(), func(o *Object) bool {
			return strings.HasPrefix(o.Key, keys.Prefix) && yield(o)
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

// Count returns how many objects In yields.
func (s *Snapshot) Count(keys storage.Range) (n int) {
	if keys.From <= keys.Prefix && s.covers(keys.Prefix) {
		return s.Len()
	}
	for range s.In(keys) {
		n++
	}
	return n
}

// kept is snapshots that somebody wants to read on from: the pages of a list are of one revision, whatever is
// written between them. What a snapshot keeps alive is what has been replaced since, of which each resource
// has the sum. Its lock is taken under no other and none is taken under it.
type kept struct {
	bounds *bounds
	count  atomic.Int64 // of list, for the feed to look at

	mu   sync.Mutex // guards list
	list []keptSnapshot
}

// keptSnapshot is a snapshot with all revisions that it's the state of: nothing changed between since and last.
// Least recently used first.
type keptSnapshot struct {
	resource *Resource
	*Snapshot
	last storage.Revision
}

// pins is how many bytes the snapshot keeps alive that nothing else need.
func (k *keptSnapshot) pins() int64 { return k.resource.replaced.Load() - k.replaced }

// changeOverhead is about what a change leaves besides an object's bytes: its attributes, and copied
// nodes of the trees.
const changeOverhead = 512

// countReplaced counts what a change took out of the tree; prev is nil for a creation.
func (r *Resource) countReplaced(prev *Object) {
	n := int64(changeOverhead)
	if prev != nil {
		n += int64(len(prev.raw))
	}
	r.replaced.Add(n)
	r.cacher.feed.pinned += n
}

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

// trim drops what passes the bounds. The feed calls it each trimBytes.
func (k *kept) trim() {
	if k.count.Load() == 0 {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.trimLocked()
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

// sumLocked returns how many bytes are kept alive, and by which snapshot most. Of one resource the oldest
// snapshot keeps alive all that the others do.
func (k *kept) sumLocked() (sum int64, most int) {
	for i := range k.list {
		pins := k.list[i].pins()
		oldest := !slices.ContainsFunc(k.list, func(o keptSnapshot) bool {
			return o.resource == k.list[i].resource && o.replaced < k.list[i].replaced
		})
		if oldest {
			sum += pins
		}
		if pins > k.list[most].pins() {
			most = i
		}
	}
	return sum, most
}

// Keep lets At find the snapshot again as long as the bounds allow.
func (r *Resource) Keep(s *Snapshot) { r.cacher.kept.add(r, s) }

// At returns the resource as it was at a revision that the feed has reached, if memory still has that: when
// nothing changed since, or a snapshot was kept. Else it's nil, and Past has to do.
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

// Past yields the objects whose keys are in a range, as they were at a revision, from etcd's history, in key order. An
// error ends it: storage.ErrCompacted when history no longer reaches back so far. Its memory doesn't grow with
// the number of objects.
func (r *Resource) Past(ctx context.Context, rev storage.Revision, keys storage.Range) iter.Seq2[*Object, error] {
	return func(yield func(*Object, error) bool) {
		_, err := r.cacher.store.List(ctx, keys, rev, func(kv storage.Change) error {
			if !yield(newObjectFrom(kv), nil) {
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
