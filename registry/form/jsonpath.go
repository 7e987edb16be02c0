package form

import (
	"fmt"
	"slices"

	"k8s.io/client-go/util/jsonpath"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
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
type wanted []wantedMember

type wantedMember struct {
	name string
	of   wanted
}

// with returns w and what is below a path of members.
func (w wanted) with(members []string) wanted {
	if w == nil || len(members) == 0 {
		return nil
	}
	for i := range w {
		if w[i].name == members[0] {
			w[i].of = w[i].of.with(members[1:])
			return w
		}
	}
	return append(w, wantedMember{members[0], wanted{}.with(members[1:])})
}

// decode reads a document, of which it goes no further than it must to find what is wanted.
func (w wanted) decode(r *reader) any {
	return w.value(r, r.End)
}

// value reads a value, skipping what isn't wanted. It calls found, if that's set, when nothing that's wanted is missing.
func (w wanted) value(r *reader, found func()) any {
	if w == nil || r.Peek() != '{' {
		return r.value()
	}
	members := make(map[string]any, len(w))
	r.Members(func(name []byte) {
		name = jsonscan.Unquote(name)
		for _, m := range w {
			if m.name == string(name) {
				members[m.name] = m.of.value(r, nil)
				if found != nil && len(members) == len(w) {
					found()
				}
				return
			}
		}
		r.Skip()
	})
	return members
}
