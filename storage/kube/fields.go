package kube

import (
	"cmp"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
)

// Fields are the selectable fields of a resource whose values its objects carry: all besides name and namespace. They're
// immutable. Two with the same names are still different.
type Fields struct {
	names []string // each once
	paths fieldPaths
}

// fieldPaths are the paths of fields, by which an object's bytes are read once for all of them.
type fieldPaths struct {
	root fieldTree
	ends []int // by field, the place after those of its paths: it has several if there are bars in its name
}

// NewFields returns the fields of these names, such as "spec.color" or "reportingComponent|source.component". It leaves out
// metadata.name and metadata.namespace, which each object has in its key.
func NewFields(names []string) *Fields {
	names = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == fieldName || name == fieldNamespace })
	slices.Sort(names)
	names = slices.Compact(names)
	return &Fields{names, pathsOf(names)}
}

// pathsOf returns the paths of fields.
func pathsOf(names []string) (p fieldPaths) {
	place := 0
	for _, name := range names {
		for path := range strings.SplitSeq(name, "|") {
			p.root.add(path, place)
			place++
		}
		p.ends = append(p.ends, place)
	}
	return p
}

// The fields that are in an object's key.
const (
	fieldName      = "metadata.name"
	fieldNamespace = "metadata.namespace"
)

// Names returns the names of the fields, in the order of values. Nobody may change them.
func (f *Fields) Names() []string { return f.names }

// Find returns the place of a field among the values, -1 if it isn't there.
func (f *Fields) Find(name string) int {
	if f == nil {
		return -1
	}
	return slices.Index(f.names, name) // at most a handful
}

// Carry makes an object that nobody else has yet carry the values of the fields, and of no others. One with an Err carries none.
func (f *Fields) Carry(o *Object) {
	if o.fields == f {
		return
	}
	o.fields, o.values = nil, nil
	if len(f.names) > 0 && o.Err == nil {
		o.fields, o.values = f, f.paths.read(o.raw)
	}
}

// Carries tells whether the object carries the values of these very fields.
func (o *Object) Carries(f *Fields) bool { return o.fields == f }

// Values returns the values that the object carries, in the order of its fields' names.
func (o *Object) Values() []string { return o.values }

// Field returns the value of a field such as "spec.color", as field selectors compare it: the text
// of a string, number or bool, and "" for anything else and for an absent field. Of several, with bars between them, it's the first
// that isn't "". It implements selectors.Fields.
func (o *Object) Field(name string) string {
	switch name {
	case fieldName:
		return o.Name()
	case fieldNamespace:
		return o.Namespace()
	}
	if i := o.fields.Find(name); i >= 0 {
		return o.values[i]
	}
	if o.Err != nil {
		return ""
	}
	paths := pathsOf([]string{name})
	return paths.read(o.raw)[0]
}

// read returns the values of the fields in bytes of which scan has said that they're valid. Of several paths it's the first that
// isn't "".
func (p *fieldPaths) read(raw []byte) []string {
	places := 0
	if n := len(p.ends); n > 0 {
		places = p.ends[n-1]
	}
	texts := make([]string, places)
	p.root.read(&jsonscan.Scanner{Data: raw}, texts)
	first := 0
	for i, end := range p.ends {
		texts[i], first = cmp.Or(texts[first:end]...), end // which were read already, as each field has a path
	}
	return texts[:len(p.ends)]
}

type fieldTree struct {
	members []fieldMember // at most a handful
}

type fieldMember struct {
	name   string
	places []int     // of the text among those that are read; none if only members below are asked for
	below  fieldTree // without members if none are
}

// add adds a path, whose text is to have a place.
func (t *fieldTree) add(path string, place int) {
	for rest, more := path, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, ".")
		m := t.member(name)
		if !more {
			m.places = append(m.places, place)
		}
		t = &m.below
	}
}

// member returns the member of a name, which is added if it isn't there.
func (t *fieldTree) member(name string) *fieldMember {
	for i := range t.members {
		if t.members[i].name == name {
			return &t.members[i]
		}
	}
	t.members = append(t.members, fieldMember{name: name})
	return &t.members[len(t.members)-1]
}

// read puts the texts of an object's members into their places. Of members with the same name, the last one counts.
func (t *fieldTree) read(s *jsonscan.Scanner, texts []string) {
	s.Members(func(key []byte) {
		name := unquote(key)
		for i := range t.members {
			m := &t.members[i]
			if m.name != name {
				continue
			}
			m.clear(texts)
			if s.Peek() == '{' && len(m.below.members) > 0 {
				m.below.read(s, texts)
				return
			}
			text := scalar(s)
			for _, place := range m.places {
				texts[place] = text
			}
			return
		}
		s.Skip()
	})
}

// clear takes back what an earlier member of the same name has given.
func (m *fieldMember) clear(texts []string) {
	for _, place := range m.places {
		texts[place] = ""
	}
	for i := range m.below.members {
		m.below.members[i].clear(texts)
	}
}

// scalar reads one value, and returns its text; "" for null, a list or an object. The text shares nothing with the bytes,
// because indexes keep it.
func scalar(s *jsonscan.Scanner) string {
	switch s.Peek() {
	case '"':
		return string(s.Text())
	case '{', '[', 'n':
		s.Skip()
		return ""
	}
	return string(s.Skip())
}
