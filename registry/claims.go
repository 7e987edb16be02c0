package registry

import (
	"hash/maphash"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// claim is a name in a group: of a kind or of a list's, or of a resource, be it the plural, the singular or a short one.
type claim struct {
	group string
	kind  bool
	name  string
}

// eachClaim visits the names of a definition.
func eachClaim(group string, names apiextensionsv1.CustomResourceDefinitionNames, visit func(claim)) {
	for _, name := range append([]string{names.Plural, names.Singular}, names.ShortNames...) {
		visit(claim{group, false, name})
	}
	visit(claim{group, true, names.Kind})
	visit(claim{group, true, names.ListKind})
}

// claims says which definitions may have been given a name, so that a new one isn't compared with thousands. It knows names by their hashes,
// which take less memory: who asks compares the names themselves.
type claims map[uint64][]*definition

var claimSeed = maphash.MakeSeed()

func (c claim) hash() uint64 { return maphash.Comparable(claimSeed, c) }

func (c claims) add(d *definition) {
	eachClaim(d.object.Spec.Group, d.object.Status.AcceptedNames, func(of claim) {
		if at := of.hash(); of.name != "" && !slices.Contains(c[at], d) {
			c[at] = append(c[at], d)
		}
	})
}

func (c claims) remove(d *definition) {
	eachClaim(d.object.Spec.Group, d.object.Status.AcceptedNames, func(of claim) {
		at := of.hash()
		if left := slices.DeleteFunc(c[at], func(other *definition) bool { return other == d }); len(left) > 0 {
			c[at] = left
		} else {
			delete(c, at)
		}
	})
}

// know remembers what is served for a stored definition. d.mu is held.
func (d *definitions) know(name string, next *definition) {
	d.forget(name)
	d.known[name] = next
	d.claims.add(next)
}

// forget forgets a definition, if it's known. d.mu is held.
func (d *definitions) forget(name string) {
	if old := d.known[name]; old != nil {
		d.claims.remove(old)
		delete(d.known, name)
	}
}

// objectRun is objects in the order of their keys.
type objectRun []*kube.Object

// passes goes on to an object, and tells whether it's among them. It's called with objects in the order of their keys.
func (r *objectRun) passes(o *kube.Object) bool {
	for rest := *r; len(rest) > 0; rest = rest[1:] {
		if rest[0] == o || rest[0].Key >= o.Key {
			*r = rest
			if rest[0] == o {
				*r = rest[1:]
			}
			return rest[0] == o
		}
	}
	*r = nil
	return false
}
