// Package plugins has the built-in admission plug-ins of Kubernetes' that this server has, one in each file. Each is made by a
// New function, and is a hook of package registry: what changes objects does so in Admit or Complete, what only judges does so in Validate or Check.
// They do what kube-apiserver's do, with its messages, as far as there is something here that they can act on.
//
// They read other objects from the caches, by values that are derived once after a change. Writes of those kinds are answered
// when the caches have them, so a plug-in knows what a client wrote before. ServiceAccounts are read from the store.
//
// The package starts no goroutine. What waits is named in its function: a pod for its ServiceAccount, at most accountWait, and creates for the
// quota that they're charged to (quotalines.go), as long as their requests may take. Locks: lines.mu, a leaf, which is held for nothing that
// waits. The line for a quota holds one charge of each request that waits, so the bounds of requests bound it.
package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// request is what plug-ins are asked about.
type request = registry.AdmissionRequest[unstructured.Unstructured]

// changes tells whether a request writes an object of a resource in one of these ways, and not a subresource.
func changes(a *registry.Attributes, group, plural string, operations ...registry.Operation) bool {
	return a.Resource.Resource == plural && a.Resource.Group == group && a.Subresource == "" && slices.Contains(operations, a.Operation)
}

// writesPods tells whether a request writes pods themselves in one of these ways.
func writesPods(a *registry.Attributes, operations ...registry.Operation) bool {
	return changes(a, "", "pods", operations...)
}

// The plug-ins that look at a few fields of each new pod read them in its tree, which is cheaper than a Go value of all of it. The
// tree is one of the kind's own, so what is there has the kind's types.

// specOf returns an object's spec, which is made if it's absent.
func specOf(u *unstructured.Unstructured) map[string]any {
	spec, ok := u.Object["spec"].(map[string]any)
	if !ok {
		spec = map[string]any{}
		u.Object["spec"] = spec
	}
	return spec
}

// items are the objects of a list in a tree.
func items(list any) []any {
	all, _ := list.([]any)
	return all
}

// textOf returns a field of an object in a tree; "" if it's absent.
func textOf(object any, field string) string {
	of, _ := object.(map[string]any)
	text, _ := of[field].(string)
	return text
}

// decode makes a value of a Go type of an object.
func decode[T any](u *unstructured.Unstructured) (*T, error) {
	value := new(T)
	if err := jsontree.Into(u.Object, value); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return value, nil
}

// setSpec makes a value the object's spec.
func setSpec(u *unstructured.Unstructured, spec any) error {
	tree, err := jsontree.OfValue(spec)
	if err != nil {
		return fmt.Errorf("encode: %w", err)
	}
	u.Object["spec"] = tree
	return nil
}

// find is lookUp for the object as a value of its Go type, which is the caller's.
func find[T any](ctx context.Context, r *registry.Registry, p storage.Prefix, namespace, name string) (*T, error) {
	stored, err := lookUp(ctx, r, p, namespace, name)
	if err != nil || stored == nil {
		return nil, err
	}
	return decodeStored[T](stored)
}

func decodeStored[T any](stored *kube.Object) (*T, error) {
	value := new(T)
	if err := json.Unmarshal(stored.Raw(), value); err != nil {
		return nil, fmt.Errorf("decode %q: %w", stored.Key, err)
	}
	return value, nil
}

// lookUp returns an object as the caches have it, or the store if they have none; nil if there is none, or if its resource isn't served.
func lookUp(ctx context.Context, r *registry.Registry, p storage.Prefix, namespace, name string) (*kube.Object, error) {
	key, err := p.Key(namespace, name)
	served := r.Catalog().Prefix(p)
	if err != nil || served == nil {
		return nil, nil // no object can have such a name
	}
	stored := served.Cache().Get(key)
	if stored == nil {
		if stored, err = r.Read(ctx, key); err != nil || stored == nil {
			return nil, err
		}
	}
	return stored, stored.Err
}

// The resources of which plug-ins look single objects up.
var (
	podsPrefix  = storage.PrefixOf("", "pods")
	nodesPrefix = storage.PrefixOf("", "nodes")

	namespacesPrefix = storage.PrefixOf("", "namespaces")
)

// derive returns all objects of a resource, as values of their Go type. What can't be decoded is logged, and left out.
func derive[T any](r *registry.Registry, p storage.Prefix, unreadable func(o *kube.Object, err error)) *registry.Derived[[]*T] {
	var decoded registry.Decoded[T]
	return registry.Derive(r, func(of func(storage.Prefix) []*kube.Object) []*T { return decoded.All(of(p), unreadable) }, p)
}

// deriveByNamespace is derive for what has namespaces: by these.
func deriveByNamespace[T any](r *registry.Registry, p storage.Prefix, unreadable func(o *kube.Object, err error)) *registry.Derived[map[string][]*T] {
	var decoded registry.Decoded[T]
	return registry.Derive(r, func(of func(storage.Prefix) []*kube.Object) map[string][]*T {
		byNamespace := map[string][]*T{}
		for _, value := range decoded.All(of(p), unreadable) {
			namespace := any(value).(interface{ GetNamespace() string }).GetNamespace()
			byNamespace[namespace] = append(byNamespace[namespace], value)
		}
		return byNamespace
	}, p)
}
