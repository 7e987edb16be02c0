package form

import (
	"fmt"
	"slices"

	jsoniter "github.com/json-iterator/go"
	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
)

// path is a parsed JSONPath. Immutable, and safe for concurrent use.
type path struct {
	*jsonpath.JSONPath
	members []string // with which it begins: what else is in an object doesn't matter to it
	plain   bool     // it's nothing but these
}

// parsePath parses a JSONPath such as ".spec.color".
//
// Definitions are only checked to have paths that begin with a dot. So it refuses those that can't be
// shared by goroutines, which are those with a range, and those that take more time and memory than in
// proportion to an object.
func parsePath(text string) (*path, error) {
	text = "{" + text + "}"
	parsed, err := jsonpath.Parse("column", text)
	if err != nil {
		return nil, err
	}
	if branches := countBranches(parsed.Root); len(parsed.Root.Nodes) != 1 || branches > 1 {
		return nil, fmt.Errorf("a path with so many branches isn't supported")
	}
	p := &path{JSONPath: jsonpath.New("column").AllowMissingKeys(true)}
	steps, _ := parsed.Root.Nodes[0].(*jsonpath.ListNode)
	for i := 0; steps != nil && i < len(steps.Nodes); i++ {
		member, ok := steps.Nodes[i].(*jsonpath.FieldNode)
		if !ok {
			break
		}
		p.members = append(p.members, member.Value)
	}
	p.plain = steps != nil && len(p.members) == len(steps.Nodes) && !slices.Contains(p.members, "")
	return p, p.Parse(text)
}

// first returns the first value that the path leads to. ok is false if there is none.
func (p *path) first(object any) (value any, ok bool) {
	if !p.plain {
		found, err := p.FindResults(object)
		if err != nil || len(found) == 0 || len(found[0]) == 0 {
			return nil, false
		}
		return found[0][0].Interface(), true
	}
	for _, name := range p.members { // as FindResults does, without reflection
		in, isObject := object.(map[string]any)
		if !isObject {
			return nil, false
		}
		if object, ok = in[name]; !ok {
			return nil, false
		}
	}
	return object, true
}

// countBranches counts the steps that lead to more values than there were, other than to all members of each.
// A range counts as too many.
func countBranches(n jsonpath.Node) (branches int) {
	var below []*jsonpath.ListNode
	switch n := n.(type) {
	case *jsonpath.ListNode:
		for _, step := range n.Nodes {
			branches += countBranches(step)
		}
	case *jsonpath.FilterNode:
		below = []*jsonpath.ListNode{n.Left, n.Right}
	case *jsonpath.UnionNode:
		branches, below = 1, n.Nodes
	case *jsonpath.RecursiveNode:
		branches = 1
	case *jsonpath.IdentifierNode:
		branches = 2
	}
	for _, list := range below {
		branches += countBranches(list)
	}
	return branches
}

// wanted is which members of an object are to be decoded, and what of them. Nil is the whole value.
type wanted map[string]wanted

// with returns w and what is below a path of members.
func (w wanted) with(members []string) wanted {
	if w == nil || len(members) == 0 {
		return nil
	}
	below, ok := w[members[0]]
	if !ok {
		below = wanted{}
	}
	w[members[0]] = below.with(members[1:])
	return w
}

// decode reads a value, skipping what isn't wanted. Numbers become int64 where they fit, else float64. What
// isn't JSON leaves out the rest.
func (w wanted) decode(it *jsoniter.Iterator) (value any) {
	next := it.WhatIsNext()
	if w == nil && next == jsoniter.StringValue {
		return it.ReadString()
	}
	if w == nil || next != jsoniter.ObjectValue {
		if kjson.UnmarshalCaseSensitivePreserveInts(it.SkipAndReturnBytes(), &value) != nil {
			return nil
		}
		return value
	}
	members := make(map[string]any, len(w))
	it.ReadObjectCB(func(it *jsoniter.Iterator, name string) bool {
		if below, ok := w[name]; ok {
			members[name] = below.decode(it)
		} else {
			it.Skip()
		}
		return true
	})
	return members
}
