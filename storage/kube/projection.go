package kube

import (
	"bytes"
	"slices"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// Projection is some fields of objects. Those are always among them by which an object is known: apiVersion, kind, and of metadata name, namespace
// and resourceVersion. Immutable.
type Projection struct{ root projectionTree }

// known are the paths that every projection has.
var known = []selectors.Path{
	{{Name: "apiVersion"}}, {{Name: "kind"}}, {{Name: "metadata"}, {Name: "name"}}, {{Name: "metadata"}, {Name: "namespace"}}, {{Name: "metadata"}, {Name: "resourceVersion"}},
}

// NewProjection returns the projection on what paths lead to.
func NewProjection(paths []selectors.Path) *Projection {
	p := &Projection{}
	for _, path := range slices.Concat(known, paths) {
		p.root.add(path)
	}
	return p
}

// View returns a view that shows of objects what a view of JSON does, but for the fields that the projection leaves out.
func (p *Projection) View(of *View) *View {
	whole, projected := *of, *of
	whole.ServerSent = false
	projected.Projection = p
	projected.Render = func(dst []byte, o *Object) []byte {
		if o.Name() == "" { // a bookmark, which may say something in an annotation
			return whole.Append(dst, o)
		}
		pooled := projections.Get().(*[]byte)
		defer projections.Put(pooled)
		*pooled = whole.Append((*pooled)[:0], o)
		return p.Append(dst, *pooled)
	}
	return &projected
}

// projections holds *[]byte, in which objects are put together that are then projected. The garbage collector bounds it.
var projections = sync.Pool{New: func() any { return new([]byte) }}

// Append appends what a document of JSON has in the projection's fields.
func (p *Projection) Append(dst, document []byte) []byte {
	dst, _ = p.root.append(dst, &jsonscan.Scanner{Data: document})
	return dst
}

// Unchanged tells whether the view is one of a projection that shows the same of two states of an object, but for the resourceVersion. Objects that have to
// be converted first count as changed.
func (v *View) Unchanged(prev, cur *Object) bool {
	if v.Projection == nil {
		return false
	}
	if c := v.Conversion; c != nil && c.Needed != nil && (c.Needed(prev) || c.Needed(cur)) {
		return false
	}
	was, is := projections.Get().(*[]byte), projections.Get().(*[]byte)
	defer projections.Put(was)
	defer projections.Put(is)
	*was, *is = v.Projection.Append((*was)[:0], prev.raw), v.Projection.Append((*is)[:0], cur.raw)
	return bytes.Equal(*was, *is)
}

// projectionTree is what is wanted of a value.
type projectionTree struct {
	all      bool
	members  []projectionMember
	elements *projectionTree
}

type projectionMember struct {
	name  string
	below *projectionTree
}

func (t *projectionTree) add(path selectors.Path) {
	for _, step := range path {
		if step.Elements {
			if t.elements == nil {
				t.elements = &projectionTree{}
			}
			t = t.elements
			continue
		}
		i := slices.IndexFunc(t.members, func(m projectionMember) bool { return m.name == step.Name })
		if i < 0 {
			i = len(t.members)
			t.members = append(t.members, projectionMember{step.Name, &projectionTree{}})
		}
		t = t.members[i].below
	}
	t.all = true
}

// append appends what is wanted of the value that comes next. ok is false if that is nothing.
func (t *projectionTree) append(dst []byte, s *jsonscan.Scanner) (out []byte, ok bool) {
	switch first := s.Peek(); {
	case t.all:
		return append(dst, s.Skip()...), true
	case first == '{' && len(t.members) > 0:
		return t.appendMembers(dst, s), true
	case first == '[' && t.elements != nil:
		dst = append(dst, '[')
		begin := len(dst)
		s.Elements(func() { dst, _ = t.elements.appendAfter(dst, begin, nil, s) })
		return append(dst, ']'), true
	}
	s.Skip()
	return dst, false
}

// appendMembers appends the wanted members of an object.
func (t *projectionTree) appendMembers(dst []byte, s *jsonscan.Scanner) []byte {
	dst = append(dst, '{')
	begin := len(dst)
	s.Members(func(key []byte) {
		name := jsonscan.Unquote(key)
		for _, m := range t.members {
			if m.name == string(name) {
				dst, _ = m.below.appendAfter(dst, begin, key, s)
				return
			}
		}
		s.Skip()
	})
	return append(dst, '}')
}

// appendAfter appends a value with a comma before it, unless it's the first since begin, and with a name, unless that is nil. Nothing is appended if nothing
// of the value is wanted.
func (t *projectionTree) appendAfter(dst []byte, begin int, name []byte, s *jsonscan.Scanner) (out []byte, ok bool) {
	before := len(dst)
	if before > begin {
		dst = append(dst, ',')
	}
	if name != nil {
		dst = append(append(append(dst, '"'), name...), '"', ':')
	}
	if out, ok = t.append(dst, s); !ok {
		return out[:before], false
	}
	return out, true
}
