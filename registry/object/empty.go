package object

import "slices"

// maxEmpty bounds how many empty lists and maps of a body are remembered: only what is said of the object depends on them.
const maxEmpty = 1000

// Empty is a list or a map without elements that a client has sent, and which the tree of an object's type leaves out.
type Empty struct {
	path []any // names of members, and places in lists
	list bool
}

// EmptyIn returns the lists and maps of what was sent that are empty and that a tree made of it doesn't have: maxEmpty at most.
// Metadata doesn't count.
func EmptyIn(sent, made map[string]any) (found []Empty) {
	for name, v := range sent {
		if name != "metadata" && hasEmpty(v) {
			found = emptyIn(v, []any{name}, made, found)
		}
	}
	return found
}

// hasEmpty tells whether there is an empty list or map in a value, without a path to each: most have none.
func hasEmpty(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, w := range v {
			if hasEmpty(w) {
				return true
			}
		}
		return len(v) == 0
	case []any:
		return len(v) == 0 || slices.ContainsFunc(v, hasEmpty)
	}
	return false
}

func emptyIn(v any, at []any, made map[string]any, found []Empty) []Empty {
	add := func(list bool) {
		e := Empty{at, list}
		if of, _ := e.place(made); of != nil && len(found) < maxEmpty {
			e.path = slices.Clone(at)
			found = append(found, e)
		}
	}
	switch v := v.(type) {
	case map[string]any:
		if len(v) == 0 {
			add(false)
		}
		for name, w := range v {
			found = emptyIn(w, append(at, name), made, found)
		}
	case []any:
		if len(v) == 0 {
			add(true)
		}
		for i, w := range v {
			found = emptyIn(w, append(at, i), made, found)
		}
	}
	return found
}

// place returns the object of a tree that would have it, and under which name; nil if that object isn't there or has something else.
func (e Empty) place(tree map[string]any) (of map[string]any, name string) {
	var at any = tree
	last := len(e.path) - 1
	for _, step := range e.path[:last] {
		switch step := step.(type) {
		case string:
			at = Map(at)[step]
		case int:
			list, _ := at.([]any)
			if step >= len(list) {
				return nil, ""
			}
			at = list[step]
		}
	}
	name, named := e.path[last].(string)
	if of = Map(at); !named || of[name] != nil {
		return nil, ""
	}
	return of, name
}

// Restore puts it into a tree, unless something else has come to its place.
func (e Empty) Restore(tree map[string]any) {
	switch of, name := e.place(tree); {
	case of == nil:
	case e.list:
		of[name] = []any{}
	default:
		of[name] = map[string]any{}
	}
}
