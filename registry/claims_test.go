package registry

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// TestClaims: what others have of a definition's names is what a look at all others says.
func TestClaims(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	name := func() string { return []string{"", "a", "b", "c", "d", "e"}[r.IntN(6)] }
	names := func() apiextensionsv1.CustomResourceDefinitionNames {
		return apiextensionsv1.CustomResourceDefinitionNames{Plural: name(), Singular: name(), ShortNames: []string{name(), name()}[:r.IntN(3)], Kind: name(), ListKind: name()}
	}
	d := &definitions{registry: &Registry{}, known: map[string]*definition{}, claims: claims{}}
	for range 2000 {
		obj := &crd.Definition{}
		obj.Name = fmt.Sprint(r.IntN(6))
		obj.Spec.Group, obj.Spec.Names, obj.Status.AcceptedNames = []string{"", "one", "two"}[r.IntN(3)], names(), names()
		got, want := crd.NamesFor(obj), crd.NamesFor(obj)
		d.take(got, obj)
		for name, other := range d.known {
			if name != obj.Name && other.object.Spec.Group == obj.Spec.Group {
				want.Take(other.object.Status.AcceptedNames)
			}
		}
		mine, theirs := *obj, *obj
		crd.SetStatus(&mine, got, d.registry.Now())
		crd.SetStatus(&theirs, want, d.registry.Now())
		for _, status := range []*apiextensionsv1.CustomResourceDefinitionStatus{&mine.Status, &theirs.Status} {
			for i := range status.Conditions {
				status.Conditions[i].LastTransitionTime.Reset()
			}
		}
		if !reflect.DeepEqual(mine.Status, theirs.Status) {
			t.Fatalf("%+v gets\n%+v, want\n%+v", obj.Spec, mine.Status, theirs.Status)
		}
		if r.IntN(3) == 0 {
			d.forget(obj.Name)
		} else {
			d.know(obj.Name, &definition{object: obj})
		}
	}
	for name := range d.known {
		d.forget(name)
	}
	if len(d.claims) > 0 {
		t.Errorf("names are left of definitions that are gone: %v", d.claims)
	}
}

// TestObjectRun: an object passes if it's the one that was there.
func TestObjectRun(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var now []*kube.Object
	for range 300 {
		var next []*kube.Object
		for i := range 10 {
			key := fmt.Sprint(i)
			old := slices.IndexFunc(now, func(o *kube.Object) bool { return o.Key == key })
			switch r.IntN(4) {
			case 0:
				next = append(next, kube.NewObject(key, []byte("{}"), 1))
			case 1: // there's none
			default:
				if old >= 0 {
					next = append(next, now[old])
				}
			}
		}
		run := objectRun(now)
		for _, o := range next {
			if got, want := run.passes(o), slices.Contains(now, o); got != want {
				t.Fatalf("%q passes: %v, want %v", o.Key, got, want)
			}
		}
		now = next
	}
}
