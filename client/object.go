package client

import (
	"encoding/json"
	"fmt"
)

// Object is an object as JSON, for programs that don't know its type: Resource[Object] is a collection of them. The zero
// value is no object. An Object must not be changed; change what Decode makes of it.
type Object json.RawMessage

// MarshalJSON returns the object itself.
func (o Object) MarshalJSON() ([]byte, error) {
	if len(o) == 0 {
		return []byte("null"), nil
	}
	return o, nil
}

// UnmarshalJSON copies the document.
func (o *Object) UnmarshalJSON(document []byte) error {
	*o = append((*o)[:0], document...)
	return nil
}

// Meta returns what the object says of itself.
func (o Object) Meta() (Meta, error) {
	var m Meta
	if err := json.Unmarshal(o, &m); err != nil {
		return Meta{}, fmt.Errorf("object's metadata: %w", err)
	}
	return m, nil
}

// Kind returns the kind, such as Widget.
func (o Object) Kind() string { return text(o.Field("kind")) }

// APIVersion returns the group and version, such as example.com/v1.
func (o Object) APIVersion() string { return text(o.Field("apiVersion")) }

// Name returns metadata.name.
func (o Object) Name() string { return text(o.Field("metadata", "name")) }

// Namespace returns metadata.namespace.
func (o Object) Namespace() string { return text(o.Field("metadata", "namespace")) }

// UID returns metadata.uid.
func (o Object) UID() string { return text(o.Field("metadata", "uid")) }

// ResourceVersion returns metadata.resourceVersion.
func (o Object) ResourceVersion() string { return text(o.Field("metadata", "resourceVersion")) }

// GetLabels returns a copy of metadata.labels.
func (o Object) GetLabels() map[string]string { return labelsIn(o.Field("metadata", "labels")) }

// Field returns the JSON of the member at a path, nil if it isn't there. It doesn't copy.
func (o Object) Field(path ...string) json.RawMessage {
	value := []byte(o)
	for _, name := range path {
		if value = member(value, name); value == nil {
			return nil
		}
	}
	return value
}

// Decode decodes the member at a path, or the whole object without one, into what v points to.
func (o Object) Decode(v any, path ...string) error {
	value := o.Field(path...)
	if value == nil {
		return fmt.Errorf("object has no %q", path)
	}
	return json.Unmarshal(value, v)
}

// labelsIn returns what is in the JSON object of labels.
func labelsIn(document []byte) map[string]string {
	var labels map[string]string
	for key, value := range members(document) {
		if labels == nil {
			labels = map[string]string{}
		}
		labels[string(key)] = text(value) // keys have no escapes: they're names
	}
	return labels
}
