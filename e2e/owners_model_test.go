package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// owned is what a garbage collector leaves of objects that own each other, by Kubernetes' rules. The order in which it
// comes to them isn't given, and what is left may depend on it. So possible tells whether some order leads to a state.
type owned []ownedObject

// ownedObject is an object in the model. Its place in the slice is its name.
type ownedObject struct {
	there, deleting          bool
	held, foreground, orphan bool // by finalizers: one of others', and the garbage collector's two
	refs                     []ownerRef
	breaking                 []int // the dependents that are about to stop blocking the object, because they wait for it
}

// ownerRef is an owner reference.
type ownerRef struct {
	to     int // the object of the uid that the reference has, or -1
	is     refKind
	blocks bool
	text   string // the reference as the server has it, without blocks
}

type refKind int

const (
	good    refKind = iota
	missing         // no object is where it points, or one of another uid
	unknown         // nobody can say: a kind that isn't served, or a namespaced owner of a cluster-scoped object
)

// step is something that a client does.
type step struct {
	what   string // create, delete, hold, release, own
	object int
	policy string      // of a delete
	made   ownedObject // of a create
	refs   []ownerRef  // of own
}

func (w owned) clone() owned {
	c := slices.Clone(w)
	for i := range c {
		c[i].refs = slices.Clone(c[i].refs)
	}
	return c
}

// String is the state in one form. Objects that are gone aren't in it.
func (w owned) String() string {
	var b strings.Builder
	for i, o := range w {
		if !o.there {
			continue
		}
		var refs []string
		for _, r := range o.refs {
			refs = append(refs, fmt.Sprintf("%s blocks=%v", r.text, r.blocks))
		}
		slices.Sort(refs)
		fmt.Fprintf(&b, "%d deleting=%v held=%v foreground=%v orphan=%v owners=%q\n", i, o.deleting, o.held, o.foreground, o.orphan, refs)
	}
	return b.String()
}

// possible tells whether the steps, and all that the garbage collector does meanwhile and then, may lead from a state to
// another one.
func (w owned) possible(rng *rand.Rand, steps []step, to string) bool {
	const orders = 30_000
	for range orders {
		end := w.clone()
		end.play(rng, steps)
		if end.String() == to {
			return true
		}
	}
	return false
}

// play does the steps in their order and lets the garbage collector work between them, in a random order, until nothing is
// left to do.
func (w *owned) play(rng *rand.Rand, steps []step) {
	hurry := []float64{0.05, 0.3, 0.6, 0.9, 1}[rng.IntN(5)]
	for {
		if len(steps) > 0 && rng.Float64() < hurry {
			w.do(steps[0])
			steps = steps[1:]
			continue
		}
		worked := false
		for _, i := range rng.Perm(len(*w)) {
			if worked = w.work(i); worked {
				break
			}
		}
		switch {
		case worked:
		case len(steps) == 0:
			return
		default:
			w.do(steps[0])
			steps = steps[1:]
		}
	}
}

func (w *owned) do(s step) {
	if s.what == "create" {
		for len(*w) <= s.object {
			*w = append(*w, ownedObject{})
		}
		(*w)[s.object] = s.made
		(*w)[s.object].refs = slices.Clone(s.made.refs)
		return
	}
	o := &(*w)[s.object]
	if !o.there {
		return
	}
	switch s.what {
	case "delete":
		o.delete(s.policy)
	case "hold":
		o.held = o.held || !o.deleting
	case "release":
		o.held = false
		o.end()
	case "own":
		o.refs = slices.Clone(s.refs)
	}
}

func (o *ownedObject) delete(policy string) {
	switch policy {
	case "Foreground":
		o.foreground, o.orphan = true, false
	case "Orphan":
		o.foreground, o.orphan = false, true
	case "Background":
		o.foreground, o.orphan = false, false
	}
	o.deleting = true
	o.end()
}

// end removes an object that is being deleted and that nothing holds.
func (o *ownedObject) end() {
	if o.deleting && !o.held && !o.foreground && !o.orphan {
		o.there = false
	}
}

// work does what the garbage collector does about one object, and tells whether that was anything.
func (w owned) work(i int) bool {
	o := &w[i]
	if len(o.breaking) > 0 {
		w.unblock(i)
		return true
	}
	if !o.there {
		return false
	}
	worked := o.deleting && w.letGo(i)
	if !o.there {
		return true
	}
	var lost, left []ownerRef
	stays, leaves, waits := false, false, false
	unsure := w.unsure(i)
	for _, r := range o.refs {
		fate := w.fate(r)
		stays = stays || fate == "stays"
		leaves = leaves || fate == "leaves"
		waits = waits || fate == "waits"
		if fate == "leaves" || (fate == "absent" || fate == "waits") && !o.deleting && !unsure {
			lost = append(lost, r)
		} else {
			left = append(left, r)
		}
	}
	switch {
	case len(lost) == 0:
		return worked
	case stays || leaves:
		o.refs = left
	case waits && w.owns(i):
		o.delete("Foreground")
	default:
		o.delete("") // with the finalizers that it has
	}
	return true
}

// unsure tells whether an owner of an object can't be looked up. Only owners that leave it are then taken from it.
func (w owned) unsure(i int) bool {
	return slices.ContainsFunc(w[i].refs, func(r ownerRef) bool { return w.fate(r) == "unsure" })
}

// waitsForUnsure tells whether an object waits in the foreground for one that is left alone, because an owner of that one
// can't be looked up.
func (w owned) waitsForUnsure(i int) bool {
	above := map[int]bool{i: true}
	for todo := []int{i}; len(todo) > 0; todo = todo[1:] {
		for d, o := range w {
			blocks := slices.ContainsFunc(o.refs, func(r ownerRef) bool { return r.is == good && r.blocks && r.to == todo[0] })
			if !o.there || !blocks || above[d] {
				continue
			}
			if w.unsure(d) {
				return true
			}
			above[d] = true
			todo = append(todo, d)
		}
	}
	return false
}

// fate says what an owner means for its dependent.
func (w owned) fate(r ownerRef) string {
	if r.to >= 0 && w[r.to].there && w[r.to].deleting && w[r.to].orphan {
		return "leaves" // whoever names its uid, whatever else the reference says
	}
	if r.is == unknown {
		return "unsure"
	}
	if r.is == missing || !w[r.to].there {
		return "absent"
	}
	if owner := &w[r.to]; owner.deleting && owner.foreground {
		return "waits"
	}
	return "stays"
}

// owns tells whether an object names the uid of another as its owner's.
func (w owned) owns(i int) bool {
	return w.any(i, func(ownerRef) bool { return true })
}

// any tells whether one of the references to an object's uid fulfils a condition.
func (w owned) any(i int, holds func(r ownerRef) bool) bool {
	for d := range w {
		if w[d].there && slices.ContainsFunc(w[d].refs, func(r ownerRef) bool { return r.to == i && holds(r) }) {
			return true
		}
	}
	return false
}

// letGo ends an object's waiting, or breaks a circle.
func (w owned) letGo(i int) bool {
	o := &w[i]
	switch {
	case o.orphan && !w.owns(i):
		o.orphan = false
	case o.orphan:
		return false
	case o.foreground && !w.any(i, func(r ownerRef) bool { return r.is == good && r.blocks }):
		o.foreground = false
	case o.foreground:
		o.breaking = w.circle(i)
		return len(o.breaking) > 0
	default:
		return false
	}
	o.end()
	return true
}

// circle returns the dependents of an object that block it and wait for it themselves.
func (w owned) circle(i int) (members []int) {
	above := map[int]bool{i: true}
	for todo := []int{i}; len(todo) > 0; todo = todo[1:] {
		for _, r := range w[todo[0]].refs {
			switch {
			case r.is != good || !r.blocks || !w[r.to].there:
			case r.to == i:
				members = append(members, todo[0])
			case w[r.to].deleting && w[r.to].foreground && !w[r.to].orphan && !above[r.to]:
				above[r.to] = true
				todo = append(todo, r.to)
			}
		}
	}
	return members
}

// unblock makes one of the members of an object's circle not block the object any more. Others work between the moment
// when the circle is found and this write: two objects that wait for each other may each find it, and both be unblocked.
func (w owned) unblock(i int) {
	o := &w[i]
	dependent := &w[o.breaking[0]]
	o.breaking = o.breaking[1:]
	for n, r := range dependent.refs {
		if r.is == good && r.to == i {
			dependent.refs[n].blocks = false
		}
	}
}
