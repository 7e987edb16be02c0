package registry

import (
	"context"
	"maps"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// managers holds an endpoint's managed.Managers, which note in managedFields who set what: one for the objects themselves
// and one for each subresource. Each is made at its first use.
type managers struct {
	endpoint *Endpoint
	types    *managed.Types

	mu   sync.Mutex // guards made
	made map[string]*managed.Manager
}

func newManagers(e *Endpoint) *managers { return &managers{endpoint: e, types: e.newTypes()} }

// of returns the manager of writes to a subresource.
func (m *managers) of(subresource string) *managed.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[subresource] == nil {
		if m.made == nil {
			m.made = map[string]*managed.Manager{}
		}
		m.made[subresource] = m.endpoint.newManager(subresource)
	}
	return m.made[subresource]
}

// newTypes describes the endpoint's objects in all versions in which managedFields may record them. Without a converter,
// objects of other versions are read by the endpoint's schema, so those versions are described by it, too.
func (e *Endpoint) newTypes() *managed.Types {
	return managed.NewTypes(func() (map[string]*spec.Schema, bool, error) {
		if e.typed != nil {
			definitions := map[string]*spec.Schema{}
			for _, v := range e.res.versions {
				root, of, err := gotype.Of(reflect.TypeOf(v.typed.zero))
				if err != nil {
					return nil, false, err
				}
				managed.SetKind(of[root], v.kind())
				maps.Copy(definitions, of)
			}
			return definitions, false, nil
		}
		definitions := map[string]*spec.Schema{}
		for _, v := range e.res.versions {
			by := e
			if e.res.converter != nil {
				by = v
			}
			s, err := by.schema.Structural()
			if err != nil {
				return nil, false, err
			}
			managed.Define(definitions, v.kind(), s.ToKubeOpenAPI())
		}
		return definitions, false, nil
	})
}

// path is what the URLs of the resource name.
func (n *Names) path() runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: n.Group, Version: n.Version, Resource: n.Plural}
}

func (n *Names) kind() runtimeschema.GroupVersionKind {
	return runtimeschema.GroupVersionKind{Group: n.Group, Version: n.Version, Kind: n.Kind}
}

// newManager makes the manager of writes to a subresource.
func (e *Endpoint) newManager(subresource string) *managed.Manager {
	var reset []string // fields that such writes don't change
	switch part := e.part(subresource); {
	case part != nil && part.Select != nil:
		reset = part.Reset
	case subresource == status:
		reset = e.strategy().statusResets()
	case e.has(status):
		reset = []string{status}
	}
	var convert func(obj map[string]any, apiVersion string) (map[string]any, error)
	if r := e.res; r.converter != nil || e.typed != nil && len(r.versions) > 1 {
		convert = func(obj map[string]any, apiVersion string) (map[string]any, error) {
			trees, to := []map[string]any{object.DeepCopy(obj)}, r.version(apiVersion)
			// Without the request's context: the library's interface has none, and a Manager is of many requests.
			// conversion.Timeout ends a call.
			if err := r.convert(context.Background(), to, trees); err != nil {
				return nil, err
			}
			if version, ok := object.Map(obj["metadata"])["resourceVersion"]; ok { // converted objects have none
				object.Map(trees[0]["metadata"])["resourceVersion"] = version
			}
			if to.schema == nil {
				return trees[0], nil
			}
			return trees[0], to.schema.Prune(trees[0]) // webhooks may leave what the version doesn't know
		}
	}
	m := managed.New(e.kind(), subresource, e.managers.types, reset, convert)
	if e.typed != nil {
		m.Blank = e.blank()
	}
	return m
}

// strategy returns the Go type's; nil for custom resources, which have the zero value.
func (e *Endpoint) strategy() *Strategy {
	if e.typed == nil {
		return nil
	}
	return &e.typed.Strategy
}

// track notes in next's managedFields who wrote what. prev is nil for a new object. By default it does so only for objects
// that have been applied, because it costs several times what the write itself does.
func (w *write) track(next, prev *object.Object) error {
	always := w.res.registry.trackAlways
	if !always && (prev == nil || len(prev.Managed) == 0) {
		next.Managed = nil
		return nil
	}
	after, err := next.Tree(w.apiVersion(), w.Kind)
	if err != nil {
		return err
	}
	var before map[string]any
	if prev != nil {
		if before, err = prev.Tree(w.apiVersion(), w.Kind); err != nil {
			return err
		}
	}
	tracked := w.managers.of(w.Subresource).Update(before, after, w.manager, always)
	next.Managed, _ = object.Map(tracked["metadata"])["managedFields"].([]any)
	return nil
}

// blank is the tree of a Go type's zero value. Its structs are there before somebody makes an object, so nobody owns them as such.
func (e *Endpoint) blank() map[string]any {
	tree, err := jsontree.OfValue(e.typed.New(), "apiVersion", "kind", "metadata")
	if err != nil {
		return nil // then only what isn't there can be told
	}
	tree["apiVersion"], tree["kind"], tree["metadata"] = e.apiVersion(), e.Kind, map[string]any{}
	return tree
}

// keepTimes keeps the old times in managedFields if nothing but the times has changed, so that the write changes nothing.
func keepTimes(o, prev *object.Object) {
	if len(o.Managed) == 0 || !equality.Semantic.DeepEqual(o.Meta, prev.Meta) || !object.SameContent(o, prev, "") {
		return
	}
	fields := func(o *object.Object) map[string]any {
		return map[string]any{"metadata": map[string]any{"managedFields": o.Managed}}
	}
	now := fields(o)
	managed.KeepTimes(fields(prev), now)
	o.Managed = object.Map(now["metadata"])["managedFields"].([]any)
}
