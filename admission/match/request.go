package match

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/admission"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// Request is a write as rules see it. Its Object may be replaced between calls of its methods, which then show the new one.
type Request struct {
	*registry.AdmissionRequest[unstructured.Unstructured]
	*Path
	// Space is the namespace of the request. For a Namespace it's the Namespace's name.
	Space    string
	registry *registry.Registry

	mu    sync.Mutex // guards shown
	shown map[Place]*admission.VersionedAttributes
}

// NewRequest returns a request as rules see it. The subresource scale must have Scales for objects.
func NewRequest(r *registry.AdmissionRequest[unstructured.Unstructured], of *registry.Registry) *Request {
	q := &Request{AdmissionRequest: r, Path: PathOf(&r.Attributes, of.Catalog()), Space: r.Attributes.Namespace, registry: of}
	if isNamespace(&r.Attributes) {
		q.Space = r.Attributes.Name
	}
	return q
}

func isNamespace(a *registry.Attributes) bool {
	return a.Resource.Group == "" && a.Resource.Resource == "namespaces"
}

// Set makes obj, which is an object at a place, the request's Object.
func (q *Request) Set(ctx context.Context, at Place, obj *unstructured.Unstructured) error {
	own, err := q.convert(ctx, at, q.Places[0], obj)
	if err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.Object, q.shown = own, nil
	return nil
}

// Versioned returns the request with its objects as they are at a place. Nobody may change them. It may be called from
// several goroutines.
func (q *Request) Versioned(ctx context.Context, at Place) (*admission.VersionedAttributes, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if v := q.shown[at]; v != nil {
		return v, nil
	}
	v := &admission.VersionedAttributes{Attributes: q.attributes(), VersionedKind: at.Kind}
	own := q.Places[0]
	for _, o := range []struct {
		from *unstructured.Unstructured
		to   *admission.LazyObject
	}{{q.Object, &v.VersionedObject}, {q.Old, &v.VersionedOldObject}} {
		if o.from == nil {
			continue
		}
		obj, err := q.convert(ctx, own, at, o.from)
		if err != nil {
			return nil, err
		}
		o.to.Set(obj)
	}
	if q.shown == nil {
		q.shown = map[Place]*admission.VersionedAttributes{}
	}
	q.shown[at] = v
	return v, nil
}

// convert brings an object from one place to another. What has a kind of its own at both is the same there.
func (q *Request) convert(ctx context.Context, from, to Place, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if from.Kind == to.Kind {
		return obj, nil
	}
	c := q.registry.Catalog()
	source, target := c.Endpoint(from.Resource), c.Endpoint(to.Resource)
	if source == nil || target == nil { // a version has gone since
		return obj, nil
	}
	return source.In(ctx, target, obj)
}

// attributes returns the request as Kubernetes' packages take it.
func (q *Request) attributes() admission.Attributes {
	options, _ := q.Options.(runtime.Object)
	return admission.NewAttributesRecord(asObject(q.Object), asObject(q.Old), q.Places[0].Kind, q.Space, q.AdmissionRequest.Name,
		q.Resource, q.AdmissionRequest.Subresource, admission.Operation(q.AdmissionRequest.Operation), options, q.DryRun, q.User)
}

// asObject is nil of nil, which an interface with a nil pointer isn't.
func asObject(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}

// Selected tells whether selectors of namespaces and of objects are true of a request. An object is selected by what it is
// or by what it was. What lies in no namespace is in all of them; a Namespace is in itself. An error is a Status for the
// client.
func (q *Request) Selected(ctx context.Context, namespaces, objects labels.Selector) (bool, error) {
	if !objects.Empty() && !labelled(objects, q.Object) && !labelled(objects, q.Old) {
		return false, nil
	}
	if namespaces.Empty() || q.Space == "" {
		return true, nil
	}
	if isNamespace(&q.Attributes) && q.AdmissionRequest.Subresource == "" && q.Object != nil {
		return labelled(namespaces, q.Object), nil
	}
	have, err := q.registry.NamespaceLabels(ctx, q.Space)
	if err != nil {
		return false, err
	}
	return namespaces.Matches(labels.Set(have)), nil
}

func labelled(by labels.Selector, obj *unstructured.Unstructured) bool {
	return obj != nil && by.Matches(labels.Set(obj.GetLabels()))
}
