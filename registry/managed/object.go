package managed

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// object is a tree as the library takes it. Its managedFields are kept besides the tree.
type object struct {
	*unstructured.Unstructured
	managed []metav1.ManagedFieldsEntry
	typed   *typed.TypedValue // if it was made already
}

func newObject(root map[string]any, managed []metav1.ManagedFieldsEntry) *object {
	return &object{Unstructured: &unstructured.Unstructured{Object: root}, managed: managed}
}

// GetManagedFields returns nil if there are none, and an empty list if that was given.
func (o *object) GetManagedFields() []metav1.ManagedFieldsEntry { return o.managed }

// SetManagedFields keeps the entries.
func (o *object) SetManagedFields(entries []metav1.ManagedFieldsEntry) { o.managed = entries }

// DeepCopyObject copies the tree. The entries are replaced, never changed, and so are shared.
func (o *object) DeepCopyObject() runtime.Object {
	return newObject(copyTree(o.Object).(map[string]any), o.managed)
}

// copyTree copies a JSON value. Unlike runtime.DeepCopyJSON it knows no type that it can't bear.
func copyTree(v any) any {
	switch v := v.(type) {
	case map[string]any:
		if v == nil {
			return v
		}
		out := make(map[string]any, len(v))
		for key, value := range v {
			out[key] = copyTree(value)
		}
		return out
	case []any:
		if v == nil {
			return v
		}
		out := make([]any, len(v))
		for i, value := range v {
			out[i] = copyTree(value)
		}
		return out
	default:
		return v
	}
}

// equal reports whether two JSON values are the same; 1 and 1.0 aren't.
func equal(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && equalMaps(a, b, "")
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equal(a[i], b[i]) {
				return false
			}
		}
		return true
	default:
		switch b.(type) {
		case map[string]any, []any:
			return false // they can't be compared with ==
		}
		return a == b
	}
}

// equalMaps is equal for maps but for one key, which must be in both or in neither; "" leaves none out.
func equalMaps(a, b map[string]any, but string) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		other, ok := b[key]
		if !ok || (but == "" || key != but) && !equal(value, other) {
			return false
		}
	}
	return true
}

// differing returns two objects without the members that both have alike, at any depth, but for what says which objects they are. The library
// compares them for much longer and finds the same differences: a new status without the spec beside it. Lists stay whole.
func differing(a, b map[string]any) (restOfA, restOfB map[string]any) {
	restOfA, restOfB = rests(a, b)
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		restOfA[name], restOfB[name] = a[name], b[name]
	}
	return restOfA, restOfB
}

// rests returns what is in a and not alike in b, and the other way round: nothing if they're equal.
func rests(a, b map[string]any) (restOfA, restOfB map[string]any) {
	restOfA, restOfB = map[string]any{}, map[string]any{}
	for name, v := range a {
		w, ok := b[name]
		if !ok {
			restOfA[name] = v
			continue
		}
		x, isMap := v.(map[string]any)
		y, areMaps := w.(map[string]any)
		if areMaps = areMaps && isMap; areMaps {
			x, y = rests(x, y)
			v, w = x, y
		}
		if areMaps && len(x)+len(y) > 0 || !areMaps && !equal(v, w) {
			restOfA[name], restOfB[name] = v, w
		}
	}
	for name, w := range b {
		if _, ok := a[name]; !ok {
			restOfB[name] = w
		}
	}
	return restOfA, restOfB
}

// deeper reports whether a value has more than some levels of maps and lists.
func deeper(v any, levels int) bool {
	for child := range jsontree.Children(v) {
		if levels == 0 || deeper(child, levels-1) {
			return true
		}
	}
	return false
}

// without returns a map that lacks a key: m itself if it has none.
func without(m map[string]any, key string) map[string]any {
	if _, ok := m[key]; !ok {
		return m
	}
	m = maps.Clone(m)
	delete(m, key)
	return m
}

// metadataOf returns an object's metadata, nil if it has none.
func metadataOf(root map[string]any) map[string]any {
	meta, _ := root["metadata"].(map[string]any)
	return meta
}

// plain returns the object without its managedFields. It shares its parts, but not its metadata, which the
// library may write to.
func plain(root map[string]any) map[string]any {
	meta := metadataOf(root)
	if meta == nil {
		return root
	}
	root, meta = maps.Clone(root), maps.Clone(meta)
	delete(meta, "managedFields")
	root["metadata"] = meta
	return root
}

// withManaged returns an object that shares its parts with root and has these managedFields, or none if nil.
func withManaged(root map[string]any, managed []any) map[string]any {
	meta := metadataOf(root)
	if len(managed) == 0 {
		if _, ok := meta["managedFields"]; !ok {
			return root
		}
		managed = nil
	}
	root, meta = maps.Clone(root), maps.Clone(meta)
	if meta == nil {
		meta = map[string]any{}
	}
	root["metadata"] = meta
	if managed == nil {
		delete(meta, "managedFields")
	} else {
		meta["managedFields"] = managed
	}
	return root
}
