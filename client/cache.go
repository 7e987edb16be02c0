package client

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"unique"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Cache is what a collection has, in memory. StartCache fills one and keeps it up to date; the zero value is an empty one,
// which is a Store for Reflect. Many goroutines may use it. The objects belong to all: they must not be changed.
//
// At any time the cache is what a list at Version would have given.
//
// Lock order: mu before a subscription's. Nothing blocks under either.
type Cache[T any] struct {
	counters Counters
	cancel   context.CancelFunc // of StartCache
	ended    chan struct{}      // closed when StartCache's Reflect has ended; nil for a cache of another Reflect
	why      error              // written before ended is closed

	mu            sync.RWMutex // guards all below
	objects       map[Key]entry[T]
	version       string // empty until it has the first state
	indexes       map[string]*index[T]
	subscriptions map[*subscription[T]]struct{}
	waiters       []*waiter // the one with the oldest version first, so that an event looks at that one only
}

// entry is an object in the cache.
type entry[T any] struct {
	object  *T
	version string
}

// waiter waits for a version, or with "" for the first state.
type waiter struct {
	version string
	reached chan struct{} // closed then
}

// StartCache returns a cache of the collection when it has the state. The cache goes on until ctx ends or Close is called.
// The options are those of Reflect.
//
// A resource that isn't there, or that the user may not read, is waited for and asked for again: a definition or a role may
// come yet. Each failure is a warning in the log. If ctx ends first, the error wraps why it did and the last failure.
func StartCache[T any](ctx context.Context, from Collection[T], options ...Option) (*Cache[T], error) {
	if err := newSettings(options).check(aWatch); err != nil {
		return nil, err
	}
	inner, cancel := context.WithCancel(ctx)
	c := &Cache[T]{cancel: cancel, ended: make(chan struct{})}
	options = append([]Option{CountIn(&c.counters)}, options...)
	go func() {
		defer close(c.ended)
		c.why = Reflect(inner, from, c, options...)
	}()
	if c.WaitFor(ctx, "") != nil { // ctx has ended, and so Reflect will
		<-c.ended
		cancel()
		return nil, fmt.Errorf("cache of %s: %w", from, c.why)
	}
	return c, nil
}

// Close ends a cache of StartCache and waits until it has ended. What is in it stays. Those who wait for it get ErrClosed.
func (c *Cache[T]) Close() {
	if c.cancel != nil {
		c.cancel()
		<-c.ended
	}
}

// Counters counts what a cache of StartCache does, unless CountIn was given.
func (c *Cache[T]) Counters() *Counters { return &c.counters }

// Synced tells whether the cache has had a state. One of StartCache always has.
func (c *Cache[T]) Synced() bool { return c.Version() != "" }

// Version is the version of the collection that the cache has.
func (c *Cache[T]) Version() string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.version
}

// WaitFor waits until the cache has that version or a newer one. So a program reads its own writes: it waits for the
// ResourceVersion of the object that its write returned. A write of an object that the cache doesn't select is waited for
// until the next bookmark, which is a minute at most. It ends with why ctx ended, or with ErrClosed if the cache ends first.
func (c *Cache[T]) WaitFor(ctx context.Context, version string) error {
	w := &waiter{version, make(chan struct{})}
	c.mu.Lock()
	if c.version != "" && !olderVersion(c.version, version) {
		c.mu.Unlock()
		return nil
	}
	i, _ := slices.BinarySearchFunc(c.waiters, w, byVersion)
	c.waiters = slices.Insert(c.waiters, i, w)
	c.mu.Unlock()
	var err error
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-c.ended:
		err = ErrClosed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	i = slices.Index(c.waiters, w)
	if i < 0 { // it has been reached at the same moment
		return nil
	}
	c.waiters = slices.Delete(c.waiters, i, i+1)
	return err
}

func byVersion(a, b *waiter) int { return compareVersions(a.version, b.version) }

// compareVersions compares versions, which are decimal numbers of any length (KEP-5504). It returns less than 0 if a is older.
func compareVersions(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
}

func olderVersion(a, b string) bool { return compareVersions(a, b) < 0 }

// Get returns the object with that key, nil if there's none.
func (c *Cache[T]) Get(key Key) *T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.objects[key].object
}

// Len is how many objects there are.
func (c *Cache[T]) Len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.objects)
}

// All yields the objects that there are when the iteration begins, in no order.
func (c *Cache[T]) All() iter.Seq[*T] {
	return func(yield func(*T) bool) {
		objects, _ := c.Snapshot()
		for _, object := range objects {
			if !yield(object) {
				return
			}
		}
	}
}

// Snapshot returns all objects, in no order, and the version that they are of.
func (c *Cache[T]) Snapshot() (objects []*T, version string) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	objects = make([]*T, 0, len(c.objects))
	for _, e := range c.objects {
		objects = append(objects, e.object)
	}
	return objects, c.version
}

// Select yields those of All that have labels that match. Types without Meta, or a method GetLabels as metav1.ObjectMeta has
// it, are encoded for it, which is slow.
func (c *Cache[T]) Select(selector selectors.LabelSelector) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for object := range c.All() {
			if selector.Matches(selectors.SetOf(labelsOf(object))) && !yield(object) {
				return
			}
		}
	}
}

func labelsOf[T any](object *T) map[string]string {
	if labeled, ok := any(object).(interface{ GetLabels() map[string]string }); ok {
		return labeled.GetLabels()
	}
	document, _ := json.Marshal(object) // without labels, if it doesn't encode
	return labelsIn(member(member(document, "metadata"), "labels"))
}

// Replace makes the cache have exactly these objects. What is the same as before stays the same object, and subscribers
// are told of the rest.
func (c *Cache[T]) Replace(state []Event[T], version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.objects
	c.objects = make(map[Key]entry[T], len(state))
	for _, event := range state {
		old, had := before[event.Key]
		if had && old.version == event.ResourceVersion {
			c.objects[event.Key] = old
		} else {
			c.objects[event.Key] = tidy(event)
		}
	}
	for key, old := range before {
		now, has := c.objects[key]
		switch {
		case !has:
			c.tell(Change[T]{Type: Deleted, Key: key, Old: old.object})
		case now.object == old.object:
		case another(old.object, now.object):
			c.tell(Change[T]{Type: Deleted, Key: key, Old: old.object})
			c.tell(Change[T]{Type: Added, Key: key, New: now.object})
		default:
			c.tell(Change[T]{Type: Modified, Key: key, Old: old.object, New: now.object})
		}
	}
	for key, now := range c.objects {
		if _, had := before[key]; !had {
			c.tell(Change[T]{Type: Added, Key: key, New: now.object})
		}
	}
	c.reach(version)
}

// another tells whether two states under one key are of two objects.
func another[T any](a, b *T) bool { return uidOf(a) != uidOf(b) }

// uidOf returns the object's UID. Types without Meta are encoded for it, which is slow: it's asked for objects that have
// changed unseen only.
func uidOf[T any](object *T) string {
	switch o := any(object).(type) {
	case hasMeta:
		return o.meta().UID
	case *Object:
		return o.UID()
	}
	document, _ := json.Marshal(object) // without a UID, if it doesn't encode
	return text(member(member(document, "metadata"), "uid"))
}

// Apply makes one change.
func (c *Cache[T]) Apply(event Event[T]) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, had := c.objects[event.Key]
	switch {
	case event.Type == Added || event.Type == Modified:
		if c.objects == nil {
			c.objects = map[Key]entry[T]{}
		}
		now := tidy(event)
		c.objects[event.Key] = now
		if had {
			c.tell(Change[T]{Type: Modified, Key: event.Key, Old: old.object, New: now.object})
		} else {
			c.tell(Change[T]{Type: Added, Key: event.Key, New: now.object})
		}
	case event.Type == Deleted && had:
		delete(c.objects, event.Key)
		c.reindex(Change[T]{Key: event.Key, Old: old.object})
		c.publish(Change[T]{Type: Deleted, Key: event.Key, Old: event.Object}) // as the server has seen it last
	}
	c.reach(event.ResourceVersion)
}

// Resync tells subscribers of each object as if it had changed.
func (c *Cache[T]) Resync() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.objects {
		c.publish(Change[T]{Type: Modified, Key: key, Old: e.object, New: e.object})
	}
}

// tidy makes an entry whose strings share memory with those of other objects where they're mostly alike.
func tidy[T any](event Event[T]) entry[T] {
	if m, ok := any(event.Object).(hasMeta); ok {
		m := m.meta()
		m.APIVersion, m.Kind, m.Namespace = shared(m.APIVersion), shared(m.Kind), shared(m.Namespace)
	}
	return entry[T]{event.Object, event.ResourceVersion}
}

func shared(s string) string { return unique.Make(s).Value() }

// tell hands a change to indexes and subscriptions. c.mu must be held.
func (c *Cache[T]) tell(change Change[T]) {
	c.reindex(change)
	c.publish(change)
}

func (c *Cache[T]) reindex(change Change[T]) {
	for _, x := range c.indexes {
		x.change(change)
	}
}

func (c *Cache[T]) publish(change Change[T]) {
	for s := range c.subscriptions {
		s.push(change)
	}
}

// reach notes that the cache has a version. c.mu must be held.
func (c *Cache[T]) reach(version string) {
	c.version = version
	reached := 0
	for reached < len(c.waiters) && !olderVersion(version, c.waiters[reached].version) {
		close(c.waiters[reached].reached)
		reached++
	}
	c.waiters = slices.Delete(c.waiters, 0, reached)
}

// index finds keys by values.
type index[T any] struct {
	values func(*T) []string
	keys   map[string]map[Key]struct{}
}

// AddIndex adds an index by the values that a function finds in an object. It must find the same ones each time,
// be quick, and not call the cache, which is locked meanwhile. A second index of the same name replaces the first.
func (c *Cache[T]) AddIndex(name string, values func(*T) []string) {
	x := &index[T]{values, map[string]map[Key]struct{}{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.objects {
		x.change(Change[T]{Key: key, New: e.object})
	}
	if c.indexes == nil {
		c.indexes = map[string]*index[T]{}
	}
	c.indexes[name] = x
}

// Indexed yields the objects that have the value in an index, in no order. It panics if AddIndex has added no such index.
func (c *Cache[T]) Indexed(name, value string) iter.Seq[*T] {
	return func(yield func(*T) bool) {
		for _, object := range c.indexed(name, value) {
			if !yield(object) {
				return
			}
		}
	}
}

func (c *Cache[T]) indexed(name, value string) []*T {
	c.mu.RLock()
	defer c.mu.RUnlock()
	x := c.indexes[name]
	if x == nil {
		panic(fmt.Sprintf("client.Cache: no index %q", name))
	}
	objects := make([]*T, 0, len(x.keys[value]))
	for key := range maps.Keys(x.keys[value]) {
		objects = append(objects, c.objects[key].object)
	}
	return objects
}

func (x *index[T]) change(change Change[T]) {
	if change.Old != nil {
		for _, value := range x.values(change.Old) {
			delete(x.keys[value], change.Key)
			if len(x.keys[value]) == 0 {
				delete(x.keys, value)
			}
		}
	}
	if change.New != nil {
		for _, value := range x.values(change.New) {
			if x.keys[value] == nil {
				x.keys[value] = map[Key]struct{}{}
			}
			x.keys[value][change.Key] = struct{}{}
		}
	}
}
