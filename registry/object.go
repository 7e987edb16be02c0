package registry

import (
	"encoding/json"
	"fmt"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// object is one object on its way through a write.
type object struct {
	meta    metav1.ObjectMeta
	content map[string]any // everything but apiVersion, kind and metadata
}

// clone returns a copy whose top-level fields can be replaced. What they hold is shared.
func (o *object) clone() *object {
	return &object{meta: *o.meta.DeepCopy(), content: maps.Clone(o.content)}
}

// carry makes a top-level field what it is in from, or absent as there.
func (o *object) carry(from *object, name string) {
	if v, ok := from.content[name]; ok {
		o.content[name] = v
	} else {
		delete(o.content, name)
	}
}

// decodeStored decodes stored bytes.
func decodeStored(raw []byte) (*object, error) {
	o := &object{}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &o.content); err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	if o.content == nil {
		return nil, fmt.Errorf("decode stored object: it is null")
	}
	delete(o.content, "apiVersion")
	delete(o.content, "kind")
	if _, err := o.takeMeta(); err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	return o, nil
}

// encode returns the canonical stored form: JSON with sorted keys, in the given version, without
// resourceVersion (which is the revision of the key) and without managedFields, which objects carry
// only after an apply.
func (o *object) encode(apiVersion, kind string) ([]byte, error) {
	meta := o.meta
	meta.ResourceVersion, meta.ManagedFields = "", nil
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	delete(tree, "selfLink") // no object has one any more
	full := maps.Clone(o.content)
	if full == nil {
		full = make(map[string]any, 3)
	}
	full["apiVersion"], full["kind"], full["metadata"] = apiVersion, kind, tree
	return encodeJSON(full)
}

// encodeJSON sorts keys and escapes HTML, as kube-apiserver does.
func encodeJSON(v any) ([]byte, error) { return json.Marshal(v) }

// equalJSON tells whether two trees encode to the same JSON: 1 and 1.0 are one number.
func equalJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for k, v := range a {
			if w, ok := b[k]; !ok || !equalJSON(v, w) {
				return false
			}
		}
		return true
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !equalJSON(a[i], b[i]) {
				return false
			}
		}
		return true
	case int64:
		if f, ok := b.(float64); ok {
			return float64(a) == f
		}
	case float64:
		if n, ok := b.(int64); ok {
			return a == float64(n)
		}
	}
	return a == b
}

// sameContent tells whether two objects differ in metadata only; the field except, if it isn't empty,
// doesn't count.
func sameContent(a, b *object, except string) bool {
	count := func(o *object) int {
		if _, ok := o.content[except]; ok && except != "" {
			return len(o.content) - 1
		}
		return len(o.content)
	}
	if count(a) != count(b) {
		return false
	}
	for k, v := range a.content {
		if except != "" && k == except {
			continue
		}
		if w, ok := b.content[k]; !ok || !equalJSON(v, w) {
			return false
		}
	}
	return true
}
