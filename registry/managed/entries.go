package managed

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/managedfields"

	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
)

// record is an object's managedFields in both forms: as found in the tree, and as the library takes them.
type record struct {
	tree    []any
	entries []metav1.ManagedFieldsEntry
}

// entriesOf returns the managedFields of an object as they are in the tree, nil if it has none.
func entriesOf(root map[string]any) []any {
	list, _ := metadataOf(root)["managedFields"].([]any)
	return list
}

// Entries returns the managedFields of an object's tree as values of their type. ok is false if they can't be read.
func Entries(list []any) (entries []metav1.ManagedFieldsEntry, ok bool) {
	if len(list) == 0 {
		return nil, true
	}
	entries = recordOf(list).entries
	return entries, entries != nil
}

// Take takes managedFields out of an object's metadata, if each entry is as its type writes it. Then to read and to write it by its type
// would change nothing. It's nil if there is none, or one of another form, which stays.
func Take(metadata map[string]any) []any {
	list, _ := metadata["managedFields"].([]any)
	if len(list) == 0 || slices.ContainsFunc(list, func(entry any) bool { return !asWritten(entry) }) {
		return nil
	}
	delete(metadata, "managedFields")
	return list
}

// asWritten tells whether an entry of managedFields is as its type writes it.
func asWritten(entry any) bool {
	m, ok := entry.(map[string]any)
	for name, v := range m {
		text, _ := v.(string)
		switch name {
		case "manager", "operation", "apiVersion", "fieldsType", "subresource":
			ok = ok && text != ""
		case "time":
			at, err := time.Parse(time.RFC3339, text)
			ok = ok && err == nil && at.UTC().Format(time.RFC3339) == text
		case "fieldsV1":
			fields, isObject := v.(map[string]any)
			ok = ok && isObject && fields != nil
		default:
			return false
		}
	}
	return ok
}

// CopyEntries copies managedFields, so that entries can be added, changed and taken out. The copy shares their fieldsV1.
func CopyEntries(list []any) []any {
	list = slices.Clone(list)
	for i, entry := range list {
		if fields, ok := entry.(map[string]any); ok {
			list[i] = maps.Clone(fields)
		}
	}
	return list
}

// Validate says what is wrong with an object's managedFields, in the words of Kubernetes.
func Validate(list []any) error {
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	var entries []metav1.ManagedFieldsEntry
	if err := json.Unmarshal(text, &entries); err != nil {
		return err
	}
	return managedfields.ValidateManagedFields(entries)
}

// recordOf reads managedFields. What can't be read counts as absent (entries nil), as in kube-apiserver; an
// empty list isn't absent: it's how a client asks for a reset.
func recordOf(list []any) record {
	if list == nil {
		return record{}
	}
	r := record{tree: list, entries: make([]metav1.ManagedFieldsEntry, len(list))}
	for i, item := range list {
		m, ok := item.(map[string]any)
		if !ok || !decodeEntry(m, &r.entries[i]) {
			return record{}
		}
	}
	return r
}

// decodeEntry reads an entry and reports whether it is one. Keys it doesn't know are ignored.
func decodeEntry(m map[string]any, e *metav1.ManagedFieldsEntry) bool {
	ok := true
	text := func(key string) string {
		s, isText := m[key].(string)
		ok = ok && (isText || m[key] == nil)
		return s
	}
	e.Manager, e.APIVersion = text("manager"), text("apiVersion")
	e.FieldsType, e.Subresource = text("fieldsType"), text("subresource")
	operation, at := text("operation"), text("time")
	if !ok {
		return false
	}
	e.Operation = metav1.ManagedFieldsOperationType(operation)
	if at != "" {
		t, err := time.Parse(time.RFC3339, at)
		if err != nil {
			return false
		}
		e.Time = &metav1.Time{Time: t}
	}
	if fields, ok := m["fieldsV1"]; ok && fields != nil {
		raw, is := fields.(jsontree.Raw)
		if !is {
			made, err := jsontree.Append(nil, fields)
			if err != nil {
				return false
			}
			raw = jsontree.Raw(made)
		}
		e.FieldsV1 = metav1.NewFieldsV1(string(raw))
	}
	return true
}

// treeOf returns entries that the library made as a tree. What is as it was in r is r's.
func (r record) treeOf(entries []metav1.ManagedFieldsEntry) []any {
	if len(entries) == 0 {
		return nil
	}
	out := make([]any, len(entries))
	for i := range entries {
		out[i] = r.entryTree(&entries[i])
	}
	return out
}

func (r record) entryTree(e *metav1.ManagedFieldsEntry) map[string]any {
	var fields any
	for i := range r.entries {
		if old := &r.entries[i]; sameSet(old, e) {
			m := r.tree[i].(map[string]any)
			if old.Time.Equal(e.Time) {
				return m
			}
			fields = m["fieldsV1"]
			break
		}
	}
	if fields == nil {
		fields = fieldsOf(e.FieldsV1.GetRawString())
	}
	return newEntry(e, fields)
}

// fieldsOf returns what the library has encoded, as it is unless JSON of ours escapes some of it.
func fieldsOf(text string) any {
	if !strings.ContainsAny(text, "<>&\u2028\u2029") {
		return jsontree.Raw(text)
	}
	fields, err := jsontree.Whole(jsontree.Raw(text))
	if err != nil {
		panic(err) // the library encodes what it has made
	}
	return fields
}

// sameEntries tells whether managedFields that a client sent are those that are stored.
func sameEntries(sent, stored []any) bool {
	whole, err := jsontree.Whole(stored)
	return err == nil && equal(sent, whole)
}

// newEntry returns an entry as a tree, with these fields instead of its own.
func newEntry(e *metav1.ManagedFieldsEntry, fields any) map[string]any {
	m := map[string]any{
		"manager": e.Manager, "operation": string(e.Operation), "apiVersion": e.APIVersion,
		"fieldsType": e.FieldsType, "fieldsV1": fields,
	}
	if e.Manager == "" {
		delete(m, "manager")
	}
	if e.Subresource != "" {
		m["subresource"] = e.Subresource
	}
	if e.Time != nil {
		m["time"] = e.Time.UTC().Format(time.RFC3339)
	}
	return m
}

// sameSet reports whether two entries say the same but for the time. Fields in another order are taken for
// others, which costs their decoding and nothing else.
func sameSet(a, b *metav1.ManagedFieldsEntry) bool {
	return a.Manager == b.Manager && a.Operation == b.Operation && a.APIVersion == b.APIVersion &&
		a.FieldsType == b.FieldsType && a.Subresource == b.Subresource && a.FieldsV1 != nil && b.FieldsV1 != nil &&
		bytes.Equal(a.FieldsV1.GetRawBytes(), b.FieldsV1.GetRawBytes())
}

// KeepTimes gives next the managedFields of live if they differ in nothing but times and the objects in nothing
// else: such a write is none, and its bytes are those of live. It changes next's metadata and nothing below it.
//
// Apply and Update end with it. It's for callers that change an object afterwards (defaults, a status that is
// put back) and by that may make it what it was.
// Source: apiserver's IgnoreManagedFieldsTimestampsTransformer (kubernetes/kubernetes#110058).
func KeepTimes(live, next map[string]any) {
	a := entriesOf(live)
	if len(a) == 0 || !equalBesidesTimes(a, entriesOf(next)) {
		return
	}
	liveMeta, nextMeta := metadataOf(live), metadataOf(next)
	if equalMaps(live, next, "metadata") && equalMaps(liveMeta, nextMeta, "managedFields") {
		nextMeta["managedFields"] = a
	}
}

func equalBesidesTimes(a, b []any) bool {
	return slices.EqualFunc(a, b, func(a, b any) bool {
		x, _ := a.(map[string]any)
		y, _ := b.(map[string]any)
		return x != nil && y != nil && equalMaps(without(x, "time"), without(y, "time"), "")
	})
}
