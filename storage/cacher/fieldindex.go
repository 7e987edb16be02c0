package cacher

import (
	"iter"
	"slices"
	"strings"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

var noFields = kube.NewFields(nil)

// fieldIndex finds a resource's objects by the values of its selectable fields. Every object is in the tree of each
// field once; the value of an absent field is "". The trees are copy-on-write and cloned together with the tree of the
// objects, so that a snapshot has the index that belongs to it.
//
// For each object and field the index takes 32 bytes in the tree and 16 with the object, plus what nodes have in
// reserve: about 60 bytes. Objects with the same value share its bytes. Guarded by Resource.mu; a clone is immutable.
type fieldIndex struct {
	set      *kube.Fields
	trees    []*btree.BTree[fieldEntry] // by the place of the set's names
	complete bool                       // false while SetFields builds the index: nobody may read it yet
}

// fieldEntry says that the object under a key has a value. It doesn't point to the object, so a change that keeps
// the value doesn't touch the index.
type fieldEntry struct{ value, key string }

func newFieldIndex(set *kube.Fields) *fieldIndex {
	x := &fieldIndex{set: set, trees: make([]*btree.BTree[fieldEntry], len(set.Names())), complete: len(set.Names()) == 0}
	for i := range x.trees {
		x.trees[i] = newFieldTree()
	}
	return x
}

func newFieldTree() *btree.BTree[fieldEntry] {
	return btree.New(treeDegree, func(a, b fieldEntry) bool {
		if a.value != b.value {
			return a.value < b.value
		}
		return a.key < b.key
	})
}

func (x *fieldIndex) clone() *fieldIndex {
	if len(x.trees) == 0 {
		return x
	}
	c := &fieldIndex{set: x.set, trees: make([]*btree.BTree[fieldEntry], len(x.trees)), complete: x.complete}
	for i, t := range x.trees {
		c.trees[i] = t.Clone()
	}
	return c
}

// insert brings an object into the index whose values others read already.
func (x *fieldIndex) insert(o *kube.Object) {
	for i := range x.trees {
		if o.Carries(x.set) {
			x.trees[i].ReplaceOrInsert(fieldEntry{o.Values()[i], o.Key})
		}
	}
}

// exchange says that cur takes the place of prev, under the same key. One of them may be nil.
type exchange struct{ prev, cur *kube.Object }

// move brings an exchange into the index. cur isn't known to anybody else yet.
func (x *fieldIndex) move(e exchange) {
	prev, cur := e.prev, e.cur
	// An object that doesn't carry the values isn't indexed: it's unreadable, or SetFields hasn't reached it yet.
	had, has := prev != nil && prev.Carries(x.set), cur != nil && cur.Carries(x.set)
	for i := range x.trees {
		if had && has && prev.Values()[i] == cur.Values()[i] {
			cur.Values()[i] = prev.Values()[i] // so that the value is in memory once
			continue
		}
		if had {
			x.trees[i].Delete(fieldEntry{prev.Values()[i], prev.Key})
		}
		if has {
			cur.Values()[i] = x.intern(i, cur.Values()[i])
			x.trees[i].ReplaceOrInsert(fieldEntry{cur.Values()[i], cur.Key})
		}
	}
}

// intern returns the index's own copy of a value, or the value itself if the index doesn't have it yet.
func (x *fieldIndex) intern(i int, value string) string {
	x.trees[i].AscendGreaterOrEqual(fieldEntry{value: value}, func(e fieldEntry) bool {
		if e.value == value {
			value = e.value
		}
		return false
	})
	return value
}

func (r *Resource) fieldSet() *kube.Fields {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.fields.set
}

// fieldBatch is how many objects SetFields replaces under one hold of the lock: some hundred microseconds, during which
// the feed and the readers of the resource wait.
const fieldBatch = 128

// SetFields says which fields of the objects are selectable, besides metadata.name and metadata.namespace. When it
// returns, the objects carry the values of these fields and Where finds objects by them, until the next call. If the
// fields are others than before, it scans all objects; reads and changes go on meanwhile. It's for one caller at a
// time.
func (r *Resource) SetFields(names []string) {
	set := kube.NewFields(names)
	r.mu.Lock()
	if slices.Equal(set.Names(), r.fields.set.Names()) {
		r.mu.Unlock()
		return
	}
	r.fields, r.snapshot = newFieldIndex(set), nil
	objects := r.tree.Clone()
	r.mu.Unlock()

	batch := make([]exchange, 0, fieldBatch)
	objects.Ascend(func(o *kube.Object) bool {
		carrier := o.At(o.Revision)
		set.Carry(carrier)
		r.cacher.messages.Admit(carrier)
		if batch = append(batch, exchange{prev: o, cur: carrier}); len(batch) == fieldBatch {
			r.swap(batch)
			batch = batch[:0]
		}
		return true
	})
	r.swap(batch)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fields.complete, r.snapshot = true, nil
}

// swap makes exchanges of objects that differ only in the values that they carry. An object that the feed has changed
// meanwhile carries the values already, and stays.
func (r *Resource) swap(batch []exchange) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.snapshot = nil
	for _, e := range batch {
		if now, _ := r.tree.Get(e.prev); now != e.prev {
			continue
		}
		r.tree.ReplaceOrInsert(e.cur)
		r.fields.move(exchange{cur: e.cur}) // prev was never in this index
		e.prev.DropMessages()
	}
}

// Where yields, in key order, the objects whose field has a value and whose keys are in a range. Its cost grows with
// the objects that it yields, not with those that there are. ok is false if the field isn't indexed: use In then.
func (s *Snapshot) Where(field, value string, keys storage.Range) (objects iter.Seq[*kube.Object], ok bool) {
	i := s.fields.set.Find(field)
	if i < 0 || !s.fields.complete {
		return nil, false
	}
	return s.with(s.fields.trees[i], value, keys), true
}

// with yields, in key order, the objects that have a value in an index and whose keys are in a range.
func (s *Snapshot) with(index *btree.BTree[fieldEntry], value string, keys storage.Range) iter.Seq[*kube.Object] {
	return func(yield func(*kube.Object) bool) {
		index.AscendGreaterOrEqual(fieldEntry{value, keys.First()}, func(e fieldEntry) bool {
			return e.value == value && strings.HasPrefix(e.key, keys.Prefix) && yield(s.Get(e.key))
		})
	}
}
