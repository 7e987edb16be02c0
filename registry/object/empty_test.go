package object

import (
	"encoding/json"
	"testing"
)

// TestEmpty: what was sent empty comes back to where it was, unless something else is there.
func TestEmpty(t *testing.T) {
	const sent = `{"metadata":{"labels":{}},"spec":{"items":[{"args":[]},{"args":[],"env":[1]}],"labels":{},"kept":{}}}`
	for _, tc := range []struct{ name, made, now, want string }{
		{"as it was", `{"spec":{"items":[{},{"env":[1]}],"kept":{}}}`, `{"spec":{"items":[{},{"env":[1]}],"kept":{}}}`, `{"spec":{"items":[{"args":[]},{"args":[],"env":[1]}],"kept":{},"labels":{}}}`},
		{"with less", `{"spec":{"items":[{},{"env":[1]}]}}`, `{"spec":{"items":[{}]}}`, `{"spec":{"items":[{"args":[]}],"kept":{},"labels":{}}}`},
		{"with something else", `{"spec":{"items":[{},{}]}}`, `{"spec":{"items":"a","labels":{"a":"b"}}}`, `{"spec":{"items":"a","kept":{},"labels":{"a":"b"}}}`},
		{"without all", `{"spec":{}}`, `{}`, `{}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tree := func(text string) map[string]any {
				tree, err := ParseTree([]byte(text))
				if err != nil {
					t.Fatal(err)
				}
				return tree
			}
			now := tree(tc.now)
			for _, e := range EmptyIn(tree(sent), tree(tc.made)) {
				e.Restore(now)
			}
			if got, _ := json.Marshal(now); string(got) != tc.want {
				t.Errorf("%s, not %s", got, tc.want)
			}
		})
	}
}
