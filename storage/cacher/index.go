package cacher

import (
	"errors"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// index finds the groups that an event may concern. Each group is under exactly one term of its selection,
// the first that it has of these: name, field equality, label equality (an "in" is under each of its values),
// equalities of any field (one of each alternative), namespace. A group without any is in rest, and one whose selection no
// object can meet is nowhere. So an event costs the groups that share a term with it, not all groups. Guarded by Resource.mu.
//
// Bounds: maxCostly, maxColumns and maxColumnsOfOne.
type index struct {
	names      terms
	fields     map[string]terms // by field, then value
	labels     map[string]terms // by label key, then value
	columns    map[string]columnTerms
	namespaces terms
	rest       *set
}

const (
	// maxCostly is how many groups under one term may read the objects of events, because they select by any field or show some fields only. The feed
	// reads a KB for each of them in one or two microseconds, and so an event takes half a millisecond longer at most. Groups that are
	// found by a value of their own aren't under the same term.
	maxCostly = 256
	// maxColumns is by how many columns groups are found. The feed reads the two states of each event's object for each, in a microsecond or two.
	maxColumns = 64
	// maxColumnsOfOne is by how many columns one group is found. With more alternatives it's cheaper to try its selection.
	maxColumnsOfOne = 8
)

// ErrCrowded is returned by Open if a watch would make each event of the resource cost more than maxCostly and maxColumns let it.
var ErrCrowded = errors.New("too many watches of the resource select by any field or ask for some fields")

// columnTerms are the terms of one column, by the keys of values.
type columnTerms struct {
	terms
	column *kube.Column
}

// terms are the groups under each value.
type terms map[string]*set

// set is groups, of which so many are costly.
type set struct {
	groups map[*group]struct{}
	costly int
}

func newSet() *set { return &set{groups: map[*group]struct{}{}} }

// costs is what a group counts among those that are costly.
func (g *group) costs() int {
	if g.selection != nil || g.view.Projection != nil {
		return 1
	}
	return 0
}

// add adds a group, which may be there: two alternatives can have the same term.
func (s *set) add(g *group) {
	if _, had := s.groups[g]; !had {
		s.groups[g] = struct{}{}
		s.costly += g.costs()
	}
}

func (s *set) remove(g *group) {
	if _, had := s.groups[g]; had {
		delete(s.groups, g)
		s.costly -= g.costs()
	}
}

func (t terms) add(value string, g *group) {
	if t[value] == nil {
		t[value] = newSet()
	}
	t[value].add(g)
}

func (t terms) remove(value string, g *group) {
	s := t[value]
	if s == nil { // the group was under the value twice
		return
	}
	if s.remove(g); len(s.groups) == 0 {
		delete(t, value)
	}
}

func newIndex() index {
	return index{names: terms{}, fields: map[string]terms{}, labels: map[string]terms{}, columns: map[string]columnTerms{}, namespaces: terms{}, rest: newSet()}
}

// add adds a group. The error is ErrCrowded, and the group isn't there then.
func (x *index) add(g *group) error {
	x.place(g, terms.add, func(s *set) { s.add(g) })
	costly := 0
	if g.costs() > 0 {
		x.place(g, func(t terms, value string, _ *group) { costly = max(costly, t[value].costly) }, func(s *set) { costly = s.costly })
	}
	if costly <= maxCostly && len(x.columns) <= maxColumns {
		return nil
	}
	columns := len(x.columns)
	x.remove(g)
	if columns > maxColumns {
		return fmt.Errorf("%w: at most %d different fields may be compared with = or in by watches across namespaces", ErrCrowded, maxColumns)
	}
	return fmt.Errorf("%w: at most %d different selections and sets of fields may be looked at for one event", ErrCrowded, maxCostly)
}

func (x *index) remove(g *group) { x.place(g, terms.remove, func(s *set) { s.remove(g) }) }

// place calls at or rest, which add or remove, for the group's place in the index. The place depends on the group's
// selection alone, so remove finds what add has put there.
func (x *index) place(g *group, at func(terms, string, *group), rest func(*set)) {
	if g.selection.Never() {
		return
	}
	if g.name != "" {
		at(x.names, g.name, g)
		return
	}
	if field, value, ok := g.fieldSelector.Term(); ok {
		under(x.fields, field, func(t terms) { at(t, value, g) })
		return
	}
	if key, values, ok := g.labelSelector.Term(); ok {
		under(x.labels, key, func(t terms) {
			for _, v := range values {
				at(t, v, g)
			}
		})
		return
	}
	if g.namespace != "" { // before columns, which read each object of all namespaces
		at(x.namespaces, g.namespace, g)
		return
	}
	if lookups, ok := g.selection.Equalities(); ok && countColumns(lookups) <= maxColumnsOfOne {
		x.placeInColumns(lookups, func(t terms, key string) { at(t, key, g) })
		return
	}
	rest(x.rest)
}

// countColumns returns how many different columns lookups have.
func countColumns(lookups []kube.Lookup) int {
	names := map[string]bool{}
	for _, l := range lookups {
		names[l.Column.Name()] = true
	}
	return len(names)
}

// placeInColumns calls at for each value by which a group is found. A column that it leaves empty is removed.
func (x *index) placeInColumns(lookups []kube.Lookup, at func(t terms, key string)) {
	for _, l := range lookups {
		name := l.Column.Name()
		c, ok := x.columns[name]
		if !ok {
			c = columnTerms{terms{}, l.Column}
			x.columns[name] = c
		}
		for _, r := range l.Ranges {
			at(c.terms, r.From)
		}
		if len(c.terms) == 0 {
			delete(x.columns, name)
		}
	}
}

// under calls f with the terms of one key. They're made when they're missing, and removed when f leaves them empty.
func under(m map[string]terms, key string, f func(terms)) {
	t := m[key]
	if t == nil {
		t = terms{}
		m[key] = t
	}
	if f(t); len(t) == 0 {
		delete(m, key)
	}
}

// touch calls visit for each group that the event may concern. A group can be visited twice.
func (x *index) touch(e *watchEvent, visit func(*group)) {
	prev, cur := e.prev, e.cur
	one := cur // both have the same key, and so the same name and namespace
	if one == nil {
		one = prev
	}
	visitAll(x.names[one.Name()], visit)
	if len(x.namespaces) > 0 {
		visitAll(x.namespaces[one.Namespace()], visit)
	}
	for field, values := range x.fields {
		before, after := fieldOf(prev, field), fieldOf(cur, field)
		if prev != nil {
			visitAll(values[before], visit)
		}
		if cur != nil && (prev == nil || after != before) {
			visitAll(values[after], visit)
		}
	}
	if len(x.labels) > 0 {
		x.touchLabels(e, visit)
	}
	if len(x.columns) > 0 {
		x.touchColumns(e, visit)
	}
	visitAll(x.rest, visit)
}

func (x *index) touchLabels(e *watchEvent, visit func(*group)) {
	var before selectors.Set
	if e.prev != nil {
		before = e.prev.Labels
		for k, v := range before.All() {
			visitAll(x.labels[k][v], visit)
		}
	}
	if e.cur == nil {
		return
	}
	for k, v := range e.cur.Labels.All() {
		if was, had := before.Get(k); !had || was != v {
			visitAll(x.labels[k][v], visit)
		}
	}
}

// touchColumns visits the groups that are found by a value that the object has in any field, or had.
func (x *index) touchColumns(e *watchEvent, visit func(*group)) {
	var room [8]string // most objects have one value in a field
	for _, c := range x.columns {
		keys := room[:0]
		for _, o := range []*kube.Object{e.prev, e.cur} {
			if o != nil {
				keys = c.column.Keys(keys, o)
			}
		}
		for _, key := range keys {
			visitAll(c.terms[key], visit)
		}
	}
}

func fieldOf(o *kube.Object, field string) string {
	if o == nil || o.Err != nil {
		return ""
	}
	return o.Field(field)
}

func visitAll(s *set, visit func(*group)) {
	if s == nil {
		return
	}
	for g := range s.groups {
		visit(g)
	}
}
