package reads

import (
	"context"
	"maps"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Kinds of which nothing is stored: a Type's Shown has their objects.

func (e Reader) unstored() bool { return e.Typed != nil && e.Typed.Unstored.Shown != nil }

// shownObjects returns all objects of such a kind, at revision 0.
func (e Reader) shownObjects() ([]*kube.Object, error) {
	var all []*kube.Object
	for _, obj := range e.Typed.Unstored.Shown() {
		o := &object.Object{}
		if err := registry.ToObject(obj, o); err != nil {
			return nil, err
		}
		raw, err := o.Encode(e.APIVersion(), e.Kind)
		if err != nil {
			return nil, err
		}
		key, err := e.Key(o.Meta.Namespace, o.Meta.Name)
		if err != nil {
			return nil, err
		}
		all = append(all, kube.NewObject(key, raw, 0))
	}
	return all, nil
}

// getShown answers with an object of such a kind. A refusal names the kind in the singular, as kube-apiserver's does.
func (e Reader) getShown(ctx context.Context, name string, as *form.Shown) (registry.Result, error) {
	all, err := e.shownObjects()
	if err != nil {
		return registry.Result{}, err
	}
	for _, o := range all {
		if o.Name() == name {
			raw, err := e.Show(ctx, as.Single, o)
			return registry.Result{Object: raw}, err
		}
	}
	return registry.Result{}, apierrors.NewNotFound(schema.GroupResource{Group: e.Group, Resource: e.Singular}, name)
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

// allShown lists the objects of such a kind.
func (l *List) allShown() error {
	objects, err := Of(l.endpoint).shownObjects()
	if err != nil {
		return err
	}
	l.Page = []*kube.Object{}
	for _, o := range objects {
		if l.selects(o) {
			l.Page = append(l.Page, o)
		}
	}
	return nil
}
