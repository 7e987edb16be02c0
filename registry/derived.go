package registry

import (
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Derived is a value that is made from all objects of some resources, and made anew when one of them has changed. It's
// how rules that are kept as objects are read: by every request, and seldom changed.
type Derived[T any] struct {
	resources []*cacher.Resource
	make      func(of func(storage.Prefix) []*kube.Object) T
	current   atomic.Pointer[derivation[T]]
	// making has capacity 1 and is full while a value is made, so that readers of one change make one. It's never closed. It
	// isn't a mutex, because make is its owner's function.
	making chan struct{}
	lists  [][]*kube.Object // of resources, for make; empty after a change. They're whose who has filled making
}

// derivation is a value, and the resources' changes up to which it was made.
type derivation[T any] struct {
	changes []storage.Revision
	value   T
}

// Derive returns what a function makes of the objects of the resources with these prefixes. The function is called by the
// first Get after a change, one call at a time while other readers of the change wait, so it waits for nothing. It may take
// the cacher's locks, and such locks of its own package under which nobody calls Get. It's given a function that returns
// the objects of one of the prefixes, in the order of their keys; objects that can't be decoded have an Err. The
// list may be read until the function returns: then it's used again.
func Derive[T any](r *Registry, of func(objects func(storage.Prefix) []*kube.Object) T, from ...storage.Prefix) *Derived[T] {
	d := &Derived[T]{make: of, making: make(chan struct{}, 1)}
	for _, p := range from {
		d.resources = append(d.resources, r.Cacher.Resource(p))
	}
	d.lists = make([][]*kube.Object, len(d.resources))
	return d
}

// Get returns the value. It's at least as new as what the caches have when Get is called. Without a change since the last
// call it takes no lock.
func (d *Derived[T]) Get() T {
	if c := d.current.Load(); c != nil && d.holds(c) {
		return c.value
	}
	d.making <- struct{}{}
	defer func() { <-d.making }()
	before := d.current.Load()
	if before != nil && d.holds(before) {
		return before.value
	}
	next := &derivation[T]{changes: make([]storage.Revision, len(d.resources))}
	for i, r := range d.resources {
		next.changes[i] = r.Changed() // read first: what comes in between makes the value anew once more than needed
		if before == nil || before.changes[i] != next.changes[i] {
			clear(d.lists[i])
			d.lists[i] = d.lists[i][:0]
		}
	}
	next.value = d.make(d.objects)
	d.current.Store(next)
	return next.value
}

// holds tells whether nothing has changed since a derivation was made.
func (d *Derived[T]) holds(c *derivation[T]) bool {
	for i, r := range d.resources {
		if r.Changed() != c.changes[i] {
			return false
		}
	}
	return true
}

// objects returns the objects of one of the resources.
func (d *Derived[T]) objects(p storage.Prefix) []*kube.Object {
	i := slices.IndexFunc(d.resources, func(r *cacher.Resource) bool { return r.Prefix() == p })
	if i < 0 {
		return nil
	}
	if len(d.lists[i]) == 0 {
		s := d.resources[i].Snapshot()
		d.lists[i] = slices.AppendSeq(slices.Grow(d.lists[i], s.Len()), s.All(string(p)))
	}
	return d.lists[i]
}

// Decoded remembers objects as values of a Go type, so that a Derived decodes those that have changed, and no others. The
// zero value is ready. It isn't safe for concurrent use: a Derived makes one value at a time.
type Decoded[T any] struct {
	objects []*kube.Object // of the last call,
	values  []*T           // and what they are: nil for one that couldn't be decoded
	places  []int32        // see match; kept so that it isn't allocated anew
}

// All decodes the objects, which are in the order of their keys, and forgets those that aren't among them any more. An
// object that can't be decoded is given to bad with the reason, and left out. The values and their list are shared: nobody may
// change them. The values have no resourceVersion.
func (d *Decoded[T]) All(objects []*kube.Object, bad func(o *kube.Object, err error)) []*T {
	if slices.Equal(objects, d.objects) && !slices.Contains(d.values, nil) {
		return d.values
	}
	d.places = match(d.places[:0], objects, d.objects)
	values, failed := make([]*T, len(objects)), 0
	for i, o := range objects {
		if at := d.places[i]; at >= 0 && d.values[at] != nil {
			values[i] = d.values[at]
			continue
		}
		v := new(T)
		if err := decode(o, v); err != nil {
			bad(o, err)
			failed++
			continue
		}
		values[i] = v
	}
	clear(d.objects) // the list may become shorter
	d.objects, d.values = append(d.objects[:0], objects...), values
	if failed == 0 {
		return values
	}
	readable := make([]*T, 0, len(values)-failed)
	for _, v := range values {
		if v != nil {
			readable = append(readable, v)
		}
	}
	return readable
}

// match appends for each of the objects its place in a former list, or -1. Both lists are in the order of keys. Objects are the same that one
// write stored: most are one object, which isn't looked at.
func match(places []int32, objects, former []*kube.Object) []int32 {
	at := 0
	for _, o := range objects {
		for at < len(former) && former[at] != o && former[at].Key < o.Key {
			at++
		}
		place := int32(-1)
		if at < len(former) && (former[at] == o || former[at].Key == o.Key && former[at].Revision == o.Revision) {
			place = int32(at)
			at++
		}
		places = append(places, place)
	}
	return places
}

// decode reads an object into a value of its Go type.
func decode(o *kube.Object, into any) error {
	if o.Err != nil {
		return o.Err
	}
	if err := json.Unmarshal(o.Raw(), into); err != nil {
		return fmt.Errorf("decode %q: %w", o.Key, err)
	}
	return nil
}
