package registry

import (
	"context"
	"maps"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Kinds of which nothing is stored: a Type's Shown has their objects.

func (e *Endpoint) unstored() bool { return e.typed != nil && e.typed.Shown != nil }

// shownObjects returns all objects of such a kind, at revision 0.
func (e *Endpoint) shownObjects() ([]*kube.Object, error) {
	var all []*kube.Object
	for _, obj := range e.typed.Shown() {
		o := &object.Object{}
		if err := toObject(obj, o); err != nil {
			return nil, err
		}
		raw, err := o.Encode(e.apiVersion(), e.Kind)
		if err != nil {
			return nil, err
		}
		key, err := e.key(o.Meta.Namespace, o.Meta.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, kube.NewObject(key, raw, 0))
	}
	return all, nil
}

// getShown answers with an object of such a kind. A refusal names the kind in the singular, as kube-apiserver's does.
func (e *Endpoint) getShown(ctx context.Context, name string, as *form.Shown) (Result, error) {
	all, err := e.shownObjects()
	if err != nil {
		return Result{}, err
	}
	for _, o := range all {
		if o.Name() == name {
			raw, err := e.show(ctx, as.Single, o)
			return Result{Object: raw}, err
		}
	}
	return Result{}, apierrors.NewNotFound(schema.GroupResource{Group: e.Group, Resource: e.Singular}, name)
}

// withoutPlace returns the parameters of a list without what says where in history and in the collection it begins: such a kind has neither.
func withoutPlace(parameters url.Values) url.Values {
	left := maps.Clone(parameters)
	delete(left, "continue")
	if v := left.Get("resourceVersion"); v != "" && v != "0" { // which other parameters may go with
		left.Set("resourceVersion", "1")
	}
	return left
}

// all lists the objects of such a kind.
func (l *List) all() error {
	objects, err := l.endpoint.shownObjects()
	if err != nil {
		return err
	}
	l.page = []*kube.Object{}
	for _, o := range objects {
		if l.selects(o) {
			l.page = append(l.page, o)
		}
	}
	return nil
}
