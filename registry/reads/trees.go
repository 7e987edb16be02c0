package reads

import (
	"context"
	"errors"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What admission policies need of a resource: objects that are their parameters, and what an expression makes of an object.

// Find returns an object as a tree, whole and in the endpoint's version, as new as the moment of the call; nil if there is
// none. The caller owns it. Errors are those of Get.
func (e Reader) Find(ctx context.Context, namespace, name string) (map[string]any, error) {
	key, err := e.Key(namespace, name)
	if err != nil {
		return nil, err
	}
	return registry.Steady(ctx, e.Endpoint, func(e *registry.Endpoint) (map[string]any, error) {
		if err := e.Freshen(ctx); err != nil {
			return nil, err
		}
		o := e.Res.Cache.Get(key)
		if o == nil {
			return nil, nil
		}
		return Of(e).tree(ctx, o)
	})
}

// Select returns the objects of a namespace, or of all for "", that a selector selects: each as Find does, in the order of
// their keys. Errors are those of Get; the first one ends it.
func (e Reader) Select(ctx context.Context, namespace string, by labels.Selector) ([]map[string]any, error) {
	return registry.Steady(ctx, e.Endpoint, func(e *registry.Endpoint) (trees []map[string]any, err error) {
		prefix := string(e.Res.Prefix)
		if namespace != "" {
			if prefix, err = e.Res.Prefix.Namespace(namespace); err != nil {
				return nil, e.Fail("", err)
			}
		}
		if err := e.Freshen(ctx); err != nil {
			return nil, err
		}
		for o := range e.Res.Cache.Snapshot().All(prefix) {
			if !by.Matches(registry.LabelSet(o)) {
				continue
			}
			tree, err := Of(e).tree(ctx, o)
			if err != nil {
				return nil, err
			}
			trees = append(trees, tree)
		}
		return trees, nil
	})
}

// tree returns an object as clients see it.
func (e Reader) tree(ctx context.Context, o *kube.Object) (map[string]any, error) {
	raw, err := e.Show(ctx, e.Whole.Single, o)
	if err != nil {
		return nil, err
	}
	tree, err := object.ParseTree(raw)
	if err != nil {
		return nil, e.Unreadable(o.Name(), err)
	}
	return tree, nil
}

// Merge returns an object of the endpoint's with what a configuration has, merged as server-side apply does it, and without
// a record of who set what. A list, map or struct that is one value must not be in the configuration: the rest of that value
// would be lost. Neither is changed. An error says what doesn't fit.
func (e Reader) Merge(obj *unstructured.Unstructured, configuration map[string]any) (*unstructured.Unstructured, error) {
	merged, err := e.Managers.Types.Merge(obj.Object, configuration)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: merged}, nil
}

// Complete returns an object of the endpoint's that was changed, with the defaults of its type or schema, and without what
// they don't know. obj stays as it is. The error says what in it the type can't have.
func (e Reader) Complete(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o, err := object.FromTree(object.DeepCopy(obj.Object))
	if err != nil {
		return nil, err
	}
	if t := e.Typed; t != nil {
		typed, err := t.FromObject(o)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(t.SetDefaults(typed), registry.ToObject(typed, o)); err != nil {
			return nil, err
		}
	} else if err := e.Shape(o); err != nil {
		return nil, err
	}
	tree, err := o.Tree(e.APIVersion(), e.Kind)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// ReadPatched returns what a hook's patch made of an object of the endpoint's, with the defaults of its type or schema, and without what the type
// doesn't know. An error says in the words of Kubernetes' decoder what can't be read, or is a Status.
func (e Reader) ReadPatched(doc []byte) (*unstructured.Unstructured, error) {
	if e.Typed == nil {
		return e.readPatchedCustom(doc)
	}
	want := e.GVK()
	of, err := object.KindOf(doc, want)
	if err != nil {
		return nil, err
	}
	as := e.Res.Registry.Catalog().Kind(of.GroupVersion().String(), of.Kind)
	if as == nil || as.Typed == nil {
		return nil, runtime.NewNotRegisteredErrForKind(object.Scheme, of)
	}
	parsed, err := object.Parse(doc)
	if err != nil {
		return nil, err
	}
	tree, _, err := as.Typed.Normalize(&parsed)
	if err != nil {
		return nil, errors.New(registry.CauseOf(err))
	}
	if as != e.Endpoint {
		return nil, registry.Unforeseen(fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", of.Version, of.Kind, registry.InternalPackage(want.Group), want.Kind))
	}
	tree["apiVersion"], tree["kind"] = e.APIVersion(), e.Kind
	return &unstructured.Unstructured{Object: tree}, nil
}

// readPatchedCustom is ReadPatched for a custom resource. What its schema doesn't know is pruned when the object is stored.
func (e Reader) readPatchedCustom(doc []byte) (*unstructured.Unstructured, error) {
	of, err := object.KindOf(doc, schema.GroupVersionKind{})
	if err != nil {
		return nil, err
	}
	if of.Kind == "" {
		return nil, runtime.NewMissingKindErr(clip.Text(string(doc)))
	}
	tree, err := object.ParseTree(doc)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: tree}, e.Schema.Default(tree)
}

// In returns an object of the endpoint's version in that of to, which is one of its Equivalents. It doesn't change what it's
// given, and returns obj itself if that is nil or to is e. An error that a conversion webhook causes is a Status
// 500 that says so; 429 means that the definition was replaced meanwhile, and 400 that the result doesn't fit the
// schema of to.
func (e Reader) In(ctx context.Context, to *registry.Endpoint, obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if obj == nil || to == e.Endpoint {
		return obj, nil
	}
	version := obj.GetResourceVersion()
	trees := []map[string]any{object.DeepCopy(obj.Object)}
	if err := e.Res.Convert(ctx, to, trees); err != nil {
		return nil, err
	}
	if to.Schema != nil && !to.Schema.Trivial() {
		if err := registry.Misfit(to.Schema.Shape(trees[0])); err != nil {
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
func (e Reader) Scales(r *registry.AdmissionRequest[unstructured.Unstructured]) (obj, old *unstructured.Unstructured, err error) {
	if r.Course == nil || r.Course.ScaleSent == nil {
		if obj, err = e.scaleOf(r.Object, false); err != nil {
			return nil, nil, err
		}
		old, err = e.scaleOf(r.Old, false)
		return obj, old, err
	}
	old, err = e.scaleOf(r.Old, true)
	return &unstructured.Unstructured{Object: r.Course.ScaleSent}, old, err
}

// scaleOf returns the Scale of an object, with its managedFields if they're wanted; nil of nil.
func (e Reader) scaleOf(obj *unstructured.Unstructured, tracked bool) (*unstructured.Unstructured, error) {
	if obj == nil {
		return nil, nil
	}
	o, err := object.FromTree(object.DeepCopy(obj.Object))
	if err != nil {
		return nil, err
	}
	tree, err := e.ScaleTree(e.ScaleView(o), o)
	if err != nil {
		return nil, err
	}
	if !tracked {
		SetManaged(tree, nil)
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// Rescale changes an object of the endpoint's to the number of replicas that a Scale has. The error is of a Scale that isn't
// one, or of an object in which there's no place for the number.
func (e Reader) Rescale(obj, scale *unstructured.Unstructured) error {
	s := &autoscalingv1.Scale{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(scale.Object, s); err != nil {
		return err
	}
	return unstructured.SetNestedField(obj.Object, int64(s.Spec.Replicas), ScalePath(e.Scale.SpecReplicasPath)...)
}
