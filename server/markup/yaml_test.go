package markup

import (
	"encoding/json"
	"strings"
	"testing"

	yamlv3 "go.yaml.in/yaml/v3"
)

func TestFromYAML(t *testing.T) {
	for _, tc := range []struct{ name, text, want, err string }{
		{"object", "metadata:\n  name: a\n", `{"metadata":{"name":"a"}}`, ""},
		{"flow", "{metadata: {name: a}}", `{"metadata":{"name":"a"}}`, ""},
		{"json", `{"a":[1,true,null]}`, `{"a":[1,true,null]}`, ""},
		{"yaml 1.1 booleans, as kubectl reads them", "a: yes\nb: off\n", `{"a":true,"b":false}`, ""},
		{"block text", "a: |\n  x\n  y\n", `{"a":"x\ny\n"}`, ""},
		{"one document with its marker", "---\na: 1\n", `{"a":1}`, ""},
		{"nothing", "", "", ""},
		{"a comment", "# nothing\n", "", ""},
		{"an asterisk in a string", "a: \"*b\"\n", `{"a":"*b"}`, ""},
		{"the first of two documents", "a: 1\n---\nb: 1\n", `{"a":1}`, ""},
		{"anchor", "a: &x 1\n", "", "line 1: anchors (&x)"},
		{"alias", "a: &x 1\nb: *x\n", "", "anchors"},
		{"alias bomb", "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\n", "", "anchors"},
		{"alias as a key", "? &x a\n: 1\n", "", "anchors"},
		{"merge key", "<<: {a: 1}\n", "", "merge keys"},
		{"custom tag", "a: !foo 1\n", "", "tags (!foo)"},
		{"standard tag", "a: !!binary aGk=\n", "", "tags (!!binary)"},
		{"python tag", "a: !!python/object/apply:os.system [x]\n", "", "tags"},
		{"a key that is a list", "? [a]\n: 1\n", "", "a key must be a string"},
		{"not YAML", "a: [\n", "", "yaml: "},
		{"tab", "a:\n\t- b\n", "", "yaml: "},
		{"too many tokens", strings.Repeat("- a\n", maxYAMLTokens), "", "too many tokens"},
		{"deep", strings.Repeat("[", 100_000), "", "yaml: exceeded max depth"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			doc, _, err := FromYAML([]byte(tc.text))
			if tc.err == "" && (err != nil || string(doc) != tc.want) {
				t.Errorf("FromYAML = %s, %v, want %s", doc, err, tc.want)
			}
			if tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("FromYAML = %.80s, %v, want an error with %q", doc, err, tc.err)
			}
		})
	}
}

func TestDuplicateFields(t *testing.T) {
	doc, duplicates, err := FromYAML([]byte("spec:\n  size: 1\n  size: 2\n"))
	if err != nil || string(doc) != `{"spec":{"size":2}}` || len(duplicates) != 1 || duplicates[0] != `line 3: key "size" already set in map` {
		t.Fatalf("FromYAML = %s, %q, %v", doc, duplicates, err)
	}
	for _, tc := range []struct {
		validation string
		warnings   int
		fails      bool
	}{
		{"", 1, false}, {"Warn", 1, false}, {"Ignore", 0, false}, {"Strict", 0, true},
	} {
		t.Run("fieldValidation="+tc.validation, func(t *testing.T) {
			warnings, err := DuplicateFields(duplicates, tc.validation)
			if len(warnings) != tc.warnings || (err != nil) != tc.fails {
				t.Errorf("DuplicateFields = %q, %v", warnings, err)
			}
		})
	}
}

// maxBody is how large a body is at most, in bytes.
const maxBody = 3 << 20

// FuzzFromYAML looks for texts that panic, become something else than JSON, or have another shape for the parser that
// judges them than for the one that reads them.
func FuzzFromYAML(f *testing.F) {
	for _, text := range []string{"a: 1", "- x\n- {y: z}", "? a\n: b", "a: &x [*x]", "--- |\n x\n", "!!str a: b", "\xff", "a: .nan"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, _, err := FromYAML(text)
		if err == nil && len(doc) > 0 && !json.Valid(doc) {
			t.Errorf("%q became %q, which isn't JSON", text, doc)
		}
		var judged yamlv3.Node
		if err != nil || yamlv3.Unmarshal(text, &judged) != nil || len(judged.Content) == 0 {
			return
		}
		var read any
		if json.Unmarshal(doc, &read) == nil && !sameShape(judged.Content[0], read) {
			t.Errorf("%q became %s, which isn't what was judged", text, doc)
		}
	})
}

// sameShape tells whether a node has the keys and elements of what was read.
func sameShape(n *yamlv3.Node, read any) bool {
	switch read := read.(type) {
	case map[string]any:
		if n.Kind != yamlv3.MappingNode {
			return false
		}
		keys := map[string]*yamlv3.Node{}
		for i := 0; i < len(n.Content); i += 2 {
			keys[n.Content[i].Value] = n.Content[i+1]
		}
		if len(keys) < len(read) { // numbers that are one key for the reader can be written in several ways
			return false
		}
		for name, value := range read {
			if node := keys[name]; node != nil && !sameShape(node, value) {
				return false
			}
		}
		return true
	case []any:
		if n.Kind != yamlv3.SequenceNode || len(n.Content) != len(read) {
			return false
		}
		for i := range read {
			if !sameShape(n.Content[i], read[i]) {
				return false
			}
		}
		return true
	}
	return n.Kind == yamlv3.ScalarNode
}

// BenchmarkHostileYAML is for the texts that cost the most within the bounds.
func BenchmarkHostileYAML(b *testing.B) {
	for name, text := range map[string]string{
		"list":  strings.Repeat("- a\n", maxYAMLTokens/2),
		"flow":  "[" + strings.Repeat("{},", maxYAMLTokens/2) + "{}]",
		"deep":  strings.Repeat("[", 9_999) + strings.Repeat("]", 9_999),
		"keys":  "{" + strings.Repeat("a: b,", maxYAMLTokens/2-1) + "a: b}",
		"steps": steps(600),
		"large": "a: \"" + strings.Repeat("x", maxBody-6) + "\"",
		"space": "a:" + strings.Repeat(" ", maxBody-6) + "b",
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				FromYAML([]byte(text))
			}
		})
	}
}

func steps(n int) string {
	var text strings.Builder
	for i := range n {
		text.WriteString(strings.Repeat(" ", i) + "a:\n")
	}
	return text.String()
}
