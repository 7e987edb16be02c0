package document_test

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/backup/document"
)

func decode(t *testing.T, text string) document.Object {
	t.Helper()
	o, err := document.Decode([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// TestAppend: what is written, as a person reads it.
func TestAppend(t *testing.T) {
	t.Parallel()
	object := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","labels":{"app":"x/y","on":"yes"}},
		"data":{"c":"one\ntwo\n","d":"no end\nhere","e":"more\n\n","f":" first\nline","g":"","h":"tab\there: x","i":"grün 🙂 \u0000","j":"a: b","k":"-","l":"1e3","m":"true"},
		"list":[1,[2,[]],{"a":[{}],"b":null},"s",-1.50,1e400]}`
	want := `---
apiVersion: v1
data:
  c: |
    one
    two
  d: |-
    no end
    here
  e: |+
    more

  f: " first\nline"
  g: ""
  h: "tab\there: x"
  i: "grün 🙂 \u0000"
  j: "a: b"
  k: "-"
  l: "1e3"
  m: "true"
kind: ConfigMap
list:
- 1
- - 2
  - []
- a:
  - {}
  b: null
- s
- -1.5
- 1e400
metadata:
  labels:
    app: x/y
    "on": "yes"
  name: a
`
	if got := string(document.Append(nil, decode(t, object))); got != want {
		t.Errorf("it is\n%s\nwant\n%s", got, want)
	}
}

// TestSplit: where documents begin and end.
func TestSplit(t *testing.T) {
	t.Parallel()
	long := "a: " + strings.Repeat("x", 200_000)
	tests := []struct {
		name, text string
		want       []string
		lines      []int
	}{
		{"one", "a: 1\n", []string{"a: 1\n"}, []int{1}},
		{"several", "# first\n---\na: 1\n---\n\n# no\n--- # second\nb: 2\n---\n", []string{"\na: 1\n", " # second\nb: 2\n"}, []int{2, 7}},
		{"dashes in a string", "a: |\n  ---\n--- \nb: 2", []string{"a: |\n  ---\n", " \nb: 2"}, []int{1, 3}},
		{"long lines", long + "\n---\n" + long, []string{long + "\n", "\n" + long}, []int{1, 2}},
		{"nothing", "", nil, nil},
		{"JSON values", "{\"a\":1}\n\n{\"b\":\n2} {\"c\":3}{}\n", []string{"{\"a\":1}\n\n", "{\"b\":\n2}", `{"c":3}`, "{}\n"}, []int{1, 3, 4, 4}},
		{"lines of JSON", "{\"a\":1}\n{\"b\":[\n{},\n{}]}\n\n{\"c\":3}\n", []string{"{\"a\":1}\n", "{\"b\":[\n{},\n{}]}\n\n", "{\"c\":3}\n"}, []int{1, 2, 6}},
		{"JSON and garbage", "--- {\"a\":1}\n}}}\n---\na: 1", []string{` {"a":1}`, "}}}\n", "\na: 1"}, []int{1, 2, 3}},
		{"JSON and a comment", "{\"a\":1} # one\n# two\n", []string{"{\"a\":1} # one\n# two\n"}, []int{1}},
		{"YAML with braces", "{a: 1,\n\"b\": 2}\n", []string{"{a: 1,\n\"b\": 2}\n"}, []int{1}},
		{"ends", "a: 1\n...\nb: 2\n... # that's it\n---\nc: 3\n...\n", []string{"a: 1\n", "\nb: 2\n", "\nc: 3\n"}, []int{1, 2, 5}},
		{"dots in a string", "a: |\n  ...\nb: ...\n", []string{"a: |\n  ...\nb: ...\n"}, []int{1}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			var lines []int
			err := document.Split(strings.NewReader(test.text), func(line int, text []byte) error {
				got, lines = append(got, string(text)), append(lines, line)
				return nil
			})
			if err != nil || !reflect.DeepEqual(got, test.want) || !reflect.DeepEqual(lines, test.lines) {
				t.Errorf("they are %.100q at lines %v, %v; want %.100q at %v", got, lines, err, test.want, test.lines)
			}
		})
	}
}

// TestParse: what is an object, and what isn't.
func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, text, want, err string }{
		{"YAML", "apiVersion: v1\nkind: X\nmetadata: {name: a}\nm: 12345678901234567", `[{"apiVersion":"v1","kind":"X","m":12345678901234567,"metadata":{"name":"a"}}]`, ""},
		{"JSON", `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}`, `[{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}]`, ""},
		{"List", `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}]}`, `[{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}]`, ""},
		{"no name", "apiVersion: v1\nkind: X", "", "without metadata.name"},
		{"no name in a List", "apiVersion: v1\nkind: List\nitems: [{kind: X, apiVersion: v1}]", "", "items[0]: an object without metadata.name"},
		{"a name twice", "apiVersion: v1\nkind: X\nkind: Y", "", "already set"},
		{"no object", "- 1", "", "it's no object"},
		{"no YAML", "a: [", "", "yaml: "},
		{"JSON, and a comment", "# a\n{\"apiVersion\":\"v1\",\"kind\":\"X\",\"metadata\":{\"name\":\"a\"}} # b\n# c\n", `[{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}]`, ""},
		{"indented", "  apiVersion: v1\n  kind: X\n  metadata: {name: a}\n", `[{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}}]`, ""},
		{"two in braces", "{apiVersion: v1, kind: X, metadata: {name: a}}\n{apiVersion: v1, kind: X, metadata: {name: b}}", "", "something follows the end of the object"},
		{"braces and garbage", `{"apiVersion":"v1","kind":"X","metadata":{"name":"a"}} }}}`, "", "something follows the end of the object"},
		{"garbage", "}}}", "", "yaml: "},
		{"two that aren't split", "apiVersion: v1\nkind: X\nmetadata: {name: a}\n---\na: 1\n", "", "something follows the end of the object"},
		{"outdented", "  apiVersion: v1\n  kind: X\n  metadata: {name: a}\ndata: {a: b}\n", "", "something follows the end of the object"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			all, err := document.Parse([]byte(test.text))
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("the error is %v, want %q", err, test.err)
				}
				return
			}
			if got, _ := json.Marshal(all); err != nil || string(got) != test.want {
				t.Errorf("they are %s, %v; want %s", got, err, test.want)
			}
		})
	}
}

// FuzzAppend: what is written is read as what it was, by the reader that kubectl has, and written again in the same way.
func FuzzAppend(f *testing.F) {
	for _, seed := range []string{
		`{"a":"b\nc"}`, `{"a":[[["x\n"],{}],{"b":{"c":"\n\n"}}]}`, `{"?":"~","0x1":"1_000","y":".inf"}`, `{"a":[1,-0,1.5,1e30,18446744073709551615]}`, "{\"a\":\"\u2028\\ufeff\\u0085\"}",
		`{"` + strings.Repeat("k", 2000) + `":{"a":"x\ny"},"b":["` + strings.Repeat("v ", 500) + `"]}`, `{"a":"x\n  y\n\tz \n"}`, `{"a":["x\ny\n\n",{"b":"x\n\n"}]}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var was, is any
		o, err := document.Decode(text)
		if err != nil || json.Unmarshal(text, &was) != nil { // as of a number that is too large
			return
		}
		written := document.Append(nil, o)
		read, err := yaml.YAMLToJSONStrict(written)
		if err != nil {
			t.Fatalf("%v:\n%s", err, written)
		}
		again, err := document.Decode(read)
		if err != nil {
			t.Fatal(err)
		}
		if rewritten := document.Append(nil, again); !bytes.Equal(rewritten, written) {
			t.Errorf("%q becomes\n%s\nand then\n%s", text, written, rewritten)
		}
		if json.Unmarshal(read, &is) == nil && !reflect.DeepEqual(was, is) && len(o) > 0 {
			t.Errorf("%q is read as %s", text, read)
		}
	})
}

// TestSplitLongStream: what is in JSON isn't too much because it has no "---".
func TestSplitLongStream(t *testing.T) {
	t.Parallel()
	line, n := `{"a":"`+strings.Repeat("x", 1<<20)+"\"}\n", 0
	lines := make([]io.Reader, 65)
	for i := range lines {
		lines[i] = strings.NewReader(line)
	}
	err := document.Split(io.MultiReader(lines...), func(_ int, text []byte) error { n++; return nil })
	if err != nil || n != len(lines) {
		t.Errorf("%d documents, %v; want %d", n, err, len(lines))
	}
}
