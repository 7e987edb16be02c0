package managed

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Merge returns live with what applied has, merged as an apply does it, and nothing recorded. What has one value as a whole
// (a list, map or struct that is atomic) mustn't be in applied, because what live has of it would be lost unnoticed. Neither
// is changed; what is returned may share parts of both. The error says which of them doesn't fit the types, or
// what of applied is atomic. It isn't a Status.
func (t *Types) Merge(live, applied map[string]any) (map[string]any, error) {
	if err := t.load(); err != nil {
		return nil, err
	}
	config, err := t.converter.ObjectToTyped(&unstructured.Unstructured{Object: applied})
	if err != nil {
		return nil, fmt.Errorf("failed to convert patch object to typed object: %w", err)
	}
	if found := atomics(config.Schema(), config.TypeRef(), config.AsValue(), nil); len(found) > 0 {
		return nil, fmt.Errorf("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: %s", strings.Join(found, ", "))
	}
	into, err := t.converter.ObjectToTyped(&unstructured.Unstructured{Object: live}, typed.AllowDuplicates)
	if err != nil {
		return nil, fmt.Errorf("failed to convert original object to typed object: %w", err)
	}
	merged, err := into.Merge(config)
	if err != nil {
		return nil, fmt.Errorf("failed to merge patch: %w", err)
	}
	tree, ok := merged.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the merged object is a %T instead of a map", merged.AsValue().Unstructured())
	}
	return tree, nil
}

// atomics returns the paths of a value's lists, maps and structs that have one value as a whole.
func atomics(s *schema.Schema, of schema.TypeRef, v value.Value, at fieldpath.Path) (found []string) {
	atom, ok := s.Resolve(of)
	if !ok {
		return nil
	}
	switch {
	case v.IsMap() && atom.Map != nil:
		if atom.Map.ElementRelationship == schema.Atomic {
			found = append(found, at.String())
		}
		v.AsMap().Iterate(func(key string, item value.Value) bool {
			if field, ok := atom.Map.FindField(key); ok {
				found = append(found, atomics(s, field.Type, item, append(at.Copy(), fieldpath.PathElement{FieldName: &key}))...)
			}
			return true
		})
	case v.IsList() && atom.List != nil:
		if atom.List.ElementRelationship == schema.Atomic {
			found = append(found, at.String())
		}
		for i, list := 0, v.AsList(); i < list.Length(); i++ {
			found = append(found, atomics(s, atom.List.ElementType, list.At(i), append(at.Copy(), fieldpath.PathElement{Index: &i}))...)
		}
	}
	return found
}
