package cacher

import (
	"bytes"
	"slices"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Image is what all resources hold at one revision: what POST /debug/snapshot keeps. It never changes. It shares its
// objects with the caches, and keeps them alive when the caches have replaced them.
type Image struct {
	Revision  storage.Revision
	resources map[storage.Prefix]*Snapshot // those that have objects
}

// Image returns what all resources hold now. Every write acknowledged before a Barrier is in the image that is taken
// after it.
func (c *Cacher) Image() *Image {
	c.tapes.mu.Lock() // so that all snapshots are of one revision
	defer c.tapes.mu.Unlock()
	im := &Image{Revision: c.Position(), resources: map[storage.Prefix]*Snapshot{}}
	c.mu.RLock()
	defer c.mu.RUnlock()
	for p, r := range c.resources {
		if s := r.Snapshot(); s.Len() > 0 {
			im.resources[p] = s
		}
	}
	return im
}

// Size returns how many objects the image has, and about how many bytes they take.
func (im *Image) Size() (objects int, bytes int64) {
	for p, s := range im.resources {
		for o := range s.All(string(p)) {
			objects++
			bytes += int64(len(o.Key) + len(o.Raw()))
		}
	}
	return objects, bytes
}

// Since returns what has to be written to a store that holds now, so that it holds im. An object that is the same in both
// is left out. The Revision of each put is the object's in im.
func (im *Image) Since(now *Image) (b storage.Replacement) {
	for p, s := range now.resources {
		b = s.differing(p, im.resources[p], b)
	}
	for p, s := range im.resources {
		if now.resources[p] == nil {
			b = (*Snapshot)(nil).differing(p, s, b)
		}
	}
	return b
}

// differing adds to b what leads from one resource's snapshot to another one's; nil is one without objects. Both are in
// the order of keys, so neighbours that go are deleted as one span.
func (s *Snapshot) differing(p storage.Prefix, to *Snapshot, b storage.Replacement) storage.Replacement {
	have, want := s.objects(p), to.objects(p)
	neighbours := false // the key before, of those in either, was deleted
	for len(have) > 0 || len(want) > 0 {
		goes := len(want) == 0 || len(have) > 0 && have[0].Key < want[0].Key
		switch {
		case goes && neighbours:
			b.Deletes[len(b.Deletes)-1].Last = have[0].Key
		case goes:
			b.Deletes = append(b.Deletes, storage.Span{First: have[0].Key, Last: have[0].Key})
		case want[0].Err != nil: // nobody knows what it was, and its bytes may be encrypted: what is there stays
		case len(have) == 0 || want[0].Key < have[0].Key || !bytes.Equal(have[0].Raw(), want[0].Raw()):
			b.Puts = append(b.Puts, storage.KeyValue{Key: want[0].Key, Value: want[0].Raw(), Revision: want[0].Revision})
		}
		if neighbours = goes; goes {
			have = have[1:]
			continue
		}
		if len(have) > 0 && have[0].Key == want[0].Key {
			have = have[1:]
		}
		want = want[1:]
	}
	return b
}

// objects returns all objects of a snapshot, none of a nil one.
func (s *Snapshot) objects(p storage.Prefix) []*kube.Object {
	if s == nil {
		return nil
	}
	return slices.AppendSeq(make([]*kube.Object, 0, s.Len()), s.All(string(p)))
}
