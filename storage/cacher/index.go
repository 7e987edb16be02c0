package cacher

import (
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// index finds the groups that an event may concern. Each group is under exactly one term of its selection,
// the first that it has of these: name, field equality, label equality (an "in" is under each of its values),
// equalities of any field (one of each alternative), namespace. A group without any is in rest, and one whose selection no
// object can meet is nowhere. So an event costs the groups that share a term with it, not all groups. Guarded by Resource.mu.
type index struct {
	names      terms
	fields     map[string]terms // by field, then value
	labels     map[string]terms // by label key, then value
	columns    map[string]columnTerms
	namespaces terms
	rest       set
}

// columnTerms are the terms of one column, by the keys of values.
type columnTerms struct {
	terms
	column *kube.Column
}

type (
	set   map[*group]struct{}
	terms map[string]set
)

func (t terms) add(value string, g *group) {
	s := t[value]
	if s == nil {
		s = set{}
		t[value] = s
	}
	s[g] = struct{}{}
}

func (t terms) remove(value string, g *group) {
	s := t[value]
	if delete(s, g); len(s) == 0 {
		delete(t, value)
	}
}

func newIndex() index {
	return index{names: terms{}, fields: map[string]terms{}, labels: map[string]terms{}, columns: map[string]columnTerms{}, namespaces: terms{}, rest: set{}}
}

func (x *index) add(g *group) { x.place(g, terms.add, func(s set) { s[g] = struct{}{} }) }

func (x *index) remove(g *group) { x.place(g, terms.remove, func(s set) { delete(s, g) }) }

// place calls at or rest, which add or remove, for the group's place in the index. The place depends on the group's
// selection alone, so remove finds what add has put there.
func (x *index) place(g *group, at func(terms, string, *group), rest func(set)) {
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
	if lookups, ok := g.selection.Equalities(); ok {
		x.placeInColumns(lookups, func(t terms, key string) { at(t, key, g) })
		return
	}
	rest(x.rest)
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

func visitAll(s set, visit func(*group)) {
	for g := range s {
		visit(g)
	}
}
