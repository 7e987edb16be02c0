package system

import (
	"context"
	"encoding/json"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// cached returns an object as the cache has it; nil if it isn't there or can't be read.
func cached[T any](e *registry.Endpoint, namespace, name string) *T {
	return decoded[T](e.Object(namespace, name))
}

// decoded returns an object as a value of its type; nil for nil, and for what can't be read.
func decoded[T any](o *kube.Object) *T {
	if o == nil || o.Err != nil {
		return nil
	}
	v := new(T)
	if json.Unmarshal(o.Raw(), v) != nil {
		return nil
	}
	return v
}

// create makes an object, unless somebody else has made one of that name. manager is who is noted in its managedFields; "" is
// the server.
func create(ctx context.Context, e *registry.Endpoint, o registry.Typed, manager string) (storage.Revision, error) {
	rev, err := writes.MakeAs(ctx, e, o, manager)
	if errors.Is(err, storage.ErrExists) {
		return 0, nil
	}
	return rev, err
}

// amend changes an object, unless it's gone.
func amend[T any, P registry.Pointer[T]](ctx context.Context, e *registry.Endpoint, o P, manager string, change func(o *T)) (storage.Revision, error) {
	m := o.GetObjectMeta()
	rev, err := writes.AmendManaged[T, P](ctx, e, writes.Managed{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID(), Manager: manager}, change)
	if errors.Is(err, storage.ErrNotFound) {
		return 0, nil
	}
	return rev, err
}

// remove deletes an object, unless it's gone or another one has its name.
func remove(ctx context.Context, e *registry.Endpoint, m metav1.Object) (storage.Revision, error) {
	rev, _, err := writes.Of(e).Remove(ctx, writes.Removal{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUID()})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrConflict) {
		return 0, nil
	}
	return rev, err
}

// changesOf is the After of a ConfigMap of kube-system that somebody has made or deleted.
func changesOf(configMap string) func(e *cacher.Event) []string {
	return func(e *cacher.Event) []string {
		if e.Prefix != configMapsPrefix || e.Prev != nil && e.Cur != nil {
			return nil
		}
		if o := e.Object(); o.Namespace() != metav1.NamespaceSystem || o.Name() != configMap {
			return nil
		}
		return []string{""}
	}
}

var configMapsPrefix = storage.PrefixOf("", "configmaps")
