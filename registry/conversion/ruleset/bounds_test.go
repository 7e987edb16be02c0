package ruleset

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestMadeIsBounded: rules can't make gigabytes of a small object.
func TestMadeIsBounded(t *testing.T) {
	t.Parallel()
	const open = `:{"x-kubernetes-preserve-unknown-fields":true}`
	list := listOf("l", `"a":`+text+`,"b":`+text+`,"c":`+text)
	long, items := strings.Repeat("x", 100_000), `{spec: {l: [`+strings.Repeat(`{a: z},`, 1000)+`]}}`
	for _, tc := range []struct{ name, rule, schema1, schema2, object, field string }{
		{"values in each other", `{cel: {from: spec.a, to: spec.b, forth: '[value]` + strings.Repeat(`.map(x, [x, x])`, 30) + `', back: 'value'}}`, `"a"` + open, `"b"` + open, `{spec: {a: 1}}`, "spec.a"},
		{"long defaults", `{default: {to: "spec.l[*].d", value: ` + long + `}}`, list, listOf("l", `"a":`+text+`,"b":`+text+`,"c":`+text+`,"d":`+text), items, "d"},
		{"long texts", `{map: {from: "spec.l[*].a", to: "spec.l[*].a", values: {z: ` + long + `}}}`, list, list, items, "a"},
		{"long separators", `{join: {from: ["spec.l[*].a", "spec.l[*].b"], to: "spec.l[*].j", separator: ` + long + `}}`, listOf("l", `"a":`+text+`,"b":`+text), listOf("l", `"j":`+text), items, "a"},
		{"long names", `{rename: {from: "spec.l[*].a", to: "spec.l[*].` + long + `"}}`, listOf("l", `"a":`+text), listOf("l", `"`+long+`":`+text), items, "a"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := compiled(t, definition(t, pair(tc.rule), tc.schema1, tc.schema2))
			o, failed := object(t, tc.object), (*Error)(nil)
			err := r.Convert(t.Context(), o, "v1", "v2")
			if !errors.As(err, &failed) || !strings.Contains(failed.Error(), fmt.Sprintf("more than %d bytes", maxMade)) || !strings.HasSuffix(failed.Field, tc.field) {
				t.Errorf("%.300v", err)
			}
		})
	}
}
