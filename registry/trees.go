package registry

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What admission policies need of a resource: objects that are their parameters, and what an expression makes of an object.

// Find returns an object as a tree, whole and in the endpoint's version, as new as the moment of the call; nil if there is
// none. The caller owns it. Errors are those of Get.
func (e *Endpoint) Find(ctx context.Context, namespace, name string) (map[string]any, error) {
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	return steady(ctx, e, func(e *Endpoint) (map[string]any, error) {
		if err := e.freshen(ctx); err != nil {
			return nil, err
		}
		o := e.res.cache.Get(key)
		if o == nil {
			return nil, nil
		}
		return e.tree(ctx, o)
	})
}

// Select returns the objects of a namespace, or of all for "", that a selector selects: each as Find does, in the order of
// their keys. Errors are those of Get; the first one ends it.
func (e *Endpoint) Select(ctx context.Context, namespace string, by labels.Selector) ([]map[string]any, error) {
	return steady(ctx, e, func(e *Endpoint) (trees []map[string]any, err error) {
		prefix := string(e.res.prefix)
		if namespace != "" {
			if prefix, err = e.res.prefix.Namespace(namespace); err != nil {
				return nil, e.fail("", err)
			}
		}
		if err := e.freshen(ctx); err != nil {
			return nil, err
		}
		for o := range e.res.cache.Snapshot().All(prefix) {
			if !by.Matches(labelSet(o)) {
				continue
			}
			tree, err := e.tree(ctx, o)
			if err != nil {
				return nil, err
			}
			trees = append(trees, tree)
		}
		return trees, nil
	})
}

// labelSet returns an object's labels.
func labelSet(o *kube.Object) labels.Set {
	set := make(labels.Set, len(o.Labels)/2)
	for i := 0; i+1 < len(o.Labels); i += 2 {
		set[o.Labels[i]] = o.Labels[i+1]
	}
	return set
}

// tree returns an object as clients see it.
func (e *Endpoint) tree(ctx context.Context, o *kube.Object) (map[string]any, error) {
	raw, err := e.show(ctx, e.whole.Single, o)
	if err != nil {
		return nil, err
	}
	tree, err := object.ParseTree(raw)
	if err != nil {
		return nil, e.unreadable(o.Name(), err)
	}
	return tree, nil
}

// Merge returns an object of the endpoint's with what a configuration has, merged as server-side apply does it, and without
// a record of who set what. A list, map or struct that is one value must not be in the configuration: the rest of that value
// would be lost. Neither is changed. An error says what doesn't fit.
func (e *Endpoint) Merge(obj *unstructured.Unstructured, configuration map[string]any) (*unstructured.Unstructured, error) {
	merged, err := e.managers.types.Merge(obj.Object, configuration)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: merged}, nil
}

// Complete returns an object of the endpoint's that was changed, with the defaults of its type or schema, and without what
// they don't know. obj stays as it is. The error says what in it the type can't have.
func (e *Endpoint) Complete(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	o, err := object.FromTree(object.DeepCopy(obj.Object))
	if err != nil {
		return nil, err
	}
	if t := e.typed; t != nil {
		typed, err := t.fromObject(o)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(t.setDefaults(typed), toObject(typed, o)); err != nil {
			return nil, err
		}
	} else if err := e.shape(o); err != nil {
		return nil, err
	}
	tree, err := o.Tree(e.apiVersion(), e.Kind)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// ReadPatched returns what a hook's patch made of an object of the endpoint's, with the defaults of its type or schema, and without what the type
// doesn't know. An error says in the words of Kubernetes' decoder what can't be read, or is a Status.
func (e *Endpoint) ReadPatched(doc []byte) (*unstructured.Unstructured, error) {
	if e.typed == nil {
		return e.readPatchedCustom(doc)
	}
	want := e.kind()
	of, err := object.KindOf(doc, want)
	if err != nil {
		return nil, err
	}
	as := e.res.registry.Catalog().Kind(of.GroupVersion().String(), of.Kind)
	if as == nil || as.typed == nil {
		return nil, runtime.NewNotRegisteredErrForKind(object.Scheme, of)
	}
	parsed, err := object.Parse(doc)
	if err != nil {
		return nil, err
	}
	tree, _, err := as.typed.normalize(&parsed)
	if err != nil {
		return nil, errors.New(causeOf(err))
	}
	if as != e {
		return nil, unforeseen(fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion", of.Version, of.Kind, internalPackage(want.Group), want.Kind))
	}
	tree["apiVersion"], tree["kind"] = e.apiVersion(), e.Kind
	return &unstructured.Unstructured{Object: tree}, nil
}

// readPatchedCustom is ReadPatched for a custom resource. What its schema doesn't know is pruned when the object is stored.
func (e *Endpoint) readPatchedCustom(doc []byte) (*unstructured.Unstructured, error) {
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
	return &unstructured.Unstructured{Object: tree}, e.schema.Default(tree)
}
