package managed

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// What a manager keeps of new objects. The objects of one origin, as the pods of a ReplicaSet, have one shape, and the library
// takes several times as long to find out what is owned of one as everything else that a manager does.
const (
	// maxShapes is of how many shapes a manager keeps what is owned of a new object.
	maxShapes = 32
	// maxShape is how long a shape may be, in bytes. Together with maxShapes it bounds what a manager keeps to a few megabytes.
	maxShape = 4096
)

// shapes are what is owned of new objects by their shapes, in the form of an entry's fieldsV1. The zero value is ready to be used.
type shapes struct {
	once sync.Once
	kept *lru.Cache
}

func (s *shapes) cache() *lru.Cache {
	s.once.Do(func() { s.kept = lru.New(maxShapes) })
	return s.kept
}

// create is update for a new object whose writer says nothing about managedFields.
func (m *Manager) create(next map[string]any, manager string) ([]any, error) {
	shape, ok := shapeOf(next)
	if !ok {
		return m.update(m.types.empty(m.gvk), next, nil, manager)
	}
	if fields, ok := m.shapes.cache().Get(shape); ok {
		now := metav1.NewTime(m.Clock.Now())
		return []any{newEntry(&metav1.ManagedFieldsEntry{Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate,
			APIVersion: m.apiVersion, Subresource: m.subresource, FieldsType: fieldsType, Time: &now}, fields)}, nil
	}
	list, err := m.update(m.types.empty(m.gvk), next, nil, manager)
	if err != nil || len(list) != 1 {
		return list, err
	}
	fields, err := jsontree.Whole(list[0].(map[string]any)["fieldsV1"]) // once for all who look into it
	if err == nil {
		m.shapes.cache().Add(shape, fields)
	}
	return list, err
}

// fieldsType is that of all entries.
const fieldsType = "FieldsV1"

// shapeOf returns what the fields that are owned of a new object follow from: its members, of which types they are, and which have
// the zero value, as those that an empty object has. Of lists it's all that they say, because their elements may be owned by
// what they say. ok is false for objects without such a shape, and for those whose shape is too long.
func shapeOf(next map[string]any) (shape string, ok bool) {
	meta := metadataOf(next)
	if meta == nil || hasLastApplied(meta) {
		return "", false // of kubectl's annotation the library knows more than that it's there
	}
	if meta["managedFields"] != nil {
		next = plain(next)
	}
	s := shaper{text: make([]byte, 0, maxShape/4)}
	s.add(next)
	return string(s.text), !s.failed
}

func hasLastApplied(meta map[string]any) bool {
	annotations, _ := meta["annotations"].(map[string]any)
	return annotations[lastAppliedAnnotation] != nil
}

// shaper writes a shape.
type shaper struct {
	text   []byte
	names  []string // of the members of the objects around, for the objects within to come behind
	failed bool
}

func (s *shaper) add(v any) {
	if len(s.text) > maxShape {
		s.failed = true
	}
	if s.failed {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		s.object(v)
	case []any:
		var err error
		s.text, err = jsontree.Append(s.text, v)
		s.failed = s.failed || err != nil
	case nil:
		s.text = append(s.text, '0')
	case string:
		s.scalar('s', v == "")
	case bool:
		s.scalar('b', !v)
	case int64:
		s.scalar('n', v == 0)
	case float64:
		s.scalar('f', v == 0)
	default:
		s.failed = true
	}
}

func (s *shaper) object(m map[string]any) {
	first := len(s.names)
	for name := range m {
		s.names = append(s.names, name)
	}
	last := len(s.names)
	slices.Sort(s.names[first:last])
	s.text = append(s.text, '{')
	for i := first; i < last; i++ {
		name := s.names[i]
		s.text = jsontree.AppendString(s.text, name)
		s.add(m[name])
	}
	s.text = append(s.text, '}')
	s.names = s.names[:first]
}

// scalar writes a value that has no parts: which type it has, and whether it's the zero value.
func (s *shaper) scalar(of byte, zero bool) {
	s.text = append(s.text, of)
	if zero {
		s.text = append(s.text, '0')
	}
}
