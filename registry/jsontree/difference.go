package jsontree

import (
	"fmt"
	"maps"
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
// stay are found at its beginning and at its end.
//
// The libraries for this decode numbers as float64, and so change large ones.
func Difference(before, after any) []Operation { return difference(nil, "", before, after) }

func difference(ops []Operation, path string, before, after any) []Operation {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			return differingMembers(ops, path, b, a)
		}
	case []any:
		if a, ok := after.([]any); ok {
			return differingElements(ops, path, b, a)
		}
	}
	if Same(before, after) {
		return ops
	}
	return append(ops, Operation{"replace", path, after})
}

func differingMembers(ops []Operation, path string, before, after map[string]any) []Operation {
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
		switch at := path + "/" + escape.Replace(name); {
		case !had:
			ops = append(ops, Operation{"add", at, is})
		case !has:
			ops = append(ops, Operation{"remove", at, nil})
		default:
			ops = difference(ops, at, was, is)
		}
	}
	return ops
}

// escape is of names in paths (RFC 6901).
var escape = strings.NewReplacer("~", "~0", "/", "~1")

func differingElements(ops []Operation, path string, before, after []any) []Operation {
	first := 0
	for first < min(len(before), len(after)) && Same(before[first], after[first]) {
		first++
	}
	rest := 0 // how many are the same at the end
	for rest < min(len(before), len(after))-first && Same(before[len(before)-1-rest], after[len(after)-1-rest]) {
		rest++
	}
	before, after = before[first:len(before)-rest], after[first:len(after)-rest]
	at := func(i int) string { return path + "/" + strconv.Itoa(first+i) }
	both := min(len(before), len(after))
	for i := range both {
		ops = difference(ops, at(i), before[i], after[i])
	}
	for i := len(before) - 1; i >= both; i-- {
		ops = append(ops, Operation{"remove", at(i), nil})
	}
	for i := both; i < len(after); i++ {
		ops = append(ops, Operation{"add", at(i), after[i]})
	}
	return ops
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
