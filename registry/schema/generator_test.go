package schema

import (
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kjson "sigs.k8s.io/json"
)

// Generator makes objects that are about right.
type Generator struct{ *rand.Rand }

// Object makes an object of a schema.
func (g *Generator) Object(s *apiextensionsv1.JSONSchemaProps) map[string]any {
	if object, ok := g.value(s, 0).(map[string]any); ok {
		return object
	}
	return map[string]any{}
}

// Mutate replaces some part of an object.
func (g *Generator) Mutate(s *apiextensionsv1.JSONSchemaProps, object map[string]any) {
	names := slices.Sorted(maps.Keys(object))
	if len(names) == 0 {
		for name, v := range g.Object(s) {
			object[name] = v
		}
		return
	}
	name := names[g.IntN(len(names))]
	child := propertyOf(s, name)
	if inner, ok := object[name].(map[string]any); ok && child != nil && g.IntN(4) > 0 {
		g.Mutate(child, inner)
		return
	}
	if child == nil || g.IntN(6) == 0 {
		delete(object, name)
		return
	}
	object[name] = g.value(child, 1)
}

func propertyOf(s *apiextensionsv1.JSONSchemaProps, name string) *apiextensionsv1.JSONSchemaProps {
	if property, ok := s.Properties[name]; ok {
		return &property
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Schema
	}
	return nil
}

func (g *Generator) value(s *apiextensionsv1.JSONSchemaProps, depth int) any {
	switch n := g.IntN(40); {
	case depth == 0 || n > 4:
	case n == 0:
		return nil
	default:
		return g.wrong(depth)
	}
	if len(s.Enum) > 0 && g.IntN(8) > 0 {
		var v any
		raw := s.Enum[g.IntN(len(s.Enum))].Raw
		if raw == nil { // null
			return nil
		}
		if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &v); err != nil {
			panic(err)
		}
		return v
	}
	kind := s.Type
	if s.XIntOrString {
		kind = []string{"integer", "string"}[g.IntN(2)]
	}
	switch kind {
	case "object":
		return g.fields(s, depth)
	case "array":
		items := make([]any, 0, 3)
		for range g.IntN(4) {
			if s.Items != nil && s.Items.Schema != nil {
				items = append(items, g.value(s.Items.Schema, depth+1))
			}
		}
		return items
	case "integer":
		return []int64{0, 1, 2, 3, 5, 7, 10, 80, -1, 1 << 31, 1 << 53, 1<<63 - 1}[g.IntN(12)]
	case "number":
		return []any{0.5, 1.0, int64(1), -2.5, 1e300, int64(7), 0.1}[g.IntN(7)]
	case "boolean":
		return g.IntN(2) == 0
	case "string":
		return g.text()
	}
	return g.wrong(depth)
}

func (g *Generator) fields(s *apiextensionsv1.JSONSchemaProps, depth int) map[string]any {
	object := map[string]any{}
	names := make([]string, 0, len(s.Properties))
	for name := range s.Properties {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		property := s.Properties[name]
		if slices.Contains(s.Required, name) && g.IntN(20) > 0 || g.IntN(3) > 0 {
			object[name] = g.value(&property, depth+1)
		}
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		for range g.IntN(3) {
			object[g.text()] = g.value(s.AdditionalProperties.Schema, depth+1)
		}
	}
	if s.XEmbeddedResource {
		g.embed(object)
	}
	if g.IntN(12) == 0 {
		object["unknown"+g.text()] = g.wrong(depth)
	}
	return object
}

func (g *Generator) embed(object map[string]any) {
	if g.IntN(10) > 0 {
		object["apiVersion"], object["kind"] = []any{"v1", "apps/v1", "a/b/c"}[g.IntN(3)], []any{"Pod", "Not_A_Kind"}[g.IntN(2)]
	}
	switch g.IntN(8) {
	case 0:
		object["metadata"] = map[string]any{"name": "Not valid", "none": true}
	case 1:
		object["metadata"] = "wrong"
	case 2, 3, 4:
		object["metadata"] = map[string]any{"name": "inner", "labels": map[string]any{"a": "b"}}
	}
}

func (g *Generator) text() string {
	return []string{"a", "b", "c", "abc", "Not valid", "", "10.0.0.1", "2026-01-02", "2026-01-02T03:04:05Z", "10Gi", "https://example.com/x",
		"größer", strings.Repeat("long", 30), "True", "x.y", "a/b"}[g.IntN(16)]
}

func (g *Generator) wrong(depth int) any {
	switch n := g.IntN(7); {
	case n == 0:
		return nil
	case n == 1:
		return g.text()
	case n == 2:
		return int64(g.IntN(100))
	case n == 3:
		return float64(g.IntN(10)) / 2
	case n == 4:
		return true
	case n == 5 && depth < 6:
		return map[string]any{g.text(): g.wrong(depth + 1), "b": g.wrong(depth + 1)}
	case depth < 6:
		return []any{g.wrong(depth + 1), g.wrong(depth + 1)}
	}
	return "deep"
}
