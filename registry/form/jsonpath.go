package form

import (
	"fmt"

	jsoniter "github.com/json-iterator/go"
	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
)

// parsePath parses a JSONPath such as ".spec.color". It also returns the names of members with which the path
// begins: what else is in an object doesn't matter to it.
//
// Definitions are only checked to have paths that begin with a dot. So it refuses those that can't be
// shared by goroutines, which are those with a range, and those that take more time and memory than in
// proportion to an object.
func parsePath(text string) (path *jsonpath.JSONPath, members []string, err error) {
	text = "{" + text + "}"
	parsed, err := jsonpath.Parse("column", text)
	if err != nil {
		return nil, nil, err
	}
	if branches := countBranches(parsed.Root); len(parsed.Root.Nodes) != 1 || branches > 1 {
		return nil, nil, fmt.Errorf("a path with so many branches isn't supported")
	}
	steps, _ := parsed.Root.Nodes[0].(*jsonpath.ListNode)
	for i := 0; steps != nil && i < len(steps.Nodes); i++ {
		member, ok := steps.Nodes[i].(*jsonpath.FieldNode)
		if !ok {
			break
		}
		members = append(members, member.Value)
	}
	path = jsonpath.New("column").AllowMissingKeys(true)
	return path, members, path.Parse(text)
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
	if w == nil || it.WhatIsNext() != jsoniter.ObjectValue {
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
