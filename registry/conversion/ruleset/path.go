package ruleset

import (
	"errors"
	"fmt"
	"strings"
)

// each is the step of a path into every item of a list. No field is called so: a bracket ends a name.
const each = "[*]"

// maxSteps bounds a path: each of its beginnings is kept while rules are checked.
const maxSteps = 100

// path is where a field is: names of fields and keys, and each.
type path []string

// parsePath reads `spec.ports[*].name`. Brackets have a key that may have dots, as in metadata.annotations[example.com/x].
func parsePath(text string) (path, error) {
	var p path
	rest := text
	for first := true; rest != "" || first; first = false {
		if len(p) == maxSteps {
			return nil, fmt.Errorf("it has more than %d steps", maxSteps)
		}
		if strings.HasPrefix(rest, "[") && !first {
			key, after, closed := strings.Cut(rest[1:], "]")
			switch {
			case !closed:
				return nil, errors.New("a bracket isn't closed")
			case key == "":
				return nil, errors.New("a bracket has no key")
			case key == "*":
				key = each
			}
			p, rest = append(p, key), after
			continue
		}
		if !first {
			if rest[0] != '.' {
				return nil, fmt.Errorf("a dot or a bracket must come before %q", rest)
			}
			rest = rest[1:]
		}
		end := strings.IndexAny(rest, ".[")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, errors.New("a name is empty")
		}
		if strings.Contains(rest[:end], "]") {
			return nil, errors.New("a bracket isn't opened")
		}
		p, rest = append(p, rest[:end]), rest[end:]
	}
	if p[len(p)-1] == each {
		return nil, errors.New("it must end with a field, not with all items of a list")
	}
	return p, nil
}

func (p path) String() string {
	var b strings.Builder
	for i, step := range p {
		switch {
		case strings.HasPrefix(step, "["): // each, or an item's place
			b.WriteString(step)
		case strings.ContainsAny(step, ".[") || i > 0 && p[:i].isAnnotations():
			b.WriteString("[" + step + "]")
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(step)
		}
	}
	return b.String()
}

// key is the path as the key of a map: no two paths have one.
func (p path) key() string { return strings.Join(p, "\x00") }

// child returns the path of what is in the field.
func (p path) child(step string) path { return append(p[:len(p):len(p)], step) }

func (p path) isAnnotations() bool { return len(p) == 2 && p[0] == "metadata" && p[1] == "annotations" }

// isAnnotation tells whether the path of a whole object's field is that of one annotation, whose value is text.
func (p path) isAnnotation() bool { return len(p) == 3 && p[:2].isAnnotations() }

// lists returns how many steps lead into the innermost list that the path goes through; 0 if there is none.
func (p path) lists() int {
	for i := len(p) - 1; i >= 0; i-- {
		if p[i] == each {
			return i + 1
		}
	}
	return 0
}

// absent is what a field has that isn't there.
type absentValue struct{}

var absent any = absentValue{}

// holder returns the object that has the last step of the path, or nil if there is none.
func (p path) holder(tree map[string]any) map[string]any {
	for _, step := range p[:len(p)-1] {
		next, ok := tree[step].(map[string]any)
		if !ok {
			return nil
		}
		tree = next
	}
	return tree
}

// get returns what is at the path, which goes through no list.
func (p path) get(tree map[string]any) any {
	if v, ok := p.holder(tree)[p[len(p)-1]]; ok {
		return v
	}
	return absent
}

// take is get that removes it. emptied tells that the object around it has nothing else.
func (p path) take(tree map[string]any) (v any, emptied bool) {
	in, last := p.holder(tree), p[len(p)-1]
	v, ok := in[last]
	if !ok {
		return absent, false
	}
	delete(in, last)
	return v, len(in) == 0
}

// put sets what is at the path, and makes the objects that lead there. made is how many.
func (p path) put(tree map[string]any, v any) (made int, err error) {
	for i, step := range p[:len(p)-1] {
		at, there := tree[step]
		next, ok := at.(map[string]any)
		if !ok {
			if there && at != nil {
				return made, fmt.Errorf("%s has no room for a field: it's %s", p[:i+1], kindOf(at))
			}
			next = map[string]any{}
			tree[step] = next
			made++
		}
		tree = next
	}
	tree[p[len(p)-1]] = v
	return made, nil
}

// tidy removes the objects that lead to the path as far as they're empty, but for the outermost one of a whole object's metadata.
func (p path) tidy(tree map[string]any) {
	for end := len(p) - 1; end > 0; end-- {
		holder := p[:end].holder(tree)
		at, ok := holder[p[end-1]].(map[string]any)
		if !ok || len(at) > 0 || end == 1 && p[0] == "metadata" {
			return
		}
		delete(holder, p[end-1])
	}
}

// kindOf names the type of a value, for messages.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "text"
	case bool:
		return "a boolean"
	case int64, float64:
		return "a number"
	case []any:
		return "a list"
	}
	return "an object"
}
