package schema

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestShape(t *testing.T) {
	tests := []struct {
		name, schema  string
		object, want  string
		unknown       []string
		pruned        string // what Prune makes of it, if that differs from want
		wantMalformed string
	}{
		{
			name: "unknown fields are pruned", schema: `{type: object, properties: {spec: {type: object, properties: {a: {type: integer}}}}}`,
			object: `{spec: {a: 1, b: 2, c: {d: 3}}, other: true}`, want: `{spec: {a: 1}}`, unknown: []string{"other", "spec.b", "spec.c"},
		},
		{
			name: "in items and maps", schema: `{type: object, properties: {l: {type: array, items: {type: object, properties: {a: {type: string}}}}, m: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}}}`,
			object: `{l: [{a: x}, {b: w}], m: {k: {a: x, c: z}}}`, want: `{l: [{a: x}, {}], m: {k: {a: x}}}`, unknown: []string{"l[1].b", "m.k.c"},
		},
		{
			name: "additionalProperties true keeps no objects", schema: `{type: object, properties: {m: {type: object, additionalProperties: true}}}`,
			object: `{m: {a: 1, b: {c: 2}}}`, want: `{m: {a: 1, b: {}}}`, unknown: []string{"m.b.c"},
		},
		{
			name: "the object's own metadata is left alone", schema: `{type: object, properties: {spec: {type: object}}}`,
			object: `{apiVersion: a/v1, kind: K, metadata: {name: x, none: 1, labels: null}, spec: {}}`, want: `{apiVersion: a/v1, kind: K, metadata: {name: x, none: 1, labels: null}, spec: {}}`,
		},
		{
			name: "and none is added", schema: `{type: object, properties: {kind: {type: string, default: K}, a: {type: integer, default: 1}}}`,
			object: `{}`, want: `{a: 1}`, pruned: `{}`,
		},
		{
			name: "nor unknown below the root", schema: `{type: object, properties: {spec: {type: object, properties: {a: {type: string}}}}}`,
			object: `{spec: {kind: K, metadata: {}}}`, want: `{spec: {}}`, unknown: []string{"spec.kind", "spec.metadata"},
		},
		{
			name:   "preserve-unknown-fields, and pruning again below it",
			schema: `{type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: object, properties: {b: {type: string}}}}}}}`,
			object: `{spec: {x: {w: [1]}, a: {b: s, c: 1}}}`, want: `{spec: {x: {w: [1]}, a: {b: s}}}`, unknown: []string{"spec.a.c"},
		},
		{
			name: "nulls", schema: Texts["nullable"],
			object: `{a: null, b: null, c: null, d: null, list: [null], other: [null, {a: null, b: null}], map: {k: null}, nulls: {k: null}, open: {k: null}}`,
			want:   `{a: null, c: x, d: null, list: [null], other: [null, {a: 1}], map: {}, nulls: {k: null}, open: {k: null}}`,
			pruned: `{a: null, c: null, d: null, list: [null], other: [null, {a: null}], map: {}, nulls: {k: null}, open: {k: null}}`,
		},
		{
			name: "defaults", schema: Texts["defaults"],
			object: `{}`, want: `{spec: {a: 5, b: {c: [1, 2], d: true}}}`, pruned: `{}`,
		},
		{
			name: "defaults in items and maps", schema: Texts["defaults"],
			object: `{spec: {a: 1, b: {}, list: [{}, {a: x}], map: {k: {}}}}`, want: `{spec: {a: 1, b: {d: true}, list: [{a: z}, {a: x}], map: {k: {b: 0.5}}}}`,
			pruned: `{spec: {a: 1, b: {}, list: [{}, {a: x}], map: {k: {}}}}`,
		},
		{
			name: "embedded metadata", schema: Texts["embedded"],
			object: `{pod: {apiVersion: v1, kind: Pod, metadata: {name: x, creationTimestamp: null, none: 1, labels: {a: b}}, any: {thing: 1}}, map: {k: {apiVersion: v1, kind: A, metadata: {none: 1}, spec: s, b: 1}}}`,
			want:   `{pod: {apiVersion: v1, kind: Pod, metadata: {name: x, labels: {a: b}}, any: {thing: 1}}, map: {k: {apiVersion: v1, kind: A, metadata: {}, spec: s}}}`,
			// The second is upstream's way of writing it.
			unknown: []string{"map.k.b", "map[k].metadata.none", "pod.metadata.none"},
		},
		{
			name: "malformed embedded metadata", schema: Texts["embedded"],
			object: `{pods: [{}, {apiVersion: v1, kind: Pod, metadata: {labels: 5}}]}`, wantMalformed: `pods[1].metadata: Invalid value: {"labels":5}: json: cannot unmarshal number into Go struct field ObjectMeta.labels of type map[string]string`,
		},
		{
			name: "malformed embedded kind", schema: Texts["embedded"],
			object: `{pod: {kind: 5}}`, wantMalformed: `pod.kind: Invalid value: 5: must be a string`,
		},
		{name: "trivial", schema: Texts["trivial"], object: `{a: null, b: {c: 1}}`, want: `{a: null, b: {c: 1}}`},
		{name: "a type that doesn't match", schema: `{type: object, properties: {spec: {type: object, properties: {a: {type: integer, default: 1}}}}}`, object: `{spec: [{x: 1}]}`, want: `{spec: [{}]}`, unknown: []string{"spec[0].x"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := New(Props(t, test.schema))
			object := tree(t, test.object)
			unknown, err := s.ShapeReporting(object)
			if test.wantMalformed != "" {
				var malformed *MalformedError
				if !errors.As(err, &malformed) || err.Error() != test.wantMalformed {
					t.Errorf("the error is %v, want %s", err, test.wantMalformed)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if want := tree(t, test.want); !reflect.DeepEqual(object, want) {
				t.Errorf("the object becomes %s, want %s", text(t, object), text(t, want))
			}
			if !slices.Equal(unknown, test.unknown) {
				t.Errorf("unknown are %q, want %q", unknown, test.unknown)
			}
			quiet, pruned := tree(t, test.object), tree(t, test.object)
			if err := s.Shape(quiet); err != nil || !reflect.DeepEqual(quiet, object) {
				t.Errorf("without report the object becomes %s, unknown are %q, %v", text(t, quiet), unknown, err)
			}
			if test.pruned == "" {
				test.pruned = test.want
			}
			if err := s.Prune(pruned); err != nil || !reflect.DeepEqual(pruned, tree(t, test.pruned)) {
				t.Errorf("Prune makes %s (%v), want %s", text(t, pruned), err, test.pruned)
			}
		})
	}
}

// TestDefaultsAreCopies makes sure that an object can be changed without changing the next one's defaults.
func TestDefaultsAreCopies(t *testing.T) {
	s := New(Props(t, Texts["defaults"]))
	for range 2 {
		object := map[string]any{}
		if err := s.Shape(object); err != nil {
			t.Fatal(err)
		}
		list := object["spec"].(map[string]any)["b"].(map[string]any)["c"].([]any)
		if list[0] != int64(1) {
			t.Fatalf("the default is %v, after an object was changed", list)
		}
		list[0] = int64(2)
	}
}

func TestTrivial(t *testing.T) {
	for schema, want := range map[string]bool{
		`{type: object, x-kubernetes-preserve-unknown-fields: true}`:                               true,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, description: all, title: all}`: true,
		`{type: object}`: false,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: string}}}`:            false,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, required: [spec]}`:                           false,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, maxProperties: 5}`:                           false,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, default: {}}`:                                false,
		`{type: object, x-kubernetes-preserve-unknown-fields: true, x-kubernetes-validations: [{rule: "1==1"}]}`: false,
	} {
		if got := New(Props(t, schema)).Trivial(); got != want {
			t.Errorf("Trivial is %t for %s", got, schema)
		}
	}
}

// TestNoSchema has the schema that knows nothing: all but metadata goes.
func TestNoSchema(t *testing.T) {
	s := New(nil)
	object := tree(t, `{kind: K, metadata: {name: x}, spec: {a: 1}}`)
	if unknown, err := s.ShapeReporting(object); err != nil || !slices.Equal(unknown, []string{"spec"}) {
		t.Errorf("unknown are %q, %v", unknown, err)
	}
	if !reflect.DeepEqual(object, tree(t, `{kind: K, metadata: {name: x}}`)) {
		t.Errorf("the object becomes %s", text(t, object))
	}
	if errs := s.Validate(t.Context(), object, object, Found{}); len(errs) > 0 {
		t.Error(errs)
	}
	if structural, err := s.Structural(); structural != nil || err != nil {
		t.Error(structural, err)
	}
}

// TestNotStructural has a schema that never passes the validation of definitions.
func TestNotStructural(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {a: {$ref: "#/definitions/a"}}}`))
	if err := s.Shape(map[string]any{}); err == nil || !strings.Contains(err.Error(), "$ref") {
		t.Errorf("Shape: %v", err)
	}
	if err := s.Prune(map[string]any{}); err == nil {
		t.Error("Prune says nothing")
	}
	if errs := s.Validate(t.Context(), map[string]any{}, nil, Found{}); len(errs) != 1 || errs[0].Type != "InternalError" {
		t.Errorf("Validate: %v", errs)
	}
}

// TestUnknownIsBounded prunes more than is listed, under names as long as a body.
func TestUnknownIsBounded(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {m: {type: object, additionalProperties: {type: object, properties: {a: {type: string}}}}}}`))
	fields := map[string]any{}
	for i := range 50_000 {
		fields[fmt.Sprintf("%05d", i)] = true
	}
	object := map[string]any{"m": map[string]any{strings.Repeat("ä", 500_000): fields}}
	unknown, err := s.ShapeReporting(object)
	if err != nil || len(unknown) != maxUnknown {
		t.Fatalf("%d unknown fields are listed, %v", len(unknown), err)
	}
	for _, path := range unknown {
		if len(path) > maxUnknownPath+len("...") || !strings.HasPrefix(path, "m.ä") || !strings.HasSuffix(path, "...") {
			t.Fatalf("a path of %d bytes: %s", len(path), path)
		}
	}
	if len(fields) > 0 {
		t.Errorf("%d fields are left", len(fields))
	}
	few := map[string]any{}
	for i := range 300 {
		few[fmt.Sprintf("%05d", i)] = true
	}
	if unknown, _ := s.ShapeReporting(few); len(unknown) != maxUnknown || unknown[0] != "00000" || unknown[maxUnknown-1] != "00099" {
		t.Errorf("those listed aren't the first: %q", unknown)
	}
}

// TestDeep nests as deeply as the decoder allows.
func TestDeep(t *testing.T) {
	const levels = 9_990 // of the decoder's 10,000
	lists := func() (deep any) {
		for range levels {
			deep = []any{deep}
		}
		return deep
	}
	objects := func() (deep any) {
		for range levels {
			deep = map[string]any{"a": deep}
		}
		return deep
	}
	for name, v1 := range Schemas(t) {
		for _, nest := range []func() any{lists, objects} {
			s, content := New(v1), map[string]any{}
			for _, field := range []string{"spec", "status", "a", "any", "one", "pod", "pods", "map", "list"} {
				content[field] = nest()
			}
			var malformed *MalformedError
			if _, err := s.ShapeReporting(content); err != nil && !errors.As(err, &malformed) {
				t.Errorf("%s: %v", name, err)
			}
			s.Validate(t.Context(), content, nil, Found{})
			s.Validate(t.Context(), content, content, Found{})
		}
	}
	schema := `{type: string}`
	for range 200 {
		schema = `{type: object, additionalProperties: ` + schema + `}`
	}
	s := New(Props(t, schema))
	var deep any = "x"
	for range 200 {
		deep = map[string]any{"a": deep}
	}
	object := deep.(map[string]any)
	if unknown, err := s.ShapeReporting(object); err != nil || len(unknown) > 0 {
		t.Error(unknown, err)
	}
	if errs := s.Validate(t.Context(), object, nil, Found{}); len(errs) > 0 {
		t.Error(errs)
	}
}
