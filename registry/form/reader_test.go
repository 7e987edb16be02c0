package form

import (
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// FuzzReader: of valid JSON a reader gives what the decoder of all other objects gives, whole or in part; of anything else
// something, without a panic.
func FuzzReader(f *testing.F) {
	for _, seed := range []string{
		`{"a":{"b":1,"c":[1,"]",{"b":2}]},"d":"x"}`, `{"a":"é\n\"","d":{"b":-1.5e3}}`, `{"a":1,"a":2}`, `[{"a":1}]`, `null`, `-0`,
		`9223372036854775808`, ` { "a" : { } , "b" : [ ] } `, `{"a":{"b":true,"x":false,"y":null}}`, `{"a":`, `{"a" 1}`, `"`, `{"\`, `}`, ``,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := newReader([]byte(text)).value()
		part := wanted{}.with([]string{"a", "b"}).with([]string{"d"}).decode(newReader([]byte(text)))
		if !json.Valid([]byte(text)) || !utf8.ValidString(text) { // neither is ever stored
			return
		}
		var want any
		if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &want); err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %#v, want %#v", text, got, want)
		}
		if want = wantedOf(want); !reflect.DeepEqual(part, want) {
			t.Errorf("%s in part: got %#v, want %#v", text, part, want)
		}
	})
}

// wantedOf leaves of a value what .a.b and .d show.
func wantedOf(value any) any {
	in, ok := value.(map[string]any)
	if !ok {
		return value
	}
	out := map[string]any{}
	if a, ok := in["a"]; ok {
		out["a"] = a
		if below, ok := a.(map[string]any); ok {
			some := map[string]any{}
			if b, ok := below["b"]; ok {
				some["b"] = b
			}
			out["a"] = some
		}
	}
	if d, ok := in["d"]; ok {
		out["d"] = d
	}
	return out
}
