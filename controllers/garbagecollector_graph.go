package controllers

import (
	"crypto/sha256"
	"iter"
	"strings"

	"github.com/google/uuid"
)

// graph is who owns whom, by uids. It has a node for each object that has owners, and for each uid that some object names
// as its owner. An object that has no owner and that nobody names has no node.
//
// An owned object takes some 130 bytes: a node, which has room for one owner, and its place in the map (see
// TestGraphMemory). Its key is the string that the cache has as well. A further owner takes 48 bytes.
//
// Nothing here is safe for concurrent use.
type graph struct {
	nodes map[uid]*node
	owned int // nodes that have an owner
}

// uid is an object's uid: the 16 bytes of a UUID. What isn't one, in the usual form, is hashed.
type uid [16]byte

func uidOf(text string) uid {
	const length = 36
	if len(text) == length && !strings.ContainsAny(text, "ABCDEF") {
		if u, err := uuid.Parse(text); err == nil {
			return uid(u)
		}
	}
	sum := sha256.Sum256([]byte(text))
	return uid(sum[:16])
}

// node is an object, or a uid that an object names.
type node struct {
	uid        uid
	key        string // where the object is stored, or was; "" as long as nobody has seen it
	first      edge   // to the first owner; its owner is nil for none
	further    *further
	dependents *edge  // the first of those that name this one as their owner, nil for none
	blocking   uint32 // how many of them block
	nodeState
}

// nodeState is what the collector knows of a node's object.
type nodeState uint8

const (
	nodeGone       nodeState = 1 << iota // it was there and has been deleted
	nodeDeleting                         // it has a deletionTimestamp
	nodeForeground                       // and waits until its dependents are deleted
	nodeOrphaning                        // and waits until its dependents have forgotten it
	nodeUnproven                         // it names an owner that couldn't be looked up

	// nodeWaiting are the states in which the collector lets an owner go once its dependents have gone.
	nodeWaiting = nodeForeground | nodeOrphaning
)

func (s nodeState) is(any nodeState) bool { return s&any != 0 }

// edge is one owner reference.
type edge struct {
	dependent, owner *node
	prev, next       *edge // among the owner's dependents
	edgeState
}

// edgeState is what the collector knows of a reference.
type edgeState uint8

const (
	edgeBlocks edgeState = 1 << iota // blockOwnerDeletion
	// edgeValid says that group, kind, namespace and name are those of the object with the uid. An owner that is deleted in
	// the foreground doesn't wait for other references.
	edgeValid
)

func (s edgeState) has(all edgeState) bool { return s&all == all }

// further is the edge to an owner that isn't the first one.
type further struct {
	edge
	next *further
}

func newGraph() *graph { return &graph{nodes: map[uid]*node{}} }

// ensure returns the node of a uid, a new one if there is none.
func (g *graph) ensure(u uid) *node {
	n := g.nodes[u]
	if n == nil {
		n = &node{uid: u}
		g.nodes[u] = n
	}
	return n
}

// owners yields the edges to a node's owners.
func (n *node) owners() iter.Seq[*edge] {
	return func(yield func(*edge) bool) {
		if n.first.owner == nil || !yield(&n.first) {
			return
		}
		for f := n.further; f != nil; f = f.next {
			if !yield(&f.edge) {
				return
			}
		}
	}
}

// names yields the edges from a node's dependents. The caller may unlink the edge that it was given.
func (n *node) names() iter.Seq[*edge] {
	return func(yield func(*edge) bool) {
		for e := n.dependents; e != nil; {
			next := e.next
			if !yield(e) {
				return
			}
			e = next
		}
	}
}

// waitsFor tells whether there is a dependent for which the owner's deletion waits.
func (n *node) waitsFor() bool {
	if n.is(nodeOrphaning) { // whoever names its uid loses the reference first
		return n.dependents != nil
	}
	return n.is(nodeForeground) && n.blocking > 0
}

// link adds an owner to a node.
func (g *graph) link(n, owner *node, s edgeState) {
	e := &n.first
	if e.owner == nil {
		g.owned++
	} else {
		f := &further{next: n.further}
		n.further, e = f, &f.edge
	}
	*e = edge{dependent: n, owner: owner, next: owner.dependents, edgeState: s}
	if e.next != nil {
		e.next.prev = e
	}
	owner.dependents = e
	if s.has(edgeBlocks | edgeValid) {
		owner.blocking++
	}
}

// unlink takes all its owners from a node, and calls left with each.
func (g *graph) unlink(n *node, left func(owner *node)) {
	if n.first.owner == nil {
		return
	}
	g.owned--
	first, rest := n.first, n.further
	n.first.detach()
	n.first, n.further = edge{}, nil
	left(first.owner)
	for ; rest != nil; rest = rest.next {
		rest.detach()
		left(rest.owner)
	}
}

// detach takes an edge out of the owner's list.
func (e *edge) detach() {
	if e.prev != nil {
		e.prev.next = e.next
	} else {
		e.owner.dependents = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	if e.has(edgeBlocks | edgeValid) {
		e.owner.blocking--
	}
}

// approve notes that a reference is valid.
func (e *edge) approve() {
	if e.has(edgeBlocks) && !e.has(edgeValid) {
		e.owner.blocking++
	}
	e.edgeState |= edgeValid
}

// release forgets a node that nobody names, and that has no owner.
func (g *graph) release(n *node) bool {
	if n.dependents != nil || n.first.owner != nil {
		return false
	}
	delete(g.nodes, n.uid)
	return true
}

// circle returns those dependents of a node that wait, over any number of others, until the node itself is deleted. All of
// them are deleted in the foreground. The way is up, from dependents to owners, of which an object has few.
//
// The object whose deletion closes a circle has a dependent in it that waits already. So the owners of an object without such
// a dependent aren't looked at: in a chain that is being deleted from its top they're all that are above it.
func (n *node) circle() (dependents []*node) {
	closes := false
	for e := range n.names() {
		if closes = e.has(edgeBlocks|edgeValid) && e.dependent.is(nodeForeground); closes {
			break
		}
	}
	if !closes {
		return nil
	}
	seen := map[*node]bool{n: true}
	for todo := []*node{n}; len(todo) > 0; {
		last := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for e := range last.owners() {
			switch {
			case !e.has(edgeBlocks | edgeValid):
			case e.owner == n:
				dependents = append(dependents, last)
			case e.owner.is(nodeForeground) && !seen[e.owner]:
				seen[e.owner] = true
				todo = append(todo, e.owner)
			}
		}
	}
	return dependents
}
