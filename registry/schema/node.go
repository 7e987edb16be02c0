package schema

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// node is what the shape of a value depends on, from a structural schema: pointers and flags, which are
// walked without allocating. A nil node is a value of which the schema says nothing.
type node struct {
	properties map[string]*node
	open       bool  // additionalProperties is given,
	additional *node // and this is its schema, nil if it's just true
	items      *node

	preserve   bool // x-kubernetes-preserve-unknown-fields
	embedded   bool // x-kubernetes-embedded-resource
	nullable   bool
	defaulted  bool     // has a default
	defaulting []string // the properties that have one
}

func newNode(s *structuralschema.Structural) *node {
	if s == nil {
		return nil
	}
	n := &node{
		items:    newNode(s.Items),
		preserve: s.XPreserveUnknownFields, embedded: s.XEmbeddedResource,
		nullable: s.Nullable, defaulted: s.Default.Object != nil,
	}
	if s.AdditionalProperties != nil {
		n.open, n.additional = true, newNode(s.AdditionalProperties.Structural)
	}
	if len(s.Properties) > 0 {
		n.properties = make(map[string]*node, len(s.Properties))
	}
	for name, property := range s.Properties {
		child := newNode(&property)
		n.properties[name] = child
		if child.defaulted {
			n.defaulting = append(n.defaulting, name)
		}
	}
	return n
}

// property returns the node of a field, and whether the field is known.
func (n *node) property(name string) (child *node, known bool) {
	if child, known = n.properties[name]; known {
		return child, true
	}
	return n.additional, n.open
}

// any tells whether something holds for the node or one below it.
func (n *node) any(holds func(*node) bool) bool {
	if n == nil {
		return false
	}
	for _, child := range n.properties {
		if child.any(holds) {
			return true
		}
	}
	return holds(n) || n.items.any(holds) || n.additional.any(holds)
}

// work is what there is to do with a value.
type work uint8

const (
	prune work = 1 << iota // it has unknown fields
	drop                   // it has nulls that may not be
	fill                   // fields are missing that have defaults
)

// work looks what there is to do with a value of a schema without embedded resources. keep is whether the
// array that the value is in keeps unknown fields.
func (n *node) work(value any, keep bool) (w work) {
	keep = keep || n != nil && n.preserve
	switch value := value.(type) {
	case map[string]any:
		if n == nil {
			if len(value) > 0 && !keep {
				return prune
			}
			return 0
		}
		for _, name := range n.defaulting {
			if _, given := value[name]; !given {
				w |= fill
			}
		}
		for name, v := range value {
			child, known := n.property(name)
			switch {
			case !known && !keep:
				w |= prune
			case known && v == nil && child != nil && !child.nullable:
				w |= drop
			case known:
				w |= child.work(v, false)
			}
		}
	case []any:
		if n == nil && keep {
			return 0
		}
		var items *node
		if n != nil {
			items = n.items
		}
		for _, v := range value {
			if v == nil && items != nil && !items.nullable {
				w |= drop
			}
			w |= items.work(v, keep)
		}
	}
	return w
}
