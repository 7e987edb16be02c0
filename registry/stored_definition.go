package registry

import (
	"slices"
	"strings"

	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry/crd"
)

// StoredDefinition is a definition as the controller of definitions sees it. It doesn't change.
type StoredDefinition struct {
	def *definition
	of  *definitions
}

// StoredDefinition returns the definition of a name as the cache has it; nil if there is none, or one that can't
// be used. What is served follows from the definition by then.
func (d Door) StoredDefinition(name string) *StoredDefinition {
	r := d.registry
	plural, group, _ := strings.Cut(name, ".")
	r.Definitions.refresh(runtimeschema.GroupResource{Group: group, Resource: plural})
	r.Definitions.mu.Lock()
	defer r.Definitions.mu.Unlock()
	if def := r.Definitions.known[name]; def != nil {
		return &StoredDefinition{def, r.Definitions}
	}
	return nil
}

// Name returns the definition's name.
func (d *StoredDefinition) Name() string { return d.def.object.Name }

// Named tells whether the definition has all its names.
func (d *StoredDefinition) Named() bool { return d.def.accepted }

// Terminating tells whether the definition is being deleted and its objects have to go first.
func (d *StoredDefinition) Terminating() bool {
	return d.def.res.Terminating && slices.Contains(d.def.object.Finalizers, crd.Finalizer)
}

// Objects returns the endpoint that stores the definition's objects; nil if they belong to a Go type of the program.
func (d *StoredDefinition) Objects() *Endpoint {
	if d.of.shadowed(d.def.res) {
		return nil
	}
	return d.def.res.Storage
}

// UID returns the definition's uid.
func (d *StoredDefinition) UID() types.UID { return d.def.object.UID }

// Definitions returns the endpoint that stores definitions.
func (d *StoredDefinition) Definitions() *Endpoint { return d.of.res.Storage }

// Complete gives a definition its names, as far as nobody else has them, and what else follows from what it says. A write of it is under way.
func (d *StoredDefinition) Complete(obj *crd.Definition) { d.of.complete(obj) }

// EndWatches ends the watches of the definition's objects, each after its last DELETED event. The caches must have no objects of the definition
// any more.
func (d *StoredDefinition) EndWatches() { d.def.res.Cache.EndWatches(d.of.registry.Cacher.Position()) }

// Hold notes that finalizers hold some of the definition's objects.
func (d *StoredDefinition) Hold(obj *crd.Definition) { crd.Wait(obj, d.of.registry.Now()) }

// Release lets a definition go whose objects are gone.
func (d *StoredDefinition) Release(obj *crd.Definition) {
	crd.Release(obj, d.of.shadowed(d.def.res), d.of.registry.Now())
}
