package markup

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

func indentInPieces(doc []byte, size int) string {
	var out bytes.Buffer
	in := NewIndenter(&out)
	for len(doc) > size {
		in.Write(doc[:size])
		doc = doc[size:]
	}
	in.Write(doc)
	return out.String()
}

func TestIndent(t *testing.T) {
	for _, tc := range []struct{ name, doc, want string }{
		{"empty object", `{}`, "{}"},
		{"empty array", `[]`, "[]"},
		{"number", `1`, "1"},
		{"object", `{"a":1,"b":{}}`, "{\n  \"a\": 1,\n  \"b\": {}\n}"},
		{"array of objects", `[{"a":[]},{}]`, "[\n  {\n    \"a\": []\n  },\n  {}\n]"},
		{"brackets in strings", `{"a":"[{,:}]\"\\"}`, "{\n  \"a\": \"[{,:}]\\\"\\\\\"\n}"},
		{"space goes", " { \"a\" :\n\t[ 1 , 2 ] }\r\n", "{\n  \"a\": [\n    1,\n    2\n  ]\n}"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, size := range []int{1, 3, 1000} {
				if got := indentInPieces([]byte(tc.doc), size); got != tc.want {
					t.Errorf("in pieces of %d: %q, want %q", size, got, tc.want)
				}
			}
		})
	}
}

func TestIndentIsBounded(t *testing.T) {
	doc := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	if got, most := len(indentInPieces([]byte(doc), 1000)), len(doc)*(2+2*maxIndent); got > most {
		t.Errorf("%d bytes became %d, want at most %d", len(doc), got, most)
	}
	if got := indentInPieces([]byte(doc), 1000); !json.Valid([]byte(got)) {
		t.Error("a deep document isn't valid any more")
	}
}

// FuzzIndent holds the indenter against encoding/json's, which needs the whole document.
func FuzzIndent(f *testing.F) {
	for _, doc := range []string{`{}`, `{"a":[1,{"b":null}],"c":"\"{"}`, `[[],[[]],"",-1.5e3]`, `"x"`} {
		f.Add([]byte(doc), 2)
	}
	f.Fuzz(func(t *testing.T, doc []byte, size int) {
		if !json.Valid(doc) || Measure(doc).Depth > maxIndent || size < 1 {
			return
		}
		var want bytes.Buffer
		if err := json.Indent(&want, bytes.TrimSpace(doc), "", "  "); err != nil {
			t.Fatal(err)
		}
		if got := indentInPieces(doc, size); got != want.String() {
			t.Errorf("%q became\n%q, want\n%q", doc, got, want.String())
		}
	})
}

func TestMeasure(t *testing.T) {
	for _, tc := range []struct {
		doc   string
		depth int
	}{
		{`1`, 0}, {`{}`, 1}, {`[[[]]]`, 3}, {`{"a":"[[[[","b":"\"[["}`, 1}, {`[[],[[]]]`, 3}, {`]]]]`, 0},
	} {
		if got := Measure([]byte(tc.doc)).Depth; got != tc.depth {
			t.Errorf("depth of %s is %d, want %d", tc.doc, got, tc.depth)
		}
	}
}
