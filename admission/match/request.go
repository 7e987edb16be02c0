package match

import (
	"cmp"
	"context"
	"sync"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/expression"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// Request is a write as rules see it. Its Object may be replaced between calls of its methods, which then show the new one.
type Request struct {
	*registry.AdmissionRequest[unstructured.Unstructured]
	*Path
	// Space is the namespace of the request. For a Namespace it's the Namespace's name.
	Space    string
	registry *registry.Registry

	mu    sync.Mutex // guards shown, and what it has
	shown map[Place]*versions
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

// Told is the name in a refusal of a plug-in's own.
func (q *Request) Told() string {
	made := ""
	if q.Object != nil {
		made = q.Object.GetGenerateName() // of which the server will make a name
	}
	return cmp.Or(q.Path.Name, made, "Unknown")
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

// Objects returns the request's objects as they are at a place; nil for those that there aren't. Nobody may change them. It
// may be called from several goroutines.
func (q *Request) Objects(ctx context.Context, at Place) (obj, old *unstructured.Unstructured, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, err := q.versionsLocked(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	return v.obj, v.old, nil
}

// Texts returns the request's objects as they are at a place as JSON; nil for those that there aren't. They're encoded once for all who ask.
func (q *Request) Texts(ctx context.Context, at Place) (obj, old []byte, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	v, err := q.versionsLocked(ctx, at)
	if err != nil {
		return nil, nil, err
	}
	for _, each := range []struct {
		of   *unstructured.Unstructured
		text *[]byte
	}{{v.obj, &v.objText}, {v.old, &v.oldText}} {
		if each.of == nil || *each.text != nil {
			continue
		}
		if *each.text, err = object.EncodeJSON(each.of.Object); err != nil {
			return nil, nil, err
		}
	}
	return v.objText, v.oldText, nil
}

// versionsLocked returns the objects at a place; mu must be held.
func (q *Request) versionsLocked(ctx context.Context, at Place) (v *versions, err error) {
	if v := q.shown[at]; v != nil {
		return v, nil
	}
	v, own := &versions{}, q.Places[0]
	if v.obj, err = q.convert(ctx, own, at, q.Object); err != nil {
		return nil, err
	}
	if v.old, err = q.convert(ctx, own, at, q.Old); err != nil {
		return nil, err
	}
	if q.shown == nil {
		q.shown = map[Place]*versions{}
	}
	q.shown[at] = v
	return v, nil
}

// versions are the objects of a request in one version, and as JSON, which is made when somebody asks for it.
type versions struct {
	obj, old         *unstructured.Unstructured
	objText, oldText []byte
}

// convert brings an object from one place to another. What has a kind of its own at both is the same there.
func (q *Request) convert(ctx context.Context, from, to Place, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil || from.Kind == to.Kind {
		return obj, nil
	}
	c := q.registry.Catalog()
	source, target := c.Endpoint(from.Resource), c.Endpoint(to.Resource)
	if source == nil || target == nil { // a version has gone since
		return obj, nil
	}
	return reads.Of(source).In(ctx, target, obj)
}

// Describe returns what webhooks and expressions are told of a request about a place, without uid and objects.
func (q *Request) Describe(at Place) *admissionv1.AdmissionRequest {
	own := q.Places[0]
	r := &admissionv1.AdmissionRequest{
		Kind: metav1.GroupVersionKind(at.Kind), Resource: metav1.GroupVersionResource(at.Resource), SubResource: q.Path.Subresource,
		RequestKind: (*metav1.GroupVersionKind)(&own.Kind), RequestResource: (*metav1.GroupVersionResource)(&own.Resource), RequestSubResource: q.Path.Subresource,
		Name: q.Path.Name, Namespace: q.Space, Operation: admissionv1.Operation(q.Path.Operation), DryRun: &q.DryRun,
	}
	if u := q.User; u != nil {
		r.UserInfo = registry.UserInfo(u)
	}
	r.Options.Object = optionsOf(q.Options)
	return r
}

// optionsOf returns a request's options with their kind.
func optionsOf(given any) runtime.Object {
	switch o := given.(type) {
	case *metav1.CreateOptions:
		named := *o
		named.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("CreateOptions"))
		return &named
	case *metav1.UpdateOptions:
		named := *o
		named.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("UpdateOptions"))
		return &named
	case *metav1.DeleteOptions:
		named := *o
		named.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("DeleteOptions"))
		return &named
	}
	return nil
}

// Input returns what expressions about a request at a place are evaluated with, without params.
func (q *Request) Input(ctx context.Context, at Place, by authorizer.UnconditionalAuthorizer) (*expression.Input, error) {
	obj, old, err := q.Objects(ctx, at)
	if err != nil {
		return nil, err
	}
	in := &expression.Input{
		Request: q.Describe(at), User: q.User, Authorizer: by,
		Namespace: func() (*corev1.Namespace, error) { return q.namespace(ctx) },
	}
	if obj != nil {
		in.Object = obj.Object
	}
	if old != nil {
		in.OldObject = old.Object
	}
	return in, nil
}

// namespace returns the namespace in which the request's object lies; nil for none, and a Namespace lies in none.
func (q *Request) namespace(ctx context.Context) (*corev1.Namespace, error) {
	if !q.Namespaced {
		return nil, nil
	}
	return q.registry.Namespace(ctx, q.Space)
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
