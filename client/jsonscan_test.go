package client

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"testing"
)

// FuzzScan holds the scanner to encoding/json: of what is JSON it finds the same keys, values and elements, and what isn't is an
// error, or has a key, a value or an element that isn't JSON either.
func FuzzScan(f *testing.F) {
	for _, document := range []string{
		`{}`, ` { "a" : 1 , "b":{"c":[ ]} } `, `[]`, ` [ 1 , "x" , {"a":null} ] `, `[1 2]`, `[1,]`, `{"a":1,}`, `{"a":1`, `[{"a":1}`, `[1]x`, `{"\u0061":"\\"}`,
		`{"kind":"WidgetList","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"a"}} {"metadata":{"name":"b"}}]}`, `{a:1}`, `[tru]`, `null`, `"x\n"`, `[{]]`, "{\"\x80\":\"\"}",
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, document []byte) {
		var keys, values, items [][]byte
		notObject := scanObject(document, func(name, value []byte) bool {
			keys, values = append(keys, slices.Concat([]byte{'"'}, name, []byte{'"'})), append(values, value)
			return true
		})
		var notArray error
		for item, err := range elements(document) {
			if notArray = err; err == nil {
				items = append(items, item)
			}
		}
		sound := func(all ...[]byte) bool {
			return !slices.ContainsFunc(all, func(b []byte) bool { return !json.Valid(b) })
		}
		isObject, isArray := notObject == nil && sound(keys...) && sound(values...), notArray == nil && sound(items...)
		start := byte(0)
		if json.Valid(document) {
			start = bytes.TrimSpace(document)[0]
		}
		if isObject != (start == '{') || isArray != (start == '[' || start == 'n') {
			t.Fatalf("%q: an object: %v (%v), an array: %v (%v), and encoding/json has one that begins with %q", document, isObject, notObject, isArray, notArray, start)
		}
		if p, err := readPage(document); err == nil && !isObject {
			for item, failed := range elements(p.items) {
				if err = failed; err != nil || !json.Valid(item) {
					return
				}
			}
			t.Fatalf("%q is taken for a list", document)
		}
		decoder := json.NewDecoder(bytes.NewReader(document))
		next := func() (value json.RawMessage) {
			if err := decoder.Decode(&value); err != nil {
				t.Fatalf("%q: %v", document, err)
			}
			return value
		}
		switch start {
		case '{':
			decoder.Token()
			for i := range keys {
				key, err := decoder.Token()
				if err != nil || key != text(keys[i]) {
					t.Fatalf("%q: key %d is %q, want %q (%v)", document, i, keys[i], key, err)
				}
				if want := next(); !bytes.Equal(values[i], want) {
					t.Fatalf("%q: value %d is %q, want %q", document, i, values[i], want)
				}
			}
		case '[':
			decoder.Token()
			for i := range items {
				if want := next(); !bytes.Equal(items[i], want) {
					t.Fatalf("%q: element %d is %q, want %q", document, i, items[i], want)
				}
			}
		}
		if (start == '{' || start == '[') && decoder.More() {
			t.Fatalf("%q has more than %d members or %d elements", document, len(keys), len(items))
		}
	})
}

// TestMalformedList: a list that isn't JSON is an error, and loses no object silently.
func TestMalformedList(t *testing.T) {
	for _, items := range []string{`[{"metadata":{"name":"a"}} {"metadata":{"name":"b"}}]`, `[{"metadata":{"name":"a"}},]`, `[{]`, `7`, `[],"items":[]`} {
		first, err := readPage([]byte(`{"kind":"ThingList","metadata":{"resourceVersion":"7"},"items":` + items + `}`))
		list := List[Object]{first: first}
		if err == nil {
			_, err = list.Slice(context.Background())
		}
		if err == nil {
			t.Errorf("%s is taken for items", items)
		}
	}
	for _, document := range []string{`{"metadata":{"resourceVersion":"7"},"items":[]`, `{"metadata":{"resourceVersion":"7"},"items":[]}x`, `{"metadata":{"resourceVersion":"7","x":{]},"items":[]}`} {
		if _, err := readPage([]byte(document)); err == nil {
			t.Errorf("%s is taken for a list", document)
		}
	}
}
