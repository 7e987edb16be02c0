package ruleset

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/schema"
)

// chooser makes choices of a fuzzer's bytes; 0 where there are no more.
type chooser []byte

func (c *chooser) upTo(n int) int {
	if len(*c) == 0 {
		return 0
	}
	b := (*c)[0]
	*c = (*c)[1:]
	return int(b) % n
}

// world is a definition whose rules were made by choices, and what makes objects of its first version.
type world struct {
	rules, schema1, schema2 []string
	values                  []func(c *chooser) (path string, v any)
	lossless                bool // no rule can lose anything
}

var words = []string{"", "a", "b", "a:b", "1", "01", ":", "a:b:c", "low", "high", "L", "é<", "null", "{"}

func word(c *chooser) any { return words[c.upTo(len(words))] }

// add adds a rule about fields that no other rule has.
func (w *world) add(c *chooser) {
	i := len(w.rules)
	name := func(prefix string) string { return fmt.Sprintf("%s%d", prefix, i) }
	field := func(name, schema string) string { return fmt.Sprintf("%q:%s", name, schema) }
	a, b := name("a"), name("b")
	from, to := "spec."+a, "spec."+b
	fill := func(make func(c *chooser) any) {
		w.values = append(w.values, func(c *chooser) (string, any) { return a, make(c) })
	}
	switch c.upTo(8) {
	case 0:
		w.rules = append(w.rules, fmt.Sprintf("{rename: {from: %s, to: %s}}", from, to))
		w.schema1, w.schema2 = append(w.schema1, field(a, `{"type":"object","additionalProperties":{"type":"string"}}`)), append(w.schema2, field(b, `{"type":"object","additionalProperties":{"type":"string"}}`))
		fill(func(c *chooser) any { return map[string]any{"k": word(c)} })
	case 1:
		w.rules = append(w.rules, fmt.Sprintf("{move: {from: %s, to: %s.in.it}}", from, to))
		w.schema1, w.schema2 = append(w.schema1, field(a, text)), append(w.schema2, field(b, `{"type":"object","properties":{"in":{"type":"object","properties":{"it":`+text+`}}}}`))
		fill(word)
	case 2:
		kind := []string{text, `{"type":"object","properties":{"x":` + text + `}}`}[c.upTo(2)]
		w.rules = append(w.rules, fmt.Sprintf(`{move: {from: %s, to: "metadata.annotations[example.com/%s]"}}`, from, b))
		w.schema1 = append(w.schema1, field(a, kind))
		fill(func(c *chooser) any {
			if kind == text {
				return word(c)
			}
			return map[string]any{"x": word(c)}
		})
	case 3:
		w.rules = append(w.rules, fmt.Sprintf("{default: {to: %s, value: %q}}", to, words[c.upTo(len(words))]))
		w.schema2 = append(w.schema2, field(b, text))
	case 4:
		w.rules = append(w.rules, fmt.Sprintf("{map: {from: %s, to: %s, values: {low: L, high: H}}}", from, to))
		w.schema1, w.schema2 = append(w.schema1, field(a, `{"type":"string","enum":["low","high","a"]}`)), append(w.schema2, field(b, `{"type":"string","enum":["L","H","a"]}`))
		fill(func(c *chooser) any { return []any{"low", "high", "a"}[c.upTo(3)] })
	case 5:
		w.rules = append(w.rules, fmt.Sprintf(`{split: {from: %s, to: [%s, %sx], separator: ":"}}`, from, to, to))
		kind := []string{text, integer}[c.upTo(2)]
		w.schema1, w.schema2 = append(w.schema1, field(a, text)), append(w.schema2, field(b, text), field(b+"x", kind))
		w.lossless = w.lossless && kind == text
		fill(word)
	case 6:
		w.rules = append(w.rules, fmt.Sprintf(`{join: {from: [%s, %sx], to: %s, separator: ":"}}`, from, from, to))
		w.schema1, w.schema2 = append(w.schema1, field(a, text), field(a+"x", text)), append(w.schema2, field(b, text))
		w.lossless = false // a part may have the separator
		fill(word)
		w.values = append(w.values, func(c *chooser) (string, any) { return a + "x", word(c) })
	case 7:
		w.rules = append(w.rules, fmt.Sprintf(`{rename: {from: "spec.%s[*].x", to: "spec.%s[*].y"}}`, a, a))
		w.schema1, w.schema2 = append(w.schema1, listOf(a, `"x":`+text+`,"z":`+text)), append(w.schema2, listOf(a, `"y":`+text+`,"z":`+text))
		fill(func(c *chooser) any {
			items := []any{}
			for range c.upTo(3) {
				item := map[string]any{}
				for _, name := range []string{"x", "z"} {
					if c.upTo(2) == 1 {
						item[name] = word(c)
					}
				}
				items = append(items, item)
			}
			return items
		})
	}
}

// FuzzThereAndBack: by rules of any kind, an object that goes there and back has lost nothing where no rule can lose something; where one
// can, Differences says so; and what it is in the other version, it's there again after the next way there and back.
func FuzzThereAndBack(f *testing.F) {
	for kind := range 8 {
		f.Add([]byte{1, byte(kind), 1, 1, 1, 1, 2, 1, 3})
		f.Add([]byte{1, byte(kind), 0, 1, 3, 1, 1, 7})
	}
	f.Add([]byte{7, 0, 1, 2, 3, 4, 5, 6, 7, 1, 1, 1, 2, 1, 3, 1, 4, 1, 5, 1, 6, 1, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := chooser(data)
		w := &world{lossless: true}
		for range c.upTo(8) + 1 {
			w.add(&c)
		}
		d := definition(t, pair(w.rules...), strings.Join(w.schema1, ","), strings.Join(w.schema2, ","))
		rules := compiled(t, d)
		spec := map[string]any{}
		for _, value := range w.values {
			if path, v := value(&c); c.upTo(4) != 3 {
				spec[path] = v
			}
		}
		o := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x"}, "spec": spec}
		was := encoded(t, o)
		var seen []string
		for i, to := range []string{"v2", "v1", "v2", "v1"} {
			err := rules.Convert(t.Context(), o, []string{"v1", "v2"}[i%2], to)
			if e := (*Error)(nil); errors.As(err, &e) && !w.lossless {
				return // which refuses the object when it's written
			}
			if err != nil {
				t.Fatalf("%v\n%s\n%s", err, was, strings.Join(w.rules, "\n"))
			}
			v := d.Spec.Versions[i%2^1]
			before := encoded(t, o)
			if err := schema.New(v.Schema.OpenAPIV3Schema).Prune(o); err != nil || encoded(t, o) != before {
				t.Fatalf("%s doesn't fit the schema of %s: %v\n%s", before, to, err, strings.Join(w.rules, "\n"))
			}
			seen = append(seen, before)
		}
		lost := Differences(object(t, was), object(t, seen[1]))
		if w.lossless && len(lost) > 0 {
			t.Errorf("%v is lost of\n%s\nby\n%s\nwhich make it\n%s\n%s", lost, was, strings.Join(w.rules, "\n"), seen[0], seen[1])
		}
		if back, _ := object(t, seen[1])["spec"].(map[string]any); len(lost) == 0 && len(back) < len(spec) {
			t.Errorf("%s has less than %s, and nothing is lost", seen[1], was)
		}
		if seen[2] != seen[0] || seen[3] != seen[1] {
			t.Errorf("%s\nis at first\n%s\n%s\nand then\n%s\n%s\nby\n%s", was, seen[0], seen[1], seen[2], seen[3], strings.Join(w.rules, "\n"))
		}
	})
}

// FuzzAnnotation: whatever the annotation has, it's refused, or converts any object to something or to an error.
func FuzzAnnotation(f *testing.F) {
	for _, rule := range []string{
		`{rename: {from: spec.a, to: spec.b}}`, `{move: {from: spec.o.x, to: "metadata.annotations[a/b]"}}`, `{default: {to: spec.c, value: {x: [1, null]}}}`,
		`{map: {from: spec.a, to: spec.b, values: {a: b}}}`, `{split: {from: spec.a, to: [spec.b, spec.c], separator: "-"}}`, `{rename: {from: "spec.l[*].x", to: "spec.l[*].y"}}`,
		`{cel: {from: spec.a, to: spec.b, forth: value, back: 'self.spec.b'}}`, `{join: {from: [spec.a, spec.o.x], to: spec.b, separator: x}}`, `{move: {from: spec.any.a.b, to: spec.any.a}}`,
	} {
		f.Add(pair(rule), `{"spec":{"a":"a","o":{"x":"y"},"l":[{"x":"1"},null,1],"any":{"a":{"b":1}}}}`)
		f.Add(pair(rule), `{"spec":{"a":null,"o":1,"l":{},"any":[]},"metadata":{"annotations":1}}`)
	}
	f.Fuzz(func(t *testing.T, annotation, text string) {
		const either = `"any":{"type":"object","x-kubernetes-preserve-unknown-fields":true},"o":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`
		d := definition(t, annotation, `"a":{"type":"string"},"l":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}}}},`+either,
			`"b":{"type":"string"},"c":{"x-kubernetes-preserve-unknown-fields":true},"l":{"type":"array","items":{"type":"object","properties":{"y":{"type":"string"}}}},`+either)
		for i := range d.Spec.Versions { // so that most rules lose nothing
			yes := true
			d.Spec.Versions[i].Schema.OpenAPIV3Schema.XPreserveUnknownFields = &yes
		}
		rules, errs := New(d)
		if (rules == nil) == (len(errs) == 0) {
			t.Fatalf("%v and %v", rules, errs)
		}
		if rules == nil || !json.Valid([]byte(text)) {
			return
		}
		var o map[string]any
		if json.Unmarshal([]byte(text), &o) != nil || o == nil {
			return
		}
		for _, way := range [][2]string{{"v1", "v2"}, {"v2", "v1"}} {
			if err := rules.Convert(t.Context(), o, way[0], way[1]); err != nil {
				return
			}
			if o["apiVersion"] != "example.com/"+way[1] {
				t.Errorf("in %s it's %v", way[1], o["apiVersion"])
			}
			encoded(t, o)
		}
	})
}
