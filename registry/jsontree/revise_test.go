package jsontree

import (
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestRevise: whatever the earlier tree says, the result is what OfValue makes, and the earlier tree stays as it is.
func TestRevise(t *testing.T) {
	for name, v := range samples() {
		t.Run(name, func(t *testing.T) {
			tree, err := OfValue(v)
			if err != nil {
				if _, got := Revise(map[string]any{"inner": "in"}, v); got == nil || got.Error() != err.Error() {
					t.Errorf("error %v, want %v", got, err)
				}
				return
			}
			check := func(earlier string) {
				before := runtime.DeepCopyJSONValue(tree)
				for form, of := range map[string]struct {
					made    func(v any, without ...string) (map[string]any, error)
					revised func(earlier map[string]any, v any, without ...string) (map[string]any, error)
				}{"whole": {OfValue, Revise}, "stored": {func(v any, without ...string) (map[string]any, error) { return ReviseStored(nil, v, without...) }, ReviseStored}} {
					for _, without := range [][]string{nil, {"inner"}, {"metadata"}} {
						want, _ := of.made(v, without...)
						if got, err := of.revised(tree, v, without...); err != nil || !reflect.DeepEqual(got, want) {
							t.Errorf("%s, where %s: got %v, %v, want %v", form, earlier, got, err, want)
						}
					}
				}
				if !reflect.DeepEqual(any(tree), before) {
					t.Fatalf("where %s, the earlier tree was changed to %v", earlier, tree)
				}
			}
			check("nothing is another")
			eachPlace(tree, "", func(at string, set func(any)) {
				for _, other := range []any{nil, "", "x", int64(1), 1.5, true, []any{}, []any{nil}, []any(nil), []any{"x", "y"}, map[string]any{}, map[string]any(nil), map[string]any{"x": nil}} {
					set(other)
					check(fmt.Sprintf("%s is %#v", at, other))
				}
			})
			tree["more"] = "than there is"
			check("there is more")
			delete(tree, "more")
			for name, was := range tree {
				delete(tree, name)
				check(name + " isn't there")
				tree[name] = was
			}
		})
	}
}

// TestReviseShares: what says the same isn't made anew.
func TestReviseShares(t *testing.T) {
	pod := samples()["a pod"]
	tree, err := OfValue(pod)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Revise(tree, pod); err != nil || reflect.ValueOf(got).Pointer() != reflect.ValueOf(tree).Pointer() {
		t.Errorf("got another tree, %v", err)
	}
	tree["status"] = map[string]any{"phase": "Running"}
	got, err := Revise(tree, pod)
	if err != nil || reflect.ValueOf(got["spec"]).Pointer() != reflect.ValueOf(tree["spec"]).Pointer() {
		t.Errorf("the spec, which is the same, is made anew, %v", err)
	}
}

func BenchmarkRevise(b *testing.B) {
	pod := samples()["a pod"]
	tree, err := OfValue(pod)
	if err != nil {
		b.Fatal(err)
	}
	for name, of := range map[string]func(map[string]any, any, ...string) (map[string]any, error){
		"revised": Revise,
		"made": func(_ map[string]any, v any, without ...string) (map[string]any, error) {
			return OfValue(v, without...)
		},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := of(tree, pod); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
