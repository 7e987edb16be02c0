package registry

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/version"

	"github.com/apiserver-lite/apiserver-lite/registry/conversion"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// definitions is the CustomResourceDefinition resource, and what is served because of its objects. Package controllers
// deletes the objects of deleted ones.
type definitions struct {
	registry *Registry
	res      *Resource

	// writing has capacity 1 and is full while a definition is written: one at a time, so that no two get the same names.
	// It's a channel, because waiting for it must end with the request. It's never closed.
	writing chan struct{}

	mu     sync.Mutex             // guards known, claims, seen, restored and closed, and replacing the catalog
	closed bool                   // nothing is served any more: the catalog stays as it is
	known  map[string]*definition // by name; know and forget change it
	claims claims                 // their names
	seen   []*kube.Object         // what the last rebuild found of those that are usable, in the order of keys
	// restored has the revisions up to which objects may be in another form than their definition's because a reset
	// brought them back, and only those that are higher than the definition's own.
	restored map[storage.Prefix]storage.Revision

	synced atomic.Int64 // the last change of a definition that the catalog has

	closing sync.WaitGroup // goroutines that close replaced webhooks; close waits for them
}

// definition is one definition as it's served. Immutable.
type definition struct {
	object   *crd.Definition
	revision storage.Revision
	res      *Resource
	accepted bool // it has all its names
}

func newDefinitions(r *Registry) *definitions {
	d := &definitions{registry: r, writing: make(chan struct{}, 1), known: map[string]*definition{}, claims: claims{}, restored: map[storage.Prefix]storage.Revision{}}
	t := typeOf(r, Definition[crd.Definition]{
		Group: apiextensionsv1.GroupName, Version: "v1", Kind: "CustomResourceDefinition",
		ShortNames: []string{"crd", "crds"}, Categories: []string{"api-extensions"},
		ClusterScoped: true, Status: true,
		Strategy: Strategy{StatusResets: []string{"spec"}, NoStatusTable: true, MetaRules: CausesAgain, Generation: countDefinition},
		Columns:  definitionColumns,
		Default:  crd.Default,
		Prepare:  d.prepare,
		Validate: func(ctx context.Context, obj, old *crd.Definition, subresource string) field.ErrorList {
			if subresource == AtStatus {
				return crd.ValidateStatus(ctx, obj, old)
			}
			errs := crd.Validate(ctx, obj, old)
			if c := obj.Spec.Conversion; c != nil && c.Strategy == apiextensionsv1.WebhookConverter && c.Webhook != nil {
				// conversion's rules include Kubernetes's, but their errors don't quote a URL's password.
				errs = slices.DeleteFunc(errs, func(e *field.Error) bool { return strings.HasPrefix(e.Field, "spec.conversion.") })
				errs = append(errs, conversion.Validate(c.Webhook, field.NewPath("spec", "conversion"), r.Webhooks)...)
			}
			return append(errs, validateRules(obj, old, len(errs) > 0)...)
		},
		Warnings: func(_ context.Context, obj, old *crd.Definition, subresource string) []string {
			if subresource == AtStatus {
				return nil
			}
			return crd.Warnings(obj, old)
		},
		Deletion: Deletion[*crd.Definition]{
			Deleting: func(obj *crd.Definition) { crd.MarkDeleted(obj, r.Now()) },
			// As in kube-apiserver, which doesn't look at the policy when the deletion of a definition begins.
			Policy: func(*metav1.DeleteOptions) metav1.DeletionPropagation { return "" },
		},
	})
	t.Stored.In = "v1beta1"
	t.Follow = func(obj Typed) { d.complete(obj.(*crd.Definition)) }
	t.Guard.begin, t.Guard.written = d.begin, d.written
	r.Add(t)
	d.res = r.builtins[len(r.builtins)-1]
	return d
}

// begin waits until no other definition is being written.
func (d *definitions) begin(ctx context.Context) (end func(), err error) {
	select {
	case d.writing <- struct{}{}:
		return func() { <-d.writing }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// written serves a definition that was written, before the write is answered.
func (d *definitions) written(ctx context.Context, rev storage.Revision) error {
	if err := d.registry.Cacher.WaitFor(ctx, rev); err != nil {
		return err
	}
	d.CatchUp()
	return nil
}

// prepare sets what the strategy of definitions does.
func (d *definitions) prepare(obj, old *crd.Definition, subresource string) {
	switch {
	case old == nil:
		obj.Status = apiextensionsv1.CustomResourceDefinitionStatus{}
	case subresource == AtStatus:
		crd.KeepClaims(obj, old)
		keepRules(obj, old)
		return
	}
	crd.NoteStored(obj)
}

// complete does at once what kube-apiserver's controllers do after the write of a definition was answered. writing is held.
func (d *definitions) complete(obj *crd.Definition) {
	taken := crd.NamesFor(obj)
	if !crd.Accepted(obj) {
		d.take(taken, obj)
	}
	crd.SetStatus(obj, taken, d.registry.Now())
}

// take notes which of a definition's names others in its group have: other definitions, and Go types.
func (d *definitions) take(taken *crd.Names, obj *crd.Definition) {
	for _, res := range d.registry.builtins {
		for _, e := range res.endpoints {
			if e.Group == obj.Spec.Group {
				taken.Take(apiextensionsv1.CustomResourceDefinitionNames{
					Plural: e.Plural, Singular: e.Singular, ShortNames: e.ShortNames, Kind: e.Kind, ListKind: e.ListKind,
				})
			}
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	eachClaim(obj.Spec.Group, obj.Spec.Names, func(of claim) {
		for _, other := range d.claims[of.hash()] {
			if other.object.Name != obj.Name && other.object.Spec.Group == obj.Spec.Group {
				taken.Take(other.object.Status.AcceptedNames)
			}
		}
	})
}

// refresh brings the catalog up to date if the cache has another state of one definition. A definition's name is that of
// its resource, so a path that nobody defined costs one look into the cache.
func (d *definitions) refresh(of runtimeschema.GroupResource) {
	name := of.Resource + "." + of.Group
	key, err := d.res.Prefix.Key("", name)
	if err != nil {
		return
	}
	o := d.res.Cache.Get(key)
	d.mu.Lock()
	known := d.known[name]
	d.mu.Unlock()
	if (o == nil) != (known == nil) || o != nil && o.Revision != known.revision {
		d.Sync()
	}
}

// Sync makes the catalog what the cached definitions say. The writers of definitions call it, readers of paths that
// aren't served yet, and package controllers (Door.Served).
func (d *definitions) Sync() {
	for _, b := range d.rebuild() {
		d.registry.Unreadable.Report(b.stored, b.err)
	}
}

// broken is a stored definition that nobody can use.
type broken struct {
	stored *kube.Object
	err    error
}

// rebuild does sync's work. It returns what is to be logged, which the caller does without the lock.
func (d *definitions) rebuild() (unusable []broken) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed { // a controller may still write a definition while the server stops; nobody would close what is opened now
		return nil
	}
	changes := d.res.Cache.Changed()
	defer d.synced.Store(int64(changes))
	var come, gone []*Resource
	var ended []*Resource // those of the gone whose watches end
	stored := d.res.Cache.Snapshot()
	var same objectRun
	if len(d.restored) == 0 {
		same = d.seen
	}
	d.seen = make([]*kube.Object, 0, len(d.seen)+1)
	for o := range stored.All(string(d.res.Prefix)) {
		if same.passes(o) { // most are as they were
			d.seen = append(d.seen, o)
			continue
		}
		old := d.known[o.Name()]
		fresh, ends, err := d.renew(o, old)
		switch {
		case err != nil: // nothing is served for it then
			unusable = append(unusable, broken{o, err})
			continue
		case fresh && old != nil:
			gone = append(gone, old.res)
		}
		if fresh {
			come = append(come, d.known[o.Name()].res)
		}
		if ends {
			ended = append(ended, old.res)
		}
		d.seen = append(d.seen, o)
	}
	if len(d.seen) < len(d.known) {
		left := d.leave(stored)
		gone, ended = append(gone, left...), append(ended, left...)
	}
	if len(come)+len(gone) == 0 {
		return unusable
	}
	d.registry.catalog.Store(d.registry.Catalog().with(gone, come))
	for _, res := range ended {
		// After the catalog: who comes back gets the new views. What was written under the new definitions, which
		// needs the new catalog, has a higher revision than they have.
		res.Cache.EndWatches(stored.Revision)
		d.closing.Go(res.converter.close)
	}
	return unusable
}

// leave drops what is known of definitions that aren't stored any more, or that nobody can use, and returns their resources. d.mu is held.
func (d *definitions) leave(stored *cacher.Snapshot) (left []*Resource) {
	for name, old := range d.known {
		if d.current(old, stored.Get(old.res.Condition.Key)) {
			continue
		}
		left = append(left, old.res)
		d.forget(name)
		delete(d.restored, old.res.Prefix)
		if !d.shadowed(old.res) {
			old.res.Cache.SetFields(nil)
		}
	}
	return left
}

// renew brings what is known of a stored definition, old or nil, up to date: fresh tells that it wasn't, ends that the watches of the old
// one's resource end by that. d.mu is held.
func (d *definitions) renew(o *kube.Object, old *definition) (fresh, ends bool, err error) {
	if d.current(old, o) {
		return false, false, nil
	}
	base, outdated := old, old != nil && d.outdated(old)
	if outdated {
		base = nil
	}
	next, err := d.open(o, base)
	if err != nil {
		return false, false, err
	}
	if !d.shadowed(next.res) {
		next.res.indexFields()
	}
	d.know(o.Name(), next)
	return true, old != nil && (outdated || !sameDefinition(old.object, next.object)), nil
}

// current tells whether what is known of a definition, old or nil, is what is stored, o or nil. d.mu is held.
func (d *definitions) current(old *definition, o *kube.Object) bool {
	return old != nil && o != nil && old.revision == o.Revision && !d.outdated(old)
}

// outdated tells whether a reset has brought objects back that may be older than the definition knows. d.mu is held.
func (d *definitions) outdated(old *definition) bool {
	return old.res.since < d.restored[old.res.Prefix]
}

// open reads a stored definition. old is what is known of it before, or nil.
func (d *definitions) open(o *kube.Object, old *definition) (*definition, error) {
	obj := &crd.Definition{}
	if o.Err != nil {
		return nil, o.Err
	}
	if err := json.Unmarshal(o.Raw(), obj); err != nil {
		return nil, err
	}
	crd.Default(obj)
	if old != nil && !sameDefinition(old.object, obj) {
		old = nil
	}
	res, err := d.resource(o, obj, old)
	if err != nil {
		return nil, err
	}
	return &definition{object: obj, revision: o.Revision, res: res, accepted: crd.Accepted(obj)}, nil
}

// resource makes what a definition defines. Its names are those that were accepted. old is the definition
// before if that defined the same, else nil.
func (d *definitions) resource(o *kube.Object, obj *crd.Definition, old *definition) (*Resource, error) {
	res := d.newResource(o, obj, old)
	var stored *apiextensionsv1.CustomResourceDefinitionVersion
	for i := range obj.Spec.Versions {
		v := &obj.Spec.Versions[i]
		e := newEndpoint(res, obj, v)
		res.Versions = append(res.Versions, e)
		if v.Storage {
			res.Storage, stored = e, v
		}
	}
	if stored == nil {
		return nil, errors.New("the definition has no storage version")
	}
	hash := ""
	if stored.Served {
		hash = storageVersionHash(runtimeschema.GroupVersionKind{Group: obj.Spec.Group, Version: stored.Name, Kind: obj.Spec.Names.Kind})
	}
	for i, e := range res.Versions {
		v := &obj.Spec.Versions[i]
		e.StorageVersionHash = hash
		e.equip(v, old)
		if old == nil {
			asStored := v.Storage || res.converter == nil && equality.Semantic.DeepEqual(v.Schema, stored.Schema)
			e.View.Conversion = e.newConversion(asStored)
		}
		if v.Served && crd.Established(obj) && !d.shadowed(res) {
			res.endpoints = append(res.endpoints, e)
		}
	}
	return res, nil
}

// newResource makes what all versions of a definition share.
func (d *definitions) newResource(o *kube.Object, obj *crd.Definition, old *definition) *Resource {
	res := &Resource{
		Registry: d.registry, Group: obj.Spec.Group, Plural: obj.Spec.Names.Plural,
		Namespaced: obj.Spec.Scope == apiextensionsv1.NamespaceScoped,
		Prefix:     storage.PrefixOf(obj.Spec.Group, obj.Spec.Names.Plural),
		custom: custom{
			Condition:   storage.Condition{Key: o.Key, Revision: o.Revision},
			UID:         obj.UID,
			Generation:  obj.Generation,
			since:       max(o.Revision, d.restored[storage.PrefixOf(obj.Spec.Group, obj.Spec.Names.Plural)]),
			Terminating: o.DeletionTimestamp != "",
		},
	}
	if old != nil {
		res.since, res.converter = old.res.since, old.res.converter
	} else {
		res.converter = newConverter(obj, d.registry.Network())
	}
	res.Cache = d.registry.Cacher.Resource(res.Prefix)
	return res
}

// newEndpoint makes an endpoint of one version, which isn't complete yet.
func newEndpoint(res *Resource, obj *crd.Definition, v *apiextensionsv1.CustomResourceDefinitionVersion) *Endpoint {
	names := obj.Status.AcceptedNames
	if !crd.Established(obj) {
		names = obj.Spec.Names // not served, but its objects can be deleted
	}
	e := &Endpoint{
		Names: Names{
			Group: obj.Spec.Group, Version: v.Name, Kind: names.Kind, ListKind: names.ListKind,
			Plural: obj.Spec.Names.Plural, Singular: names.Singular, ShortNames: names.ShortNames, Categories: names.Categories,
		},
		Namespaced: res.Namespaced, Verbs: customVerbs, Warning: deprecation(obj, v),
		Res: res, reading: reading{Selection: Selection{Fields: crd.FieldLabels(v)}},
	}
	if s := v.Subresources; s != nil {
		if s.Status != nil {
			e.Subresources = append(e.Subresources, AtStatus)
		}
		if e.Scale = s.Scale; s.Scale != nil {
			e.Subresources = append(e.Subresources, AtScale)
		}
	}
	return e
}

// equip makes what an endpoint serves its version with, or takes it from the definition before if that
// defined the same: watchers with one view share what is encoded for them, and schemas are costly to compile.
func (e *Endpoint) equip(v *apiextensionsv1.CustomResourceDefinitionVersion, old *definition) {
	if before := old.version(v.Name); before != nil {
		e.Schema, e.Managers, e.View, e.Forms = before.Schema, before.Managers, before.View, before.Forms
	} else {
		e.Schema, e.Managers = schema.New(v.Schema.OpenAPIV3Schema), NewManagers(e)
		e.View = &kube.View{APIVersion: e.APIVersion(), Kind: e.Kind}
		e.Forms = form.New(form.ColumnsOf(v))
		e.Forms.Clock = e.Res.Registry.Clock
	}
	e.Whole = form.NewWhole(e.View, e.View, e.ListKind)
	e.seal()
}

// version returns a definition's endpoint of a version, or nil.
func (d *definition) version(name string) *Endpoint {
	if d == nil {
		return nil
	}
	for _, e := range d.res.Versions {
		if e.Version == name {
			return e
		}
	}
	return nil
}

// deprecation returns the warning that comes with every answer of a deprecated version. By default it names the best
// version that is served, if that's a better one.
func deprecation(obj *crd.Definition, v *apiextensionsv1.CustomResourceDefinitionVersion) string {
	switch {
	case !v.Deprecated:
		return ""
	case v.DeprecationWarning != nil:
		return *v.DeprecationWarning
	}
	text := obj.Spec.Group + "/" + v.Name + " " + obj.Spec.Names.Kind + " is deprecated"
	best := v.Name
	for _, other := range obj.Spec.Versions {
		if other.Served && !other.Deprecated && version.CompareKubeAwareVersionStrings(best, other.Name) < 0 {
			best = other.Name
		}
	}
	if best == v.Name {
		return text
	}
	return text + "; use " + obj.Spec.Group + "/" + best + " " + obj.Spec.Names.Kind
}

// shadowed tells whether a Go type of the program has the definition's place, and its objects.
func (d *definitions) shadowed(res *Resource) bool {
	return slices.ContainsFunc(d.registry.builtins, func(b *Resource) bool { return b.Prefix == res.Prefix })
}

// webhookCalls counts the requests to webhooks that are under way, without those of replaced definitions.
func (d *definitions) webhookCalls() (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, def := range d.known {
		if c := def.res.converter; c != nil && c.webhook != nil {
			n += c.webhook.Calls()
		}
	}
	return n
}

// Close closes the definitions' webhooks, and waits until they're closed.
func (d *definitions) Close() {
	d.mu.Lock()
	d.closed = true
	for _, def := range d.known {
		d.closing.Go(def.res.converter.close)
	}
	d.mu.Unlock()
	d.closing.Wait()
}
