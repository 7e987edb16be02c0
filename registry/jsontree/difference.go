package jsontree

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Operation is one of a JSON patch (RFC 6902): add, remove or replace.
type Operation struct {
	Op, Path string
	Value    any // a tree; means nothing for remove
}

// MarshalJSON returns the operation as a patch has it.
func (o Operation) MarshalJSON() ([]byte, error) {
	dst := fmt.Appendf(nil, `{"op":"%s","path":`, o.Op)
	dst = AppendString(dst, o.Path)
	if o.Op == "remove" {
		return append(dst, '}'), nil
	}
	dst, err := Append(append(dst, `,"value":`...), o.Value)
	return append(dst, '}'), err
}

// Difference returns the JSON patch that makes after of before, two trees without Raw parts: nothing if they're the same. The operations are in
// the order of their paths, but for elements that go, of which the last goes first. They share the values of after. Elements of an array that
// stay are found at its beginning and at its end. Where the paths of all operations would take more than most bytes, whole members of the root
// are replaced.
//
// The libraries for this decode numbers as float64, and so change large ones.
func Difference(before, after any, most int) []Operation {
	d := differ{left: most}
	d.compare(nil, before, after)
	if d.left < 0 {
		d = differ{left: math.MaxInt, shallow: true}
		d.compare(nil, before, after)
	}
	return d.ops
}

// differ makes a patch.
type differ struct {
	ops     []Operation
	left    int  // bytes of paths that it may have; below 0 it has given up
	shallow bool // what is in the root is replaced as a whole
}

// step is the last of a path. Paths become texts only where an operation needs one: most of a tree is the same.
type step struct {
	before *step // nil for the first
	name   string
}

func (s *step) append(dst []byte) []byte {
	if s == nil {
		return dst
	}
	return append(append(s.before.append(dst), '/'), s.name...)
}

func (d *differ) add(op string, at *step, value any) {
	path := string(at.append(nil))
	d.ops = append(d.ops, Operation{op, path, value})
	d.left -= len(path)
}

func (d *differ) compare(path *step, before, after any) {
	if d.left < 0 {
		return
	}
	deeper := !d.shallow || path == nil
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok && deeper {
			d.members(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && deeper {
			d.elements(path, b, a)
			return
		}
	}
	if !Same(before, after) {
		d.add("replace", path, after)
	}
}

func (d *differ) members(path *step, before, after map[string]any) {
	names := slices.AppendSeq(make([]string, 0, len(before)+len(after)), maps.Keys(before))
	for name := range after {
		if _, had := before[name]; !had {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		is, has := after[name]
		was, had := before[name]
		switch at := (&step{path, escape.Replace(name)}); {
		case !had:
			d.add("add", at, is)
		case !has:
			d.add("remove", at, nil)
		default:
			d.compare(at, was, is)
		}
		if d.left < 0 {
			return
		}
	}
}

// escape is of names in paths (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")

func (d *differ) elements(path *step, before, after []any) {
	first := 0
	for first < min(len(before), len(after)) && Same(before[first], after[first]) {
		first++
	}
	rest := 0 // how many are the same at the end
	for rest < min(len(before), len(after))-first && Same(before[len(before)-1-rest], after[len(after)-1-rest]) {
		rest++
	}
	before, after = before[first:len(before)-rest], after[first:len(after)-rest]
	at := func(i int) *step { return &step{path, strconv.Itoa(first + i)} }
	both := min(len(before), len(after))
	for i := 0; i < both && d.left >= 0; i++ {
		d.compare(at(i), before[i], after[i])
	}
	for i := len(before) - 1; i >= both && d.left >= 0; i-- {
		d.add("remove", at(i), nil)
	}
	for i := both; i < len(after) && d.left >= 0; i++ {
		d.add("add", at(i), after[i])
	}
}

// Same tells whether two trees are the same: 1 and 1.0 aren't.
func Same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, value := range a {
			if other, has := b[name]; !has || !Same(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, Same)
	}
	switch b.(type) {
	case map[string]any, []any: // can't be compared by ==
		return false
	}
	return a == b
}
