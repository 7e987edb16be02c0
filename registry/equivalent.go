package registry

import (
	"context"
	"encoding/json"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What admission needs of a resource besides the objects of one request: the same objects in other versions, their scale,
// and their namespace.

// Endpoint returns what is served at a path; nil if nothing is.
func (c *Catalog) Endpoint(of runtimeschema.GroupVersionResource) *Endpoint { return c.endpoints[of] }

// Path returns the group, version and resource at which the endpoint is served.
func (e *Endpoint) Path() runtimeschema.GroupVersionResource { return e.path() }

// Equivalents returns the served endpoints of the same objects, the endpoint itself included. The caller mustn't change the
// slice.
func (e *Endpoint) Equivalents() []*Endpoint { return e.res.endpoints }

// In returns an object of the endpoint's version in that of to, which is one of its Equivalents. It doesn't change what it's
// given, and returns obj itself if that is nil or to is e. An error that a conversion webhook causes is a Status
// 500 that says so; 429 means that the definition was replaced meanwhile, and 400 that the result doesn't fit the
// schema of to.
func (e *Endpoint) In(ctx context.Context, to *Endpoint, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil || to == e {
		return obj, nil
	}
	version := obj.GetResourceVersion()
	trees := []map[string]any{object.DeepCopy(obj.Object)}
	if err := e.res.convert(ctx, to, trees); err != nil {
		return nil, err
	}
	if to.schema != nil && !to.schema.Trivial() {
		if err := misfit(to.schema.Shape(trees[0])); err != nil {
			return nil, err
		}
	}
	out := &unstructured.Unstructured{Object: trees[0]}
	out.SetKind(to.Kind)
	out.SetResourceVersion(version)
	return out, nil
}

// Scales returns the Scales that a request to the subresource scale is about, where r has objects of the endpoint's: nil of nil. Those of objects that
// would be stored are as the subresource shows them. Before that the new one is what was sent, and both have managedFields, as with kube-apiserver.
// The error is a Status 400 if what should be a number isn't one.
func (e *Endpoint) Scales(r *AdmissionRequest[unstructured.Unstructured]) (obj, old *unstructured.Unstructured, err error) {
	if r.write == nil || r.write.scaleSent == nil {
		if obj, err = e.scaleOf(r.Object, false); err != nil {
			return nil, nil, err
		}
		old, err = e.scaleOf(r.Old, false)
		return obj, old, err
	}
	old, err = e.scaleOf(r.Old, true)
	return &unstructured.Unstructured{Object: r.write.scaleSent}, old, err
}

// scaleOf returns the Scale of an object, with its managedFields if they're wanted; nil of nil.
func (e *Endpoint) scaleOf(obj *unstructured.Unstructured, tracked bool) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	o, err := object.FromTree(object.DeepCopy(obj.Object))
	if err != nil {
		return nil, err
	}
	tree, err := e.scaleTree(e.scaleView(o), o)
	if err != nil {
		return nil, err
	}
	if !tracked {
		setManaged(tree, nil)
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// Rescale changes an object of the endpoint's to the number of replicas that a Scale has. The error is of a Scale that isn't
// one, or of an object in which there's no place for the number.
func (e *Endpoint) Rescale(obj, scale *unstructured.Unstructured) error {
	s := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(scale.Object, s); err != nil {
		return err
	}
	return unstructured.SetNestedField(obj.Object, int64(s.Spec.Replicas), scalePath(e.scale.SpecReplicasPath)...)
}

// Namespace returns a namespace as the cache has it, or etcd if the cache has none. It's the caller's. Errors are
// Status errors: 404 if there is none, 500 if it can't be read, 503 from storage, 504 if ctx ends. Others are
// failures of the server.
func (r *Registry) Namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	stored, err := r.namespaces.find(ctx, name)
	if err != nil {
		return nil, err
	}
	ns := &corev1.Namespace{}
	if err := json.Unmarshal(stored.Raw(), ns); err != nil {
		return nil, r.namespaces.res.storage.unreadable(name, fmt.Errorf("decode: %w", err))
	}
	ns.ResourceVersion = stored.Revision.String()
	return ns, nil
}

// NamespaceLabels is Namespace for the labels alone, which takes no decoding. The map is the caller's.
func (r *Registry) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	stored, err := r.namespaces.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return labelSet(stored), nil
}

// find returns a namespace as the cache has it, or etcd if the cache has none.
func (n *namespaces) find(ctx context.Context, name string) (*kube.Object, error) {
	e := n.res.storage
	stored := n.cached(name)
	if stored == nil {
		key, err := e.key("", name)
		if err != nil {
			return nil, err
		}
		if stored, err = n.registry.read(ctx, key); err != nil {
			return nil, e.fail(name, err)
		}
	}
	switch {
	case stored == nil:
		return nil, e.fail(name, storage.ErrNotFound)
	case stored.Err != nil:
		return nil, e.unreadable(name, stored.Err)
	}
	return stored, nil
}
