package ruleset

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// checker checks the rules between two versions.
type checker struct {
	at       *field.Path
	versions [2]string
	schemas  [2]*structuralschema.Structural // nil: of a version that has no fields
	ends     [2]map[string]*rule             // what rules name, by path.key
	inner    [2]map[string]*rule             // what leads there
	lost     map[string]bool                 // fields that were complained of
	errs     field.ErrorList
}

// block reads and checks rules.
func (c *checker) block(texts []ruleText) (*block, field.ErrorList) {
	c.lost = map[string]bool{}
	for side := range c.ends {
		c.ends[side], c.inner[side] = map[string]*rule{}, map[string]*rule{}
	}
	var all []*rule
	for i := range texts {
		r, err := texts[i].rule(c.at.Child("rules").Index(i))
		if err == nil {
			err = c.checkPaths(r)
		}
		if err != nil {
			c.errs = append(c.errs, err)
			continue
		}
		all = append(all, r)
	}
	if len(c.errs) > 0 {
		return nil, c.errs
	}
	for _, r := range all {
		c.settle(r)
	}
	for side := range c.schemas {
		c.walk(side, nil, c.schemas[side], c.schemas[1-side])
	}
	b := &block{whole: true}
	for _, r := range all {
		b.add(r)
	}
	return b, c.errs
}

// checkPaths checks each path of a rule, and those of all rules against each other.
func (c *checker) checkPaths(r *rule) *field.Error {
	lists := r.anyPath()[:r.anyPath().lists()]
	for side, paths := range r.sides {
		for _, p := range paths {
			r.about[side] = append(r.about[side], p.String())
			at := r.at.Child(sideNames[side])
			s, err := c.find(side, p)
			if err != nil {
				return field.Invalid(at, p.String(), err.Error())
			}
			if !slices.Equal(p[:p.lists()], lists) {
				return field.Invalid(at, p.String(), "the fields of one rule must be in the same list, which is called the same in both versions")
			}
			kind := ""
			switch {
			case p.isAnnotation():
				kind = "string"
			case s != nil:
				kind = s.Type
			}
			r.types[side] = append(r.types[side], kind)
			if r.fills && s != nil && !takes(s, r.value) {
				return field.Invalid(r.at.Child("value"), r.value, fmt.Sprintf("%s of version %s doesn't take it", p, c.versions[side]))
			}
			if err := c.note(r, side, p); err != nil {
				return err
			}
		}
	}
	return c.checkTypes(r)
}

// checkTypes refuses fields that can't have what the rule makes.
func (c *checker) checkTypes(r *rule) *field.Error {
	if r.name != "split" && r.name != "join" && r.name != "map" {
		return nil
	}
	for side, types := range r.types {
		for i, kind := range types {
			part := r.name == "split" && side == second || r.name == "join" && side == first
			if kind != "" && kind != "string" && !(part && kind == "integer") {
				return field.Invalid(r.at.Child(sideNames[side]), r.sides[side][i].String(), fmt.Sprintf("is of type %s, and must be a string%s", kind, map[bool]string{true: " or an integer"}[part]))
			}
		}
	}
	return nil
}

// find returns the schema of a field; nil if it may be anything.
func (c *checker) find(side int, p path) (*structuralschema.Structural, error) {
	if p.isAnnotation() {
		if why := content.IsLabelKey(strings.ToLower(p[2])); len(why) > 0 {
			return nil, fmt.Errorf("an annotation can't be called so: %s", why[0])
		}
		return nil, nil
	}
	switch p[0] {
	case "metadata", "apiVersion", "kind":
		return nil, fmt.Errorf("rules may not touch it: of what isn't in the schema they have metadata.annotations[KEY] only")
	}
	s := c.schemas[side]
	for i, step := range p {
		next, open := inside(s, step)
		if next == nil && !open {
			return nil, fmt.Errorf("version %s has no %s", c.versions[side], p[:i+1])
		}
		if s = next; s == nil {
			return nil, nil
		}
	}
	return s, nil
}

// inside returns the schema of a field, key or item. open tells that something may be there that no schema describes.
func inside(s *structuralschema.Structural, step string) (next *structuralschema.Structural, open bool) {
	switch {
	case s == nil:
		return nil, false
	case step == each:
		return s.Items, s.Items == nil && s.XPreserveUnknownFields
	}
	if property, ok := s.Properties[step]; ok {
		return &property, false
	}
	if a := s.AdditionalProperties; a != nil {
		return a.Structural, a.Structural == nil && a.Bool
	}
	return nil, s.XPreserveUnknownFields
}

// note notes what a rule names, and refuses what another one names as well.
func (c *checker) note(r *rule, side int, p path) *field.Error {
	other := c.inner[side][p.key()]
	for end := 1; end <= len(p); end++ {
		other = cmp.Or(other, c.ends[side][p[:end].key()])
	}
	if other != nil {
		return field.Invalid(r.at.Child(sideNames[side]), p.String(), fmt.Sprintf("overlaps with %s, which is about %s of %s, too", other.at, other.where(side, p), c.versions[side]))
	}
	c.ends[side][p.key()] = r
	for end := 1; end < len(p); end++ {
		if k := p[:end].key(); c.inner[side][k] == nil {
			c.inner[side][k] = r
		}
	}
	return nil
}

// where returns that of a rule's paths which overlaps with one.
func (r *rule) where(side int, p path) path {
	for _, own := range r.sides[side] {
		n := min(len(own), len(p))
		if slices.Equal(own[:n], p[:n]) {
			return own
		}
	}
	return p
}

// settle decides what a default does on the way back: a field that both versions have stays.
func (c *checker) settle(r *rule) {
	if !r.fills {
		return
	}
	side := first
	if len(r.sides[first]) == 0 {
		side = second
	}
	p := r.sides[side][0]
	_, err := c.find(1-side, p)
	for end := 1; end <= len(p); end++ {
		if c.ends[1-side][p[:end].key()] != nil { // it goes elsewhere
			return
		}
	}
	r.keeps = err == nil && !p.isAnnotation()
}

// walk looks for what a version's schema keeps at a path and the other version loses. there is the schema of what is at the same path
// in the other version, nil if nothing is.
func (c *checker) walk(side int, at path, own, there *structuralschema.Structural) {
	if own == nil {
		return
	}
	if r := c.ends[side][at.key()]; r != nil && len(at) > 0 && !r.keeps {
		c.checkRule(side, r, own)
		return
	}
	if r := c.ends[1-side][at.key()]; r != nil && len(at) > 0 && !r.keeps {
		c.lose(side, at, fmt.Sprintf("%s puts something else in its place", r.at))
		return
	}
	within := c.inner[side][at.key()] != nil || len(at) == 0
	switch {
	case there == nil && !within:
		c.lose(side, at, "it isn't there")
		return
	case there != nil && !fits(own, there):
		c.lose(side, at, fmt.Sprintf("it's of type %s there, and %s here", typeOf(there), typeOf(own)))
		return
	}
	c.walkInside(side, at, own, there)
}

// walkInside is walk for what is in an object or list.
func (c *checker) walkInside(side int, at path, own, there *structuralschema.Structural) {
	if own.XPreserveUnknownFields && !keepsUnknown(there) {
		c.lose(side, at, "it keeps unknown fields, which aren't kept there")
		return
	}
	if own.XEmbeddedResource && !there.XEmbeddedResource && !keepsUnknown(there) {
		c.lose(side, at, "it's an embedded resource, whose apiVersion, kind and metadata aren't kept there")
		return
	}
	into := func(step string, s *structuralschema.Structural) {
		next, open := inside(there, step)
		if p := at.child(step); !open || c.ends[side][p.key()] != nil || c.ends[1-side][p.key()] != nil || c.inner[side][p.key()] != nil {
			c.walk(side, p, s, next)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own.Properties)) {
		if len(at) == 0 && (name == "metadata" || name == "apiVersion" || name == "kind") {
			continue
		}
		s := own.Properties[name]
		into(name, &s)
	}
	if a := own.AdditionalProperties; a != nil {
		const key = "*" // of a map
		next, open := inside(there, key)
		switch {
		case open:
		case next == nil:
			c.lose(side, at.child(key), "it has no keys of any name there")
		case a.Structural != nil:
			c.walk(side, at.child(key), a.Structural, next)
		}
	}
	if own.Items != nil {
		into(each, own.Items)
	}
}

// checkRule checks the field that a rule takes.
func (c *checker) checkRule(side int, r *rule, own *structuralschema.Structural) {
	switch {
	case r.whole && !r.sides[first][0].isAnnotation():
		// No rule names anything inside.
		to := r.sides[1-side][0]
		there, err := c.find(1-side, to)
		if err != nil || there == nil {
			return
		}
		inner := &checker{at: r.at, versions: c.versions, lost: map[string]bool{}}
		if !fits(own, there) {
			c.lose(side, r.sides[side][0], fmt.Sprintf("%s is of type %s, and this of type %s: use cel", to, typeOf(there), typeOf(own)))
			return
		}
		inner.walkInside(side, r.sides[side][0], own, there)
		c.errs = append(c.errs, inner.errs...)
	case r.by != nil:
		c.checkMap(side, r, own)
	}
}

// checkMap checks that what a map makes of the values that a schema lists is listed in the other one, and of one value each.
func (c *checker) checkMap(side int, r *rule, own *structuralschema.Structural) {
	there, err := c.find(1-side, r.sides[1-side][0])
	if err != nil || there == nil || own.ValueValidation == nil || len(own.ValueValidation.Enum) == 0 {
		return
	}
	by := r.by
	if side == second {
		by = map[string]string{}
		for from, to := range r.by {
			by[to] = from
		}
	}
	made := map[string]string{}
	for _, v := range own.ValueValidation.Enum {
		from, ok := v.Object.(string)
		if !ok {
			continue
		}
		to, mapped := by[from]
		if !mapped {
			to = from
		}
		if other, twice := made[to]; twice {
			c.lose(side, r.sides[side][0], fmt.Sprintf("%q and %q both become %q", other, from, to))
		}
		made[to] = from
		if !lists(there, to) {
			c.lose(side, r.sides[side][0], fmt.Sprintf("%q becomes %q, which %s doesn't take", from, to, r.sides[1-side][0]))
		}
	}
}

// takes tells whether a schema takes a value, as far as types and the values that it lists tell.
func takes(s *structuralschema.Structural, value any) bool {
	kind := ""
	switch v := value.(type) {
	case string:
		return lists(s, v) && fits(&structuralschema.Structural{Generic: structuralschema.Generic{Type: "string"}}, s)
	case bool:
		kind = "boolean"
	case int64:
		kind = "integer"
	case float64:
		return s.Type == "number" || s.Type == "" && !s.XIntOrString
	case []any:
		kind = "array"
	case map[string]any:
		kind = "object"
	}
	return fits(&structuralschema.Structural{Generic: structuralschema.Generic{Type: kind}}, s)
}

// lists tells whether a schema takes a value, by those that it lists.
func lists(s *structuralschema.Structural, value string) bool {
	if s.ValueValidation == nil || len(s.ValueValidation.Enum) == 0 {
		return true
	}
	return slices.ContainsFunc(s.ValueValidation.Enum, func(v structuralschema.JSON) bool { return v.Object == value })
}

// lose complains of a field that a version loses, once.
func (c *checker) lose(side int, p path, why string) {
	name := p.String()
	if len(p) == 0 {
		name = "the object"
	}
	if key := fmt.Sprint(side, name); !c.lost[key] {
		c.lost[key] = true
		c.errs = append(c.errs, field.Invalid(c.at, name, fmt.Sprintf("version %s has this field and would lose it in %s: %s", c.versions[side], c.versions[1-side], why)))
	}
}

// fits tells whether a field of one schema can have what one of another has, as far as types go.
func fits(own, there *structuralschema.Structural) bool {
	a, b := typeOf(own), typeOf(there)
	switch {
	case a == b, b == "":
		return true
	case there.XIntOrString:
		return a == "integer" || a == "string"
	}
	return a == "integer" && b == "number" || a == "number" && b == "integer"
}

func typeOf(s *structuralschema.Structural) string {
	if s.XIntOrString {
		return "integer or string"
	}
	return s.Type
}

// keepsUnknown tells whether a schema keeps fields that it doesn't have.
func keepsUnknown(s *structuralschema.Structural) bool {
	return s != nil && (s.XPreserveUnknownFields || s.AdditionalProperties != nil && s.AdditionalProperties.Structural == nil && s.AdditionalProperties.Bool)
}
