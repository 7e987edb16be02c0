package registry

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"iter"
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
	digests   []byte      // theirs
	sum       [32]byte    // of these
}

// newCatalog arranges the endpoints of all resources.
func newCatalog(resources []*Resource) *Catalog { return (&Catalog{}).with(nil, resources) }

// edit is an endpoint that comes to its path, or nil for one that goes.
type edit struct {
	path runtimeschema.GroupVersionResource
	to   *Endpoint
}

// with returns the catalog without some of its resources, and with others. It shares with it the versions that stay as they are, and of the
// others what is between the changes is copied and not looked at: there may be thousands.
func (c *Catalog) with(gone, come []*Resource) *Catalog {
	next := &Catalog{Groups: slices.Clone(c.Groups), resources: slices.Clone(c.resources)}
	changed := map[runtimeschema.GroupVersionResource]*Endpoint{}
	left := make(map[*Resource]bool, len(gone))
	for _, r := range gone {
		left[r] = true
		for _, e := range r.endpoints {
			changed[e.Path()] = nil
		}
	}
	if len(left) > 0 {
		next.resources = slices.DeleteFunc(next.resources, func(r *Resource) bool { return left[r] })
	}
	for _, r := range come {
		if !r.Answered {
			next.resources = append(next.resources, r)
		}
		for _, e := range r.endpoints {
			changed[e.Path()] = e
		}
	}
	var edits []edit
	for path, e := range changed {
		edits = append(edits, edit{path, e})
	}
	slices.SortFunc(edits, func(a, b edit) int { return strings.Compare(a.path.Resource, b.path.Resource) })
	of := map[runtimeschema.GroupVersion][]edit{}
	for _, e := range edits {
		of[e.path.GroupVersion()] = append(of[e.path.GroupVersion()], e)
	}
	for version, edits := range of {
		next.edit(version, edits)
	}
	sum := sha256.New()
	for _, g := range next.Groups {
		for _, v := range g.Versions {
			sum.Write(v.sum[:])
		}
	}
	next.Hash = hex.EncodeToString(sum.Sum(nil))
	return next
}

// edit changes a version, by plural.
func (c *Catalog) edit(of runtimeschema.GroupVersion, edits []edit) {
	i, found := c.group(of.Group)
	if !found {
		c.Groups = slices.Insert(c.Groups, i, Group{Name: of.Group})
	}
	versions := slices.Clone(c.Groups[i].Versions)
	j, found := slices.BinarySearchFunc(versions, of.Version, func(v Version, name string) int { return compareVersions(v.Name, name) })
	if !found {
		versions = slices.Insert(versions, j, Version{Name: of.Version})
	}
	if versions[j] = versions[j].with(edits); len(versions[j].Resources) == 0 {
		versions = slices.Delete(versions, j, j+1)
	}
	if c.Groups[i].Versions = versions; len(versions) == 0 {
		c.Groups = slices.Delete(c.Groups, i, i+1)
	}
}

func (v Version) with(edits []edit) Version {
	size := len(v.Resources) + len(edits)
	next := Version{Name: v.Name, Resources: make([]*Endpoint, 0, size), digests: make([]byte, 0, size*sha256.Size)}
	keep := func(from, to int) {
		next.Resources = append(next.Resources, v.Resources[from:to]...)
		next.digests = append(next.digests, v.digests[from*sha256.Size:to*sha256.Size]...)
	}
	done := 0
	for _, e := range edits {
		i, found := v.find(e.path.Resource)
		keep(done, i)
		if done = i; found {
			done++
		}
		if e.to != nil {
			next.Resources = append(next.Resources, e.to)
			next.digests = append(next.digests, e.to.Digest[:]...)
		}
	}
	keep(done, len(v.Resources))
	next.sum = sha256.Sum256(next.digests)
	return next
}

// find returns where a plural is, or would be.
func (v Version) find(plural string) (at int, found bool) {
	return slices.BinarySearchFunc(v.Resources, plural, func(e *Endpoint, name string) int { return strings.Compare(e.Plural, name) })
}

// group returns where a group is, or would be.
func (c *Catalog) group(name string) (at int, found bool) {
	return slices.BinarySearchFunc(c.Groups, name, func(g Group, name string) int { return strings.Compare(g.Name, name) })
}

// Endpoint returns what is served at a path; nil if nothing is.
func (c *Catalog) Endpoint(of runtimeschema.GroupVersionResource) *Endpoint {
	i, found := c.group(of.Group)
	if !found {
		return nil
	}
	for _, v := range c.Groups[i].Versions {
		if v.Name != of.Version {
			continue
		}
		if at, found := v.find(of.Resource); found {
			return v.Resources[at]
		}
	}
	return nil
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
		if e := served.Endpoint(missing); e != nil {
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

// compareVersions orders the preferred first. Kubernetes' order takes v1 and v01 for the same.
func compareVersions(a, b string) int {
	return cmp.Or(-version.CompareKubeAwareVersionStrings(a, b), strings.Compare(a, b))
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
