package ruleset

import (
	"context"
	"fmt"
	"slices"
	"sync"

	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Rules are those of one definition.
type Rules struct {
	group    string
	versions map[string]*version
}

// version is a place in the tree of versions.
type version struct {
	name   string
	up     *version // nil for the root
	depth  int
	pair   *block // the rules between up and this
	second bool   // this is the second version of the pair
}

// leaves is the direction from the version to the one above it.
func (v *version) leaves() direction {
	if v.second {
		return back
	}
	return forth
}

// Has tells whether the definition has a version.
func (r *Rules) Has(version string) bool { return r.versions[version] != nil }

// Group is the API group of the definition.
func (r *Rules) Group() string { return r.group }

// An Error says why an object can't be converted.
type Error struct {
	From, To string // versions, next to each other on the object's way
	Rule     string // where the annotation has it: [0].rules[2].map
	Field    string // the first one that the rule takes of From, or else that it puts into To
	Err      error
}

func (e *Error) Error() string {
	return fmt.Sprintf("conversion from %s to %s by %s: %v", e.From, e.To, e.Rule, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// Convert brings an object from one version to another, in place, and sets its apiVersion. Besides that it changes only what
// rules name. After an error, which is an *Error or ctx's, the object is neither.
func (r *Rules) Convert(ctx context.Context, object map[string]any, from, to string) error {
	a, b := r.versions[from], r.versions[to]
	if a == nil || b == nil {
		return fmt.Errorf("there is no conversion from %q to %q", from, to)
	}
	c := conversions.Get().(*conversion)
	defer conversions.Put(c)
	c.ctx, c.budget = ctx, celconfig.RuntimeCELCostBudget
	defer c.forget()
	if err := c.walk(object, a, b); err != nil {
		return err
	}
	object["apiVersion"] = r.group + "/" + to
	return nil
}

// conversion is that of one object.
type conversion struct {
	ctx    context.Context
	budget int64  // what is left for expressions, in apiserver's units
	from   string // of the step that is under way
	to     string
	made   int // about how many bytes of it rules have made; at most maxMade

	values []any // on their way between two places, of the object and of those around it
}

// maxMade bounds what rules make of one object, in bytes of memory. A default, a name or a text for each item of a list, and what an expression
// has many times, could be gigabytes.
const maxMade = 16 << 20

// What values take in memory, about, in bytes.
const (
	mapSize   = 320 // a map with a field
	valueSize = 48  // a value in a map or a list, an empty one as well
)

// sizeOf is about how many bytes of memory a value takes.
func sizeOf(v any) int {
	size := valueSize
	switch v := v.(type) {
	case string:
		size += len(v)
	case []any:
		for _, item := range v {
			size += sizeOf(item)
		}
	case map[string]any:
		if len(v) > 0 {
			size += mapSize
		}
		for name, member := range v {
			size += len(name) + sizeOf(member)
		}
	}
	return size
}

// grow counts what rules make.
func (c *conversion) grow(size int) error {
	if c.made += size; c.made > maxMade {
		return fmt.Errorf("the rules make more than %d bytes of the object", maxMade)
	}
	return nil
}

// conversions holds *conversion, for their values. They have forgotten everything.
var conversions = sync.Pool{New: func() any { return &conversion{values: make([]any, 0, pooledValues)} }}

// pooledValues is how many values there's room for without an allocation.
const pooledValues = 128

func (c *conversion) forget() {
	clear(c.values[:cap(c.values)])
	*c = conversion{values: c.values[:0]}
}

// room returns room for values, until it's given back.
func (c *conversion) room(n int) (values []any) {
	used := len(c.values)
	if used+n > cap(c.values) {
		return make([]any, n)
	}
	c.values = c.values[:used+n]
	return c.values[used : used+n : used+n]
}

// giveBack gives back all values but so many.
func (c *conversion) giveBack(used int) { c.values = c.values[:used] }

// walk goes from a version to another through the tree.
func (c *conversion) walk(object map[string]any, a, b *version) error {
	switch {
	case a == b:
		return nil
	case a.depth >= b.depth:
		if err := c.step(object, a.pair, a.leaves(), a.name, a.up.name); err != nil {
			return err
		}
		return c.walk(object, a.up, b)
	}
	if err := c.walk(object, a, b.up); err != nil {
		return err
	}
	return c.step(object, b.pair, 1-b.leaves(), b.up.name, b.name)
}

// step goes from a version to one next to it.
func (c *conversion) step(object map[string]any, rules *block, d direction, from, to string) error {
	c.from, c.to = from, to
	return rules.run(c, object, d)
}

// block is the rules for one object: a whole one, or an item of a list.
type block struct {
	rules []*rule
	lists []list
	whole bool // it's a whole object's, which has annotations
	room  int  // how many values the rules take and make
	size  int  // how many bytes they can make besides what they take
}

// list has the rules for the items of a list.
type list struct {
	at    path
	items *block
}

// add sorts a rule in. Its paths go through the same lists.
func (b *block) add(r *rule) {
	if of := r.anyPath(); of.lists() > 0 {
		end := slices.Index(of, each)
		items := b.itemsOf(of[:end])
		for _, paths := range r.sides {
			for i := range paths {
				paths[i] = paths[i][end+1:]
			}
		}
		items.add(r)
		return
	}
	b.rules = append(b.rules, r)
	b.room += len(r.sides[first]) + len(r.sides[second])
	b.size += r.size()
}

// itemsOf returns the rules for the items of a list.
func (b *block) itemsOf(at path) *block {
	for _, l := range b.lists {
		if slices.Equal(l.at, at) {
			return l.items
		}
	}
	b.lists = append(b.lists, list{at: at, items: &block{}})
	return b.lists[len(b.lists)-1].items
}

// run converts one object. First comes what needs all of it as it was, then the items of lists, then what is taken and put.
func (b *block) run(c *conversion, object map[string]any, d direction) error {
	if err := c.grow(b.size); err != nil && len(b.rules) > 0 {
		return b.rules[0].failed(c, d, err)
	}
	defer c.giveBack(len(c.values))
	values := c.room(b.room)
	if err := b.foresee(c, object, values, d); err != nil {
		return err
	}
	for _, l := range b.lists {
		items, _ := l.at.get(object).([]any)
		for _, item := range items {
			if item, ok := item.(map[string]any); ok {
				if err := l.items.run(c, item, d); err != nil {
					return err
				}
			}
		}
	}
	emptied := b.take(object, values, d)
	if err := b.put(c, object, values, d); err != nil {
		return err
	}
	for _, p := range emptied {
		p.tidy(object)
	}
	return nil
}

// foresee has the rules make values that need the object as it was.
func (b *block) foresee(c *conversion, object map[string]any, values []any, d direction) error {
	for _, r := range b.rules {
		in, out, rest := r.slots(values, d)
		values = rest
		if !r.early {
			continue
		}
		for i, p := range r.sides[d] {
			in[i] = p.get(object)
		}
		if err := r.convert(c, d, object, in, out); err != nil {
			return err
		}
	}
	return nil
}

// take takes out what the rules name. emptied are paths of what was the last in its object.
func (b *block) take(object map[string]any, values []any, d direction) (emptied []path) {
	for _, r := range b.rules {
		in, _, rest := r.slots(values, d)
		values = rest
		if r.keeps {
			continue
		}
		for i, p := range r.sides[d] {
			last := false
			if in[i], last = p.take(object); last && len(p) > 1 {
				emptied = append(emptied, p)
			}
		}
	}
	return emptied
}

// put puts in what the rules make of that.
func (b *block) put(c *conversion, object map[string]any, values []any, d direction) error {
	for _, r := range b.rules {
		in, out, rest := r.slots(values, d)
		values = rest
		if !r.early {
			if err := r.convert(c, d, nil, in, out); err != nil {
				return err
			}
		}
		for i, p := range r.sides[1-d] {
			if out[i] == absent || r.fills && p.get(object) != absent {
				continue
			}
			if _, text := out[i].(string); !text && b.whole && p.isAnnotation() {
				return r.failed(c, d, fmt.Errorf("%s must be text, and would be %s", p, kindOf(out[i])))
			}
			made, err := p.put(object, out[i])
			if err == nil {
				err = c.grow(made * mapSize)
			}
			if err != nil {
				return r.failed(c, d, err)
			}
		}
	}
	return nil
}
