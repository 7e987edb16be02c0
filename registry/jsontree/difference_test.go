package jsontree

import (
	"encoding/json"
	"math"
	"testing"
	"unicode/utf8"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

func TestDifference(t *testing.T) {
	for _, tt := range []struct{ name, before, after, want string }{
		{"nothing", `{"a":[1,{"b":null}]}`, `{"a":[1,{"b":null}]}`, `null`},
		{"a member", `{"a":1}`, `{"a":2}`, `[{"op":"replace","path":"/a","value":2}]`},
		{"a large number", `{"a":9007199254740993}`, `{"a":9007199254740992}`, `[{"op":"replace","path":"/a","value":9007199254740992}]`},
		{"a new member", `{}`, `{"a/b~c":null}`, `[{"op":"add","path":"/a~1b~0c","value":null}]`},
		{"a member that goes", `{"a":1,"b":2}`, `{"b":2}`, `[{"op":"remove","path":"/a"}]`},
		{"another type", `{"a":[1]}`, `{"a":{}}`, `[{"op":"replace","path":"/a","value":{}}]`},
		{"a new element at the beginning", `{"a":[1,2]}`, `{"a":[0,1,2]}`, `[{"op":"add","path":"/a/0","value":0}]`},
		{"an element of the middle that goes", `{"a":[1,2,3]}`, `{"a":[1,3]}`, `[{"op":"remove","path":"/a/1"}]`},
		{"elements that go", `{"a":[1,2,3]}`, `{"a":[]}`, `[{"op":"remove","path":"/a/2"},{"op":"remove","path":"/a/1"},{"op":"remove","path":"/a/0"}]`},
		{"a member of an element", `{"a":[{"n":1,"v":2},{"n":2}]}`, `{"a":[{"n":1,"v":3},{"n":2}]}`, `[{"op":"replace","path":"/a/0/v","value":3}]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before, _, err := Decode([]byte(tt.before))
			if err != nil {
				t.Fatal(err)
			}
			after, _, err := Decode([]byte(tt.after))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(Difference(before, after, math.MaxInt))
			if err != nil || string(got) != tt.want {
				t.Errorf("%s, %v, want %s", got, err, tt.want)
			}
		})
	}
}

// TestDifferenceBounded: where paths would be long, whole members are replaced.
func TestDifferenceBounded(t *testing.T) {
	before, after := map[string]any{"a": map[string]any{"long": int64(1), "other": int64(2)}, "b": int64(3)}, map[string]any{"a": map[string]any{"long": int64(2), "other": int64(3)}, "b": int64(3)}
	got, err := json.Marshal(Difference(before, after, 10))
	if want := `[{"op":"replace","path":"/a","value":{"long":2,"other":3}}]`; err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// A patch makes of the one document the other one, as a library that applies patches does it.
func FuzzDifference(f *testing.F) {
	f.Add(`{"a":[1,2,3],"b":{"c":"d"}}`, `{"a":[2,3,4,5],"b":{"e":null}}`, uint16(100))
	f.Add(`[[],{}]`, `[{},[],{"":0}]`, uint16(100))
	f.Add(`{"~":1,"/":[0.1]}`, `{"~":2,"/":[0.1,0.2]}`, uint16(100))
	f.Add(`{"a":{"b":1,"c":[2]}}`, `{"a":{"b":2,"c":[3]}}`, uint16(3))
	f.Add(`{"a":null}`, `{"a":[null]}`, uint16(100))
	f.Fuzz(func(t *testing.T, a, b string, most uint16) {
		if !utf8.ValidString(a + b) {
			return
		}
		before, repeated, err := Decode([]byte(a))
		if err != nil || repeated {
			return
		}
		after, repeated, err := Decode([]byte(b))
		if err != nil || repeated {
			return
		}
		if _, ok := before.(map[string]any); !ok { // objects are
			before = map[string]any{"is": before}
		}
		if _, ok := after.(map[string]any); !ok {
			after = map[string]any{"is": after}
		}
		ops := Difference(before, after, int(most))
		if len(ops) == 0 {
			if !Same(before, after) {
				t.Errorf("no difference of %s and %s", a, b)
			}
			return
		}
		text, err := json.Marshal(ops)
		if err != nil {
			t.Fatal(err)
		}
		patch, err := jsonpatch.DecodePatch(text)
		if err != nil {
			t.Fatal(err)
		}
		was, err := Append(nil, before)
		if err != nil {
			t.Fatal(err)
		}
		patched, err := patch.Apply(was)
		if err != nil {
			t.Fatalf("%s doesn't apply to %s: %v", text, was, err)
		}
		is, _, err := Decode(patched)
		if err != nil {
			t.Fatal(err)
		}
		want, err := Append(nil, after) // in which 0.0 is 0, as in the patch
		if err != nil {
			t.Fatal(err)
		}
		if got, err := Append(nil, is); err != nil || string(got) != string(want) {
			t.Errorf("%s made %s of %s, want %s: %v", text, patched, was, b, err)
		}
	})
}
