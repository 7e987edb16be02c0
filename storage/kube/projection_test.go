package kube

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/selectors"
)

// projectSlowly is what paths leave of a value, worked out path by path. ok is false if that is nothing.
func projectSlowly(value any, paths []selectors.Path) (left any, ok bool) {
	below := func(step selectors.Step) (rest []selectors.Path) {
		for _, path := range paths {
			if len(path) > 0 && path[0] == step {
				rest = append(rest, path[1:])
			}
		}
		return rest
	}
	names := false
	for _, path := range paths {
		if len(path) == 0 {
			return value, true
		}
		names = names || !path[0].Elements
	}
	elements := below(selectors.Step{Elements: true})
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		for name, member := range v {
			if kept, ok := projectSlowly(member, below(selectors.Step{Name: name})); ok {
				out[name] = kept
			}
		}
		return out, names
	case []any:
		out := []any{}
		for _, element := range v {
			if kept, ok := projectSlowly(element, elements); ok {
				out = append(out, kept)
			}
		}
		return out, len(elements) > 0
	}
	return nil, false
}

// decodeExactly decodes JSON, and keeps numbers as they're written.
func decodeExactly(document []byte) (value any, err error) {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	err = d.Decode(&value)
	return value, err
}

// FuzzProjection: a projection leaves of a document what its paths say, one by one, and is JSON again.
func FuzzProjection(f *testing.F) {
	for _, fields := range []string{
		"spec.size", "spec", "spec.list[*].n,spec.list[*].tags[*]", "spec.object.size,spec.object", "spec.list", "spec.size.deeper,spec.none", "metadata.annotations['a.b/c']",
		`metadata.annotations['quo\"te'],metadata.uid`, "spec.list[*].n[*],kind.x", "spec.list[*]", "spec['']",
	} {
		f.Add([]byte(whereObject), fields)
	}
	f.Add([]byte(`{"a":[[1,{"b":null}],[],{"b":2},null],"\u0061b":{"<":{}}}`), "a[*][*].b,a[*].b,ab['<']")
	f.Fuzz(func(t *testing.T, document []byte, fields string) {
		paths, err := selectors.ParsePaths(fields)
		value, broken := decodeExactly(document)
		if _, isObject := value.(map[string]any); err != nil || broken != nil || !isObject {
			return
		}
		if document, err = json.Marshal(value); err != nil { // each name once, as in what is stored
			t.Fatal(err)
		}
		projected := NewProjection(paths).Append(nil, document)
		got, err := decodeExactly(projected)
		want, _ := projectSlowly(value, append(paths, known...))
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s leaves of %s\n%s, %v; want\n%v", fields, document, projected, err, want)
		}
	})
}
