package registry

import (
	"context"
	"errors"
	"maps"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Update replaces an object, or one of its subresources. Errors are Status errors.
func (e *Endpoint) Update(ctx context.Context, namespace, name, subresource string, q url.Values, body []byte) (*Result, error) {
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	return e.current(ctx, func(e *Endpoint) (*Result, error) {
		if subresource != main && !e.has(subresource) {
			return nil, errNotServed()
		}
		if subresource == scale {
			return e.putScale(ctx, namespace, name, q, body)
		}
		opts, err := e.writeOptions(q, "UpdateOptions", "")
		if err != nil {
			return nil, err
		}
		d := &decoder{endpoint: e, writeOptions: opts}
		in, err := d.object(body)
		if err != nil {
			return nil, err
		}
		if err := e.checkNamed(in, namespace, name); err != nil {
			return nil, err
		}
		d.warnings = append(d.warnings, in.DropRepeatedOwners()...)
		fromBody := len(d.warnings)
		stored, err := e.write(ctx, key, name, d.dryRun, func(old *cacher.Object) (change, error) {
			d.warnings = d.warnings[:fromBody] // of an earlier try
			return e.revise(ctx, d, old, in, subresource)
		})
		if err != nil {
			return nil, err
		}
		return e.result(ctx, stored, &Result{Warnings: d.warnings})
	})
}

// checkNamed checks name and namespace in a body against the URL.
func (e *Endpoint) checkNamed(in *object.Object, namespace, name string) error {
	if in.Meta.Name == "" {
		return badRequest("metadata.name is missing: it must be %q, as in the URL", name)
	}
	if in.Meta.Name != name {
		return badRequest("the name of the object (%s) does not match the name on the URL (%s)", clip.Text(in.Meta.Name), name)
	}
	return e.placeIn(in, namespace)
}

// change is what a write does to one key.
type change struct {
	raw    []byte // the new value; equal to the old one means that nothing is to be done
	remove bool   // the key goes; raw, if any, is what the client is shown
}

// write is modify with the resource's hooks around it.
func (e *Endpoint) write(ctx context.Context, key, name string, dryRun bool, decide func(old *cacher.Object) (change, error)) (*cacher.Object, error) {
	end, err := e.res.begin(ctx)
	if err != nil {
		return nil, e.fail(name, err)
	}
	defer end()
	stored, err := e.modify(ctx, key, dryRun, decide)
	if err == nil && !dryRun {
		err = e.res.written(ctx, stored.Revision)
	}
	if err != nil {
		return nil, e.fail(name, err)
	}
	return stored, nil
}

// modify reads an object, lets decide say what becomes of it, and writes that if nobody else wrote
// meanwhile; else it begins again. It returns the object as written.
//
// The first attempt starts from the cache, which may be behind. That is safe for a success, which
// compare-and-swap guards. A verdict (an error of decide's, a missing object, or "unchanged") is given only
// about what was read from etcd: a client that writes with the version its last write returned must not
// meet a cache that hasn't seen that write.
//
// What a dry run would do is a verdict, too.
//
// It goes on until ctx ends: each conflict means that another writer succeeded. A version that the client
// insists on is part of decide, which refuses when it's no longer the object's.
func (e *Endpoint) modify(ctx context.Context, key string, dryRun bool, decide func(old *cacher.Object) (change, error)) (*cacher.Object, error) {
	old, fresh := e.res.cache.Get(key), false
	for {
		c, err := change{}, error(storage.ErrNotFound)
		if old != nil {
			c, err = decide(old)
		}
		verdict := err != nil || dryRun || !c.remove && string(c.raw) == string(old.Raw())
		if verdict && fresh {
			return c.on(old), err
		}
		if !verdict {
			stored, err := e.apply(ctx, old, c)
			if !errors.Is(err, storage.ErrConflict) {
				return stored, err
			}
		}
		latest, readErr := e.res.read(ctx, key)
		if readErr != nil {
			return nil, readErr
		}
		if verdict && sameState(old, latest) {
			return c.on(old), err
		}
		old, fresh = latest, true
	}
}

// on returns what a change makes of an object that keeps its revision.
func (c change) on(old *cacher.Object) *cacher.Object {
	if old == nil || c.raw == nil || string(c.raw) == string(old.Raw()) {
		return old
	}
	return cacher.NewObject(old.Key, c.raw, old.Revision)
}

func sameState(a, b *cacher.Object) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Revision == b.Revision
}

// apply writes a change to a key that must still be as old is.
func (e *Endpoint) apply(ctx context.Context, old *cacher.Object, c change) (*cacher.Object, error) {
	if !c.remove {
		rev, err := e.replace(ctx, old, c.raw)
		return cacher.NewObject(old.Key, c.raw, rev), err
	}
	if c.raw == nil {
		c.raw = old.Raw()
		// With the deletion's revision it would look as if it were in today's form. A webhook that fails keeps
		// nothing from being deleted.
		if shown, err := e.view.Shown(ctx, old); err == nil {
			c.raw = shown.Raw()
		}
	}
	rev, err := e.res.registry.store.Delete(ctx, old.Key, old.Revision)
	return cacher.NewObject(old.Key, c.raw, rev), err
}

// revise makes the new object from the old one and what a client sent. It doesn't change in, which may
// be needed again.
func (e *Endpoint) revise(ctx context.Context, d *decoder, old *cacher.Object, in *object.Object, subresource string) (change, error) {
	prev, err := e.load(ctx, old)
	if err != nil {
		return change{}, err
	}
	if err := e.checkPrecondition(old, prev, in); err != nil {
		return change{}, err
	}
	next := e.selectPart(in, prev, subresource)
	e.inheritMeta(next, prev, old.Revision.String())
	prev.Meta.ResourceVersion = next.Meta.ResourceVersion
	if err := e.track(prev, next, d, subresource); err != nil {
		return change{}, err
	}
	return e.revised(ctx, d, old, prev, next, subresource)
}

// revised asks admission about, checks and encodes a new object that is to take the place of prev, which is old decoded.
func (e *Endpoint) revised(ctx context.Context, d *decoder, old *cacher.Object, prev, next *object.Object, subresource string) (change, error) {
	admitted, err := e.admit(ctx, d.writeOptions, Update, next, prev, subresource)
	if err != nil {
		return change{}, err
	}
	errs := e.validateChanged(next, prev)
	if t := e.res.typed; t != nil {
		more, err := t.rules(ctx, next, prev, subresource)
		if err != nil {
			return change{}, err
		}
		errs = append(errs, more...)
	}
	errs = append(errs, d.validate(ctx, next, prev, subresource)...)
	if err := invalid(e.groupKind(), old.Name(), errs); err != nil {
		return change{}, err
	}
	d.warnings = append(d.warnings, object.FinalizerWarnings(next, prev)...)
	d.warnings = append(d.warnings, admitted...)
	if err := e.warn(ctx, d, next, prev, subresource); err != nil {
		return change{}, err
	}
	keepTimes(next, prev)
	e.raiseGeneration(next, prev)
	raw, err := e.encode(ctx, next)
	if err != nil {
		return change{}, err
	}
	remove, err := e.unheld(next)
	return change{raw: raw, remove: remove}, err
}

// checkPrecondition checks the uid and the resourceVersion that a body names against the object's.
func (e *Endpoint) checkPrecondition(old *cacher.Object, prev, in *object.Object) error {
	name := old.Name()
	if in.Meta.UID != "" && in.Meta.UID != prev.Meta.UID {
		return apierrors.NewConflict(e.resource(), name, preconditionFailed("UID", string(in.Meta.UID), string(prev.Meta.UID)))
	}
	path := field.NewPath("metadata", "resourceVersion")
	version := in.Meta.ResourceVersion
	if version == "" || version == "0" {
		if e.res.typed != nil && e.res.typed.unconditional {
			return nil
		}
		return e.invalid(name, field.Invalid(path, version, "must be specified for an update"))
	}
	rev, err := parseRevision(version)
	if err != nil {
		return e.invalid(name, field.Invalid(path, version, "must be the version of the object that is to be replaced"))
	}
	if rev != old.Revision {
		return e.conflict(name)
	}
	return nil
}

// selectPart takes from what a client sent the part that the path is about, and the rest from the old
// object.
func (e *Endpoint) selectPart(in, prev *object.Object, subresource string) *object.Object {
	var next *object.Object
	switch subresource {
	case status:
		next = prev.Clone()
		next.Carry(in, status)
	case finalize:
		next = prev.Clone()
		spec := maps.Clone(object.Map(prev.Content["spec"]))
		if spec == nil {
			spec = map[string]any{}
		}
		delete(spec, "finalizers")
		if f, ok := object.Map(in.Content["spec"])["finalizers"]; ok {
			spec["finalizers"] = f
		}
		next.Content["spec"] = spec
	default:
		next = in.Clone()
		if e.hasStatus() {
			next.Carry(prev, status)
		}
	}
	return next
}

// raiseGeneration counts a change of what the object asks for: anything outside metadata and, where that
// has its own subresource, status.
func (e *Endpoint) raiseGeneration(next, prev *object.Object) {
	if e.res.typed != nil && e.res.typed.noGeneration {
		return
	}
	except := ""
	if e.hasStatus() {
		except = status
	}
	if !object.SameContent(next, prev, except) {
		next.Meta.Generation++
	}
}

// unheld tells whether an object is being deleted and nothing holds it any more.
func (e *Endpoint) unheld(o *object.Object) (bool, error) {
	if o.Meta.DeletionTimestamp == nil || len(o.Meta.Finalizers) > 0 {
		return false, nil
	}
	if e.res.typed == nil || e.res.typed.held == nil {
		return true, nil
	}
	held, err := e.res.typed.held(o)
	return !held, err
}
