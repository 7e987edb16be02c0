package object

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Metadata goes from trees to metav1.ObjectMeta and back with each write. apimachinery's converter does that for
// any type, by reflection; for this one type, in its usual form, it's done here in a tenth of the time.

// plainMeta reads metadata whose fields are all known, of the right type and not owner references. It's false
// otherwise, and nothing is read then.
func plainMeta(tree map[string]any, into *metav1.ObjectMeta) bool {
	var m metav1.ObjectMeta
	for name, value := range tree {
		ok := true
		switch name {
		case "name":
			m.Name, ok = value.(string)
		case "generateName":
			m.GenerateName, ok = value.(string)
		case "namespace":
			m.Namespace, ok = value.(string)
		case "resourceVersion":
			m.ResourceVersion, ok = value.(string)
		case "selfLink":
			//lint:ignore SA1019 it's deprecated, and an update still writes it
			m.SelfLink, ok = value.(string)
		case "uid":
			var uid string
			uid, ok = value.(string)
			m.UID = types.UID(uid)
		case "generation":
			m.Generation, ok = value.(int64)
		case "creationTimestamp":
			m.CreationTimestamp, ok = plainTime(value)
		case "deletionTimestamp":
			var at metav1.Time
			at, ok = plainTime(value)
			m.DeletionTimestamp = &at
		case "deletionGracePeriodSeconds":
			var n int64
			n, ok = value.(int64)
			m.DeletionGracePeriodSeconds = &n
		case "labels":
			m.Labels, ok = plainStrings(value)
		case "annotations":
			m.Annotations, ok = plainStrings(value)
		case "finalizers":
			m.Finalizers, ok = plainList(value)
		default:
			ok = false
		}
		if !ok {
			return false
		}
	}
	*into = m
	return true
}

func plainTime(value any) (metav1.Time, bool) {
	text, ok := value.(string)
	if !ok {
		return metav1.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, text)
	return metav1.Time{Time: t.Local()}, err == nil
}

func plainStrings(value any) (map[string]string, bool) {
	tree, ok := value.(map[string]any)
	if !ok {
		return nil, false
	}
	m := make(map[string]string, len(tree))
	for k, v := range tree {
		if m[k], ok = v.(string); !ok {
			return nil, false
		}
	}
	return m, true
}

func plainList(value any) ([]string, bool) {
	tree, ok := value.([]any)
	if !ok {
		return nil, false
	}
	list := make([]string, len(tree))
	for i, v := range tree {
		if list[i], ok = v.(string); !ok {
			return nil, false
		}
	}
	return list, true
}

// usualMembers is how many members metadata mostly has at most, managedFields among them; a map with room for more takes twice the memory.
const usualMembers = 14

// metaTree returns metadata as a tree, without managedFields.
func metaTree(m *metav1.ObjectMeta) (map[string]any, error) {
	tree := make(map[string]any, usualMembers)
	text := func(name, value string) {
		if value != "" {
			tree[name] = value
		}
	}
	text("name", m.Name)
	text("generateName", m.GenerateName)
	text("namespace", m.Namespace)
	//lint:ignore SA1019 it's deprecated, and an update still writes it
	text("selfLink", m.SelfLink)
	text("uid", string(m.UID))
	text("resourceVersion", m.ResourceVersion)
	if m.Generation != 0 {
		tree["generation"] = m.Generation
	}
	if !m.CreationTimestamp.IsZero() {
		tree["creationTimestamp"] = m.CreationTimestamp.UTC().Format(time.RFC3339)
	}
	if t := m.DeletionTimestamp; t != nil {
		tree["deletionTimestamp"] = t.ToUnstructured()
	}
	if n := m.DeletionGracePeriodSeconds; n != nil {
		tree["deletionGracePeriodSeconds"] = *n
	}
	if len(m.Labels) > 0 {
		tree["labels"] = treeOf(m.Labels)
	}
	if len(m.Annotations) > 0 {
		tree["annotations"] = treeOf(m.Annotations)
	}
	if len(m.Finalizers) > 0 {
		list := make([]any, len(m.Finalizers))
		for i, f := range m.Finalizers {
			list[i] = f
		}
		tree["finalizers"] = list
	}
	if len(m.OwnerReferences) > 0 {
		list := make([]any, len(m.OwnerReferences))
		for i := range m.OwnerReferences {
			ref, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.OwnerReferences[i])
			if err != nil {
				return nil, err
			}
			list[i] = ref
		}
		tree["ownerReferences"] = list
	}
	return tree, nil
}

func treeOf(m map[string]string) map[string]any {
	tree := make(map[string]any, len(m))
	for k, v := range m {
		tree[k] = v
	}
	return tree
}
