// Package column makes the columns of tables. Their cells show what kubectl shows with kube-apiserver.
package column

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// None is shown where there is nothing.
const None = "<none>"

// Unset is shown where something isn't set.
const Unset = "<unset>"

// Age shows how old an object is.
func Age() registry.Column {
	return registry.Column{Name: "Age", Type: "string", Description: form.Age().Description, JSONPath: ".metadata.creationTimestamp", Cell: form.Elapsed}
}

// CreatedAt shows the time of the creation itself.
func CreatedAt() registry.Column {
	return registry.Column{Name: "Created At", Type: "date", NullRows: true, Description: form.Age().Description,
		JSONPath: ".metadata.creationTimestamp", Cell: func(value any) any { return value }}
}

// Created are the columns of kinds for which Kubernetes has none.
func Created() []registry.Column { return []registry.Column{CreatedAt()} }

// Text shows the string at a path.
func Text(name, path, description string) registry.Column {
	return registry.Column{Name: name, Type: "string", Description: description, Cell: func(o any) any { return Str(At(o, path)) }}
}

// Number shows the integer at a path, and 0 where there's none.
func Number(name, path, description string) registry.Column {
	return registry.Column{Name: name, Type: "integer", Description: description, Cell: func(o any) any { return Num(At(o, path)) }}
}

// Cell shows what fn makes of the object.
func Cell(name, description string, fn func(o any) any) registry.Column {
	return registry.Column{Name: name, Type: "string", Description: description, Cell: fn}
}

// Wide marks columns that kubectl shows with -o wide only.
func Wide(columns ...registry.Column) []registry.Column {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// At returns what is at a path such as ".spec.replicas", nil for nothing.
func At(o any, path string) any {
	for name, rest := "", strings.TrimPrefix(path, "."); rest != ""; {
		name, rest, _ = strings.Cut(rest, ".")
		o = AsMap(o)[name]
	}
	return o
}

// AsMap is a value as an object, nil if it is none.
func AsMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// AsList is a value as a list, nil if it is none.
func AsList(v any) []any {
	l, _ := v.([]any)
	return l
}

// Str is a value as text, "" for none.
func Str(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

// Num is a value as an integer, 0 if it is none.
func Num(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// Or is a text, or another one for "".
func Or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// Elapsed shows the first time that is there as an age.
func Elapsed(times ...any) any {
	for _, t := range times {
		if t != nil && t != "" {
			return form.Elapsed(t)
		}
	}
	return "<unknown>"
}

// Around shows what Elapsed has returned within a format, which has one string in it.
func Around(format string, elapsed any) any {
	if ago, ok := elapsed.(form.Ago); ok {
		ago.Format = format
		return ago
	}
	return fmt.Sprintf(format, elapsed)
}

// Joined joins the texts that fn makes of a list's items, without the empty ones.
func Joined(list any, separator string, fn func(item any) string) string {
	var all []string
	for _, item := range AsList(list) {
		if s := fn(item); s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, separator)
}

// SortedKeys are the names of an object's members.
func SortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }

// OrNone is text that shows where there's nothing.
func OrNone(name, path, description string) registry.Column {
	return Cell(name, description, func(o any) any { return Or(Str(At(o, path)), None) })
}

// LabelsText shows labels, sorted.
func LabelsText(v any) string {
	labels := AsMap(v)
	if len(labels) == 0 {
		return None
	}
	var all []string
	for _, name := range SortedKeys(labels) {
		all = append(all, name+"="+Str(labels[name]))
	}
	return strings.Join(all, ",")
}

// Count shows how many items a list has.
func Count(name, path, description string) registry.Column {
	return registry.Column{Name: name, Type: "integer", Description: description, Cell: func(o any) any { return int64(len(AsList(At(o, path)))) }}
}

// Flag shows a boolean that is false where it's absent.
func Flag(name, path, description string) registry.Column {
	return registry.Column{Name: name, Type: "boolean", Description: description, Cell: func(o any) any { return At(o, path) == true }}
}

// OrUnset is text that shows where nothing is set.
func OrUnset(name, path, description string) registry.Column {
	return Cell(name, description, func(o any) any { return Or(Str(At(o, path)), Unset) })
}

// AsText declares a column of numbers as one of strings, as kube-apiserver has some.
func AsText(c registry.Column) registry.Column {
	c.Type = "string"
	return c
}

// TextAge is the age of kinds whose printers declare it as a text.
func TextAge() []registry.Column { return []registry.Column{AsText(Age())} }

// NameColumn declares where the name is shown, for tables that don't begin with it.
func NameColumn() registry.Column {
	name := form.NameColumn()
	return registry.Column{Name: name.Name, Type: name.Type, Format: name.Format, Description: name.Description, JSONPath: ".metadata.name"}
}

// SelectorCell shows a selector as kubectl does: app=a,tier in (x,y).
func SelectorCell(path string) func(o any) any {
	return func(o any) any {
		text, err := SelectorText(map[string]any{"spec": map[string]any{"selector": At(o, path)}})
		if err != nil || text == "" {
			return None
		}
		return text
	}
}

// SelectorText is the selector of a workload as a Scale shows it. ReplicationController has no LabelSelector but labels.
func SelectorText(content map[string]any) (string, error) {
	tree := AsMap(At(content, "spec.selector"))
	if tree == nil {
		return "", nil
	}
	s := &metav1.LabelSelector{}
	if isLabels(tree) {
		tree = map[string]any{"matchLabels": tree}
	}
	if err := jsontree.Into(tree, s); err != nil {
		return "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

// isLabels tells a map of labels from a LabelSelector.
func isLabels(tree map[string]any) bool {
	for _, v := range tree {
		if _, ok := v.(string); !ok {
			return false
		}
	}
	return true
}
