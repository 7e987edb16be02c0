package reads

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// declared is what is known of a value: by a Go type or by a definition's schema.
type declared interface {
	// member returns what is known of a member; nil if there's none.
	member(name string) declared
	// names returns the names of members, sorted; those of a map aren't known.
	names() []string
	// elements returns what is known of a list's elements; nil if it's no list.
	elements() declared
	// scalar returns the type, Composite for what is no scalar.
	scalar() selectors.Type
}

// declaredRoot returns what is known of the endpoint's objects.
func (e Reader) declaredRoot() declared {
	if e.Typed != nil {
		return goValue{gotype.ValueOf(reflect.TypeOf(e.Typed.Zero))}
	}
	return customObject{customValue{e.structural()}}
}

// scalarType returns the type of what a schema says; either tells that it may be an integer or a text.
func scalarType(typ, format string, either bool) selectors.Type {
	switch {
	case either:
		return selectors.IntOrText
	case typ == "string" && format == "date-time":
		return selectors.Time
	case typ == "string":
		return selectors.Text
	case typ == "integer":
		return selectors.Integer
	case typ == "number":
		return selectors.Number
	case typ == "boolean":
		return selectors.Boolean
	}
	return selectors.Composite
}

// goValue is a value of a Go type.
type goValue struct{ gotype.Value }

func (v goValue) member(name string) declared {
	if m, ok := v.Member(name); ok {
		return goValue{m}
	}
	return nil
}

func (v goValue) names() []string { return v.Names() }

func (v goValue) elements() declared {
	if m, ok := v.Elements(); ok {
		return goValue{m}
	}
	return nil
}

func (v goValue) scalar() selectors.Type {
	s := v.Scalar()
	switch {
	case s == nil:
		return selectors.Composite
	case len(s.OneOf) > 0:
		return scalarType("", "", true)
	case len(s.Type) == 0:
		return selectors.Composite
	}
	return scalarType(s.Type[0], s.Format, false)
}

// customValue is a value of which a definition's schema says something; nil is one of which it says nothing.
type customValue struct{ *schema.Structural }

func (v customValue) member(name string) declared {
	if v.Structural == nil {
		return nil
	}
	if p, ok := v.Properties[name]; ok {
		return customValue{&p}
	}
	if a := v.AdditionalProperties; a != nil && (a.Structural != nil || a.Bool) {
		return customValue{a.Structural}
	}
	return nil
}

func (v customValue) names() []string {
	if v.Structural == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(v.Properties))
}

func (v customValue) elements() declared {
	if v.Structural == nil || v.Items == nil {
		return nil
	}
	return customValue{v.Items}
}

func (v customValue) scalar() selectors.Type {
	if v.Structural == nil {
		return selectors.Composite
	}
	format := ""
	if v.ValueValidation != nil {
		format = v.ValueValidation.Format
	}
	return scalarType(v.Type, format, v.XIntOrString)
}

// customObject is a whole custom resource, of which the schema needn't say what metadata is.
type customObject struct{ customValue }

func (o customObject) member(name string) declared {
	if name == "metadata" {
		return goValue{gotype.ValueOf(reflect.TypeFor[metav1.ObjectMeta]())}
	}
	return o.customValue.member(name)
}

func (o customObject) names() []string { return append(o.customValue.names(), "metadata") }

// find returns what is known of the field that a path leads to. The error is a Status 400 that names the nearest field. parameter is what has the
// path, and pos where.
func (e Reader) find(path selectors.Path, parameter string, pos int) (declared, error) {
	root := e.declaredRoot()
	at := root
	for i, step := range path {
		next := at.elements()
		if !step.Elements {
			next = at.member(step.Name)
		}
		if next == nil {
			return nil, registry.BadRequest("unable to parse %s: found %s at position %d, and %s have no field %s%s", parameter,
				clip.Text(path.String()), pos, e.GroupResource(), clip.Text(path[:i+1].String()), nearest(root, at, path, i))
		}
		at = next
	}
	return at, nil
}

// maxNamed is how many fields are compared with one that there isn't, so that a refusal costs about a millisecond.
const maxNamed = 512

// nearest says which field is nearest to a path of which step i leads nowhere from a value.
func nearest(root, at declared, path selectors.Path, i int) string {
	if at.elements() != nil && !path[i].Elements {
		return fmt.Sprintf("; it's in a list: write %s[*].%s", clip.Text(path[:i].String()), clip.Text(path[i].Name))
	}
	if i > 0 && at.scalar() != selectors.Composite && slices.IndexFunc(path, func(s selectors.Step) bool { return s.Elements }) < 0 {
		if of := parent(root, path, i); of != nil && len(of.names()) == 0 && of.elements() == nil { // a map, of which a name was taken apart
			name := path[i-1].Name
			for _, step := range path[i:] {
				name += "." + step.Name
			}
			return "; a name with dots is written as " + clip.Text(append(slices.Clone(path[:i-1]), selectors.Step{Name: name}).String())
		}
	}
	best, least := "", 1<<30
	offer := func(name, wanted string, text string) {
		if d := distance(name, wanted); d < least {
			best, least = text, d
		}
	}
	for _, name := range at.names() {
		if last := i == len(path)-1; !path[i].Elements && (!last || at.member(name).scalar() != selectors.Composite) {
			to := append(append(slices.Clone(path[:i]), selectors.Step{Name: name}), path[i+1:]...)
			if leads(root, to) {
				offer(name, path[i].Name, to.String())
			}
		}
	}
	if least > len(path[i].Name)/2 { // another place may be meant
		type place struct {
			value declared
			path  selectors.Path
		}
		wanted := clip.To(path.String(), maxCompared)
		for next, seen := []place{{root, nil}}, 0; len(next) > 0 && seen < maxNamed; next = next[1:] {
			for _, name := range next[0].value.names() {
				to := place{next[0].value.member(name), append(slices.Clone(next[0].path), selectors.Step{Name: name})}
				for to.value.elements() != nil {
					to.value, to.path = to.value.elements(), append(to.path, selectors.Step{Elements: true})
				}
				if seen++; to.value.scalar() != selectors.Composite {
					offer(to.path.String(), wanted, to.path.String())
				}
				next = append(next, to)
			}
		}
	}
	if best == "" {
		return ""
	}
	return "; the nearest is " + clip.Text(best)
}

// leads tells whether a path leads to a scalar.
func leads(at declared, path selectors.Path) bool {
	for _, step := range path {
		if step.Elements {
			at = at.elements()
		} else {
			at = at.member(step.Name)
		}
		if at == nil {
			return false
		}
	}
	return at.scalar() != selectors.Composite
}

// parent returns what is known of the value that step i-1 of a path is taken from.
func parent(at declared, path selectors.Path, i int) declared {
	for _, step := range path[:i-1] {
		if at = at.member(step.Name); at == nil {
			return nil
		}
	}
	return at
}

// maxCompared is how many bytes of a name are compared with others.
const maxCompared = 100

// distance is how many letters have to be changed, added or taken away to make one text of another.
func distance(a, b string) int {
	a, b = strings.ToLower(clip.To(a, maxCompared)), strings.ToLower(clip.To(b, maxCompared))
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
