package registry

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Catalog is what is served at one instant. Immutable; it's replaced as a whole when a definition changes.
type Catalog struct {
	Groups []Group // the core group ("") first, then by name
	Hash   string  // changes whenever the content does: discovery's ETag

	Endpoints map[runtimeschema.GroupVersionResource]*Endpoint
	resources []*Resource // all whose objects are stored, also those without a served version

	prefixesOnce sync.Once
	prefixes     map[storage.Prefix]*Endpoint // see Prefix; set by prefixesOnce
}

// Group is one API group with what is served of it.
type Group struct {
	Name     string
	Versions []Version // in order of preference: GA, beta, alpha, and higher numbers first
}

// Version is one version of a group.
type Version struct {
	Name      string
	Resources []*Endpoint // by plural
}

// newCatalog arranges the endpoints of all resources.
func newCatalog(resources []*Resource) *Catalog {
	empty := &Catalog{Endpoints: map[runtimeschema.GroupVersionResource]*Endpoint{}}
	return empty.with(nil, resources)
}

// with returns the catalog without some of its resources, and with others: what it costs to change one of thousands is hardly more than a copy.
func (c *Catalog) with(gone, come []*Resource) *Catalog {
	next := &Catalog{Endpoints: maps.Clone(c.Endpoints)}
	left := make(map[*Resource]bool, len(gone))
	for _, r := range gone {
		left[r] = true
		for _, e := range r.endpoints {
			delete(next.Endpoints, e.Path())
		}
	}
	next.resources = slices.DeleteFunc(slices.Clone(c.resources), func(r *Resource) bool { return left[r] })
	var more []*Endpoint
	for _, r := range come {
		if !r.Answered {
			next.resources = append(next.resources, r)
		}
		for _, e := range r.endpoints {
			next.Endpoints[e.Path()] = e
			more = append(more, e)
		}
	}
	slices.SortFunc(more, compareEndpoints)
	sum := sha256.New()
	put := func(e *Endpoint) {
		next.place(e)
		sum.Write(e.Digest[:])
	}
	for e := range c.endpoints() {
		if left[e.Res] {
			continue
		}
		for len(more) > 0 && compareEndpoints(more[0], e) < 0 {
			put(more[0])
			more = more[1:]
		}
		put(e)
	}
	for _, e := range more {
		put(e)
	}
	next.Hash = hex.EncodeToString(sum.Sum(nil))
	return next
}

// endpoints yields all that is served, in the order of compareEndpoints.
func (c *Catalog) endpoints() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, g := range c.Groups {
			for _, v := range g.Versions {
				for _, e := range v.Resources {
					if !yield(e) {
						return
					}
				}
			}
		}
	}
}

// Preferred returns a resource in the preferred version in which it's served, or nil.
func (c *Catalog) Preferred(of runtimeschema.GroupResource) *Endpoint {
	for _, g := range c.Groups {
		if g.Name != of.Group {
			continue
		}
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				if e.Plural == of.Resource {
					return e
				}
			}
		}
	}
	return nil
}

// Named returns the endpoint that a text names: "widgets.example.com" the preferred version of the resource, "widgets.v1.example.com" that
// version. The errors are those of Lookup: ErrNotServed if there's none.
func (r *Registry) Named(ctx context.Context, name string) (*Endpoint, error) {
	exact, of := runtimeschema.ParseResourceArg(name)
	missing := of.WithVersion("")
	if exact != nil {
		missing = *exact
	}
	for range 2 {
		served := r.Catalog()
		if e := served.Preferred(of); e != nil {
			return e, nil
		}
		if e := served.Endpoints[missing]; e != nil {
			return e, nil
		}
		if _, err := r.Lookup(ctx, missing); err != nil && !errors.Is(err, ErrNotServed) { // it may be of a new definition
			return nil, err
		}
	}
	return nil, ErrNotServed
}

// Objects yields the resources and how many objects each has.
func (c *Catalog) Objects() iter.Seq2[runtimeschema.GroupResource, int] {
	return func(yield func(runtimeschema.GroupResource, int) bool) {
		for _, r := range c.resources {
			if !yield(runtimeschema.GroupResource{Group: r.Group, Resource: r.Plural}, r.Cache.Len()) {
				return
			}
		}
	}
}

// Cached yields the objects that the caches have of a resource: those in a namespace, which is "" for a resource without, or the
// one of a name that isn't "".
func (c *Catalog) Cached(of runtimeschema.GroupResource, namespace, name string) iter.Seq[*kube.Object] {
	return func(yield func(*kube.Object) bool) {
		prefix := storage.PrefixOf(of.Group, of.Resource)
		in, err := prefix.Namespace(namespace)
		stored := c.Prefix(prefix)
		if err != nil || stored == nil {
			return
		}
		for o := range stored.Cache().Snapshot().All(in + name) {
			if (name == "" || o.Name() == name) && !yield(o) {
				return
			}
		}
	}
}

// compareEndpoints orders by group, version (the preferred first) and plural.
func compareEndpoints(a, b *Endpoint) int {
	if n := strings.Compare(a.Group, b.Group); n != 0 {
		return n
	}
	if a.Version != b.Version {
		return -version.CompareKubeAwareVersionStrings(a.Version, b.Version)
	}
	return strings.Compare(a.Plural, b.Plural)
}

// place puts the next endpoint, in the order of compareEndpoints, where it belongs.
func (c *Catalog) place(e *Endpoint) {
	if n := len(c.Groups); n == 0 || c.Groups[n-1].Name != e.Group {
		c.Groups = append(c.Groups, Group{Name: e.Group})
	}
	g := &c.Groups[len(c.Groups)-1]
	if n := len(g.Versions); n == 0 || g.Versions[n-1].Name != e.Version {
		g.Versions = append(g.Versions, Version{Name: e.Version})
	}
	v := &g.Versions[len(g.Versions)-1]
	v.Resources = append(v.Resources, e)
}

// storageVersionHash returns kube-apiserver's hash of the kind in which objects are stored. Clients compare it, to notice
// when objects are stored in another version.
func storageVersionHash(kind runtimeschema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(kind.Group + "/" + kind.Version + "/" + kind.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// seal computes the endpoint's digest, of which the catalog's hash is made. It's called once, when the endpoint is
// complete. So a change of one definition doesn't encode all the others again.
func (e *Endpoint) seal() {
	b, err := json.Marshal(e) // the exported fields: all that discovery shows
	if err != nil {
		panic(err) // strings and booleans always encode
	}
	e.Digest = sha256.Sum256(b)
}
