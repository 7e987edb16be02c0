package registry

import (
	"context"
	"reflect"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// managers note in managedFields who set what, one for the objects themselves and one for each subresource. They're
// made when they're first needed.
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

// newTypes describes the endpoint's objects, in its own version and as they're recorded in others. Where versions
// differ in nothing but their name, they have the schemas that theirs are read by: the endpoint's.
func (e *Endpoint) newTypes() *managed.Types {
	return managed.NewTypes(func() (map[string]*spec.Schema, bool, error) {
		if t := e.res.typed; t != nil {
			root, definitions, err := gotype.Of(reflect.TypeOf(t.zero))
			if err != nil {
				return nil, false, err
			}
			managed.SetKind(definitions[root], e.kind())
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

func (e *Endpoint) kind() runtimeschema.GroupVersionKind {
	return runtimeschema.GroupVersionKind{Group: e.Group, Version: e.Version, Kind: e.Kind}
}

// newManager makes the manager of writes to a subresource.
func (e *Endpoint) newManager(subresource string) *managed.Manager {
	var reset []string // what such writes don't change
	switch {
	case subresource == status:
		reset = []string{"metadata", "spec"}
	case e.hasStatus():
		reset = []string{status}
	}
	var convert func(obj map[string]any, apiVersion string) (map[string]any, error)
	if r := e.res; r.converter != nil {
		convert = func(obj map[string]any, apiVersion string) (map[string]any, error) {
			trees, to := []map[string]any{deepCopy(obj)}, r.version(apiVersion)
			if err := r.convert(context.Background(), to, trees); err != nil {
				return nil, err
			}
			if version, ok := asMap(obj["metadata"])["resourceVersion"]; ok { // converted objects have none
				asMap(trees[0]["metadata"])["resourceVersion"] = version
			}
			return trees[0], to.schema.Prune(trees[0]) // webhooks may leave what the version doesn't know
		}
	}
	return managed.New(e.kind(), subresource, e.managers.types, reset, convert)
}

// track notes who wrote what. By default only objects that have been applied are tracked, because it costs
// several times what the write itself does.
func (e *Endpoint) track(prev, next *object, d *decoder, subresource string) error {
	always := e.res.registry.trackAlways
	if !always && (prev == nil || len(prev.managed) == 0) {
		next.managed = nil
		return nil
	}
	after, err := next.tree(e.apiVersion(), e.Kind)
	if err != nil {
		return err
	}
	var before map[string]any
	if prev != nil {
		if before, err = prev.tree(e.apiVersion(), e.Kind); err != nil {
			return err
		}
	}
	tracked := e.managers.of(subresource).Update(before, after, d.manager, always)
	next.managed, _ = asMap(tracked["metadata"])["managedFields"].([]any)
	return nil
}

// keepTimes leaves managedFields as they were if nothing else has changed but their times.
func (o *object) keepTimes(prev *object) {
	if len(o.managed) == 0 || !equality.Semantic.DeepEqual(o.meta, prev.meta) || !sameContent(o, prev, "") {
		return
	}
	fields := func(o *object) map[string]any {
		return map[string]any{"metadata": map[string]any{"managedFields": o.managed}}
	}
	now := fields(o)
	managed.KeepTimes(fields(prev), now)
	o.managed = asMap(now["metadata"])["managedFields"].([]any)
}

// applyConfiguration merges what a manager wants of an object into it, or creates it.
func (e *Endpoint) applyConfiguration(ctx context.Context, namespace, name, subresource string, d *decoder, body []byte) (*Result, error) {
	wanted, err := d.configuration(body, namespace, name)
	if err != nil {
		return nil, err
	}
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	fromBody := len(d.warnings)
	for {
		d.warnings = d.warnings[:fromBody] // of an earlier try
		stored, err := e.write(ctx, key, name, d.dryRun, func(old *cacher.Object) (change, error) {
			d.warnings = d.warnings[:fromBody]
			return e.applyTo(ctx, d, old, wanted, subresource)
		})
		switch {
		case err == nil:
			return e.result(ctx, stored, &Result{Warnings: d.warnings})
		case !apierrors.IsNotFound(err) || isRefusal(err) || subresource != main:
			return nil, err
		}
		res, err := e.createApplied(ctx, namespace, d, wanted)
		if !apierrors.IsAlreadyExists(err) || isRefusal(err) { // else somebody else has just created it
			return res, err
		}
	}
}

// configuration decodes and checks an applied configuration.
func (d *decoder) configuration(body []byte, namespace, name string) (map[string]any, error) {
	tree, repeated, err := parseObject(body)
	if err == nil && repeated {
		err = d.complain(d.repeated(body, tree))
	}
	if err != nil {
		return nil, err
	}
	// As an object of its own it has to be one of this path; what it's merged from stays as it was sent.
	o, _, err := d.endpoint.split(deepCopy(tree))
	if err != nil {
		return nil, err
	}
	if o.managed != nil {
		return nil, badRequest("metadata.managedFields must be nil")
	}
	if err := d.endpoint.checkNamed(o, namespace, name); err != nil {
		return nil, err
	}
	if metadata := asMap(tree["metadata"]); namespace != "" {
		metadata["namespace"] = namespace
	} else {
		delete(metadata, "namespace") // cluster scope has none, whatever the client sent
	}
	return tree, nil
}

// applyTo makes the new object from the old one and a configuration.
func (e *Endpoint) applyTo(ctx context.Context, d *decoder, old *cacher.Object, wanted map[string]any, subresource string) (change, error) {
	prev, err := e.load(ctx, old)
	if err != nil {
		return change{}, err
	}
	prev.meta.ResourceVersion = old.Revision.String()
	live, err := prev.tree(e.apiVersion(), e.Kind)
	if err != nil {
		return change{}, err
	}
	in, err := e.merge(live, wanted, d, subresource)
	if err != nil {
		return change{}, err
	}
	if err := e.checkPrecondition(old, prev, in); err != nil {
		return change{}, err
	}
	next := e.selectPart(in, prev, subresource)
	next.managed = in.managed // who applied a part is recorded, whatever that part is
	e.inheritMeta(next, prev, old.Revision.String())
	return e.revised(ctx, d, old, prev, next, subresource)
}

// createApplied makes a new object of a configuration.
func (e *Endpoint) createApplied(ctx context.Context, namespace string, d *decoder, wanted map[string]any) (*Result, error) {
	o, err := e.merge(nil, wanted, d, main)
	if err != nil {
		return nil, err
	}
	if o.meta.UID != "" {
		return nil, e.conflict(o.meta.Name) // it was about an object that is gone
	}
	return e.store(ctx, namespace, o, d, true)
}

// merge applies a configuration to a whole object, or to none, and gives it the schema's form.
func (e *Endpoint) merge(live, wanted map[string]any, d *decoder, subresource string) (*object, error) {
	merged, err := e.managers.of(subresource).Apply(live, deepCopy(wanted), d.manager, d.force)
	if err != nil {
		return nil, e.fail("", err)
	}
	o, err := fromTree(merged)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	_, err = e.shape(o, false)
	return o, err
}
