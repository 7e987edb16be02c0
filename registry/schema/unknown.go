package schema

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
)

const (
	// maxUnknown is how many unknown fields are listed. A Status lists a hundred causes.
	maxUnknown = 100
	// maxUnknownPath is how many bytes of a path are given: keys may be as long as bodies.
	maxUnknownPath = 1 << 10
)

// unknown lists the fields that pruning is going to remove, and those of embedded metadata that decoding will.
// Upstream could list them, too, but has no bounds.
func (f *compiled) unknown(content map[string]any) []string {
	u := unknowns{}
	u.find(f.root, content, false)
	slices.Sort(u.found)
	return u.found
}

type unknowns struct {
	path  []step // to where it looks
	found []string
}

// step is one of a path: a field, or the index of an item.
type step struct {
	name     string
	index    int  // counts if name is empty
	isIndex  bool // because names may be empty, too
	fromOpen bool // the field falls under additionalProperties
}

func (u *unknowns) find(n *node, value any, keep bool) {
	if len(u.found) == maxUnknown {
		return
	}
	keep = keep || n != nil && n.preserve
	if n == nil && keep {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		u.findInObject(n, value, keep)
	case []any:
		var items *node
		if n != nil {
			items = n.items
		}
		for i, v := range value {
			u.within(step{index: i, isIndex: true}, func() { u.find(items, v, keep) })
		}
	}
}

func (u *unknowns) findInObject(n *node, object map[string]any, keep bool) {
	for _, name := range slices.Sorted(maps.Keys(object)) { // so that what is said of it is the same each time
		var child *node
		var known bool
		if n != nil {
			child, known = n.property(name)
		}
		switch {
		case n != nil && n.embedded && slices.Contains(metaNames[:], name):
			if name == "metadata" {
				u.findInMetadata(object)
			}
		case known:
			_, listed := n.properties[name]
			u.within(step{name: name, fromOpen: !listed}, func() { u.find(child, object[name], false) })
		case !keep:
			u.within(step{name: name}, func() { u.add(false, "") })
		}
	}
}

// findInMetadata asks the decoder about the metadata of an embedded resource.
func (u *unknowns) findInMetadata(object map[string]any) {
	_, _, unknown, _ := objectmeta.GetObjectMetaWithOptions(object, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
	for _, path := range unknown {
		u.add(true, path)
	}
}

func (u *unknowns) within(s step, look func()) {
	u.path = append(u.path, s)
	look()
	u.path = u.path[:len(u.path)-1]
}

// add notes the present path, with what follows it. Upstream writes a field of additionalProperties in
// brackets on the way to embedded metadata, and with a dot otherwise.
func (u *unknowns) add(brackets bool, rest string) {
	if len(u.found) == maxUnknown {
		return
	}
	var b strings.Builder
	for _, s := range u.path {
		switch {
		case s.isIndex:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case brackets && s.fromOpen:
			b.WriteString("[" + start(s.name) + "]")
		default:
			dot(&b)
			b.WriteString(start(s.name))
		}
		if b.Len() > maxUnknownPath {
			break
		}
	}
	if rest != "" {
		dot(&b)
		b.WriteString(start(rest))
	}
	path := b.String()
	if len(path) > maxUnknownPath {
		path = strings.ToValidUTF8(path[:maxUnknownPath], "") + "..."
	}
	u.found = append(u.found, path)
}

func dot(b *strings.Builder) {
	if b.Len() > 0 {
		b.WriteByte('.')
	}
}

// start returns as much of a name as a path may need.
func start(name string) string { return name[:min(len(name), maxUnknownPath+1)] }
