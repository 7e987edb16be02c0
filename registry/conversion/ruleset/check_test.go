package ruleset

import (
	"fmt"
	"strings"
	"testing"
)

// TestRefused: what is wrong with rules is said with its place.
func TestRefused(t *testing.T) {
	t.Parallel()
	const ab, enum = `"a":` + text, `"level":{"type":"string","enum":["low","high"]}`
	nested := func(name, inside string) string {
		return `"` + name + `":{"type":"object","properties":{` + inside + `}}`
	}
	rule := func(rules ...string) string { return pair(rules...) }
	for _, tc := range []struct {
		name, annotation, schema1, schema2 string
		want                               []string // an error each: its place in the annotation, and words of it apart by |
	}{
		{"no YAML", `[`, ab, ab, []string{` must be a list of pairs`}},
		{"no list", `{versions: [v1, v2]}`, ab, ab, []string{` must be a list of pairs`}},
		{"another member", `[{versions: [v1, v2], webhook: x}]`, ab, ab, []string{` unknown field "webhook"`}},
		{"one version", `[{versions: [v1]}]`, ab, ab, []string{`[0].versions must be two versions`}},
		{"a version twice", `[{versions: [v1, v1]}]`, ab, ab, []string{`[0].versions must be two versions`}},
		{"no such version", `[{versions: [v1, v3]}]`, ab, ab, []string{`[0].versions[1] is no version`}},
		{"a pair twice", `[{versions: [v1, v2]}, {versions: [v2, v1]}]`, ab, ab, []string{`[1].versions another way`}},
		{"no pair", `[]`, ab, ab, []string{` "v2"|no pair leads from v1`}},
		{"no rule", rule(`{}`), ab, ab, []string{`[0].rules[0] exactly one of`}},
		{"two in one", rule(`{rename: {from: spec.a, to: spec.b}, default: {to: spec.c, value: 1}}`), ab, `"b":` + text + `,"c":` + integer, []string{`[0].rules[0] exactly one of`}},
		{"too many", rule(strings.Split(strings.Repeat(`{rename: {from: spec.a, to: spec.b}};`, MaxRules+1), ";")[:MaxRules+1]...), ab, ab, []string{` must have at most 500`}},
		{"an alias", `[{versions: [v1, v2], rules: [{default: {to: spec.b, value: &a x}}, {default: {to: spec.c, value: *a}}]}]`, ab, ab, []string{` anchors (&a) are not supported`}},
		{"an alias of many", "- versions: [v1, v2]\n  rules: [{default: {to: spec.b, value: [&a " + strings.Repeat("x", 50_000) + strings.Repeat(",*a", 50_000) + "]}}]", ab, ab, []string{` anchors (&a) are not supported`}},
		{"too many pairs", `[` + strings.Repeat(`{versions: [v1, v2]},`, MaxPairs+1) + `]`, ab, ab, []string{` must have at most 50`}},
		{"too many steps", rule(`{move: {from: spec.o` + strings.Repeat(".a", 100_000) + `, to: spec.a}}`), `"o":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, ab, []string{`[0].rules[0].move.from more than 100 steps`}},
		{"CEL that nests too deep", rule(`{cel: {from: spec.a, to: spec.b, forth: '` + strings.Repeat("{1:", 240) + "1" + strings.Repeat("}", 240) + `', back: value}}`), ab, `"b":` + text, []string{`[0].rules[0].cel.forth recursion limit`}},
		{"no field", rule(`{rename: {from: spec.x, to: spec.b}}`), ab, `"b":` + text, []string{`[0].rules[0].rename.from spec.x|version v1 has no spec.x`}},
		{"no field there", rule(`{rename: {from: spec.a, to: spec.x}}`), ab, `"b":` + text, []string{`[0].rules[0].rename.to version v2 has no spec.x`}},
		{"a list is no object", rule(`{rename: {from: spec.l.a, to: spec.l.b}}`), listOf("l", ab), listOf("l", ab), []string{`[0].rules[0].rename.from has no spec.l.a`}},
		{"other lists", rule(`{move: {from: "spec.l[*].a", to: "spec.m[*].a"}}`), listOf("l", ab), listOf("m", ab), []string{`[0].rules[0].move.to the same list`}},
		{"out of a list", rule(`{move: {from: "spec.l[*].a", to: spec.a}}`), listOf("l", ab), listOf("l", ab) + "," + ab, []string{`[0].rules[0].move.to the same list`}},
		{"a whole list", rule(`{move: {from: "spec.l[*]", to: "spec.l[*]"}}`), listOf("l", ab), listOf("l", ab), []string{`[0].rules[0].move.from must end with a field`}},
		{"metadata", rule(`{move: {from: metadata.name, to: spec.a}}`), ``, ab, []string{`[0].rules[0].move.from metadata.annotations[KEY]`}},
		{"kind", rule(`{move: {from: kind, to: spec.a}}`), ``, ab, []string{`[0].rules[0].move.from metadata.annotations[KEY]`}},
		{"no path", rule(`{move: {from: "", to: spec.a}}`), ``, ab, []string{`[0].rules[0].move.from a name is empty`}},
		{"an open bracket", rule(`{move: {from: "spec[a", to: spec.a}}`), ``, ab, []string{`[0].rules[0].move.from isn't closed`}},
		{"a name after a bracket", rule(`{move: {from: "spec[a]b", to: spec.a}}`), ``, ab, []string{`[0].rules[0].move.from must come before`}},
		{"rename elsewhere", rule(`{rename: {from: spec.a, to: spec.b.a}}`), ab, nested("b", ab), []string{`[0].rules[0].rename.to move goes elsewhere`}},
		{"a default of both", rule(`{default: {from: spec.a, to: spec.b, value: 1}}`), ab, `"b":` + text, []string{`[0].rules[0].default either from`}},
		{"a default of none", rule(`{default: {value: 1}}`), ab, ab, []string{`[0].rules[0].default either from`}},
		{"a default without value", rule(`{default: {to: spec.a}}`), ``, ab, []string{`[0].rules[0].default.value Required`}},
		{"a default of another type", rule(`{default: {to: spec.a, value: 1}}`), ``, ab, []string{`[0].rules[0].default.value spec.a of version v2 doesn't take it`}},
		{"a default of no integer", rule(`{default: {to: spec.a, value: 1.5}}`), ``, `"a":` + integer, []string{`[0].rules[0].default.value spec.a of version v2 doesn't take it`}},
		{"a default that isn't listed", rule(`{default: {to: spec.level, value: mid}}`), ``, enum, []string{`[0].rules[0].default.value spec.level of version v2 doesn't take it`}},
		{"a default in an annotation", rule(`{default: {to: "metadata.annotations[x]", value: 1}}`), ``, ``, []string{`[0].rules[0].default.value must be text`}},
		{"no way back", rule(`{map: {from: spec.a, to: spec.a, values: {a: c, b: c}}}`), ab, ab, []string{`[0].rules[0].map.values "c"|way back|"a" and of "b"`}},
		{"a map that makes what isn't taken", rule(`{map: {from: spec.level, to: spec.level, values: {low: LOW}}}`), enum, `"level":{"type":"string","enum":["LOW","HIGH"]}`,
			[]string{`[0] version v1|spec.level|in v2|"high" becomes "high"`, `[0] version v2|"HIGH" becomes "HIGH"`}},
		{"a map that makes one of two", rule(`{map: {from: spec.level, to: spec.level, values: {low: high}}}`), enum, enum, []string{`[0] version v1|"low" and "high" both become "high"`, `[0] version v2|"low" and "high" both become "low"`}},
		{"a map of numbers", rule(`{map: {from: spec.a, to: spec.a, values: {x: "1"}}}`), ab, `"a":` + integer, []string{`[0].rules[0].map.to is of type integer, and must be a string`}},
		{"one part", rule(`{split: {from: spec.a, to: [spec.b], separator: x}}`), ab, `"b":` + text, []string{`[0].rules[0].split.to at least two`}},
		{"no separator", rule(`{split: {from: spec.a, to: [spec.b, spec.c]}}`), ab, `"b":` + text + `,"c":` + text, []string{`[0].rules[0].split.separator Required`}},
		{"a part that's a list", rule(`{join: {from: [spec.b, spec.c], to: spec.a, separator: x}}`), `"b":` + text + "," + listOf("c", ab), ab, []string{`[0].rules[0].join.from is of type array, and must be a string or an integer`}},
		{"CEL that doesn't compile", rule(`{cel: {from: spec.a, to: spec.b, forth: "1 +", back: value}}`), ab, `"b":` + text, []string{`[0].rules[0].cel.forth Syntax error`}},
		{"CEL that names something else", rule(`{cel: {from: spec.a, to: spec.b, forth: value, back: object}}`), ab, `"b":` + text, []string{`[0].rules[0].cel.back undeclared reference`}},
		{"CEL without a way back", rule(`{cel: {from: spec.a, to: spec.b, forth: value}}`), ab, `"b":` + text, []string{`[0].rules[0].cel.back an expression for each field of from, of which there are 1`}},

		{"overlap in from", rule(`{rename: {from: spec.a, to: spec.b}}`, `{rename: {from: spec.a, to: spec.c}}`), ab, `"b":` + text + `,"c":` + text,
			[]string{`[0].rules[1].rename.from overlaps with metadata.annotations[apiserver-lite/conversion][0].rules[0].rename, which is about spec.a of v1`}},
		{"overlap in to", rule(`{rename: {from: spec.a, to: spec.c}}`, `{rename: {from: spec.b, to: spec.c}}`), ab + `,"b":` + text, `"c":` + text,
			[]string{`[0].rules[1].rename.to overlaps with|[0].rules[0].rename, which is about spec.c of v2`}},
		{"overlap inside", rule(`{move: {from: spec.o, to: spec.p}}`, `{move: {from: spec.o.a, to: spec.b}}`), nested("o", ab), nested("p", ab) + `,"b":` + text,
			[]string{`[0].rules[1].move.from overlaps with|[0].rules[0].move, which is about spec.o of v1`}},
		{"overlap around", rule(`{move: {from: spec.o.a, to: spec.b}}`, `{move: {from: spec.o, to: spec.p}}`), nested("o", ab), nested("p", ab) + `,"b":` + text,
			[]string{`[0].rules[1].move.from overlaps with|[0].rules[0].move, which is about spec.o.a of v1`}},
		{"overlap in a list", rule(`{rename: {from: spec.l, to: spec.m}}`, `{rename: {from: "spec.l[*].a", to: "spec.l[*].b"}}`), listOf("l", ab), listOf("m", ab) + "," + listOf("l", `"b":`+text),
			[]string{`[0].rules[1].rename.from overlaps with|[0].rules[0].rename`}},
		{"overlap in a rule", rule(`{join: {from: [spec.a, spec.a], to: spec.b, separator: x}}`), ab, `"b":` + text, []string{`[0].rules[0].join.from overlaps with|[0].rules[0].join`}},

		{"a lost field", `[{versions: [v1, v2]}]`, ab, ``, []string{`[0] "spec.a"|version v1 has this field and would lose it in v2: it isn't there`}},
		{"a lost field of the second version", `[{versions: [v1, v2]}]`, ``, ab, []string{`[0] "spec.a"|version v2 has this field and would lose it in v1`}},
		{"a lost field in an object", `[{versions: [v1, v2]}]`, nested("o", ab+`,"b":`+text), nested("o", ab), []string{`[0] "spec.o.b"|v1`}},
		{"a lost field in a list", `[{versions: [v1, v2]}]`, listOf("l", ab+`,"b":`+text), listOf("l", ab), []string{`[0] "spec.l[*].b"|v1`}},
		{"a lost field in a map", `[{versions: [v1, v2]}]`, `"m":{"type":"object","additionalProperties":{"type":"object","properties":{` + ab + `}}}`, `"m":{"type":"object","additionalProperties":{"type":"object","properties":{}}}`,
			[]string{`[0] "spec.m.*.a"|v1`}},
		{"lost keys", `[{versions: [v1, v2]}]`, `"m":{"type":"object","additionalProperties":` + text + `}`, `"m":{"type":"object"}`, []string{`[0] "spec.m.*"|no keys of any name`}},
		{"lost unknown fields", `[{versions: [v1, v2]}]`, `"m":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`, `"m":{"type":"object"}`, []string{`[0] "spec.m"|unknown fields`}},
		{"another type", `[{versions: [v1, v2]}]`, ab, `"a":` + integer, []string{`[0] "spec.a"|version v1|of type integer there, and string here`, `[0] "spec.a"|version v2`}},
		{"moved to another type", rule(`{rename: {from: spec.a, to: spec.b}}`), ab, `"b":` + integer, []string{`[0] "spec.a"|use cel`, `[0] "spec.b"|use cel`}},
		{"moved to less", rule(`{rename: {from: spec.o, to: spec.p}}`), nested("o", ab+`,"b":`+text), nested("p", ab), []string{`[0].rules[0].rename "spec.o.b"|version v1`}},
		{"overwritten", rule(`{rename: {from: spec.a, to: spec.b}}`), ab + `,"b":` + text, `"b":` + text, []string{`[0] "spec.b"|version v1|[0].rules[0].rename puts something else in its place`}},
		{"an object of which a part is moved", rule(`{move: {from: spec.o.a, to: spec.a}}`), nested("o", ab+`,"b":`+text), ab, []string{`[0] "spec.o.b"|version v1`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, errs := New(definition(t, tc.annotation, tc.schema1, tc.schema2))
			if len(errs) != len(tc.want) {
				t.Fatalf("%d errors: %v", len(errs), errs.ToAggregate())
			}
			for i, want := range tc.want {
				place, words, _ := strings.Cut(want, " ")
				if errs[i].Field != root.String()+place {
					t.Errorf("it's about %s", errs[i].Field)
				}
				for word := range strings.SplitSeq(words, "|") {
					if !strings.Contains(errs[i].Error(), word) {
						t.Errorf("%v\nhas no %s", errs[i], word)
					}
				}
			}
		})
	}
}

// TestKept: what both versions keep needs no rule.
func TestKept(t *testing.T) {
	t.Parallel()
	for i, tc := range [][2]string{
		{`"a":{"x-kubernetes-int-or-string":true}`, `"a":{"x-kubernetes-int-or-string":true}`},
		{`"a":{"type":"integer"}`, `"a":{"type":"number"}`},
		{listOf("l", `"a":`+text), listOf("l", `"a":`+text)},
		{`"m":{"type":"object","additionalProperties":` + text + `}`, `"m":{"type":"object","additionalProperties":` + text + `}`},
		{`"m":{"type":"object","x-kubernetes-preserve-unknown-fields":true,"properties":{"a":` + text + `}}`, `"m":{"type":"object","x-kubernetes-preserve-unknown-fields":true}`},
	} {
		if _, errs := New(definition(t, pair(), tc[0], tc[1])); len(errs) > 0 {
			t.Error(i, errs.ToAggregate())
		}
	}
	// A default of a field that both have is put where it's absent, and stays.
	r := compiled(t, definition(t, pair(`{default: {to: spec.a, value: x}}`), `"a":`+text, `"a":`+text))
	o := object(t, `{spec: {}}`)
	for _, to := range []string{"v2", "v1"} {
		if err := r.Convert(t.Context(), o, map[string]string{"v1": "v2", "v2": "v1"}[to], to); err != nil || encoded(t, o) != fmt.Sprintf(`{"apiVersion":"example.com/%s","spec":{"a":"x"}}`, to) {
			t.Errorf("in %s it's %s, %v", to, encoded(t, o), err)
		}
	}
}
