package registry

import (
	"bytes"
	"fmt"
	"maps"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// object is one object on its way through a write.
type object struct {
	meta    metav1.ObjectMeta
	managed []any          // metadata.managedFields, which meta doesn't have: only package managed looks into it
	content map[string]any // everything but apiVersion, kind and metadata
}

// clone returns a copy whose top-level fields can be replaced. What they hold is shared.
func (o *object) clone() *object {
	return &object{meta: *o.meta.DeepCopy(), managed: o.managed, content: maps.Clone(o.content)}
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
	value, _, err := jsontree.Decode(raw)
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("decode stored object: it is a %T", value)
	}
	o, err := fromTree(tree)
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	return o, nil
}

// tree returns the whole object. It shares what the content holds.
func (o *object) tree(apiVersion, kind string) (map[string]any, error) {
	metadata, err := metaTree(&o.meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	if len(o.managed) > 0 {
		metadata["managedFields"] = o.managed
	}
	full := make(map[string]any, len(o.content)+3)
	maps.Copy(full, o.content)
	full["apiVersion"], full["kind"], full["metadata"] = apiVersion, kind, metadata
	return full, nil
}

// encode returns the canonical stored form: JSON with sorted keys, in the given version, without
// resourceVersion, which is the revision of the key.
func (o *object) encode(apiVersion, kind string) ([]byte, error) {
	stored := *o
	stored.meta.ResourceVersion = ""
	full, err := stored.tree(apiVersion, kind)
	if err != nil {
		return nil, err
	}
	return encodeJSON(full)
}

// fromTree makes an object of a whole one that the server made itself. The tree becomes the object's.
func fromTree(tree map[string]any) (*object, error) {
	delete(tree, "apiVersion")
	delete(tree, "kind")
	o := &object{content: tree}
	_, err := o.takeMeta()
	return o, err
}

// encodeJSON sorts keys and escapes HTML, as kube-apiserver does.
func encodeJSON(tree map[string]any) ([]byte, error) {
	pooled := encodings.Get().(*[]byte)
	defer encodings.Put(pooled)
	raw, err := jsontree.Append((*pooled)[:0], tree)
	if err != nil {
		return nil, err
	}
	if cap(raw) <= maxPooledEncoding {
		*pooled = raw
	}
	return bytes.Clone(raw), nil
}

// encodings holds *[]byte: what is kept of an object has no room left over.
var encodings = sync.Pool{New: func() any { return new([]byte) }}

// maxPooledEncoding bounds what the pool keeps.
const maxPooledEncoding = 64 << 10

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
