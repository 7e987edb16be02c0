package writes

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

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
func (e Writer) Remove(ctx context.Context, r Removal) (rev storage.Revision, gone bool, err error) {
	if t := e.Typed; t != nil && t.Undeletable != nil && t.Undeletable(r.Name) {
		return 0, false, e.Forbidden(r.Name, "this "+e.Singular+" may not be deleted")
	}
	opts := &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{}}
	if r.UID != "" {
		opts.Preconditions.UID = &r.UID
	}
	if r.Revision != 0 {
		opts.Preconditions.ResourceVersion = new(r.Revision.String())
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
func (e Writer) Make(ctx context.Context, m Made) (storage.Revision, error) {
	w := &write{Writer: e, Target: registry.Target{Namespace: m.Namespace}}
	w.manager = cmp.Or(m.Manager, e.Res.Registry.Manager)
	o := &object.Object{Content: map[string]any{}, Meta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels, Annotations: m.Annotations}}
	for name, v := range m.Content {
		if name != "apiVersion" && name != "kind" && name != "metadata" {
			o.Content[name] = v
		}
	}
	if err := w.trackMade(o); err != nil {
		return 0, err
	}
	ctx = onOwnAccount(ctx)
	stored, err := w.bracketed(ctx, func() (*kube.Object, error) { return w.storeNamed(ctx, o) })
	if err != nil {
		return 0, err
	}
	return stored.Revision, nil
}

// MakeAs is Make of what a Go value says. manager is who is noted in its managedFields; "" is the server.
func MakeAs(ctx context.Context, e *registry.Endpoint, o registry.Typed, manager string) (storage.Revision, error) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return 0, err
	}
	m := o.GetObjectMeta()
	return Of(e).Make(ctx, Made{
		Namespace: m.GetNamespace(), Name: m.GetName(), Labels: m.GetLabels(), Annotations: m.GetAnnotations(), Content: content, Manager: manager,
	})
}

// trackMade notes in a new object's managedFields that the server has set what it says and what is there by default.
func (w *write) trackMade(o *object.Object) error {
	t := w.Typed
	if t != nil && w.Res.Registry.ManagedFieldsAlways {
		obj, err := t.FromObject(o)
		if err == nil {
			err = t.SetDefaults(obj)
		}
		if err == nil {
			err = registry.ToObject(obj, o)
		}
		if err != nil {
			return err
		}
	}
	return w.track(o, o, nil)
}

// Default fills in what an object of the endpoint's Go type doesn't say, and kube-apiserver has a default for.
func (e Writer) Default(obj registry.Typed) error { return e.Typed.SetDefaults(obj) }

// Report applies a status to an object of a Go type on the server's own account (server-side apply, with force), and answers with the
// revision of the object afterwards. status is the content of the object's field of that name. What it says of errors is as for Amend.
func (e Writer) Report(ctx context.Context, namespace, name string, uid types.UID, manager string, content map[string]any) (storage.Revision, error) {
	return e.ownWrite(ctx, namespace, name, func(w *write) func(*kube.Object) (outcome, error) {
		w.Subresource, w.manager, w.force, w.applies = registry.AtStatus, manager, true, true
		wanted := map[string]any{"apiVersion": w.APIVersion(), "kind": w.Kind, "metadata": map[string]any{"name": name}, registry.AtStatus: content}
		if namespace != "" {
			object.Map(wanted["metadata"])["namespace"] = namespace
		}
		return w.ofUID(ctx, uid, func(prev *object.Object) (outcome, error) {
			live, err := prev.RawTree(w.APIVersion(), w.Kind)
			if err != nil {
				return outcome{}, err
			}
			in, err := w.merge(wanted, live)
			if err != nil {
				return outcome{}, err
			}
			next := w.selectPart(in, prev)
			obj, err := w.Typed.FromObject(next)
			if err != nil {
				return outcome{}, err
			}
			if err := registry.ToObject(obj, next); err != nil { // fields of the type that a configuration may leave out
				return outcome{}, err
			}
			inheritMeta(next, prev)
			return w.encoded(ctx, next, prev)
		})
	})
}

// Amend changes an object's metadata, and answers with the revision of the object afterwards. Removing the last finalizer of
// an object that is being deleted removes the object. change may be called several times, because it's called again when
// somebody else writes first; an error of its own ends the write, and is returned as it is. What it leaves as it was isn't
// written. The metadata has the resourceVersion of the object that is changed. The error is storage.ErrNotFound if there is
// no such object of that uid.
func (e Writer) Amend(ctx context.Context, namespace, name string, uid types.UID, change func(m *metav1.ObjectMeta) error) (storage.Revision, error) {
	return e.ownWrite(ctx, namespace, name, func(w *write) func(*kube.Object) (outcome, error) {
		return w.ofUID(ctx, uid, func(prev *object.Object) (outcome, error) {
			next := prev.Clone()
			if err := change(&next.Meta); err != nil {
				return outcome{}, err
			}
			return w.unchecked(ctx, next, prev) // also if it has become invalid: that mustn't keep its owners from going
		})
	})
}

// AmendAs changes an object of a Go type on the server's own account, and answers with the revision of the object
// afterwards. What it says of change, and of errors, is as for Amend; the object has its metadata, but no
// apiVersion and kind.
func AmendAs[T any, P registry.Pointer[T]](ctx context.Context, e *registry.Endpoint, namespace, name string, uid types.UID, change func(obj *T)) (storage.Revision, error) {
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
func AmendManaged[T any, P registry.Pointer[T]](ctx context.Context, e *registry.Endpoint, m Managed, change func(obj *T)) (storage.Revision, error) {
	return Of(e).ownWrite(ctx, m.Namespace, m.Name, func(w *write) func(*kube.Object) (outcome, error) {
		w.manager, w.Subresource = cmp.Or(m.Manager, w.manager), m.Subresource
		return w.ofUID(ctx, m.UID, func(prev *object.Object) (outcome, error) {
			next := prev.Clone()
			if err := registry.Through[T, P](next, change); err != nil {
				return outcome{}, err
			}
			w.raiseGeneration(next, prev, registry.Whole)
			return w.unchecked(ctx, next, prev)
		})
	})
}

// ofUID is loaded for the object that the server itself changes, if it's that of the uid.
func (w *write) ofUID(ctx context.Context, uid types.UID, decide func(prev *object.Object) (outcome, error)) func(old *kube.Object) (outcome, error) {
	return w.loaded(ctx, func(prev *object.Object) (outcome, error) {
		if prev.Meta.UID != uid {
			return outcome{}, fmt.Errorf("write %q: another uid: %w", w.targetKey, storage.ErrNotFound)
		}
		return decide(prev)
	})
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
	raw, err := w.Encode(ctx, next)
	if err != nil {
		return outcome{}, err
	}
	remove, err := w.unheld(next)
	return outcome{value: raw, remove: remove}, err
}

// onOwnAccount returns a context whose writes are noted as nobody's: who made the request on whose way they are hasn't asked for them.
func onOwnAccount(ctx context.Context) context.Context {
	if storage.GuardsOf(ctx).Author == "" {
		return ctx
	}
	return storage.WithAuthor(ctx, "")
}

// ownWrite runs a write of the server's own on the endpoint that stores the resource's objects. decide makes what decides
// about the object. If the definition changes meanwhile, the write runs again under the new one.
func (e Writer) ownWrite(ctx context.Context, namespace, name string, decide func(w *write) func(old *kube.Object) (outcome, error)) (storage.Revision, error) {
	key, err := e.OwnKey(namespace, name)
	if err != nil {
		return 0, err
	}
	ctx = onOwnAccount(ctx)
	for to := e.Res.Storage; to != nil; {
		w := &write{Writer: Of(to), Target: registry.Target{Namespace: namespace, Name: name}, targetKey: key}
		w.manager = e.Res.Registry.Manager
		stored, err := w.bracketed(ctx, func() (*kube.Object, error) { return w.inQueue(ctx, decide(w)) })
		switch {
		case err == nil:
			return stored.Revision, nil
		case apierrors.IsNotFound(err): // a Status, which is about the definition
			return 0, fmt.Errorf("write %q: its definition is gone: %w", key, storage.ErrNotFound)
		case !errors.Is(err, registry.ErrChanged):
			return 0, err
		}
		r := e.Res.Registry
		if _, err := r.Cacher.Barrier(ctx); err != nil {
			return 0, err
		}
		r.Definitions.Sync()
		to = r.Catalog().Prefix(e.Res.Prefix)
	}
	return 0, fmt.Errorf("write %q: its definition is gone: %w", key, storage.ErrNotFound)
}
