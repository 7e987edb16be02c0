package selectors

import (
	"cmp"
	"slices"
	"strings"
)

// Expression is a selector by any field: comparisons, of which those between two `||` must all hold, or those between two others. The zero
// value selects everything. It's immutable and cheap to copy.
type Expression struct {
	any   [][]Comparison // each sorted
	never bool           // it's resolved, and no object can meet it
}

// Comparison is what an expression says of one field. Not turns it around: what is said holds then for no value of the field, so also where
// there is none.
type Comparison struct {
	Path   Path
	Type   Type // once it's resolved
	Op     Op
	Not    bool
	values []operand // sorted, each once; of In at least one, of Exists none, else one
	pos    int
}

// Op is what a comparison asks of a value.
type Op uint8

// The operators.
const (
	Exists Op = iota
	In
	Prefix
	Greater
	GreaterOrEqual
	Less
	LessOrEqual
)

// operand is a value to compare with.
type operand struct {
	text string
	key  string // once it's resolved
	pos  int
}

// Empty reports whether the expression selects everything because it says nothing.
func (e Expression) Empty() bool { return len(e.any) == 0 }

// Never reports whether no object can meet the expression, of which it says two things that exclude each other. It's known of one that is
// resolved.
func (e Expression) Never() bool { return e.never }

// Alternatives returns the comparisons, of which all of one alternative must hold. The caller must not write to them.
func (e Expression) Alternatives() [][]Comparison { return e.any }

// Resolve returns the expression with each comparison as one of the field's type, in canonical form. typeOf is asked for the type of each path, and
// gets the position of it for its error, which is returned. Other errors are *ParseErrors: a value isn't of the type, or an operator doesn't go
// with it.
func (e Expression) Resolve(input string, typeOf func(path Path, pos int) (Type, error)) (Expression, error) {
	p := parser{input: input, what: "field selector"}
	var all, possible [][]Comparison
	for _, alternative := range e.any {
		resolved := make([]Comparison, len(alternative))
		for i, c := range alternative {
			t, err := typeOf(c.Path, c.pos)
			if err != nil {
				return Expression{}, err
			}
			if resolved[i], err = c.resolve(&p, t); err != nil {
				return Expression{}, err
			}
		}
		slices.SortFunc(resolved, compareComparisons)
		resolved = slices.CompactFunc(resolved, func(a, b Comparison) bool { return compareComparisons(a, b) == 0 })
		all = append(all, resolved)
		if !contradictory(resolved) {
			possible = append(possible, resolved)
		}
	}
	never := len(possible) == 0 && len(all) > 0
	if never {
		possible = all
	}
	compare := func(a, b []Comparison) int { return slices.CompareFunc(a, b, compareComparisons) }
	slices.SortFunc(possible, compare)
	possible = slices.CompactFunc(possible, func(a, b []Comparison) bool { return compare(a, b) == 0 })
	return Expression{possible, never}, nil
}

// resolve gives a comparison the type of its field.
func (c Comparison) resolve(p *parser, t Type) (Comparison, error) {
	c.Type = t
	wrong := func(what string) error {
		return p.fail(c.pos, "found a comparison of %s at position %d, which is %s: %s", quote(c.Path.String()), c.pos, t, what)
	}
	switch {
	case c.Op == Exists:
		return c, nil
	case t == Composite:
		return c, wrong("it can only be there, or not with '!' before it")
	case c.Op == Prefix && t != Text && t != IntOrText:
		return c, wrong("only a text has a beginning")
	case c.Op != In && c.Op != Prefix && !t.ordered():
		return c, wrong("it has no order, so it's compared with =, !=, in or notin")
	}
	values := make([]operand, len(c.values))
	for i, v := range c.values {
		key, ok := t.AppendKey(nil, []byte(v.text))
		if !ok {
			p.pos = v.pos
			return c, p.fail(v.pos, "found %s at position %d, expected %s", quote(v.text), v.pos, t)
		}
		values[i] = operand{t.canonical(v.text), string(key), v.pos}
	}
	slices.SortFunc(values, func(a, b operand) int { return cmp.Compare(a.key, b.key) })
	c.values = slices.CompactFunc(values, func(a, b operand) bool { return a.key == b.key })
	return c, nil
}

// contradictory tells whether no object can meet all comparisons, as far as those of one field show it, of which there's one value at most.
func contradictory(all []Comparison) bool {
	for i := range all {
		c := &all[i]
		if c.Not || slices.ContainsFunc(c.Path, func(s Step) bool { return s.Elements }) {
			continue
		}
		possible := c.Ranges()
		for j := range all {
			other := &all[j]
			switch {
			case !slices.Equal(other.Path, c.Path) || other.Op == Exists && !other.Not:
				continue
			case other.Op == Exists:
				return true // it's to be there, and not to be there
			case c.Op == In:
				possible = slices.DeleteFunc(slices.Clone(possible), func(r KeyRange) bool { return other.holds(r.From) == other.Not })
			case c.Op != Exists && !other.Not && other.Op != In:
				possible = overlap(possible, other.Ranges())
			}
			if c.Op != Exists && len(possible) == 0 {
				return true
			}
		}
	}
	return false
}

// overlap returns what of the ranges is in one of others, too.
func overlap(ranges, others []KeyRange) (both []KeyRange) {
	for _, a := range ranges {
		for _, b := range others {
			r := KeyRange{max(a.From, b.From), a.To}
			if r.To == "" || b.To != "" && b.To < r.To {
				r.To = b.To
			}
			if r.To == "" || r.From < r.To {
				both = append(both, r)
			}
		}
	}
	return both
}

// Holds tells whether a value of the field with a key is what the comparison asks for. It doesn't look at Not, and doesn't allocate.
func (c *Comparison) Holds(key []byte) bool {
	switch c.Op {
	case Exists:
		return true
	case In:
		low, high := 0, len(c.values)
		for low < high {
			if middle := int(uint(low+high) / 2); c.values[middle].key < string(key) {
				low = middle + 1
			} else {
				high = middle
			}
		}
		return low < len(c.values) && c.values[low].key == string(key)
	}
	with := c.values[0].key
	switch c.Op {
	case Prefix:
		return len(key) >= len(with) && string(key[:len(with)]) == with
	case Greater:
		return string(key) > with
	case GreaterOrEqual:
		return string(key) >= with
	case Less:
		return string(key) < with
	}
	return string(key) <= with
}

func (c *Comparison) holds(key string) bool { return c.Holds([]byte(key)) }

// Ranges returns in which ranges the key of a value must be so that the comparison holds; nil for Exists. It doesn't look at Not.
func (c *Comparison) Ranges() (ranges []KeyRange) {
	for _, v := range c.values {
		switch c.Op {
		case In:
			ranges = append(ranges, KeyRange{v.key, after(v.key)})
		case Prefix:
			ranges = append(ranges, KeyRange{v.key, afterPrefix(v.key)})
		case Greater:
			ranges = append(ranges, KeyRange{after(v.key), ""})
		case GreaterOrEqual:
			ranges = append(ranges, KeyRange{v.key, ""})
		case Less:
			ranges = append(ranges, KeyRange{"", v.key})
		case LessOrEqual:
			ranges = append(ranges, KeyRange{"", after(v.key)})
		}
	}
	return ranges
}

// Value returns the only value that a comparison for equality asks for. ok is false for another one.
func (c *Comparison) Value() (text string, ok bool) {
	if c.Op != In || c.Not || len(c.values) != 1 {
		return "", false
	}
	return c.values[0].text, true
}

// Names returns the paths of the fields that the expression is about, sorted, each once.
func (e Expression) Names() (names []string) {
	for _, alternative := range e.any {
		for _, c := range alternative {
			names = append(names, c.Path.String())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Exact returns the value that the field of a path must have for an object to be selected, if the expression says so in each alternative.
func (e Expression) Exact(path string) (value string, ok bool) {
	for i, alternative := range e.any {
		at := slices.IndexFunc(alternative, func(c Comparison) bool {
			text, exact := c.Value()
			return exact && c.Path.String() == path && (i == 0 || text == value)
		})
		if at < 0 {
			return "", false
		}
		value, ok = alternative[at].Value()
	}
	return value, ok
}

func compareComparisons(a, b Comparison) int {
	not := func(c Comparison) int {
		if c.Not {
			return 1
		}
		return 0
	}
	return cmp.Or(
		strings.Compare(a.Path.String(), b.Path.String()),
		cmp.Compare(a.Op, b.Op),
		cmp.Compare(not(a), not(b)),
		slices.CompareFunc(a.values, b.values, func(a, b operand) int { return strings.Compare(a.text, b.text) }),
	)
}

// String returns the canonical form, which ParseExpression understands as the same. Of one that is resolved all print the same that differ only in
// order, repetition and spelling. The zero value prints as the empty string.
func (e Expression) String() string {
	var b strings.Builder
	for i, alternative := range e.any {
		if i > 0 {
			b.WriteString("||")
		}
		for j, c := range alternative {
			if j > 0 {
				b.WriteByte(',')
			}
			c.print(&b)
		}
	}
	return b.String()
}

func (c *Comparison) print(b *strings.Builder) {
	if c.Op == Exists && c.Not {
		b.WriteByte('!')
	}
	b.WriteString(c.Path.String())
	if c.Op == Exists {
		return
	}
	list := len(c.values) > 1
	signs := [...]string{In: "=", Prefix: "^=", Greater: ">", GreaterOrEqual: ">=", Less: "<", LessOrEqual: "<="}
	switch {
	case list && c.Not:
		b.WriteString(" notin (")
	case list:
		b.WriteString(" in (")
	case c.Not:
		b.WriteString("!=")
	default:
		b.WriteString(signs[c.Op])
	}
	for i, v := range c.values {
		if i > 0 {
			b.WriteByte(',')
		}
		if v.text == "" || strings.ContainsAny(v.text, specials+"\t\r\n") {
			b.WriteString("'" + quoteEscaper.Replace(v.text) + "'")
		} else {
			b.WriteString(v.text)
		}
	}
	if list {
		b.WriteByte(')')
	}
}
