package cacher

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/third_party/forked/golang/btree"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Indexes on demand are trees as those of the selectable fields, for fields and labels that lists asked for often. They read the values from the objects,
// which don't carry them. One is built by the second list in demandOften, in the goroutine of that, and goes when nobody has asked for it for
// demandUnused.
const (
	// demandOften is within what time the same field must be asked for again.
	demandOften = time.Minute
	// leastDemand is how many objects a resource must have: fewer are scanned within a millisecond.
	leastDemand = 1024
	// maxDemands is how many fields of a resource are remembered, with an index or without. The one goes that wasn't asked for the longest.
	maxDemands = 16
	// maxDemandKeys is how many values one object may have in a field that is indexed: those of a list, for example. A change of an
	// object moves them all, while nobody can read.
	maxDemandKeys = 64
	// demandEntryBytes is about what an entry takes besides the bytes of its value.
	demandEntryBytes = 64
	// foundShare is the part of all objects, a quarter, above which it's cheaper to scan them than to sort those that an index finds.
	foundShare = 4
	// labelShare is the same for a label, a sixteenth: a scan looks at 8 bytes of each object.
	labelShare = 16
)

// demands are a resource's, by the names of columns. Guarded by Resource.mu; a clone is immutable.
type demands map[string]*demand

// demand is a column that was asked for.
type demand struct {
	column   *kube.Column
	last     atomic.Int64             // when it was asked for, in nanoseconds since 1970
	tree     *btree.BTree[fieldEntry] // nil: there's no index
	complete bool                     // all objects are in it
	bytes    int64                    // of the index
}

// asked is what all resources share.
type asked struct {
	bytes atomic.Int64  // of all indexes
	built chan struct{} // has one while sweepDemands has to look
}

// clone returns the indexes that are complete; nil for none.
func (ds demands) clone() (complete demands) {
	for name, d := range ds {
		if !d.complete {
			continue
		}
		if complete == nil {
			complete = demands{}
		}
		complete[name] = &demand{column: d.column, tree: d.tree.Clone(), complete: true}
	}
	return complete
}

// Demand notes that a list is about to be selected by columns. If one was asked for not long ago, it builds the index, which takes about as long as
// one scan of all objects; reads and changes go on meanwhile.
func (r *Resource) Demand(lookups []kube.Lookup) {
	now := time.Now()
	for _, l := range lookups {
		name := l.Column.Name()
		r.mu.RLock()
		d, few := r.demands[name], r.tree.Len() < leastDemand
		indexed := d != nil && d.tree != nil
		r.mu.RUnlock()
		switch {
		case few:
		case d == nil:
			r.remember(l.Column, now)
		case d.last.Swap(now.UnixNano()) > now.Add(-demandOften).UnixNano() && !indexed:
			r.build(name, d)
		}
	}
}

// remember notes that a column was asked for the first time.
func (r *Resource) remember(c *kube.Column, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.demands == nil:
		r.demands = demands{}
	case r.demands[c.Name()] != nil: // somebody else was first
		return
	}
	if len(r.demands) >= maxDemands {
		name, _ := r.demands.oldest()
		r.dropDemandLocked(name)
	}
	d := &demand{column: c}
	d.last.Store(now.UnixNano())
	r.demands[c.Name()] = d
	r.cacher.noticeDemands()
}

// oldest returns the column that wasn't asked for the longest, and when it was.
func (ds demands) oldest() (name string, last int64) {
	for n, d := range ds {
		if at := d.last.Load(); name == "" || at < last {
			name, last = n, at
		}
	}
	return name, last
}

// build indexes a column, unless somebody else does, or there's no room for it.
func (r *Resource) build(name string, d *demand) {
	r.mu.Lock()
	if r.demands[name] != d || d.tree != nil {
		r.mu.Unlock()
		return
	}
	objects := r.tree.Clone()
	if int64(objects.Len())*demandEntryBytes > r.cacher.bounds.demandBytes {
		r.mu.Unlock()
		return
	}
	d.tree = newFieldTree()
	r.mu.Unlock()

	batch := make([]*kube.Object, 0, fieldBatch)
	keys, ends := []string(nil), make([]int, 0, fieldBatch)
	objects.Ascend(func(o *kube.Object) bool {
		keys = d.column.Keys(keys, o)
		if batch, ends = append(batch, o), append(ends, len(keys)); len(batch) == fieldBatch || len(keys) > fieldBatch*2 {
			r.indexDemand(name, d, batch, keys, ends)
			if r.cacher.asked.bytes.Load() > r.cacher.bounds.demandBytes {
				r.cacher.trimDemands(time.Now())
			}
			batch, keys, ends = batch[:0], keys[:0], ends[:0]
		}
		return true
	})
	r.indexDemand(name, d, batch, keys, ends)
	r.mu.Lock()
	d.complete, r.snapshot = true, nil
	r.mu.Unlock()
	r.cacher.trimDemands(time.Now())
}

// indexDemand brings objects into an index that's being built. keys are theirs, and ends where those of each end. An object that the feed has changed
// meanwhile is in the index already.
func (r *Resource) indexDemand(name string, d *demand, objects []*kube.Object, keys []string, ends []int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.demands[name] != d { // it was dropped
		return
	}
	first := 0
	for i, o := range objects {
		if ends[i]-first > maxDemandKeys || d.bytes > r.cacher.bounds.demandBytes {
			r.dropDemandLocked(name)
			return
		}
		if now, _ := r.tree.Get(o); now != nil && now.Revision == o.Revision {
			for _, key := range keys[first:ends[i]] {
				r.putDemandLocked(d, fieldEntry{key, now.Key})
			}
		}
		first = ends[i]
	}
}

// putDemandLocked adds an entry; mu must be held for writing.
func (r *Resource) putDemandLocked(d *demand, e fieldEntry) {
	if _, had := d.tree.ReplaceOrInsert(e); !had {
		d.bytes += demandEntryBytes + int64(len(e.value))
		r.cacher.asked.bytes.Add(demandEntryBytes + int64(len(e.value)))
	}
}

// moveDemandsLocked brings an exchange into the indexes; mu must be held for writing.
func (r *Resource) moveDemandsLocked(e exchange) {
	for name, d := range r.demands {
		if d.tree == nil {
			continue
		}
		var was, is []string
		if e.prev != nil {
			was = d.column.Keys(nil, e.prev)
		}
		if e.cur != nil {
			is = d.column.Keys(nil, e.cur)
		}
		if e.prev != nil && e.cur != nil && slices.Equal(was, is) && d.complete {
			continue
		}
		if len(is) > maxDemandKeys {
			r.dropDemandLocked(name)
			continue
		}
		for _, key := range was {
			if _, had := d.tree.Delete(fieldEntry{key, e.prev.Key}); had {
				d.bytes -= demandEntryBytes + int64(len(key))
				r.cacher.asked.bytes.Add(-demandEntryBytes - int64(len(key)))
			}
		}
		for _, key := range is {
			r.putDemandLocked(d, fieldEntry{key, e.cur.Key})
		}
	}
}

// dropDemandLocked forgets a column; mu must be held for writing.
func (r *Resource) dropDemandLocked(name string) {
	d := r.demands[name]
	delete(r.demands, name)
	r.cacher.asked.bytes.Add(-d.bytes)
	if d.tree != nil {
		r.snapshot = nil // which has a clone
	}
}

// noticeDemands has sweepDemands look from time to time.
func (c *Cacher) noticeDemands() {
	select {
	case c.asked.built <- struct{}{}:
	default:
	}
}

// sweepDemands forgets columns that nobody asks for any more, until ctx ends.
func (c *Cacher) sweepDemands(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.asked.built:
		case <-timer.C:
		}
		if c.trimDemands(time.Now()) {
			timer.Reset(c.bounds.demandUnused)
		}
	}
}

// trimDemands forgets the columns that nobody has asked for in demandUnused, and then the oldest until the indexes are within their bound. It reports
// whether there are any left.
func (c *Cacher) trimDemands(now time.Time) (left bool) {
	unused := now.Add(-c.bounds.demandUnused).UnixNano()
	for {
		var of *Resource
		var which string
		var last int64
		left = false
		c.each(func(r *Resource) {
			r.mu.RLock()
			defer r.mu.RUnlock()
			if name, at := r.demands.oldest(); name != "" {
				if left = true; of == nil || at < last {
					of, which, last = r, name, at
				}
			}
		})
		if of == nil || last > unused && c.asked.bytes.Load() <= c.bounds.demandBytes {
			return left
		}
		of.mu.Lock()
		if of.demands[which] != nil {
			of.dropDemandLocked(which)
		}
		of.mu.Unlock()
	}
}

// Find yields, in key order, the objects whose keys are in a range and that lookups find: each that one of them finds, once. The caller looks at
// those that come. Its cost grows with the objects that it yields. ok is false if a column isn't indexed, or if so many objects are found that a
// scan costs less: use In then.
func (s *Snapshot) Find(lookups []kube.Lookup, keys storage.Range) (objects iter.Seq[*kube.Object], ok bool) {
	var found []string
	most := s.Len() / foundShare
	for _, l := range lookups {
		d := s.demands[l.Column.Name()]
		if d == nil {
			return nil, false
		}
		for _, r := range l.Ranges {
			d.tree.AscendGreaterOrEqual(fieldEntry{value: r.From}, func(e fieldEntry) bool {
				if !r.Has(e.value) {
					return false
				}
				if strings.HasPrefix(e.key, keys.Prefix) && e.key >= keys.First() {
					found = append(found, e.key)
				}
				return len(found) <= most
			})
		}
		if len(found) > most {
			return nil, false
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	return func(yield func(*kube.Object) bool) {
		for _, key := range found {
			if o := s.Get(key); o != nil && !yield(o) {
				return
			}
		}
	}, true
}

// Having yields, in key order, the objects that have a value in a column and whose keys are in a range. Its cost grows with the objects that it
// yields. ok is false if the column isn't indexed, or if so many objects have the value that a scan costs less: use Labelled then.
func (s *Snapshot) Having(c *kube.Column, value string, keys storage.Range) (objects iter.Seq[*kube.Object], ok bool) {
	d := s.demands[c.Name()]
	if d == nil {
		return nil, false
	}
	left := s.Len() / labelShare
	d.tree.AscendGreaterOrEqual(fieldEntry{value, keys.First()}, func(e fieldEntry) bool {
		left--
		return left >= 0 && e.value == value && strings.HasPrefix(e.key, keys.Prefix)
	})
	return s.with(d.tree, value, keys), left >= 0
}

// InOrder yields the values of a column in their order, each with the keys of the objects that have it, in their order: from a value and a key on, or
// from the beginning if the key is "". With descending the greatest value comes first. An object with several values comes with each. ok is false
// if the column isn't indexed.
func (s *Snapshot) InOrder(c *kube.Column, value, key string, descending bool) (entries iter.Seq2[string, string], ok bool) {
	d := s.demands[c.Name()]
	if d == nil {
		return nil, false
	}
	if !descending {
		return func(yield func(value, key string) bool) {
			d.tree.AscendGreaterOrEqual(fieldEntry{value, key}, func(e fieldEntry) bool { return yield(e.value, e.key) })
		}, true
	}
	return func(yield func(value, key string) bool) {
		from, some := fieldEntry{value, key}, true
		if key == "" {
			from, some = d.tree.Max()
			from.key = ""
		}
		for going := true; some && going; from, some = d.below(from.value) {
			d.tree.AscendGreaterOrEqual(from, func(e fieldEntry) bool {
				if e.value == from.value {
					going = yield(e.value, e.key)
					return going
				}
				return false
			})
		}
	}, true
}

// below returns where the entries of the next smaller value begin. ok is false if there's none.
func (d *demand) below(value string) (first fieldEntry, ok bool) {
	d.tree.DescendLessOrEqual(fieldEntry{value: value}, func(e fieldEntry) bool { // no object has the key ""
		first, ok = fieldEntry{value: e.value}, true
		return false
	})
	return first, ok
}
