package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// What the server's own controllers read and write. They find Endpoints in the Catalog, read an object from etcd (Current),
// delete it (Remove) and change its metadata (Amend). Their writes take the way of clients' writes, but admission isn't
// asked. Errors are storage's, to be tested with errors.Is; those that aren't are Status errors, such as a refusal to delete
// the namespace "default", or failures of the server.

// Kind returns the served endpoint that has a kind of stored objects; nil if there is none. The arguments are as in an
// owner reference.
func (c *Catalog) Kind(apiVersion, kind string) *Endpoint {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	i, found := slices.BinarySearchFunc(c.Groups, group, func(g Group, name string) int { return strings.Compare(g.Name, name) })
	if !found {
		return nil
	}
	for _, v := range c.Groups[i].Versions {
		if v.Name != version {
			continue
		}
		for _, e := range v.Resources {
			if e.Kind == kind && !e.res.answered {
				return e
			}
		}
	}
	return nil
}

// GroupKind returns a served endpoint that has a kind of a group, in whichever version: the one that the group prefers of
// those that have it. It's nil if there is none. The version that an owner reference names says nothing about who the owner
// is, and nobody rewrites it when a definition no longer serves that version.
func (c *Catalog) GroupKind(group, kind string) *Endpoint {
	i, found := slices.BinarySearchFunc(c.Groups, group, func(g Group, name string) int { return strings.Compare(g.Name, name) })
	if !found {
		return nil
	}
	for _, v := range c.Groups[i].Versions {
		for _, e := range v.Resources {
			if e.Kind == kind && !e.res.answered {
				return e
			}
		}
	}
	return nil
}

// Prefix returns the endpoint of the version in which the objects of a prefix are stored. That version may not be served.
// It's nil for a prefix that no resource has.
func (c *Catalog) Prefix(p storage.Prefix) *Endpoint {
	c.prefixesOnce.Do(func() {
		c.prefixes = make(map[storage.Prefix]*Endpoint, len(c.resources))
		for _, r := range c.resources {
			if c.prefixes[r.prefix] == nil { // a definition can't take a Go type's
				c.prefixes[r.prefix] = r.storage
			}
		}
	})
	return c.prefixes[p]
}

// Stored yields the endpoints of the versions in which objects are stored, one for each resource, also of those that have no
// served version.
func (c *Catalog) Stored() iter.Seq[*Endpoint] {
	return func(yield func(*Endpoint) bool) {
		for _, r := range c.resources {
			if !yield(r.storage) {
				return
			}
		}
	}
}

// Cache returns the cache of the endpoint's resource.
func (e *Endpoint) Cache() *cacher.Resource { return e.res.cache }

// Prefix returns the prefix of the keys of the endpoint's resource.
func (e *Endpoint) Prefix() storage.Prefix { return e.res.prefix }

// Current reads the metadata of an object from etcd, with its resourceVersion. storage.ErrNotFound proves that there is no
// such object at the time of the call. That includes names that no object can have, and a namespace for a cluster-scoped
// resource. The metadata is the caller's.
func (e *Endpoint) Current(ctx context.Context, namespace, name string) (*metav1.ObjectMeta, error) {
	key, err := e.ownKey(namespace, name)
	if err != nil {
		return nil, err
	}
	stored, err := e.res.read(ctx, key)
	switch {
	case err != nil:
		return nil, err
	case stored == nil:
		return nil, fmt.Errorf("read %q: %w", key, storage.ErrNotFound)
	case stored.Err != nil:
		return nil, e.unreadable(name, stored.Err)
	}
	o, err := object.DecodeStored(stored.Raw())
	if err != nil {
		return nil, e.unreadable(name, err)
	}
	o.Meta.ResourceVersion = stored.Revision.String()
	return &o.Meta, nil
}

// Read reads the object of a key from etcd, of whatever resource. It's nil if there is none at the time of the
// call. A value that can't be decrypted comes with its Err set. Errors are storage's.
func (r *Registry) Read(ctx context.Context, key string) (*kube.Object, error) {
	return r.read(ctx, key)
}

// Door is all that package controllers sees of a Registry. A controller acts on events, and mustn't know anything older than
// the event it acts on. So a Door has no Catalog, which may be older than the caches: it has Served, which isn't.
type Door struct{ registry *Registry }

// Door returns the registry's door for controllers.
func (r *Registry) Door() Door { return Door{r} }

// Served returns what is served, with all definitions that the caches have when it's called.
func (d Door) Served() *Catalog {
	d.registry.definitions.catchUp()
	return d.registry.Catalog()
}

// Ready is Registry.Ready.
func (d Door) Ready() <-chan struct{} { return d.registry.Ready() }

// Pin is Registry.Pin.
func (d Door) Pin(ctx context.Context) context.Context { return d.registry.Pin(ctx) }

// Read is Registry.Read.
func (d Door) Read(ctx context.Context, key string) (*kube.Object, error) {
	return d.registry.Read(ctx, key)
}

// Removal says what to remove, and under which conditions.
type Removal struct {
	Namespace, Name string
	UID             types.UID                  // "": any
	Revision        storage.Revision           // at which the object must be; 0: any
	Propagation     metav1.DeletionPropagation // "": as a deletion that names none
	// If, if set, is asked about the object that is to be deleted, and again whenever somebody else has written it first. An
	// error of its own ends the removal, and is returned as it is. An object that can't be read is in conflict with it.
	If func(m *metav1.ObjectMeta) error
}

// Remove deletes an object as a client's DELETE does, and answers with the revision of the last write. gone tells that the
// object is removed; otherwise it's marked as being deleted, and finalizers hold it. The error is storage.ErrNotFound if
// there is no such object, and storage.ErrConflict if it has another uid or revision; both are about what etcd has.
func (e *Endpoint) Remove(ctx context.Context, r Removal) (rev storage.Revision, gone bool, err error) {
	if t := e.typed; t != nil && t.undeletable != nil && t.undeletable(r.Name) {
		return 0, false, e.forbidden(r.Name, "this "+e.Singular+" may not be deleted")
	}
	opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}
	if r.UID != "" {
		opts.Preconditions.UID = &r.UID
	}
	if r.Revision != 0 {
		text := r.Revision.String()
		opts.Preconditions.ResourceVersion = &text
	}
	if r.Propagation != "" {
		opts.PropagationPolicy = &r.Propagation
	}
	d := &deletion{opts: opts, only: r.If}
	remove := func(w *write) func(*kube.Object) (outcome, error) {
		d.write = w
		return func(old *kube.Object) (outcome, error) { return d.decide(ctx, old) }
	}
	rev, err = e.ownWrite(ctx, r.Namespace, r.Name, remove)
	if err == nil && d.ends {
		d.goOn(rev)
		last, lastErr := e.ownWrite(ctx, r.Namespace, r.Name, remove)
		switch {
		case lastErr == nil:
			rev = last
		case errors.Is(lastErr, storage.ErrNotFound): // somebody else has seen the mark, and removed it
			d.gone = true
		default:
			err = lastErr
		}
	}
	gone = d.gone
	if apierrors.IsConflict(err) {
		err = fmt.Errorf("%w: %w", storage.ErrConflict, err)
	}
	return rev, gone && err == nil, err
}

// Made is an object that the server makes by itself.
type Made struct {
	Namespace, Name string
	Labels          map[string]string
	Annotations     map[string]string
	Content         map[string]any // all but apiVersion, kind and metadata; it becomes the object's. nil: only the defaults
	Manager         string         // in managedFields; defaults to Options.Manager
}

// Make creates an object, and answers with its revision. The error is storage.ErrExists if there is one of that name.
func (e *Endpoint) Make(ctx context.Context, m Made) (storage.Revision, error) {
	w := &write{Endpoint: e, Target: Target{Namespace: m.Namespace}}
	w.manager = cmp.Or(m.Manager, e.res.registry.manager)
	o := &object.Object{Content: map[string]any{}, Meta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations}}
	for name, v := range m.Content {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			o.Content[name] = v
		}
	}
	if err := w.trackMade(o); err != nil {
		return 0, err
	}
	stored, err := w.bracketed(ctx, func() (*kube.Object, error) { return w.storeNamed(ctx, o) })
	if err != nil {
		return 0, err
	}
	return stored.Revision, nil
}

// trackMade notes in a new object's managedFields that the server has set what it says and what is there by default.
func (w *write) trackMade(o *object.Object) error {
	t := w.typed
	if t != nil && w.res.registry.trackAlways {
		obj, err := t.fromObject(o)
		if err == nil {
			err = t.setDefaults(obj)
		}
		if err == nil {
			err = toObject(obj, o)
		}
		if err != nil {
			return err
		}
	}
	return w.track(o, o, nil)
}

// Default fills in what an object of the endpoint's Go type doesn't say, and kube-apiserver has a default for.
func (e *Endpoint) Default(obj Typed) error { return e.typed.setDefaults(obj) }

// Report applies a status to an object of a Go type on the server's own account (server-side apply, with force), and answers with the
// revision of the object afterwards. status is the content of the object's field of that name. What it says of errors is as for Amend.
func (e *Endpoint) Report(ctx context.Context, namespace, name string, uid types.UID, manager string, content map[string]any) (storage.Revision, error) {
	return e.ownWrite(ctx, namespace, name, func(w *write) func(*kube.Object) (outcome, error) {
		w.Subresource, w.manager, w.force, w.applies = status, manager, true, true
		wanted := map[string]any{"apiVersion": w.apiVersion(), "kind": w.Kind, "metadata": map[string]any{"name": name}, status: content}
		if namespace != "" {
			object.Map(wanted["metadata"])["namespace"] = namespace
		}
		return func(old *kube.Object) (outcome, error) {
			prev, err := w.load(ctx, old)
			if err != nil {
				return outcome{}, err
			}
			if prev.Meta.UID != uid {
				return outcome{}, fmt.Errorf("report on %q: another uid: %w", old.Key, storage.ErrNotFound)
			}
			prev.Meta.ResourceVersion = old.Revision.String()
			live, err := prev.Tree(w.apiVersion(), w.Kind)
			if err != nil {
				return outcome{}, err
			}
			in, err := w.merge(wanted, live)
			if err != nil {
				return outcome{}, err
			}
			next := w.selectPart(in, prev)
			obj, err := w.typed.fromObject(next)
			if err != nil {
				return outcome{}, err
			}
			if err := toObject(obj, next); err != nil { // fields of the type that a configuration may leave out
				return outcome{}, err
			}
			inheritMeta(next, prev)
			return w.encoded(ctx, next, prev)
		}
	})
}

// Amend changes an object's metadata, and answers with the revision of the object afterwards. Removing the last finalizer of
// an object that is being deleted removes the object. change may be called several times, because it's called again when
// somebody else writes first; an error of its own ends the write, and is returned as it is. What it leaves as it was isn't
// written. The metadata has the resourceVersion of the object that is changed. The error is storage.ErrNotFound if there is
// no such object of that uid.
func (e *Endpoint) Amend(ctx context.Context, namespace, name string, uid types.UID, change func(m *metav1.ObjectMeta) error) (storage.Revision, error) {
	return e.ownWrite(ctx, namespace, name, func(w *write) func(*kube.Object) (outcome, error) {
		return func(old *kube.Object) (outcome, error) {
			prev, err := w.load(ctx, old)
			if err != nil {
				return outcome{}, err
			}
			if prev.Meta.UID != uid {
				return outcome{}, fmt.Errorf("amend %q: another uid: %w", old.Key, storage.ErrNotFound)
			}
			return w.amend(ctx, prev, old.Revision, change)
		}
	})
}

// AmendAs changes an object of a Go type on the server's own account, and answers with the revision of the object
// afterwards. What it says of change, and of errors, is as for Amend; the object has its metadata, but no
// apiVersion and kind.
func AmendAs[T any, P Pointer[T]](ctx context.Context, e *Endpoint, namespace, name string, uid types.UID, change func(obj *T)) (storage.Revision, error) {
	return AmendManaged[T, P](ctx, e, Managed{Namespace: namespace, Name: name, UID: uid}, change)
}

// Managed says which object is changed, and who is noted in its managedFields.
type Managed struct {
	Namespace, Name string
	UID             types.UID
	Manager         string // defaults to Options.Manager
	Subresource     string // by whose path a client would write what is changed; "" for the object's own
}

// AmendManaged is AmendAs under the name of a manager.
func AmendManaged[T any, P Pointer[T]](ctx context.Context, e *Endpoint, m Managed, change func(obj *T)) (storage.Revision, error) {
	return e.ownWrite(ctx, m.Namespace, m.Name, func(w *write) func(*kube.Object) (outcome, error) {
		w.manager, w.Subresource = cmp.Or(m.Manager, w.manager), m.Subresource
		return func(old *kube.Object) (outcome, error) {
			prev, err := w.load(ctx, old)
			if err != nil {
				return outcome{}, err
			}
			if prev.Meta.UID != m.UID {
				return outcome{}, fmt.Errorf("amend %q: another uid: %w", old.Key, storage.ErrNotFound)
			}
			next := prev.Clone()
			if err := through[T, P](next, change); err != nil {
				return outcome{}, err
			}
			w.raiseGeneration(next, prev, whole)
			return w.unchecked(ctx, next, prev)
		}
	})
}

// amend is the outcome of a change of metadata. It isn't validated: an object that has become invalid mustn't keep its
// owners from going.
func (w *write) amend(ctx context.Context, prev *object.Object, at storage.Revision, change func(m *metav1.ObjectMeta) error) (outcome, error) {
	prev.Meta.ResourceVersion = at.String()
	next := prev.Clone()
	if err := change(&next.Meta); err != nil {
		return outcome{}, err
	}
	return w.unchecked(ctx, next, prev)
}

// unchecked is the outcome that puts next in the place of prev on the server's own account, without admission and
// validation.
func (w *write) unchecked(ctx context.Context, next, prev *object.Object) (outcome, error) {
	if err := w.track(next, next, prev); err != nil {
		return outcome{}, err
	}
	return w.encoded(ctx, next, prev)
}

// encoded is the outcome that puts next in the place of prev as it is.
func (w *write) encoded(ctx context.Context, next, prev *object.Object) (outcome, error) {
	keepTimes(next, prev)
	raw, err := w.encode(ctx, next)
	if err != nil {
		return outcome{}, err
	}
	remove, err := w.unheld(next)
	return outcome{value: raw, remove: remove}, err
}

// ownManager is what Options.Manager defaults to.
const ownManager = "apiserver-lite"

// ownWrite runs a write of the server's own on the endpoint that stores the resource's objects. decide makes what decides
// about the object. If the definition changes meanwhile, the write runs again under the new one.
func (e *Endpoint) ownWrite(ctx context.Context, namespace, name string, decide func(w *write) func(old *kube.Object) (outcome, error)) (storage.Revision, error) {
	key, err := e.ownKey(namespace, name)
	if err != nil {
		return 0, err
	}
	for to := e.res.storage; to != nil; {
		w := &write{Endpoint: to, Target: Target{Namespace: namespace, Name: name}, targetKey: key}
		w.manager = e.res.registry.manager
		stored, err := w.bracketed(ctx, func() (*kube.Object, error) { return w.inQueue(ctx, decide(w)) })
		switch {
		case err == nil:
			return stored.Revision, nil
		case apierrors.IsNotFound(err): // a Status, which is about the definition
			return 0, fmt.Errorf("write %q: its definition is gone: %w", key, storage.ErrNotFound)
		case !errors.Is(err, errChanged):
			return 0, err
		}
		r := e.res.registry
		if _, err := r.cacher.Barrier(ctx); err != nil {
			return 0, err
		}
		r.definitions.sync()
		to = r.Catalog().Prefix(e.res.prefix)
	}
	return 0, fmt.Errorf("write %q: its definition is gone: %w", key, storage.ErrNotFound)
}

// ownKey is key for what no client has asked. A key that no object can have isn't found.
func (e *Endpoint) ownKey(namespace, name string) (string, error) {
	if (namespace != "") != e.Namespaced {
		return "", fmt.Errorf("%s %q in namespace %q: %w", e.Plural, name, namespace, storage.ErrNotFound)
	}
	key, err := e.res.prefix.Key(namespace, name)
	if err != nil {
		return "", fmt.Errorf("%w: %w", storage.ErrNotFound, err)
	}
	return key, nil
}
