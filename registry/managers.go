package registry

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
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

	mu    sync.Mutex // guards made and scale
	made  map[string]*managed.Manager
	scale *managed.Manager // see scales
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

// scaleKind is what a Go type's scale subresource takes.
var scaleKind = autoscalingv1.SchemeGroupVersion.WithKind("Scale")

// scales returns the manager of a Go type's Scales.
func (m *managers) scales() *managed.Manager {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.scale == nil {
		m.scale = managerOf(scaleKind, scale, &autoscalingv1.Scale{})
	}
	return m.scale
}

// managerOf makes the manager of writes to a subresource whose bodies are of a kind of their own. empty is a pointer to an empty one.
func managerOf(kind runtimeschema.GroupVersionKind, subresource string, empty any) *managed.Manager {
	zero := func(string) map[string]any {
		tree, _ := jsontree.OfValue(empty) // which JSON can say
		return tree
	}
	return managed.New(kind, subresource, managed.NewGoTypes(zero, func() (map[string]*spec.Schema, bool, error) {
		root, of, err := gotype.Merging(reflect.TypeOf(empty).Elem())
		if err == nil {
			managed.SetKind(of[root], kind)
		}
		return of, false, err
	}), nil, nil)
}

// newTypes describes the endpoint's objects in all versions in which managedFields may record them, each by its own schema, also
// where conversion changes nothing: what an owner's version doesn't declare is an error, as with kube-apiserver.
func (e *Endpoint) newTypes() *managed.Types {
	if e.typed != nil {
		return managed.NewGoTypes(e.zero, e.goTypes)
	}
	return managed.NewTypes(func() (map[string]*spec.Schema, bool, error) {
		definitions := map[string]*spec.Schema{}
		for _, v := range e.res.versions {
			s, err := v.schema.Structural()
			if err != nil {
				return nil, false, err
			}
			managed.Define(definitions, v.kind(), s.ToKubeOpenAPI())
		}
		return definitions, false, nil
	})
}

// zero returns the tree of an empty value of the Go type of a version.
func (e *Endpoint) zero(apiVersion string) map[string]any {
	return e.res.version(apiVersion).typed.empty()
}

// goTypes describes a Go type in all its versions.
func (e *Endpoint) goTypes() (map[string]*spec.Schema, bool, error) {
	definitions := map[string]*spec.Schema{}
	for _, v := range e.res.versions {
		root, of, err := gotype.Merging(reflect.TypeOf(v.typed.zero))
		if err != nil {
			return nil, false, err
		}
		managed.SetKind(of[root], v.kind())
		maps.Copy(definitions, of)
	}
	return definitions, false, nil
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
	part := e.part(subresource)
	if part != nil && part.New != nil {
		return managerOf(part.Kind, subresource, reflect.New(reflect.TypeOf(part.New()).Elem()).Interface()) // without defaults
	}
	var reset []string // fields that such writes don't change
	switch {
	case part != nil && part.Select != nil:
		reset = part.Reset
	case subresource == status:
		reset = e.strategy().statusResets()
	default:
		if s := e.strategy(); s != nil {
			reset = slices.Clone(s.Resets)
		}
		if e.has(status) {
			reset = append(reset, status)
		}
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
			return trees[0], nil // what the version doesn't know is left in, and the library refuses it, as with kube-apiserver
		}
	}
	return managed.New(e.kind(), subresource, e.managers.types, reset, convert)
}

// strategy returns the Go type's; nil for custom resources, which have the zero value.
func (e *Endpoint) strategy() *Strategy {
	if e.typed == nil {
		return nil
	}
	return &e.typed.Strategy
}

// decided are the fields of metadata that are nobody's (managed takes them out of all records) and that only the server sets.
var decided = []string{"uid", "resourceVersion", "generation", "creationTimestamp"}

// track notes in next's managedFields who wrote what. What the client sent, with defaults and in the endpoint's version, says
// that: sent, which is next itself if it's all of it. prev is nil for a new object. By default it does so only for objects that
// have been applied, because it costs several times what the write itself does.
func (w *write) track(next, sent, prev *object.Object) error {
	return w.trackAs(w.Subresource, w.manager, next, sent, prev)
}

// trackAs is track for what a manager writes to a subresource.
func (w *write) trackAs(subresource, manager string, next, sent, prev *object.Object) error {
	always := w.res.registry.trackAlways
	if !always && (prev == nil || len(prev.Managed) == 0) {
		next.Managed = nil
		return nil
	}
	if w.typed != nil && subresource == scale {
		return w.trackScale(next, sent, prev)
	}
	after, err := w.treeSent(sent)
	if err != nil {
		return err
	}
	if sent.Managed != nil { // an empty list asks for a record without entries
		object.Map(after["metadata"])["managedFields"] = sent.Managed
	}
	var before map[string]any
	if prev != nil {
		if before, err = prev.Tree(w.apiVersion(), w.Kind); err != nil {
			return err
		}
		was, is := object.Map(before["metadata"]), object.Map(after["metadata"])
		for _, name := range decided { // so that a client that leaves them out may write what there is
			if v, ok := was[name]; ok {
				is[name] = v
			}
		}
	}
	tracked := w.managers.of(subresource).Update(before, after, manager, always)
	next.Managed, _ = object.Map(tracked["metadata"])["managedFields"].([]any)
	if w.scaleSent == nil {
		return nil
	}
	list, err := w.scaleView(next).Scale()
	setManaged(w.scaleSent, list)
	return err
}

// setManaged gives an object's tree managedFields.
func setManaged(tree map[string]any, list []any) {
	if metadata := object.Map(tree["metadata"]); len(list) > 0 {
		metadata["managedFields"] = list
	} else {
		delete(metadata, "managedFields")
	}
}

// treeSent returns what a client sent, as a tree. Of a version that isn't the stored one it's what is left after the way there and back, with what the
// conversion has added.
func (w *write) treeSent(o *object.Object) (map[string]any, error) {
	tree, err := o.Tree(w.apiVersion(), w.Kind)
	if err != nil || w.typed == nil || w.typed.ToStored == nil {
		return tree, err
	}
	tree = object.DeepCopy(tree)
	return tree, errors.Join(w.typed.ToStored(tree), w.typed.FromStored(tree))
}

// trackScale notes in next's managedFields who set the number of replicas of a Go type's object, as kube-apiserver does.
func (w *write) trackScale(next, sent, prev *object.Object) error {
	view := w.scaleView(prev)
	before, err := w.scaleTree(view, prev)
	if err != nil {
		return err
	}
	after, err := w.scaleTree(view, sent)
	if err != nil {
		return err
	}
	tracked := w.managers.scales().Update(before, after, w.manager, true)
	list, _ := object.Map(tracked["metadata"])["managedFields"].([]any)
	if w.scaleSent != nil {
		setManaged(w.scaleSent, list)
	}
	next.Managed, err = view.Whole(list)
	return err
}

// scaleView returns an object's record as that of its Scale.
func (e *Endpoint) scaleView(o *object.Object) *managed.ScaleView {
	versions := make([]string, len(e.res.versions))
	for i, v := range e.res.versions {
		versions[i] = v.apiVersion()
	}
	return managed.NewScaleView(o.Managed, e.kind().GroupVersion(), versions, scalePath(e.scale.SpecReplicasPath))
}

// scaleTree returns an object's Scale with its managedFields.
func (e *Endpoint) scaleTree(view *managed.ScaleView, o *object.Object) (map[string]any, error) {
	s, _, err := e.readScale(o, o.Meta.ResourceVersion)
	if err != nil {
		return nil, err
	}
	tree, err := jsontree.OfValue(s)
	if err != nil {
		return nil, err
	}
	list, err := view.Scale()
	setManaged(tree, list)
	return tree, err
}

// keepTimes keeps the old times in managedFields if nothing but the times has changed, so that the write changes nothing.
func keepTimes(o, prev *object.Object) {
	if len(o.Managed) == 0 || !object.SameContent(o, prev, "") || !equality.Semantic.DeepEqual(o.Meta, prev.Meta) {
		return
	}
	fields := func(o *object.Object) map[string]any {
		return map[string]any{"metadata": map[string]any{"managedFields": o.Managed}}
	}
	now := fields(o)
	managed.KeepTimes(fields(prev), now)
	o.Managed = object.Map(now["metadata"])["managedFields"].([]any)
}
