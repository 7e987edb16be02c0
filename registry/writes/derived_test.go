package writes

import (
	"fmt"
	"slices"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestDerived: a value is made anew after a change of its resources, and only then; what didn't change is decoded once.
func TestDerived(t *testing.T) {
	s := start(t, "", registry.Options{}, withGadgets(registry.Definition[Gadget]{}))
	gadgets, namespaces := storage.PrefixOf("go.example.com", "gadgets"), storage.PrefixOf("", "namespaces")
	var known registry.Decoded[Gadget]
	made := 0
	d := registry.Derive(s.Registry, func(of func(storage.Prefix) []*kube.Object) []*Gadget {
		made++
		return known.All(of(gadgets), func(o *kube.Object, err error) { t.Errorf("%s: %v", o.Key, err) })
	}, gadgets)
	expect := func(wantMade int, want ...string) []*Gadget {
		t.Helper()
		s.settle()
		all := d.Get()
		var got []string
		for _, g := range all {
			got = append(got, fmt.Sprintf("%s=%d", g.Name, g.Spec.Size))
		}
		if !slices.Equal(got, want) || made != wantMade {
			t.Fatalf("derived %v, made %d times; want %v, %d times", got, made, want, wantMade)
		}
		return all
	}
	e := s.goGadgets()
	expect(1)
	expect(1)
	s.ok(e.Create(s.ctx, "default", nil, gadget("a", `,"spec":{"size":1}`)))
	s.ok(e.Create(s.ctx, "default", nil, gadget("b", `,"spec":{"size":2}`)))
	before := expect(2, "a=1", "b=2")
	s.ok(s.at("", "v1", "namespaces").Create(s.ctx, "", nil, []byte(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"other"}}`)))
	expect(2, "a=1", "b=2") // namespaces aren't its matter
	s.ok(e.Patch(s.ctx, "default", "b", "", merge, nil, []byte(`{"spec":{"size":3}}`)))
	after := expect(3, "a=1", "b=3")
	if before[0] != after[0] || before[1] == after[1] || before[1].Spec.Size != 2 {
		t.Error("what has changed is decoded anew, and nothing else")
	}
	s.ok(e.Delete(s.ctx, "default", "a", nil, nil))
	expect(4, "b=3")

	both := registry.Derive(s.Registry, func(of func(storage.Prefix) []*kube.Object) [2]int {
		return [2]int{len(of(gadgets)), len(of(namespaces))}
	}, gadgets, namespaces)
	if got := both.Get(); got[0] != 1 || got[1] < 2 {
		t.Errorf("of two resources: %v", got)
	}
	if allocs := testing.AllocsPerRun(100, func() { both.Get() }); allocs > 0 {
		t.Errorf("a Get without a change allocates %v times", allocs)
	}
}
