package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// The engine of all writes. A write reads what a client sent (read), makes of it and of the stored object the one that
// is to be stored, has that approved (approve), and puts it into etcd if nobody else has written meanwhile (change for
// an object that exists, insert for a new one).

// write is one write on its way, of a client's or of the server's own.
type write struct {
	*Endpoint
	Target // of a create, with the object's name as soon as it has one
	writeOptions
	key      string      // of the target; "" for a new object
	shown    *form.Shown // what the client is answered
	warnings []string    // what the client is told besides
	patches  bool        // it's a patch, of whatever type
	applies  bool        // it's a server-side apply
}

// own returns a write of an object that the server does on its own account.
func (e *Endpoint) own(o *cacher.Object) *write {
	return &write{Endpoint: e, Target: Target{Name: o.Name()}, key: o.Key}
}

// perform runs a client's write, under the definition as it is by then. options is the kind of its options, which
// errors name.
func (e *Endpoint) perform(ctx context.Context, r *Request, options string, run func(ctx context.Context, w *write) (Result, error)) (Result, error) {
	return current(ctx, e, func(e *Endpoint) (Result, error) {
		w, err := e.newWrite(r, options)
		if err != nil {
			return Result{}, err
		}
		res, err := run(ctx, w)
		if err != nil {
			res = Result{}
		}
		res.Warnings = w.warnings
		return res, err
	})
}

// newWrite reads what a client's create, update or patch says besides its body.
func (e *Endpoint) newWrite(r *Request, options string) (*write, error) {
	if r.Subresource != main && !e.has(r.Subresource) {
		return nil, errNotServed()
	}
	shown, err := e.shown(r)
	if err != nil {
		return nil, err
	}
	w := &write{Endpoint: e, Target: r.Target, shown: shown}
	if r.Name != "" {
		if w.key, err = e.key(r.Namespace, r.Name); err != nil {
			return nil, err
		}
	}
	w.writeOptions, err = parseWriteOptions(r, options)
	return w, err
}

// answer shows what was stored.
func (w *write) answer(ctx context.Context, stored *cacher.Object) (Result, error) {
	raw, err := w.show(ctx, w.shown.Single, stored)
	return Result{Object: raw}, err
}

// change is what a write does to one key.
type change struct {
	raw    []byte // the new value; equal to the old one means that nothing is to be done
	remove bool   // the key goes; raw, if any, is what the client is shown
}

// change changes the object of the write's target.
func (w *write) change(ctx context.Context, decide func(old *cacher.Object) (change, error)) (*cacher.Object, error) {
	given := len(w.warnings)
	return w.commit(ctx, func() (*cacher.Object, error) {
		return w.modify(ctx, func(old *cacher.Object) (change, error) {
			w.warnings = w.warnings[:given] // without those of an earlier try
			return decide(old)
		})
	})
}

// commit runs what stores an object, between the resource's hooks.
func (w *write) commit(ctx context.Context, store func() (*cacher.Object, error)) (*cacher.Object, error) {
	end, err := w.res.begin(ctx)
	if err != nil {
		return nil, w.fail(w.Name, err)
	}
	defer end()
	stored, err := store()
	if err == nil && !w.dryRun {
		err = w.res.written(ctx, stored.Revision)
	}
	if err != nil {
		return nil, w.fail(w.Name, err)
	}
	return stored, nil
}

// modify reads the object of the write's target, lets decide say what becomes of it, and writes that, when the writes
// of the same object that came before are done. It returns the object as written.
func (w *write) modify(ctx context.Context, decide func(old *cacher.Object) (change, error)) (stored *cacher.Object, err error) {
	if w.dryRun { // nobody has to wait for it
		return w.try(ctx, w.res.cache.Get(w.key), decide)
	}
	last, end, err := w.res.registry.turns.take(ctx, w.key)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // then stored is what would have been
			end(nil)
		} else {
			end(stored) // even of what is removed: etcd has nothing of that revision, so nobody can write on it
		}
	}()
	old := w.res.cache.Get(w.key)
	if old == nil || last != nil && last.Revision > old.Revision {
		old = last
	}
	return w.try(ctx, old, decide)
}

// try takes an object, lets decide say what becomes of it, and writes that if nobody else wrote
// meanwhile; else it begins again with what etcd has.
//
// The first attempt starts from old, which is the cache's and may be older than etcd's. That is safe for a success, which
// compare-and-swap guards. A verdict (an error of decide's, a missing object, or "unchanged") is given only
// about what was read from etcd: a client that writes with the version its last write returned must not
// meet a cache that hasn't seen that write.
//
// What a dry run would do is a verdict, too.
//
// It goes on until ctx ends: each conflict means that another writer succeeded. A version that the client
// insists on is part of decide, which refuses when it's no longer the object's.
func (w *write) try(ctx context.Context, old *cacher.Object, decide func(old *cacher.Object) (change, error)) (*cacher.Object, error) {
	for fresh := false; ; {
		c, err := change{}, error(storage.ErrNotFound)
		if old != nil {
			c, err = decide(old)
		}
		verdict := err != nil || w.dryRun || !c.remove && string(c.raw) == string(old.Raw())
		if verdict && fresh {
			return c.on(old), err
		}
		if !verdict {
			stored, err := w.put(ctx, old, c)
			if !errors.Is(err, storage.ErrConflict) {
				return stored, err
			}
		}
		latest, readErr := w.res.read(ctx, w.key)
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

// put writes a change to a key that must still be as old is.
func (e *Endpoint) put(ctx context.Context, old *cacher.Object, c change) (*cacher.Object, error) {
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

// replace writes a new value to a key that must still be as old is, under the definition that the value was
// made by.
func (e *Endpoint) replace(ctx context.Context, old *cacher.Object, raw []byte) (storage.Revision, error) {
	store := e.res.registry.store
	if e.res.definition.Key == "" {
		return store.Update(ctx, old.Key, raw, old.Revision)
	}
	for cond := e.res.definition; ; {
		rev, err := store.Update(ctx, old.Key, raw, old.Revision, cond)
		if !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		def, err := e.readDefinition(ctx)
		if err != nil {
			return 0, err
		}
		cond.Revision = def.Revision
	}
}

// approve asks admission about an object that is to take the place of prev, validates it, and encodes it. prev is nil
// for a new one.
func (w *write) approve(ctx context.Context, next, prev *object.Object) ([]byte, error) {
	op := Update
	if prev == nil {
		op = Create
	}
	if err := w.admit(ctx, op, next, prev); err != nil {
		return nil, err
	}
	errs := w.validateMeta(next, prev)
	if t := w.res.typed; t != nil {
		more, err := t.rules(ctx, next, prev, w.Subresource)
		if err != nil {
			return nil, err
		}
		errs = append(errs, more...)
	}
	errs = append(errs, w.validate(ctx, next, prev)...)
	if err := invalid(w.groupKind(), next.Meta.Name, errs); err != nil {
		return nil, err
	}
	w.warnings = append(w.warnings, object.FinalizerWarnings(next, prev)...)
	if err := w.warn(ctx, next, prev); err != nil {
		return nil, err
	}
	if prev != nil {
		keepTimes(next, prev)
		w.raiseGeneration(next, prev)
	}
	raw, err := w.encode(ctx, next)
	if len(next.Managed) > 0 && !w.applies && apierrors.IsRequestEntityTooLargeError(err) {
		// The object counts for more than the record of who wrote it; only an apply can't do without.
		next.Managed = nil
		raw, err = w.encode(ctx, next)
	}
	return raw, err
}

// warn adds a Go type's warnings about a valid object.
func (w *write) warn(ctx context.Context, next, prev *object.Object) error {
	t := w.res.typed
	if t == nil || t.warnings == nil {
		return nil
	}
	texts, err := t.warnings(ctx, next, prev, w.Subresource)
	w.warnings = append(w.warnings, texts...)
	return err
}

// The kinds of a write's options, as errors name them.
const (
	createOptions = "CreateOptions"
	updateOptions = "UpdateOptions"
	patchOptions  = "PatchOptions"
)
