package controllers

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/google/uuid"
)

func TestUIDOf(t *testing.T) {
	const usual = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
	if got := uidOf(usual); uuid.UUID(got).String() != usual {
		t.Errorf("the uid of %s is %x", usual, got)
	}
	seen := map[uid]string{}
	for _, text := range []string{usual, "6BA7B810-9DAD-11D1-80B4-00C04FD430C8", "{6ba7b810-9dad-11d1-80b4-00c04fd430c8}",
		"6ba7b8109dad11d180b400c04fd430c8", "urn:uuid:6ba7b810-9dad-11d1-80b4-00c04fd430c8", "", "u", "6ba7b810-9dad-11d1-80b4-00c04fd430cx"} {
		u := uidOf(text)
		if other, twice := seen[u]; twice {
			t.Errorf("%q and %q are one uid", text, other)
		}
		seen[u] = text
	}
}

// An object that is owned takes less than 150 bytes, its key aside, which the cache has as well.
func TestGraphMemory(t *testing.T) {
	if size := unsafe.Sizeof(node{}); size > 96 {
		t.Errorf("a node has %d bytes, and the allocator's next size is 112", size)
	}
	const owners, each, bound = 1000, 100, 150
	uids := make([]uid, 0, owners*(each+1))
	for range cap(uids) {
		uids = append(uids, uid(uuid.New()))
	}
	key := "/registry/example.com/widgets/default/a"
	before := heap()
	g := newGraph()
	fill(g, uids, each, key)
	taken := heap() - before
	if got := taken / (owners * each); got >= bound {
		t.Errorf("an owned object takes %d bytes, want less than %d", got, bound)
	} else {
		t.Logf("%d bytes for each of %d owned objects", got, g.owned)
	}
	runtime.KeepAlive(uids)
	runtime.KeepAlive(g)
}

// fill makes each of the first uids the owner of some of the others.
func fill(g *graph, uids []uid, each int, key string) {
	owners := len(uids) / (each + 1)
	for i, u := range uids[owners:] {
		n := g.ensure(u)
		n.key = key
		g.link(n, g.ensure(uids[i/each]), edgeBlocks|edgeValid)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// Random links and unlinks leave a graph that says the same as plain maps do.
func TestGraphModel(t *testing.T) {
	type link struct {
		owner int
		edgeState
	}
	const size, steps = 12, 20_000
	rng := rand.New(rand.NewPCG(1, 2))
	g := newGraph()
	model := make([][]link, size)
	name := func(i int) uid { return uidOf(fmt.Sprint(i)) }
	for step := range steps {
		i := rng.IntN(size)
		if n := g.nodes[name(i)]; n != nil {
			g.unlink(n, func(owner *node) { g.release(owner) })
			g.release(n)
		}
		model[i] = nil
		for range rng.IntN(4) {
			l := link{rng.IntN(size), edgeState(rng.IntN(4))}
			model[i] = append(model[i], l)
			n := g.ensure(name(i))
			g.link(n, g.ensure(name(l.owner)), l.edgeState)
		}
		owned, nodes := 0, map[int]bool{}
		blocking, named := make([]int, size), make([][]int, size)
		for d, links := range model {
			if len(links) > 0 {
				owned++
				nodes[d] = true
			}
			for _, l := range links {
				nodes[l.owner] = true
				named[l.owner] = append(named[l.owner], d)
				if l.has(edgeBlocks | edgeValid) {
					blocking[l.owner]++
				}
			}
		}
		if len(g.nodes) != len(nodes) || g.owned != owned {
			t.Fatalf("step %d: %d nodes, %d owned, want %d and %d", step, len(g.nodes), g.owned, len(nodes), owned)
		}
		for i := range nodes {
			n := g.nodes[name(i)]
			if n == nil || int(n.blocking) != blocking[i] {
				t.Fatalf("step %d: node %d is %+v, want %d that block", step, i, n, blocking[i])
			}
			var dependents []int
			for e := range n.names() {
				for d := range model {
					if g.nodes[name(d)] == e.dependent {
						dependents = append(dependents, d)
					}
				}
			}
			slices.Sort(dependents)
			if !slices.Equal(dependents, named[i]) {
				t.Fatalf("step %d: the dependents of %d are %v, want %v", step, i, dependents, named[i])
			}
			var owners, want []edgeState
			for e := range n.owners() {
				owners = append(owners, e.edgeState)
			}
			for _, l := range model[i] {
				want = append(want, l.edgeState)
			}
			slices.Sort(owners)
			slices.Sort(want)
			if !slices.Equal(owners, want) {
				t.Fatalf("step %d: the references of %d are %v, want %v", step, i, owners, want)
			}
		}
	}
}

func TestCircle(t *testing.T) {
	for _, c := range []struct {
		name  string
		edges [][2]string // dependent, owner
		still string      // nodes that aren't deleted in the foreground
		want  []string    // those that n waits for and that wait for n
	}{
		{"nothing", nil, "", nil},
		{"a line", [][2]string{{"a", "n"}, {"b", "a"}, {"n", "c"}}, "", nil},
		{"itself", [][2]string{{"n", "n"}}, "", []string{"n"}},
		{"two", [][2]string{{"a", "n"}, {"n", "a"}}, "", []string{"a"}},
		{"three", [][2]string{{"a", "n"}, {"b", "a"}, {"n", "b"}}, "", []string{"a"}},
		{"two circles", [][2]string{{"a", "n"}, {"n", "a"}, {"b", "n"}, {"n", "b"}, {"c", "n"}}, "", []string{"a", "b"}},
		{"a circle of others", [][2]string{{"a", "b"}, {"b", "a"}, {"n", "a"}}, "", nil},
		{"broken by one that isn't being deleted", [][2]string{{"a", "n"}, {"b", "a"}, {"n", "b"}}, "b", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newGraph()
			n := g.ensure(uidOf("n"))
			for _, e := range c.edges {
				for _, name := range e {
					g.ensure(uidOf(name)).key = name
				}
				g.link(g.ensure(uidOf(e[0])), g.ensure(uidOf(e[1])), edgeBlocks|edgeValid)
			}
			for _, n := range g.nodes {
				if n.key != c.still {
					n.nodeState |= nodeDeleting | nodeForeground
				}
			}
			var got []string
			for _, d := range n.circle() {
				got = append(got, d.key)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("waits in a circle for %v, want %v", got, c.want)
			}
		})
	}
}

// What the deletion of an owner costs, with its ten dependents: as much in a graph of 100,000 objects as in one of 1,000.
func BenchmarkGraphDelete(b *testing.B) {
	const each = 10
	for _, owners := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("owned=%d", owners*each), func(b *testing.B) {
			uids := make([]uid, 0, owners*(each+1))
			for range cap(uids) {
				uids = append(uids, uid(uuid.New()))
			}
			g := newGraph()
			fill(g, uids, each, "k")
			b.ReportAllocs()
			for i := 0; b.Loop(); i = (i + 1) % owners {
				owner := g.nodes[uids[i]]
				var dependents []*node
				for e := range owner.names() {
					dependents = append(dependents, e.dependent)
				}
				for _, n := range dependents {
					g.unlink(n, func(owner *node) { g.release(owner) })
					g.release(n)
				}
				for j := range each { // for the next round
					n := g.ensure(uids[owners+i*each+j])
					g.link(n, g.ensure(uids[i]), edgeBlocks|edgeValid)
				}
			}
		})
	}
}
