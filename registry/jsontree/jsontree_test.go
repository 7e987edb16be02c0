package jsontree

import (
	"encoding/json"
	"maps"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	kjson "sigs.k8s.io/json"
)

// FuzzTree holds reading and writing to the packages that they stand for.
func FuzzTree(f *testing.F) {
	for _, s := range []string{
		`{"a":1,"b":[1.5,-0,0,1e3,1E-7,1e21,9223372036854775807,9223372036854775808,-9223372036854775808],"c":null,"d":true,"e":false}`,
		` { "a" : { } , "a" : [ ] } `, `"x\u00e4\ud83d\ude00\ud800\n\/"`, `"<&>\u2028ä😀"`, `{"\u0061":1,"a":2}`, "{\"a\":\"\x00\"}", "\"\x7f\"",
		`"k:{\"type\":\"Ready\"}"`, `"\"\\\/\b\f\n\r\t"`, `"\"<\\"`, `"\"\u0041\\"`, `"\"\x"`, `"\"\`, "\"\\\"\x01\"",
		`01`, `-`, `1.`, `.5`, `1e`, `1e999`, `+1`, `nul`, `tru`, `[1,]`, `{"a":1,}`, `{"a"}`, `{a:1}`, `[1 2]`, `"`, `"\`, `"\x"`, ``, ` `, `{} {}`, `{}x`,
		strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000), strings.Repeat("[", 10_001) + strings.Repeat("]", 10_001),
		strings.Repeat(`{"a":`, 9_999) + "{}" + strings.Repeat("}", 9_999), strings.Repeat(`{"a":`, 10_001),
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if !utf8.Valid(data) {
			return
		}
		var want any
		wantErr := kjson.UnmarshalCaseSensitivePreserveInts(data, &want)
		if wantErr != nil && strings.HasSuffix(wantErr.Error(), "exceeded max depth") {
			wantErr = ErrTooDeep
		}
		got, repeated, err := Decode(data)
		if (err == nil) != (wantErr == nil) || err != nil && err.Error() != wantErr.Error() {
			t.Fatalf("error %v, want %v", err, wantErr)
		}
		if err != nil {
			return
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("got %#v, want %#v", got, want)
		}
		if object, ok := want.(map[string]any); ok {
			if _, has := object["a"]; has {
				less := maps.Clone(object)
				delete(less, "a")
				if got, _, err := DecodeWithout(data, "a"); !reflect.DeepEqual(got, any(less)) || err != nil {
					t.Fatalf("without a it's %#v, %v, want %#v", got, err, less)
				}
				kept, _, err := DecodeKeeping(data, "a")
				if whole, bad := Whole(kept); !reflect.DeepEqual(whole, want) || err != nil || bad != nil {
					t.Fatalf("with a as Raw it's %#v (%v), which is %#v (%v), want %#v", kept, err, whole, bad, want)
				}
			}
		}
		var again any
		complaints, _ := kjson.UnmarshalStrict(data, &again, kjson.DisallowDuplicateFields)
		if !repeated && len(complaints) > 0 {
			t.Fatalf("repeated %v, complaints %v", repeated, complaints)
		}
		text, err := Append(nil, got)
		wantText, wantErr := json.Marshal(want)
		if string(text) != string(wantText) || (err == nil) != (wantErr == nil) {
			t.Fatalf("encoded %s, %v, want %s, %v", text, err, wantText, wantErr)
		}
		wantCopy, _, wantErr := Decode(text)
		if same, err := Plain(got); !reflect.DeepEqual(same, wantCopy) || err != wantErr {
			t.Fatalf("copied %#v, %v, want %#v, %v", same, err, wantCopy, wantErr)
		}
	})
}

func TestDecodeWithout(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"alone", `{"a":{"b":1}}`, `{"a":{}}`},
		{"first", `{"a":{"b":1,"c":2}}`, `{"a":{"c":2}}`},
		{"last", `{"a":{"c":2,"b":1}}`, `{"a":{"c":2}}`},
		{"spaces", ` { "a" : { "b" : [ 1 , 2 ] , "c" : 2 } } `, `{"a":{"c":2}}`},
		{"nested", `{"a":{"b":[{"x":"]},","y":[1,{}]},"\"}\\"],"c":2}}`, `{"a":{"c":2}}`},
		{"deeper", `{"x":{"a":{"b":1}},"a":{"a":{"b":1},"x":{"b":1}},"b":1}`, `{"x":{"a":{"b":1}},"a":{"a":{"b":1},"x":{"b":1}},"b":1}`},
		{"in a list", `[{"a":{"b":1}}]`, `[{"a":{"b":1}}]`},
		{"twice", `{"a":{"b":1,"b":2}}`, `{"a":{}}`},
		{"on another path after it", `{"a":{"b":1},"c":{"b":1}}`, `{"a":{},"c":{"b":1}}`},
		{"not there", `{"c":1}`, `{"c":1}`},
		{"below what is no object", `{"a":[{"b":1}]}`, `{"a":[{"b":1}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, repeated, err := DecodeWithout([]byte(c.in), "a", "b")
			want, _, _ := Decode([]byte(c.want))
			if err != nil || repeated || !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, %v, %v, want %v", got, repeated, err, want)
			}
		})
	}
}

// TestRaw: what isn't decoded has its text, is written as it is, and is what Decode makes of it as soon as somebody asks.
func TestRaw(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     any
	}{
		{"in each element", `{"list":[{"in":{"x":1},"y":2},{"in":[]}]}`, map[string]any{"list": []any{map[string]any{"in": Raw(`{"x":1}`), "y": int64(2)}, map[string]any{"in": Raw(`[]`)}}}},
		{"spaces around it", `{"list":[{"in" : {"x": 1} }]}`, map[string]any{"list": []any{map[string]any{"in": Raw(`{"x": 1}`)}}}},
		{"not in the list", `{"in":1,"list":[{"y":{"in":1}},[{"in":1}],2]}`, map[string]any{"in": int64(1), "list": []any{map[string]any{"y": map[string]any{"in": int64(1)}}, []any{map[string]any{"in": int64(1)}}, int64(2)}}},
		{"after the list", `{"list":[{"in":1}],"other":[{"in":1}]}`, map[string]any{"list": []any{map[string]any{"in": Raw(`1`)}}, "other": []any{map[string]any{"in": int64(1)}}}},
		{"no list", `{"list":{"":{"in":1}}}`, map[string]any{"list": map[string]any{"": map[string]any{"in": Raw(`1`)}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, repeated, err := DecodeKeeping([]byte(c.in), "list", EachElement, "in")
			if err != nil || repeated || !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %#v, %v, %v, want %#v", got, repeated, err, c.want)
			}
			whole, err := Whole(got)
			if want, _, _ := Decode([]byte(c.in)); err != nil || !reflect.DeepEqual(whole, want) {
				t.Errorf("whole it's %#v, %v, want %#v", whole, err, want)
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("it has become %#v", got)
			}
			text, err := Append(nil, got)
			again, _, bad := Decode(text)
			if err != nil || bad != nil || !reflect.DeepEqual(again, whole) {
				t.Errorf("written it's %s, %v", text, err)
			}
		})
	}
	if whole, err := Whole([]any{Raw(`{`)}); err == nil {
		t.Errorf("what is no JSON is %v", whole)
	}
}

// TestPlain: what a program may put into a tree becomes what its JSON says.
func TestPlain(t *testing.T) {
	list := []any{"a", map[string]any{"b": int64(1)}}
	given := map[string]any{
		"int": 1, "float": 2.0, "half": 0.5, "text": "a\xff", "a\xff": true, "list": list, "none": map[string]any(nil), "bytes": []byte("x"), "strings": []string{"a"},
	}
	want := map[string]any{
		"int": int64(1), "float": int64(2), "half": 0.5, "text": "a\ufffd", "a\ufffd": true, "list": []any{"a", map[string]any{"b": int64(1)}}, "none": nil, "bytes": "eA==", "strings": []any{"a"},
	}
	got, err := Plain(given)
	if !reflect.DeepEqual(got, want) || err != nil {
		t.Errorf("got %#v, %v, want %#v", got, err, want)
	}
	list[1].(map[string]any)["b"] = "changed"
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the copy has changed: %#v", got)
	}
	deep := any("end")
	for range maxDepth + 1 {
		deep = []any{deep}
	}
	for _, bad := range []any{math.NaN(), func() {}, deep} {
		if got, err := Plain(map[string]any{"a": bad}); err == nil {
			t.Errorf("%T is copied as %v", bad, got)
		}
	}
}

func TestAppendOtherTypes(t *testing.T) {
	var none map[string]any
	var nothing []any
	for _, v := range []any{none, nothing, 1, int32(2), []string{"a"}, map[string]string{"a": "<"}, map[string]any{"x": []byte("x")}} {
		want, _ := json.Marshal(v)
		if got, err := Append(nil, v); err != nil || string(got) != string(want) {
			t.Errorf("%#v is %s, %v, want %s", v, got, err, want)
		}
	}
	if _, err := Append(nil, map[string]any{"f": func() {}}); err == nil {
		t.Error("a function is encoded")
	}
}

func BenchmarkDecode(b *testing.B) {
	data := document(b, "object")
	for name, data := range map[string][]byte{"tree": data, "managed": document(b, "managed")} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := Decode(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("sigs.k8s.io", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var v any
			if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &v); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	tree, _, err := Decode(document(b, "object"))
	if err != nil {
		b.Fatal(err)
	}
	managed, _, err := Decode(document(b, "managed"))
	if err != nil {
		b.Fatal(err)
	}
	for name, tree := range map[string]any{"tree": tree, "managed": managed} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				if buf, err = Append(buf[:0], tree); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("encoding", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(tree); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// document is an object of a kilobyte: one as clients send them, or one with managedFields.
func document(b *testing.B, name string) []byte {
	data, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		b.Fatal(err)
	}
	return data
}
