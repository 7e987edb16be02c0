package registry

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
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
	Types    *managed.Types

	mu    sync.Mutex // guards made and scale
	made  map[string]*managed.Manager
	scale *managed.Manager // see scales
}

func NewManagers(e *Endpoint) *managers { return &managers{endpoint: e, Types: e.newTypes()} }

// Of returns the manager of writes to a subresource.
func (m *managers) Of(subresource string) *managed.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.made[subresource] == nil {
		if m.made == nil {
			m.made = map[string]*managed.Manager{}
		}
		made := m.endpoint.newManager(subresource)
		made.Clock = m.endpoint.Res.Registry.Clock
		m.made[subresource] = made
	}
	return m.made[subresource]
}

// ScaleKind is what a Go type's scale subresource takes.
var ScaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// Scales returns the manager of a Go type's Scales.
func (m *managers) Scales() *managed.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scale == nil {
		m.scale = managerOf(ScaleKind, AtScale, &autoscalingv1.Scale{})
		m.scale.Clock = m.endpoint.Res.Registry.Clock
	}
	return m.scale
}

// managerOf makes the manager of writes to a subresource whose bodies are of a kind of their own. empty is a pointer to an empty one.
func managerOf(kind runtimeschema.GroupVersionKind, subresource string, empty any) *managed.Manager {
	zero := func(string) map[string]any {
		tree, _ := jsontree.OfValue(empty) // which JSON can say
		return tree
	}
	return managed.New(kind, subresource, managed.NewGoTypes(zero, func() (map[string]*spec.Schema, error) {
		root, of, err := gotype.Merging(reflect.TypeOf(empty).Elem())
		if err == nil {
			managed.SetKind(of[root], kind)
		}
		return of, err
	}), nil, nil)
}

// newTypes describes the endpoint's objects in all versions in which managedFields may record them, each by its own schema, also
// where conversion changes nothing: what an owner's version doesn't declare is an error, as with kube-apiserver.
func (e *Endpoint) newTypes() *managed.Types {
	if e.Typed != nil {
		return managed.NewGoTypes(e.ZeroTree, e.goTypes)
	}
	return managed.NewTypes(func() (map[string]*spec.Schema, error) {
		definitions := map[string]*spec.Schema{}
		for _, v := range e.Res.Versions {
			s, err := v.Schema.Structural()
			if err != nil {
				return nil, err
			}
			managed.Define(definitions, v.GVK(), s.ToKubeOpenAPI())
		}
		return definitions, nil
	})
}

// ZeroTree returns the tree of an empty value of the Go type of a version.
func (e *Endpoint) ZeroTree(apiVersion string) map[string]any {
	return e.Res.version(apiVersion).Typed.empty()
}

// goTypes describes a Go type in the versions of its group. Who wrote an event in the other group is forgotten, as by kube-apiserver.
func (e *Endpoint) goTypes() (map[string]*spec.Schema, error) {
	definitions := map[string]*spec.Schema{}
	for _, v := range e.Res.Versions {
		if v.Group != e.Group {
			continue
		}
		root, of, err := gotype.Merging(reflect.TypeOf(v.Typed.Zero))
		if err != nil {
			return nil, err
		}
		managed.SetKind(of[root], v.GVK())
		maps.Copy(definitions, of)
	}
	return definitions, nil
}

// Path returns what the URLs of the resource name.
func (n *Names) Path() runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: n.Group, Version: n.Version, Resource: n.Plural}
}

func (n *Names) GVK() runtimeschema.GroupVersionKind {
	return runtimeschema.GroupVersionKind{Group: n.Group, Version: n.Version, Kind: n.Kind}
}

// newManager makes the manager of writes to a subresource.
func (e *Endpoint) newManager(subresource string) *managed.Manager {
	part := e.Part(subresource)
	if part != nil && part.New != nil {
		return managerOf(part.Kind, subresource, reflect.New(reflect.TypeOf(part.New()).Elem()).Interface()) // without defaults
	}
	var reset []string // fields that such writes don't change
	switch {
	case part != nil && part.Select != nil:
		reset = part.Reset
	case subresource == AtStatus:
		reset = e.Strategy().statusResets()
	default:
		if s := e.Strategy(); s != nil {
			reset = slices.Clone(s.Resets)
		}
		if e.Has(AtStatus) {
			reset = append(reset, AtStatus)
		}
	}
	var convert func(obj map[string]any, apiVersion string) (map[string]any, error)
	if r := e.Res; r.converter != nil || e.Typed != nil && len(r.Versions) > 1 {
		convert = func(obj map[string]any, apiVersion string) (map[string]any, error) {
			trees, to := []map[string]any{object.DeepCopy(obj)}, r.version(apiVersion)
			// Without the request's context: the library's interface has none, and a Manager is of many requests.
			// conversion.Timeout ends a call.
			if err := r.Convert(context.Background(), to, trees); err != nil {
				return nil, err
			}
			if version, ok := object.Map(obj["metadata"])["resourceVersion"]; ok { // converted objects have none
				object.Map(trees[0]["metadata"])["resourceVersion"] = version
			}
			return trees[0], nil // what the version doesn't know is left in, and the library refuses it, as with kube-apiserver
		}
	}
	return managed.New(e.GVK(), subresource, e.Managers.Types, reset, convert)
}

// Strategy returns the Go type's; nil for custom resources, which have the zero value.
func (e *Endpoint) Strategy() *Strategy {
	if e.Typed == nil {
		return nil
	}
	return &e.Typed.Strategy
}
