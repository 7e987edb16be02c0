package kube

import (
	"bytes"
	"cmp"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Where selects objects by any of their fields, and by shard. Its answer is of the stored bytes, which are gone through once, and of which nothing is
// made. Immutable; nil selects everything.
type Where struct {
	text         string // of both, canonical
	fields       string // the expression alone
	never        bool
	comparisons  []selectors.Comparison
	alternatives []alternative
	root         whereTree
	revision     whereTree // what is said of the resourceVersion, which isn't among the stored bytes
	shards       selectors.Shards
}

// alternative is comparisons that must all hold, and others that must not: bits by their places.
type alternative struct{ hold, fail uint64 }

// revisionPath is the field that the stored bytes don't have.
const revisionPath = "metadata.resourceVersion"

// NewWhere returns what selects by an expression, which must be resolved, and by shards. It's nil if both select everything.
func NewWhere(e selectors.Expression, shards selectors.Shards) *Where {
	if e.Empty() && shards.Empty() {
		return nil
	}
	w := &Where{text: e.String(), fields: e.String(), never: e.Never(), shards: shards}
	if !shards.Empty() {
		w.text += ";" + shards.String()
	}
	for _, all := range e.Alternatives() {
		var a alternative
		for _, c := range all {
			place := len(w.comparisons)
			w.comparisons = append(w.comparisons, c)
			if c.Not {
				a.fail |= 1 << place
			} else {
				a.hold |= 1 << place
			}
			root := &w.root
			if c.Path.String() == revisionPath {
				root = &w.revision
			}
			root.add(c.Path, place)
		}
		w.alternatives = append(w.alternatives, a)
	}
	return w
}

// String returns the canonical form: what selects the same prints the same. It's "" of nil.
func (w *Where) String() string {
	if w == nil {
		return ""
	}
	return w.text
}

// Parts returns the canonical forms of the expression and of the shards.
func (w *Where) Parts() (fields, shards string) {
	if w == nil {
		return "", ""
	}
	return w.fields, w.shards.String()
}

// Never tells whether no object can be selected.
func (w *Where) Never() bool { return w != nil && w.never }

// Matches tells whether an object is selected. One with an Err isn't, unless everything is. It doesn't allocate, unless a field is a text with escapes.
func (w *Where) Matches(o *Object) bool {
	switch {
	case w == nil:
		return true
	case w.never || o.Err != nil || !w.shards.Empty() && !w.inShards(o):
		return false
	case len(w.alternatives) == 0:
		return true
	}
	held := whereHeld{where: w}
	if len(w.root.members) > 0 {
		held.object(&jsonscan.Scanner{Data: o.raw}, &w.root, len(w.root.members))
	}
	if len(w.revision.members) > 0 {
		var room [20]byte // as many digits as a revision may have
		held.value(strconv.AppendInt(room[:0], int64(o.Revision), 10), w.revision.members[0].below.members[0].below.places)
	}
	for _, a := range w.alternatives {
		if held.bits&a.hold == a.hold && held.bits&a.fail == 0 {
			return true
		}
	}
	return false
}

// inShards tells whether the object is of one of the shards.
func (w *Where) inShards(o *Object) bool {
	if w.shards.Field() == fieldNamespace {
		return w.shards.Has([]byte(o.Namespace()))
	}
	in := false
	s := &jsonscan.Scanner{Data: o.raw, Pos: int(o.offsets.metadata.from)}
	s.Members(func(key []byte) {
		if string(key) != "uid" {
			s.Skip()
			return
		}
		in = w.shards.Has(s.Text())
		s.Pos = int(o.offsets.metadata.to) - 1 // its closing brace
	})
	return in
}

// whereTree is what is said of a value: of itself, of members of it, and of its elements.
type whereTree struct {
	places   []int // of the comparisons of the value itself
	members  []whereMember
	elements *whereTree
}

type whereMember struct {
	name  string
	below whereTree
}

// add adds the path of a comparison that has a place.
func (t *whereTree) add(path selectors.Path, place int) {
	for _, step := range path {
		if step.Elements {
			if t.elements == nil {
				t.elements = &whereTree{}
			}
			t = t.elements
			continue
		}
		i := slices.IndexFunc(t.members, func(m whereMember) bool { return m.name == step.Name })
		if i < 0 {
			i = len(t.members)
			t.members = append(t.members, whereMember{name: step.Name})
		}
		t = &t.members[i].below
	}
	t.places = append(t.places, place)
}

// whereHeld is which comparisons hold for a value of an object.
type whereHeld struct {
	where *Where
	bits  uint64
}

// skipToEnd goes to the brace that closes a document, of which nothing more is wanted.
func skipToEnd(s *jsonscan.Scanner) {
	if at := bytes.LastIndexByte(s.Data, '}'); at >= s.Pos {
		s.Pos = at
		return
	}
	s.End() // it has none: it's no object that anybody stored
}

// object reads an object of which something is said. After as many members of it as are wanted nothing more is read, if that isn't 0.
func (h *whereHeld) object(s *jsonscan.Scanner, t *whereTree, wanted int) {
	s.Members(func(key []byte) {
		if slices.Contains(key, '\\') {
			key = jsonscan.Unquote(key)
		}
		for i := range t.members {
			if m := &t.members[i]; m.name == string(key) {
				h.read(s, &m.below)
				if wanted--; wanted == 0 {
					skipToEnd(s)
				}
				return
			}
		}
		s.Skip()
	})
}

// read reads a value of which something is said.
func (h *whereHeld) read(s *jsonscan.Scanner, t *whereTree) {
	switch first := s.Peek(); {
	case first == 'n':
		s.Skip()
	case first == '{' && len(t.members) > 0:
		h.there(t.places)
		h.object(s, t, 0)
	case first == '[' && t.elements != nil:
		h.there(t.places)
		s.Elements(func() { h.read(s, t.elements) })
	case first == '{' || first == '[':
		h.there(t.places)
		s.Skip()
	case first == '"':
		h.value(s.Text(), t.places)
	default:
		h.value(s.Skip(), t.places)
	}
}

// there notes which comparisons hold because there is something.
func (h *whereHeld) there(places []int) {
	for _, place := range places {
		if h.where.comparisons[place].Op == selectors.Exists {
			h.bits |= 1 << place
		}
	}
}

// value notes which comparisons hold for a scalar.
func (h *whereHeld) value(text []byte, places []int) {
	if len(places) == 0 {
		return
	}
	var room [16]byte // as long as keys are that aren't of texts
	key, typed := text, true
	for _, place := range places { // all of one type
		if t := h.where.comparisons[place].Type; t != selectors.Text && t != selectors.IntOrText {
			key, typed = t.AppendKey(room[:0], text)
			break
		}
	}
	for _, place := range places {
		if c := &h.where.comparisons[place]; c.Op == selectors.Exists || typed && c.Holds(key) {
			h.bits |= 1 << place
		}
	}
}

// Lookup is how objects of one alternative of a Where are found by an index of a column: their keys are in one of the ranges. The object may
// have to be looked at still.
type Lookup struct {
	Column *Column
	Ranges []selectors.KeyRange
}

// Lookups returns one for each alternative, the best there is: an equality before a prefix before what is open. ok is false if an alternative has none.
func (w *Where) Lookups() (all []Lookup, ok bool) {
	return w.lookups(func(selectors.Op) bool { return true })
}

// Equalities is Lookups by nothing but values that a field must have.
func (w *Where) Equalities() (all []Lookup, ok bool) {
	return w.lookups(func(op selectors.Op) bool { return op == selectors.In })
}

func (w *Where) lookups(usable func(selectors.Op) bool) (all []Lookup, ok bool) {
	if w == nil || w.never || len(w.alternatives) == 0 {
		return nil, false
	}
	for _, a := range w.alternatives {
		var best *selectors.Comparison
		for left := a.hold; left != 0; left &= left - 1 {
			c := &w.comparisons[bits.TrailingZeros64(left)]
			if c.Op == selectors.Exists || !usable(c.Op) || c.Path.String() == revisionPath {
				continue
			}
			if best == nil || c.Op < best.Op {
				best = c
			}
		}
		if best == nil {
			return nil, false
		}
		ranges := best.Ranges()
		for i, r := range ranges {
			ranges[i].From = r.From[:min(len(r.From), maxColumnKey)]
			if len(r.To) > maxColumnKey {
				ranges[i].To = r.To[:maxColumnKey] + "\x00" // with the key that is cut off there
			}
		}
		all = append(all, Lookup{NewColumn(best.Path, best.Type), ranges})
	}
	return all, true
}

// Column reads one field of objects, or a label, as keys in the order of its values. Immutable.
type Column struct {
	label string // "": it's a field's

	typ      selectors.Type
	name     string
	revision bool
	root     whereTree
}

// NewColumn returns the column of a field of a type.
func NewColumn(path selectors.Path, t selectors.Type) *Column {
	c := &Column{typ: t, name: path.String() + " as " + t.String(), revision: path.String() == revisionPath}
	c.root.add(path, 0)
	return c
}

// MustColumn returns the column of a field as texts, whose path is part of the program, such as spec.ports[*].nodePort.
func MustColumn(path string) *Column {
	paths, err := selectors.ParsePaths(path)
	if err != nil {
		panic(err)
	}
	return NewColumn(paths[0], selectors.Text)
}

// NewLabelColumn returns the column of a label.
func NewLabelColumn(key string) *Column { return &Column{label: key, name: "label " + key} }

// Name returns the path of the field with its type, or the label. Columns with the same name are the same.
func (c *Column) Name() string { return c.name }

// maxColumnKey is how many bytes of a text are its key in a column: what differs later is found and has to be looked at, and sorts by the
// object's name. It bounds what an index and a sort take for each object.
const maxColumnKey = 256

// Keys appends the keys of the values that an object has in the field, which are several if the path leads through a list. The keys share
// nothing with the object. One with an Err has none.
func (c *Column) Keys(dst []string, o *Object) []string {
	if o.Err != nil {
		return dst
	}
	if c.label != "" {
		if value, ok := o.Labels.Get(c.label); ok {
			dst = append(dst, strings.Clone(value))
		}
		return dst
	}
	if c.revision {
		key, _ := c.typ.AppendKey(nil, strconv.AppendInt(nil, int64(o.Revision), 10))
		return append(dst, string(key))
	}
	c.read(&jsonscan.Scanner{Data: o.raw}, &c.root, func(text []byte) {
		var room [maxColumnKey]byte
		if c.typ == selectors.Text || c.typ == selectors.IntOrText {
			dst = append(dst, string(text[:min(len(text), maxColumnKey)]))
		} else if key, ok := c.typ.AppendKey(room[:0], text); ok {
			dst = append(dst, string(key))
		}
	})
	return dst
}

// Least returns the least key of an object's values, or the greatest. ok is false if there's no value.
func (c *Column) Least(o *Object, greatest bool) (key string, ok bool) {
	var room [8]string // most paths lead to one value
	for _, k := range c.Keys(room[:0], o) {
		if by := cmp.Compare(k, key); !ok || !greatest && by < 0 || greatest && by > 0 {
			key, ok = k, true
		}
	}
	return key, ok
}

// read calls give with each scalar that the column's path leads to.
func (c *Column) read(s *jsonscan.Scanner, t *whereTree, give func(text []byte)) {
	switch first := s.Peek(); {
	case first == '{' && len(t.members) > 0:
		s.Members(func(key []byte) {
			if slices.Contains(key, '\\') {
				key = jsonscan.Unquote(key)
			}
			if m := &t.members[0]; m.name == string(key) {
				if c.read(s, &m.below, give); t == &c.root {
					skipToEnd(s)
				}
				return
			}
			s.Skip()
		})
	case first == '[' && t.elements != nil:
		s.Elements(func() { c.read(s, t.elements, give) })
	case first == '{' || first == '[' || first == 'n' || len(t.places) == 0:
		s.Skip()
	case first == '"':
		give(s.Text())
	default:
		give(s.Skip())
	}
}
