package registry

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// resourceOf is a resource that is served in some versions.
func resourceOf(group, plural string, generation int, versions ...string) *Resource {
	r := &Resource{Group: group, Plural: plural}
	for _, v := range versions {
		e := &Endpoint{Names: Names{Group: group, Version: v, Plural: plural, Kind: fmt.Sprint(plural, generation)}, Res: r}
		e.seal()
		r.endpoints = append(r.endpoints, e)
	}
	return r
}

// TestCatalogChanges: a catalog that was changed is the one that is made of its resources.
func TestCatalogChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	versions := []string{"v1", "v2", "v1beta1", "v1alpha1", "v10", "v01", "odd"}
	served, c := map[string]*Resource{}, newCatalog(nil)
	for i := range 500 {
		var gone, come []*Resource
		for range r.IntN(4) {
			group, plural := []string{"", "a.example.com", "b", "z.example.com"}[r.IntN(4)], fmt.Sprint("things", r.IntN(12))
			if old := served[group+plural]; old != nil && !slices.Contains(come, old) && !slices.Contains(gone, old) {
				gone = append(gone, old)
				delete(served, group+plural)
			}
			if served[group+plural] == nil && r.IntN(3) > 0 {
				own := slices.Clone(versions)
				r.Shuffle(len(own), func(i, j int) { own[i], own[j] = own[j], own[i] })
				fresh := resourceOf(group, plural, i, own[:r.IntN(3)]...)
				served[group+plural] = fresh
				come = append(come, fresh)
			}
		}
		c = c.with(gone, come)
		checkCatalog(t, c, served)
	}
}

// checkCatalog compares with a catalog that is sorted as a whole.
func checkCatalog(t *testing.T, c *Catalog, served map[string]*Resource) {
	t.Helper()
	var want, got []*Endpoint
	var resources []*Resource
	for _, r := range served {
		want, resources = append(want, r.endpoints...), append(resources, r)
		if !slices.Contains(c.resources, r) {
			t.Fatalf("%s/%s is missing", r.Group, r.Plural)
		}
	}
	slices.SortFunc(want, func(a, b *Endpoint) int {
		byVersion := 0
		if a.Version != b.Version {
			byVersion = cmp.Or(-version.CompareKubeAwareVersionStrings(a.Version, b.Version), strings.Compare(a.Version, b.Version)) // v1 and v01
		}
		return cmp.Or(cmp.Compare(a.Group, b.Group), byVersion, cmp.Compare(a.Plural, b.Plural))
	})
	for _, g := range c.Groups {
		if len(g.Versions) == 0 {
			t.Errorf("the group %q has no versions", g.Name)
		}
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				if got = append(got, e); e.Group != g.Name || e.Version != v.Name || c.Endpoint(e.Path()) != e {
					t.Errorf("%v is in %q at %s, and found as %v", e.Path(), g.Name, v.Name, c.Endpoint(e.Path()))
				}
			}
			if len(v.Resources) == 0 {
				t.Errorf("%s of %q has no resources", v.Name, g.Name)
			}
		}
	}
	if !slices.Equal(got, want) || len(c.resources) != len(resources) {
		t.Fatalf("the catalog has %d endpoints of %d resources in another order, want %d of %d", len(got), len(c.resources), len(want), len(resources))
	}
	if anew := newCatalog(resources); anew.Hash != c.Hash {
		t.Fatal("the hash isn't that of a catalog which is made of the same resources")
	}
	for _, path := range []runtimeschema.GroupVersionResource{{Resource: "things1", Version: "v3"}, {Group: "b", Version: "v1", Resource: "thing"}, {Group: "c", Version: "v1", Resource: "things1"}} {
		if e := c.Endpoint(path); e != nil {
			t.Errorf("%v is found: %v", path, e)
		}
	}
}

// BenchmarkCatalogWith is what one more of thousands of resources costs.
func BenchmarkCatalogWith(b *testing.B) {
	for _, n := range []int{100, 2000} {
		var all []*Resource
		for i := range n {
			all = append(all, resourceOf("bench.example.com", fmt.Sprint("machines", i), 0, "v1"))
		}
		c, more := newCatalog(all), []*Resource{resourceOf("bench.example.com", "machines50a", 0, "v1")}
		path := all[n/2].endpoints[0].Path()
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.with(nil, more)
			}
		})
		b.Run(fmt.Sprint("find/", n), func(b *testing.B) {
			for b.Loop() {
				c.Endpoint(path)
			}
		})
	}
}
