package client

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Key names an object within its resource.
type Key = watchstream.Key

// Event is a change of an object: its Type, the Object after it, the Key and the ResourceVersion.
type Event[T any] = watchstream.Event[T]

// head is what this package needs to know of each object.
type head struct {
	Key
	version string
}

// headOf reads an object's head from its JSON.
func headOf(document []byte) (h head) {
	for key, value := range members(member(document, "metadata")) {
		switch string(key) {
		case "name":
			h.Name = text(value)
		case "namespace":
			h.Namespace = text(value)
		case "resourceVersion":
			h.version = text(value)
		}
	}
	return h
}

// decode makes an object of the program's type from JSON, which it doesn't keep. The error wraps ErrType if the document
// is sound.
func decode[T any](document []byte) (*T, head, error) {
	object := new(T)
	if o, ok := any(object).(*Object); ok { // as below, but looks at the document once
		if !json.Valid(document) {
			return nil, head{}, fmt.Errorf("the object is no JSON: %.*q", maxQuoted, document)
		}
		*o = bytes.Clone(document)
		return object, headOf(document), nil
	}
	if err := json.Unmarshal(document, object); err != nil {
		if json.Valid(document) {
			err = fmt.Errorf("%s: %w: %w", headOf(document), ErrType, err)
		}
		return nil, head{}, err
	}
	if m, ok := any(object).(hasMeta); ok {
		m := m.meta()
		return object, head{Key{Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion}, nil
	}
	return object, headOf(document), nil
}

// decodeItem is decode of an item of a list, which may lack its type: that of the list says it.
func decodeItem[T any](document []byte, typed typeMeta) (*T, head, error) {
	if typed.kind != "" && member(document, "kind") == nil {
		document = typed.splice(document)
	}
	return decode[T](document)
}

// typeMeta is what kind of object a document is.
type typeMeta struct{ apiVersion, kind string }

// splice returns the document, a JSON object, with the members apiVersion and kind put where they're missing or empty.
func (t typeMeta) splice(document []byte) []byte {
	start := bytes.IndexByte(document, '{')
	if start < 0 {
		return document
	}
	spliced := []byte{'{'}
	for _, m := range [...]struct{ name, value string }{{"apiVersion", t.apiVersion}, {"kind", t.kind}} {
		if m.value != "" && text(member(document, m.name)) == "" {
			value, _ := json.Marshal(m.value) // of a string can't fail
			spliced = fmt.Appendf(spliced, "%q:%s,", m.name, value)
		}
	}
	if (&jsonscan.Scanner{Data: document, Pos: start + 1}).Peek() == '}' {
		spliced = bytes.TrimSuffix(spliced, []byte(","))
	}
	return append(spliced, document[start+1:]...)
}
