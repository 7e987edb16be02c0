package schema

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// list returns an object with n items.
func list(n int, item func(i int) any) map[string]any {
	items := make([]any, n)
	for i := range items {
		items[i] = item(i)
	}
	return map[string]any{"l": items}
}

// TestManyErrors has objects with more errors than are told. Without a bound each of them takes minutes.
func TestManyErrors(t *testing.T) {
	tests := []struct {
		name, schema string
		object       map[string]any
	}{
		{"items", `{type: object, properties: {l: {type: array, items: {type: string}}}}`,
			list(50_000, func(i int) any { return int64(i) })},
		{"enums", `{type: object, properties: {l: {type: array, items: {type: string, enum: [` + numbered("e", 1_000) + `]}}}}`,
			list(50_000, func(i int) any { return "wrong" })},
		{"nested", `{type: object, properties: {l: {type: array, items: {type: array, items: {type: array, items: {type: string}}}}}}`,
			list(60, func(int) any {
				return list(60, func(int) any { return list(60, func(i int) any { return int64(i) })["l"] })["l"]
			})},
		{"long names", `{type: object, properties: {l: {type: array, items: {type: object, additionalProperties: {type: object, additionalProperties: {type: string}}}}}}`,
			list(1, func(int) any {
				wrong := map[string]any{}
				for i := range 200 {
					wrong[fmt.Sprint(i)] = int64(i)
				}
				return map[string]any{strings.Repeat("x", 1<<18): wrong}
			})},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := New(Props(t, test.schema))
			changed := runtime.DeepCopyJSON(test.object)
			changed["l"].([]any)[0] = true
			for name, old := range map[string]map[string]any{"create": nil, "update": changed} {
				if errs := s.Validate(t.Context(), test.object, old, Found{}); len(errs) == 0 || len(errs) > maxErrors {
					t.Errorf("%s: there are %d errors, want at most %d", name, len(errs), maxErrors)
				}
			}
			if errs := s.Validate(t.Context(), test.object, test.object, Found{}); len(errs) > 0 {
				t.Errorf("unchanged: there are %d errors", len(errs))
			}
		})
	}
}

func numbered(prefix string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "%s%d,", prefix, i)
	}
	return strings.TrimSuffix(b.String(), ",")
}

// TestCutErrorsBlockRules has its only blocking error after those that are told.
func TestCutErrorsBlockRules(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {l: {type: array, items: {type: string, minLength: 5}, x-kubernetes-validations: [{rule: "false"}]}}}`))
	object := list(3*maxErrors, func(int) any { return "x" })
	object["l"].([]any)[3*maxErrors-1] = int64(1)
	errs := s.Validate(t.Context(), object, nil, Found{})
	if last := errs[len(errs)-1]; !strings.HasPrefix(last.Detail, "some validation rules were not checked") {
		t.Errorf("the last error is %v", last)
	}
}

// TestLargeEnum checks many items against many values.
func TestLargeEnum(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {l: {type: array, items: {type: string, enum: [`+numbered("e", 20_000)+`]}}}}`))
	if errs := s.Validate(t.Context(), list(50_000, func(i int) any { return fmt.Sprint("e", i%20_000) }), nil, Found{}); len(errs) > 0 {
		t.Errorf("there are %d errors", len(errs))
	}
}

// TestBacktracking has a pattern that takes other engines forever.
func TestBacktracking(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {s: {type: string, pattern: "^(([a-z])+.)+[A-Z]([a-z])+$"}}}`))
	errs := s.Validate(t.Context(), map[string]any{"s": strings.Repeat("a", 100_000)}, nil, Found{})
	if len(errs) != 1 || errs[0].Type != field.ErrorTypeInvalid {
		t.Error(errs)
	}
}

func TestContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("nobody waits"))
	for name, object := range map[string]map[string]any{
		"values": {"spec": map[string]any{"min": "x"}},
		"rules":  {"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"names": []any{""}}},
	} {
		errs := New(Props(t, Texts["rules"])).Validate(ctx, object, object, Found{})
		if len(errs) != 1 || errs[0].Type != field.ErrorTypeInternal || !strings.Contains(errs[0].Error(), "nobody waits") {
			t.Errorf("%s: %v", name, errs)
		}
	}
}

// TestContextEndsRule stops a rule of which one evaluation takes a tenth of a second.
func TestContextEndsRule(t *testing.T) {
	s := New(Props(t, `{type: object, properties: {l: {type: array, items: {type: array, items: {type: string}, x-kubernetes-validations: [{rule: "self.all(a, self.all(b, self.all(c, a == b || true)))"}]}}}}`))
	object := list(50, func(int) any { return list(40, func(int) any { return "a" })["l"] })
	ctx, cancel := context.WithCancel(t.Context())
	if errs := s.Validate(ctx, list(0, nil), nil, Found{}); len(errs) > 0 {
		t.Fatal(errs)
	}
	done := make(chan field.ErrorList)
	go func() { done <- s.Validate(ctx, object, nil, Found{}) }()
	cancel()
	if errs := <-done; len(errs) != 1 || errs[0].Type != field.ErrorTypeInternal {
		t.Error(errs)
	}
}

// TestConcurrentFirstUse has many goroutines compile and use one schema.
func TestConcurrentFirstUse(t *testing.T) {
	s := New(Thirty(t))
	object := tree(t, gizmo)
	var group sync.WaitGroup
	for range 16 {
		mine := runtime.DeepCopyJSON(object)
		group.Go(func() {
			if _, err := s.ShapeReporting(mine); err != nil {
				t.Error(err)
			}
			if errs := s.Validate(t.Context(), mine, object, Found{}); len(errs) > 0 {
				t.Error(errs)
			}
			if _, err := s.Structural(); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
}

// TestUnusedIsSmall: there may be hundreds of definitions, most of which nobody writes objects of.
func TestUnusedIsSmall(t *testing.T) {
	v1 := Thirty(t)
	if n := testing.AllocsPerRun(100, func() { New(v1) }); n > 2 {
		t.Errorf("New allocates %v times", n)
	}
	if size := unsafe.Sizeof(Schema{}); size > 256 {
		t.Errorf("an unused Schema has %d bytes", size)
	}
	s := New(Props(t, Widget))
	object := tree(t, `{spec: {size: 1, color: red, tags: [a]}}`)
	use := func() {
		_, err := s.ShapeReporting(object)
		if errs := s.Validate(t.Context(), object, object, Found{}); err != nil || len(errs) > 0 {
			t.Fatal(err, errs)
		}
	}
	use()
	if n := testing.AllocsPerRun(100, use); n > 2 {
		t.Errorf("a valid object without anything to do costs %v allocations", n)
	}
}

// TestDefinitionIsUnchanged uses a schema in all ways and looks at what it was made of.
func TestDefinitionIsUnchanged(t *testing.T) {
	for name, v1 := range Schemas(t) {
		before := text(t, v1)
		s := New(v1)
		object := map[string]any{"spec": map[string]any{"list": []any{map[string]any{}}}}
		_, _ = s.ShapeReporting(object)
		s.Validate(t.Context(), object, nil, Found{})
		s.Validate(t.Context(), map[string]any{}, object, Found{})
		if after := text(t, v1); after != before {
			t.Errorf("%s has become\n%s, was\n%s", name, after, before)
		}
	}
}
