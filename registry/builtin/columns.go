package builtin

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// What the cells of tables are made of. They show what kubectl shows with kube-apiserver.

type column = registry.Column

// none is shown where there is nothing.
const none = "<none>"

func age() column {
	return column{Name: "Age", Type: "string", Description: form.Age().Description, JSONPath: ".metadata.creationTimestamp", Cell: form.Elapsed}
}

// createdAt shows the time of the creation itself.
func createdAt() column {
	return column{Name: "Created At", Type: "date", NullRows: true, Description: form.Age().Description,
		JSONPath: ".metadata.creationTimestamp", Cell: func(value any) any { return value }}
}

// created are the columns of kinds for which Kubernetes has none.
func created() []column { return []column{createdAt()} }

// text shows the string at a path.
func text(name, path, description string) column {
	return column{Name: name, Type: "string", Description: description, Cell: func(o any) any { return str(at(o, path)) }}
}

// number shows the integer at a path, and 0 where there's none.
func number(name, path, description string) column {
	return column{Name: name, Type: "integer", Description: description, Cell: func(o any) any { return num(at(o, path)) }}
}

// cell shows what fn makes of the object.
func cell(name, description string, fn func(o any) any) column {
	return column{Name: name, Type: "string", Description: description, Cell: fn}
}

// wide marks columns that kubectl shows with -o wide only.
func wide(columns ...column) []column {
	for i := range columns {
		columns[i].Priority = 1
	}
	return columns
}

// at returns what is at a path such as ".spec.replicas", nil for nothing.
func at(o any, path string) any {
	for name, rest := "", strings.TrimPrefix(path, "."); rest != ""; {
		name, rest, _ = strings.Cut(rest, ".")
		o = asMap(o)[name]
	}
	return o
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

func asList(v any) []any {
	l, _ := v.([]any)
	return l
}

// str is a value as text, "" for none.
func str(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	}
	return fmt.Sprint(v)
}

func num(v any) int64 {
	switch n := v.(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return 0
}

// or is a text, or another one for "".
func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// elapsed shows the first time that is there as an age.
func elapsed(times ...any) any {
	for _, t := range times {
		if t != nil && t != "" {
			return form.Elapsed(t)
		}
	}
	return "<unknown>"
}

// joined joins the texts that fn makes of a list's items, without the empty ones.
func joined(list any, separator string, fn func(item any) string) string {
	var all []string
	for _, item := range asList(list) {
		if s := fn(item); s != "" {
			all = append(all, s)
		}
	}
	return strings.Join(all, separator)
}

func sortedKeys(m map[string]any) []string { return slices.Sorted(maps.Keys(m)) }
