package object

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// Object is one object on its way through a write.
type Object struct {
	Meta    metav1.ObjectMeta
	Managed []any          // metadata.managedFields, which Meta doesn't have. Only package managed looks into it: fieldsV1 may be Raw
	Content map[string]any // everything but apiVersion, kind and metadata
	// Value, if set, is a value of the object's Go type that has what belongs into Content, which is nil then.
	// Only a new object that came as protobuf has one, until the rules of its type have made it their own.
	Value runtime.Object
	// Empty are lists and maps that were sent empty, which Content doesn't have: a refusal tells them from those that weren't sent.
	Empty []Empty
}

// Clone returns a copy whose top-level fields can be replaced. What they hold is shared, and later stages don't change it. They
// do change a Value, so that is copied.
func (o *Object) Clone() *Object {
	c := &Object{Meta: *o.Meta.DeepCopy(), Managed: o.Managed, Content: maps.Clone(o.Content), Empty: o.Empty}
	if o.Value != nil {
		c.Value = o.Value.DeepCopyObject()
	}
	return c
}

// Carry makes a top-level field what it is in from, or absent as there.
func (o *Object) Carry(from *Object, name string) {
	if v, ok := from.Content[name]; ok {
		o.Content[name] = v
	} else {
		delete(o.Content, name)
	}
	of := func(e Empty) bool { return e.path[0] == name }
	o.Empty = slices.DeleteFunc(slices.Clone(o.Empty), of)
	for _, e := range from.Empty {
		if of(e) {
			o.Empty = append(o.Empty, e)
		}
	}
}

// DecodeStored decodes stored bytes, which it doesn't keep. The error says what is wrong with them: it isn't a Status.
func DecodeStored(raw []byte) (*Object, error) {
	value, _, err := jsontree.DecodeKeeping(raw, "metadata", "managedFields", jsontree.EachElement, "fieldsV1")
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("decode stored object: it is a %T", value)
	}
	o, err := FromTree(tree)
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	return o, nil
}

// Tree returns the whole object, which shares what the content holds. The error is of metadata that has no form as JSON.
func (o *Object) Tree(apiVersion, kind string) (map[string]any, error) {
	list, err := jsontree.Whole(o.Managed)
	if err != nil {
		return nil, fmt.Errorf("decode managedFields: %w", err)
	}
	whole := *o
	whole.Managed = list.([]any)
	return whole.RawTree(apiVersion, kind)
}

// RawTree is Tree with managedFields as they are, for those who know of Raw: who encodes the tree, and package managed.
func (o *Object) RawTree(apiVersion, kind string) (map[string]any, error) {
	metadata, err := metaTree(&o.Meta)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	if len(o.Managed) > 0 {
		metadata["managedFields"] = o.Managed
	}
	full := make(map[string]any, len(o.Content)+3)
	maps.Copy(full, o.Content)
	full["apiVersion"], full["kind"], full["metadata"] = apiVersion, kind, metadata
	return full, nil
}

// Encode returns the canonical stored form: JSON with sorted keys, in the given version, without
// resourceVersion, which is the revision of the key. The bytes are the caller's. Errors are those of Tree and EncodeJSON.
func (o *Object) Encode(apiVersion, kind string) ([]byte, error) {
	stored := *o
	stored.Meta.ResourceVersion = ""
	full, err := stored.RawTree(apiVersion, kind)
	if err != nil {
		return nil, err
	}
	return EncodeJSON(full)
}

// New makes an object of a whole one, which becomes the object's. unknown are the members of its metadata that don't
// exist. The error says why the metadata can't be decoded; the tree may have been changed then.
func New(tree map[string]any) (o *Object, unknown []error, err error) {
	delete(tree, "apiVersion")
	delete(tree, "kind")
	o = &Object{Content: tree}
	unknown, err = o.takeMeta()
	if err != nil {
		return nil, nil, err
	}
	return o, unknown, nil
}

// FromTree is New for an object that the server made itself.
func FromTree(tree map[string]any) (*Object, error) {
	o, _, err := New(tree)
	return o, err
}

// Map returns a value as a JSON object, nil if it isn't one.
func Map(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// DeepCopy copies a JSON object.
func DeepCopy(tree map[string]any) map[string]any {
	return (&unstructured.Unstructured{Object: tree}).DeepCopy().Object
}

// EncodeJSON encodes a tree as kube-apiserver does: keys are sorted, HTML is escaped. The bytes are the caller's. The error
// is of a value that JSON doesn't have.
func EncodeJSON(tree map[string]any) ([]byte, error) {
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

// EqualJSON tells whether two trees encode to the same JSON: 1 and 1.0 are one number.
func EqualJSON(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		if reflect.ValueOf(a).UnsafePointer() == reflect.ValueOf(b).UnsafePointer() {
			return true // one map
		}
		for k, v := range a {
			if w, ok := b[k]; !ok || !EqualJSON(v, w) {
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
			if !EqualJSON(a[i], b[i]) {
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

// SameContent tells whether two objects differ in metadata only; the field except, if it isn't empty,
// doesn't count.
func SameContent(a, b *Object, except string) bool {
	count := func(o *Object) int {
		if _, ok := o.Content[except]; ok && except != "" {
			return len(o.Content) - 1
		}
		return len(o.Content)
	}
	if count(a) != count(b) {
		return false
	}
	for k, v := range a.Content {
		if except != "" && k == except {
			continue
		}
		if w, ok := b.Content[k]; !ok || !EqualJSON(v, w) {
			return false
		}
	}
	return true
}
