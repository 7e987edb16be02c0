package server_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/conversion/ruleset"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// convertedByRules returns a definition of things with rules, stored in v1; the schemas are the properties of the spec of v1, v2 and so on.
func convertedByRules(t testing.TB, rules string, specs ...string) string {
	t.Helper()
	text, _ := json.Marshal(rules)
	var versions []string
	for i, spec := range specs {
		versions = append(versions, versionOf("v"+string(rune('1'+i)), true, i == 0, spec))
	}
	return defined(t, "things", "Thing", "metadata.annotations."+strings.ReplaceAll(ruleset.Annotation, ".", "~")+"="+string(text),
		"spec.versions=["+strings.Join(versions, ",")+"]")
}

// TestRules: what is created in one version is read and watched in the other one, by the rules of the definition.
func TestRules(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, convertedByRules(t, `[{"versions":["v1","v2"],"rules":[{"rename":{"from":"spec.size","to":"spec.length"}}]}]`,
		`"size":{"type":"string"},"note":{"type":"string"}`, `"length":{"type":"string"},"note":{"type":"string"}`))
	v1, v2 := thingsPath, things2Path
	w1, w2 := s.Watch(v1+"?watch=true"), s.Watch(v2+"?watch=true")
	both := func(want1, want2 string) {
		t.Helper()
		for _, w := range []struct {
			stream *servertest.Stream
			want   string
		}{{w1, "object.apiVersion=example.com/v1 " + want1}, {w2, "object.apiVersion=example.com/v2 object.spec.size= " + want2}} {
			line, err := w.stream.Next()
			if err != nil {
				t.Fatal(err)
			}
			check(t, line, w.want)
		}
	}
	check(t, s.PostYAML(v1, thing("v1", "a", `,"spec":{"size":"abc","note":"n"}`)), "apiVersion=example.com/v1 spec.size=abc")
	both("type=ADDED object.spec.size=abc", "type=ADDED object.spec.length=abc")
	check(t, s.Get(v2+"/a"), "apiVersion=example.com/v2 spec.length=abc spec.size= spec.note=n")
	check(t, s.Get(v2), "apiVersion=example.com/v2 items.0.apiVersion=example.com/v2 items.0.spec.length=abc items.0.spec.size=")
	check(t, s.PostYAML(v2, thing("v2", "b", `,"spec":{"length":"x"}`)), "apiVersion=example.com/v2 spec.length=x")
	both("type=ADDED object.spec.size=x", "type=ADDED object.spec.length=x")
	check(t, send(t, s, 200, "PATCH", v2+"/b", mergePatch, `{"spec":{"length":"y"}}`), "spec.length=y metadata.generation=2")
	both("type=MODIFIED object.spec.size=y", "type=MODIFIED object.spec.length=y")
	check(t, send(t, s, 201, "PATCH", v2+"/c?fieldManager=m", applyPatch, thing("v2", "c", `,"spec":{"length":"z"}`)), "spec.length=z metadata.managedFields.0.apiVersion=example.com/v2")
	both("type=ADDED object.spec.size=z", "type=ADDED object.spec.length=z")
	check(t, send(t, s, 200, "PATCH", v1+"/c?fieldManager=m", applyPatch, thing("v1", "c", `,"spec":{"size":"zz"}`)), "spec.size=zz")
	both("object.spec.size=zz", "object.spec.length=zz")
	for _, path := range []string{v1 + "/c", v2 + "/c"} { // an unchanged object is none in either version
		was := s.Get(path)
		if got := send(t, s, 200, "PUT", path, "", was); got != was {
			t.Errorf("%s is %s\nand was %s", path, got, was)
		}
	}
}
