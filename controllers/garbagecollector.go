package controllers

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// collector is the garbage collector. It deletes the objects whose owners are all gone, and ends deletions that wait for
// dependents (foreground) or leave them without this owner (orphan).
//
// What it knows only tells which objects to look at. A worker takes the object from the cache, reads its owners from etcd, and
// decides from what it has read (garbagecollector_delete.go). So old knowledge costs time and decides nothing, with two exceptions, for
// which knowledge is whole before anybody asks it: that an owner has no dependents left, and that an owner leaves its
// dependents, whatever else a reference says besides its uid.
type collector struct {
	queued[string] // of the keys of objects
	// knowledge is replaced when the reader begins with a state, and never emptied. A worker takes it once, and asks only
	// that: what it has taken was whole at the revision up to which it goes, also when a newer one is being made.
	knowledge atomic.Pointer[knowledge]
}

// knowledge is what the collector knows. The reader tells it what happens, in revision order, and it queues the keys of
// objects about which there may be something to do.
type knowledge struct {
	queue *queue[string] // the collector's

	// mu guards all below. The queue's lock and those of the cacher's resources are taken under it.
	mu       sync.Mutex
	graph    *graph
	position storage.Revision // the graph has every change up to it
	whole    bool             // the graph has the whole state
	doubts   []string         // keys to be queued when it's whole
	unproven map[*node]bool   // nodes that name an owner which can't be looked up
	waiting  map[*node]bool   // owners whose deletion waits for dependents
	spoiled  map[string]uid   // by key: the uids of objects that could be read once and can't be read any more
	left     []*node          // see unfinished
	counted  bool             // nothing has changed since left was made
}

func newCollector(c *Controllers) *collector {
	g := &collector{}
	g.queued = newQueued(c, GarbageCollector, c.keyed, g.work)
	g.begin()
	return g
}

func (c *collector) begin() {
	c.knowledge.Store(&knowledge{
		queue: c.queue, graph: newGraph(), unproven: map[*node]bool{}, waiting: map[*node]bool{}, spoiled: map[string]uid{},
	})
}

func (c *collector) forget() { c.begin() }

func (c *collector) complete() {
	k := c.knowledge.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	k.whole = true
	for _, key := range k.doubts {
		k.queue.add(key)
	}
	k.doubts = nil
}

// observe brings an object into the graph. Most objects cost a look at one flag: those that have no owner and aren't being
// deleted.
func (c *collector) observe(e *cacher.Event) {
	k := c.knowledge.Load()
	switch prev := e.Prev; {
	case e.Cur == nil:
		k.deleted(prev)
	case e.Cur.Err != nil: // nobody knows what it says now; its owners wait until it's deleted
		k.spoil(prev)
	case e.Cur.Owned() || e.Cur.DeletionTimestamp != "" || prev != nil && (prev.Owned() || prev.Err != nil):
		k.written(e, c.controllers.served())
	}
	if e.Prefix == definitionsPrefix {
		k.kindsChanged()
	}
}

// lookLocked queues an object about which there may be something to do.
func (k *knowledge) lookLocked(key string) {
	if k.whole {
		k.queue.add(key)
	} else {
		k.doubts = append(k.doubts, key)
	}
}

// deleted takes an object out of the graph, and has its dependents looked at.
func (k *knowledge) deleted(o *kube.Object) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counted = false
	u, spoiled := k.spoiled[o.Key]
	if spoiled {
		delete(k.spoiled, o.Key)
	} else {
		u = uidOf(o.Lineage().UID)
	}
	n := k.graph.nodes[u]
	if n == nil {
		return
	}
	k.setStateLocked(n, nodeGone)
	k.forsakeLocked(n)
	for e := range n.names() {
		k.lookLocked(e.dependent.key)
	}
	k.releaseLocked(n)
}

// spoil notes whose object can't be read from now on. prev is how it was before; nil if it never was in the graph.
func (k *knowledge) spoil(prev *kube.Object) {
	if prev == nil || prev.Err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spoiled[prev.Key] = uidOf(prev.Lineage().UID)
}

// written brings an object as it is now into the graph.
func (k *knowledge) written(e *cacher.Event, served *registry.Catalog) {
	o, l := e.Cur, lineageOf(e.Cur)
	if l.UID == "" {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counted = false
	k.position = max(k.position, o.Revision)
	delete(k.spoiled, o.Key)
	u := uidOf(l.UID)
	n := k.graph.nodes[u]
	known := n != nil && e.Prev != nil && e.Prev.Err == nil && slices.Equal(e.Prev.Lineage().Owners, l.Owners)
	if n == nil && len(l.Owners) > 0 {
		n = k.graph.ensure(u)
	}
	if n != nil {
		k.meetLocked(n, o, l)
		if !known {
			k.relinkLocked(n, o, l.Owners, served)
		}
		k.releaseLocked(n)
	}
	if o.DeletionTimestamp != "" && (l.asks(metav1.FinalizerDeleteDependents) || l.asks(metav1.FinalizerOrphanDependents)) {
		k.lookLocked(o.Key)
	}
}

// meetLocked notes where a node's object is and how far its deletion is.
func (k *knowledge) meetLocked(n *node, o *kube.Object, l *lineage) {
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
	k.setStateLocked(n, s)
}

// setStateLocked gives a node another state. If it begins to wait, its dependents are looked at.
func (k *knowledge) setStateLocked(n *node, s nodeState) {
	began := s & nodeWaiting &^ n.nodeState
	n.nodeState = s | n.nodeState&nodeUnproven
	if !n.is(nodeWaiting) {
		delete(k.waiting, n)
		return
	}
	k.waiting[n] = true
	if began != 0 {
		for e := range n.names() {
			k.lookLocked(e.dependent.key)
		}
	}
}

// forsakeLocked takes its owners from a node. An owner that waited for it alone is looked at.
func (k *knowledge) forsakeLocked(n *node) {
	n.nodeState &^= nodeUnproven
	delete(k.unproven, n)
	k.graph.unlink(n, k.lostLocked)
}

// lostLocked is told that a node has lost a dependent.
func (k *knowledge) lostLocked(owner *node) {
	if owner.is(nodeWaiting) && !owner.waitsFor() {
		k.lookLocked(owner.key)
	}
	k.releaseLocked(owner)
}

// releaseLocked forgets a node that says nothing any more.
func (k *knowledge) releaseLocked(n *node) {
	if k.graph.release(n) {
		delete(k.waiting, n)
	}
}

// relinkLocked gives a node its object's owners. The object is looked at if it may have to lose one.
func (k *knowledge) relinkLocked(n *node, o *kube.Object, owners []kube.Owner, served *registry.Catalog) {
	var before []*node
	n.nodeState &^= nodeUnproven
	delete(k.unproven, n)
	k.graph.unlink(n, func(owner *node) { before = append(before, owner) })
	doubt := false
	for _, ref := range owners {
		owner := k.graph.ensure(uidOf(ref.UID))
		var s edgeState
		if ref.Blocks {
			s = edgeBlocks
		}
		switch k.findLocked(owner, o, ref, served) {
		case there:
			s |= edgeValid
			doubt = doubt || owner.is(nodeWaiting)
		case unsure:
			n.nodeState |= nodeUnproven
			k.unproven[n] = true
			doubt = true
		case notThere:
			doubt = true
		}
		k.graph.link(n, owner, s)
	}
	if doubt {
		k.lookLocked(n.key)
	}
	for _, owner := range before {
		k.lostLocked(owner)
	}
}

// found is where the owner is that a reference names, as far as the cache knows.
type found int

const (
	there found = iota
	notThere
	unsure // its kind isn't served; or a cluster-scoped object names a namespaced one, and nobody can say which
)

// findLocked looks for an owner in the graph, then in the cache.
func (k *knowledge) findLocked(owner *node, dependent *kube.Object, ref kube.Owner, served *registry.Catalog) found {
	e := served.GroupKind(groupOf(ref), ref.Kind)
	if e == nil {
		return unsure
	}
	namespace, ok := ownerNamespace(e, dependent)
	if !ok {
		return unsure
	}
	if owner.key != "" && !owner.is(nodeGone) {
		if p, in, name, _ := storage.SplitKey(owner.key); p == e.Prefix() && in == namespace && name == ref.Name {
			return there
		}
		return notThere
	}
	o := e.Object(namespace, ref.Name)
	if o == nil || o.Err != nil {
		return notThere
	}
	if l := lineageOf(o); l.UID == ref.UID {
		k.meetLocked(owner, o, l)
		return there
	}
	return notThere
}

// groupOf returns the group of the owner that a reference names. Its version may be any.
func groupOf(ref kube.Owner) string {
	if group, _, grouped := strings.Cut(ref.APIVersion, "/"); grouped {
		return group
	}
	return "" // such as v1
}

// ownerNamespace returns the namespace of an owner of a dependent: the dependent's, or none. It isn't ok if the owner would
// be namespaced and the dependent isn't.
func ownerNamespace(e *registry.Endpoint, dependent *kube.Object) (namespace string, ok bool) {
	if !e.Namespaced {
		return "", true
	}
	namespace = dependent.Namespace()
	return namespace, namespace != ""
}

// kindsChanged has those objects looked at whose owners may be found now.
func (k *knowledge) kindsChanged() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for n := range k.unproven {
		k.lookLocked(n.key)
	}
}

// lineage is what the collector reads of an object.
type lineage struct{ kube.Lineage }

func lineageOf(o *kube.Object) *lineage { return &lineage{o.Lineage()} }

// asks tells whether the object has a finalizer.
func (l *lineage) asks(finalizer string) bool { return slices.Contains(l.Finalizers, finalizer) }

// idle tells whether nothing is left to do: nothing is queued, and owners wait only for what others' finalizers hold.
func (c *collector) idle() bool {
	if !c.queued.idle() {
		return false
	}
	k := c.knowledge.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.unfinishedLocked()) == 0
}

func (c *collector) pending(most int) []Pending {
	all := c.queued.pending(most)
	k := c.knowledge.Load()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, n := range k.unfinishedLocked() {
		if len(all) >= most {
			break
		}
		all = append(all, Pending{Object: c.controllers.keyed(n.key), Cause: n.waitsBecause()})
	}
	return all
}

// unfinishedLocked returns the owners that wait for dependents about which there is still something to do. The others wait, at
// last, only for objects that others' finalizers hold, or that are left alone because an owner of theirs can't be looked up.
// It goes up from those, over each edge once. So owners that wait for each other in a circle are unfinished. It's worked out
// anew when something has changed.
func (k *knowledge) unfinishedLocked() []*node {
	if k.counted {
		return k.left
	}
	k.left, k.counted = nil, true
	waits := map[*node]int{} // by owner: how many references there are from dependents that wait themselves
	var held []*node
	for n := range k.waiting {
		if !n.waitsFor() {
			continue
		}
		switch below, stuck := n.below(); {
		case !stuck:
			waits[n] = -1 // it never becomes held
		case below == 0:
			held = append(held, n)
		default:
			waits[n] = below
		}
	}
	for len(held) > 0 {
		n := held[len(held)-1]
		held = held[:len(held)-1]
		for e := range n.owners() {
			if o := e.owner; e.has(edgeBlocks|edgeValid) && waits[o] > 0 {
				if waits[o]--; waits[o] == 0 {
					delete(waits, o)
					held = append(held, o)
				}
			}
		}
	}
	for n := range waits {
		k.left = append(k.left, n)
	}
	return k.left
}

// below counts the references from dependents for which an owner waits and that wait themselves. stuck tells that there's
// nothing to do about any of the others.
func (n *node) below() (waiting int, stuck bool) {
	if n.is(nodeOrphaning) {
		return 0, false // its dependents lose their references
	}
	for e := range n.names() {
		switch d := e.dependent; {
		case !e.has(edgeBlocks | edgeValid):
		case !d.is(nodeDeleting):
			if !d.is(nodeUnproven) {
				return 0, false
			}
		case d.waitsFor():
			waiting++
		}
	}
	return waiting, true
}

// waitsBecause says for whom an owner waits.
func (n *node) waitsBecause() string {
	for e := range n.names() {
		if n.is(nodeOrphaning) || e.has(edgeValid|edgeBlocks) {
			return fmt.Sprintf("its deletion waits for dependents, %d that block it; one is %s", n.blocking, e.dependent.key)
		}
	}
	return "its deletion waits for dependents"
}
