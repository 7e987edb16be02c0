package controllers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// collector is the garbage collector. It deletes the objects whose owners are all gone, and ends deletions that wait for
// dependents (foreground) or leave them without this owner (orphan).
//
// The graph only tells which objects to look at. It's told what happens in revision order, and queues the keys of objects
// about which there may be something to do. A worker reads the object, then its owners from etcd, and decides from what it
// has read (see collect.go). So an old graph costs time and decides nothing, with one exception: that an
// owner has no dependents left is read from the graph, once the graph has the owner's last change.
type collector struct {
	controllers *Controllers
	definitions storage.Prefix
	queue       queue[string] // of the keys of objects

	// mu guards all below. The queue's lock and those of the cacher's resources are taken under it.
	mu       sync.Mutex
	graph    *graph
	position storage.Revision // the graph has every change up to it
	whole    bool             // the graph has the whole state
	doubts   []string         // keys to be queued when it's whole
	unproven map[*node]bool   // nodes that name owners of kinds that weren't served
	waiting  map[*node]bool   // owners whose deletion waits for dependents
	spoiled  map[string]uid   // by key: the uids of objects that could be read once and can't be read any more
}

func newCollector(c *Controllers) *collector {
	g := &collector{controllers: c, definitions: storage.PrefixOf(apiextensionsv1.GroupName, "customresourcedefinitions")}
	g.queue.log, g.queue.bell, g.queue.work = c.log, &c.reader.bell, pinned(c, g.work)
	g.begin()
	return g
}

func (c *collector) run(ctx context.Context) { c.queue.run(ctx) }

func (c *collector) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.graph, c.position, c.whole, c.doubts = newGraph(), 0, false, nil
	c.unproven, c.waiting, c.spoiled = map[*node]bool{}, map[*node]bool{}, map[string]uid{}
}

func (c *collector) complete() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.whole = true
	for _, key := range c.doubts {
		c.queue.add(key)
	}
	c.doubts = nil
}

// observe brings an object into the graph. Most objects cost a look at one flag: those that have no owner and aren't being
// deleted.
func (c *collector) observe(e *cacher.Event) {
	switch prev := e.Prev; {
	case e.Cur == nil:
		c.deleted(prev)
	case e.Cur.Err != nil: // nobody knows what it says now; its owners wait until it's deleted
		c.spoil(prev)
	case e.Cur.Owned() || e.Cur.DeletionTimestamp != "" || prev != nil && (prev.Owned() || prev.Err != nil):
		c.written(e)
	}
	if e.Prefix == c.definitions {
		c.kindsChanged()
	}
}

// look queues an object about which there may be something to do; mu must be held.
func (c *collector) look(key string) {
	if c.whole {
		c.queue.add(key)
	} else {
		c.doubts = append(c.doubts, key)
	}
}

// deleted takes an object out of the graph, and has its dependents looked at.
func (c *collector) deleted(o *cacher.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u, spoiled := c.spoiled[o.Key]
	if spoiled {
		delete(c.spoiled, o.Key)
	} else {
		u = uidOf(o.Lineage().UID)
	}
	n := c.graph.nodes[u]
	if n == nil {
		return
	}
	c.setState(n, nodeGone)
	c.forsake(n)
	for e := range n.names() {
		c.look(e.dependent.key)
	}
	c.release(n)
}

// spoil notes whose object can't be read from now on. prev is how it was before; nil if it never was in the graph.
func (c *collector) spoil(prev *cacher.Object) {
	if prev == nil || prev.Err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spoiled[prev.Key] = uidOf(prev.Lineage().UID)
}

// written brings an object as it is now into the graph.
func (c *collector) written(e *cacher.Event) {
	o, l := e.Cur, lineageOf(e.Cur)
	if l.UID == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.position = max(c.position, o.Revision)
	delete(c.spoiled, o.Key)
	u := uidOf(l.UID)
	n := c.graph.nodes[u]
	known := n != nil && e.Prev != nil && e.Prev.Err == nil && slices.Equal(e.Prev.Lineage().Owners, l.Owners)
	if n == nil && len(l.Owners) > 0 {
		n = c.graph.ensure(u)
	}
	if n != nil {
		c.meet(n, o, l)
		if !known {
			c.relink(n, o, l.Owners)
		}
		c.release(n)
	}
	if o.DeletionTimestamp != "" && (l.asks(metav1.FinalizerDeleteDependents) || l.asks(metav1.FinalizerOrphanDependents)) {
		c.look(o.Key)
	}
}

// meet notes where a node's object is and how far its deletion is; mu must be held.
func (c *collector) meet(n *node, o *cacher.Object, l *lineage) {
	n.key = o.Key
	var s nodeState
	if o.DeletionTimestamp != "" {
		s = nodeDeleting
		if l.asks(metav1.FinalizerDeleteDependents) {
			s |= nodeForeground
		}
		if l.asks(metav1.FinalizerOrphanDependents) {
			s |= nodeOrphaning
		}
	}
	c.setState(n, s)
}

// setState gives a node another state. If it begins to wait, its dependents are looked at; mu must be held.
func (c *collector) setState(n *node, s nodeState) {
	began := s & nodeWaiting &^ n.nodeState
	n.nodeState = s | n.nodeState&nodeUnproven
	if !n.is(nodeWaiting) {
		delete(c.waiting, n)
		return
	}
	c.waiting[n] = true
	if began != 0 {
		for e := range n.names() {
			c.look(e.dependent.key)
		}
	}
}

// forsake takes its owners from a node. An owner that waited for it alone is looked at; mu must be held.
func (c *collector) forsake(n *node) {
	n.nodeState &^= nodeUnproven
	delete(c.unproven, n)
	c.graph.unlink(n, c.left)
}

// left is told that a node has lost a dependent; mu must be held.
func (c *collector) left(owner *node) {
	if owner.is(nodeWaiting) && !owner.waitsFor() {
		c.look(owner.key)
	}
	c.release(owner)
}

// release forgets a node that says nothing any more; mu must be held.
func (c *collector) release(n *node) {
	if c.graph.release(n) {
		delete(c.waiting, n)
	}
}

// relink gives a node its object's owners. The object is looked at if it may have to lose one; mu must be held.
func (c *collector) relink(n *node, o *cacher.Object, owners []cacher.Owner) {
	var before []*node
	n.nodeState &^= nodeUnproven
	delete(c.unproven, n)
	c.graph.unlink(n, func(owner *node) { before = append(before, owner) })
	doubt := false
	for _, ref := range owners {
		owner := c.graph.ensure(uidOf(ref.UID))
		var s edgeState
		if ref.Blocks {
			s = edgeBlocks
		}
		switch c.find(owner, o, ref) {
		case there:
			s |= edgeValid
			doubt = doubt || owner.is(nodeWaiting)
		case notServed:
			n.nodeState |= nodeUnproven
			c.unproven[n] = true
			doubt = true
		case notThere:
			doubt = true
		case misplaced:
		}
		c.graph.link(n, owner, s)
	}
	if doubt {
		c.look(n.key)
	}
	for _, owner := range before {
		c.left(owner)
	}
}

// found is where the owner is that a reference names, as far as the cache knows.
type found int

const (
	there found = iota
	notThere
	notServed
	misplaced // a cluster-scoped object names a namespaced one: nobody can say which
)

// find looks for an owner in the graph, then in the cache; mu must be held.
func (c *collector) find(owner *node, dependent *cacher.Object, ref cacher.Owner) found {
	e := c.controllers.registry.Catalog().Kind(ref.APIVersion, ref.Kind)
	if e == nil {
		return notServed
	}
	namespace, ok := ownerNamespace(e, dependent)
	if !ok {
		return misplaced
	}
	if owner.key != "" && !owner.is(nodeGone) {
		if p, in, name, _ := storage.SplitKey(owner.key); p == e.Prefix() && in == namespace && name == ref.Name {
			return there
		}
		return notThere
	}
	key, err := e.Prefix().Key(namespace, ref.Name)
	if err != nil {
		return notThere
	}
	o := e.Cache().Get(key)
	if o == nil || o.Err != nil {
		return notThere
	}
	if l := lineageOf(o); l.UID == ref.UID {
		c.meet(owner, o, l)
		return there
	}
	return notThere
}

// ownerNamespace returns the namespace of an owner of a dependent: the dependent's, or none. It isn't ok if the owner would
// be namespaced and the dependent isn't.
func ownerNamespace(e *registry.Endpoint, dependent *cacher.Object) (namespace string, ok bool) {
	if !e.Namespaced {
		return "", true
	}
	namespace = dependent.Namespace()
	return namespace, namespace != ""
}

// kindsChanged has those objects looked at whose owners may be found now.
func (c *collector) kindsChanged() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.unproven {
		c.look(n.key)
	}
}

// lineage is what the collector reads of an object.
type lineage struct{ cacher.Lineage }

func lineageOf(o *cacher.Object) *lineage { return &lineage{o.Lineage()} }

// asks tells whether the object has a finalizer.
func (l *lineage) asks(finalizer string) bool { return slices.Contains(l.Finalizers, finalizer) }

// idle tells whether nothing is left to do: nothing is queued, and owners wait only for what others' finalizers hold.
func (c *collector) idle() bool {
	if !c.queue.idle() {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.waiting {
		if n.waitsFor() && !n.held(map[*node]bool{}) {
			return false
		}
	}
	return true
}

func (c *collector) pending(most int) []Pending {
	all := pendingKeys(&c.queue, most, c.object)
	c.mu.Lock()
	defer c.mu.Unlock()
	for n := range c.waiting {
		if len(all) < most && n.waitsFor() && !n.held(map[*node]bool{}) {
			all = append(all, Pending{Object: c.object(n.key), Cause: n.waitsBecause()})
		}
	}
	return all
}

// object returns the object of a key as reports name it.
func (c *collector) object(key string) Object {
	p, namespace, name, _ := storage.SplitKey(key)
	o := Object{Namespace: namespace, Name: name}
	if e := c.controllers.registry.Catalog().Prefix(p); e != nil {
		o.APIVersion, o.Kind = schema.GroupVersion{Group: e.Group, Version: e.Version}.String(), e.Kind
	}
	return o
}

// held tells whether a waiting owner waits, at last, only for objects that others' finalizers hold. asked has the answers
// about the owners that were asked before: false for those that were asked on the way here, because the owners of a circle
// don't hold each other.
func (n *node) held(asked map[*node]bool) bool {
	asked[n] = false
	for e := range n.names() {
		d := e.dependent
		if !e.has(edgeValid) || n.is(nodeForeground) && !e.has(edgeBlocks) {
			continue
		}
		if n.is(nodeOrphaning) || !d.is(nodeDeleting) {
			return false
		}
		if !d.waitsFor() {
			continue
		}
		if held, known := asked[d]; known && !held || !known && !d.held(asked) {
			return false
		}
	}
	asked[n] = true
	return true
}

// waitsBecause says for whom an owner waits.
func (n *node) waitsBecause() string {
	for e := range n.names() {
		if e.has(edgeValid) && (n.is(nodeOrphaning) || e.has(edgeBlocks)) {
			return fmt.Sprintf("its deletion waits for dependents, %d that block it; one is %s", n.blocking, e.dependent.key)
		}
	}
	return "its deletion waits for dependents"
}
