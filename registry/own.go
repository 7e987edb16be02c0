package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What the server's own controllers read and write. They find Endpoints in the Catalog, read an object from etcd (Current),
// delete it (Remove) and change its metadata (Amend). Their writes take the way of clients' writes, but admission isn't
// asked. Errors are storage's, to be tested with errors.Is; those that aren't are Status errors, such as a refusal to delete
// the namespace "default", or failures of the server.

// Kind returns the served endpoint that has a kind of stored objects; nil if there is none. The arguments are as in an
// owner reference.
func (c *Catalog) Kind(apiVersion, kind string) *Endpoint {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	return c.find(group, kind, func(v string) bool { return v == version })
}

// GroupKind returns a served endpoint that has a kind of a group, in whichever version: the one that the group prefers of
// those that have it. It's nil if there is none. The version that an owner reference names says nothing about who the owner
// is, and nobody rewrites it when a definition no longer serves that version.
func (c *Catalog) GroupKind(group, kind string) *Endpoint {
	return c.find(group, kind, func(string) bool { return true })
}

// find returns the endpoint of a kind of stored objects in the first of a group's versions that will do; nil if there is none.
func (c *Catalog) find(group, kind string, do func(version string) bool) *Endpoint {
	i, found := c.group(group)
	if !found {
		return nil
	}
	for _, v := range c.Groups[i].Versions {
		at := slices.IndexFunc(v.Resources, func(e *Endpoint) bool { return e.Kind == kind && !e.Res.Answered })
		if at >= 0 && do(v.Name) {
			return v.Resources[at]
		}
	}
	return nil
}

// Prefix returns the endpoint of the version in which the objects of a prefix are stored. That version may not be served.
// It's nil for a prefix that no resource has.
func (c *Catalog) Prefix(p storage.Prefix) *Endpoint {
	c.prefixesOnce.Do(func() {
		c.prefixes = make(map[storage.Prefix]*Endpoint, len(c.resources))
		for _, r := range c.resources {
			if c.prefixes[r.Prefix] == nil { // a definition can't take a Go type's
				c.prefixes[r.Prefix] = r.Storage
			}
		}
	})
	return c.prefixes[p]
}

// Object returns an object of the resource with a prefix as the cache has it; nil if there is none, or no such resource.
func (c *Catalog) Object(p storage.Prefix, namespace, name string) *kube.Object {
	if e := c.Prefix(p); e != nil {
		return e.Object(namespace, name)
	}
	return nil
}

// Object returns an object of the endpoint's resource as the cache has it; nil if there is none, or if no object can have such a name.
func (e *Endpoint) Object(namespace, name string) *kube.Object {
	key, err := e.Prefix().Key(namespace, name)
	if err != nil {
		return nil
	}
	return e.Cache().Get(key)
}

// Stored yields the endpoints of the versions in which objects are stored, one for each resource, also of those that have no
// served version.
func (c *Catalog) Stored() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, r := range c.resources {
			if !yield(r.Storage) {
				return
			}
		}
	}
}

// Cache returns the cache of the endpoint's resource.
func (e *Endpoint) Cache() *cacher.Resource { return e.Res.Cache }

// Prefix returns the prefix of the keys of the endpoint's resource.
func (e *Endpoint) Prefix() storage.Prefix { return e.Res.Prefix }

// Equivalents returns the served endpoints of the same objects, the endpoint itself included. The caller mustn't change the
// slice.
func (e *Endpoint) Equivalents() []*Endpoint { return e.Res.endpoints }

// Door is all that package controllers sees of a Registry. A controller acts on events, and mustn't know anything older than
// the event it acts on. So a Door has no Catalog, which may be older than the caches: it has Served, which isn't.
type Door struct{ registry *Registry }

// Namespaces returns the endpoint of namespaces.
func (d Door) Namespaces() *Endpoint { return d.registry.Namespaces.Res.Storage }

// Door returns the registry's door for controllers.
func (r *Registry) Door() Door { return Door{r} }

// Served returns what is served, with all definitions that the caches have when it's called.
func (d Door) Served() *Catalog {
	d.registry.Definitions.CatchUp()
	return d.registry.Catalog()
}

// Ready is Registry.Ready.
func (d Door) Ready() <-chan struct{} { return d.registry.Ready() }

// Pin is Registry.Pin.
func (d Door) Pin(ctx context.Context) context.Context { return d.registry.Pin(ctx) }

// Read is Registry.Read.
func (d Door) Read(ctx context.Context, key string) (*kube.Object, error) {
	return d.registry.Read(ctx, key)
}

// ownManager is what Options.Manager defaults to.
const ownManager = "apiserver-lite"

// Namespace returns a namespace as the cache has it, or etcd if the cache has none. It's the caller's. Errors are
// Status errors: 404 if there is none, 500 if it can't be read, 503 from storage, 504 if ctx ends. Others are
// failures of the server.
func (r *Registry) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	stored, err := r.Namespaces.find(ctx, name)
	if err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(stored.Raw(), ns); err != nil {
		return nil, r.Namespaces.Res.Storage.Unreadable(name, fmt.Errorf("decode: %w", err))
	}
	ns.ResourceVersion = stored.Revision.String()
	return ns, nil
}

// NamespaceLabels is Namespace for the labels alone, which takes no decoding. The map is the caller's.
func (r *Registry) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	stored, err := r.Namespaces.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return LabelSet(stored), nil
}

// find returns a namespace as the cache has it, or etcd if the cache has none.
func (n *namespaces) find(ctx context.Context, name string) (*kube.Object, error) {
	e := n.Res.Storage
	stored := n.Cached(name)
	if stored == nil {
		key, err := e.Key("", name)
		if err != nil {
			return nil, err
		}
		if stored, err = n.Registry.Read(ctx, key); err != nil {
			return nil, e.Fail(name, err)
		}
	}
	switch {
	case stored == nil:
		return nil, e.Fail(name, storage.ErrNotFound)
	case stored.Err != nil:
		return nil, e.Unreadable(name, stored.Err)
	}
	return stored, nil
}
