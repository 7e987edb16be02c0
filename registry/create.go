package registry

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Create stores a new object. Errors are Status errors, or the server's own failures.
func (e *Endpoint) Create(ctx context.Context, r *Request) (Result, error) {
	if (r.Namespace != "") != e.Namespaced {
		return Result{}, e.methodNotAllowed("create")
	}
	return e.perform(ctx, r, createOptions, func(ctx context.Context, w *write) (Result, error) {
		o, err := w.read(r.Body)
		if err != nil {
			return Result{}, err
		}
		if err := placeIn(o, w.Namespace); err != nil {
			return Result{}, err
		}
		if err := w.fill(o); err != nil {
			return Result{}, err
		}
		if err := w.track(nil, o); err != nil {
			return Result{}, err
		}
		return w.create(ctx, o)
	})
}

// create stores a new object that is filled, and answers with it.
func (w *write) create(ctx context.Context, o *object.Object) (Result, error) {
	stored, err := w.commit(ctx, func() (*cacher.Object, error) { return w.insert(ctx, o) })
	if err != nil {
		return Result{}, err
	}
	res, err := w.answer(ctx, stored)
	res.Created = true
	return res, err
}

// fill gives a new object what the server decides, and drops what it can't have.
func (w *write) fill(o *object.Object) error {
	if err := w.initMeta(o); err != nil {
		return err
	}
	w.warnings = append(w.warnings, o.DropRepeatedOwners()...)
	if _, ok := o.Content[status]; !ok || !w.has(status) {
		return nil
	}
	delete(o.Content, status)
	_, err := w.shape(o, false) // it may have a default
	return err
}

// insert finds a name for a new object, has the object approved and stores it. A dry run ends before the write; its
// object has no revision.
func (w *write) insert(ctx context.Context, in *object.Object) (*cacher.Object, error) {
	// What the object needs to be there comes first: in a missing namespace, the answer is about that.
	conds, err := w.conditions(ctx)
	if err != nil {
		return nil, err
	}
	generate := in.Meta.Name == "" && in.Meta.GenerateName != ""
	given := len(w.warnings)
	for try := 1; ; try++ {
		o := in
		if generate { // each name gets the object as it came
			o, w.warnings = in.Clone(), w.warnings[:given]
			o.Meta.Name = generatedName(in.Meta.GenerateName)
		}
		w.Name = o.Meta.Name
		raw, err := w.approve(ctx, o, nil)
		if err != nil {
			return nil, err
		}
		key, err := w.Endpoint.key(w.Namespace, w.Name)
		if err != nil {
			return nil, err
		}
		rev, err := w.putNew(ctx, key, raw, conds)
		if err == nil {
			return cacher.NewObject(key, raw, rev), nil
		}
		if !generate || !errors.Is(err, storage.ErrExists) {
			return nil, err
		}
		if try == generateTries {
			return nil, apierrors.NewGenerateNameConflict(w.resource(), w.Name, retryAfter)
		}
	}
}

// putNew creates a key under its conditions. A failed condition means that the namespace or the
// definition changed: whether they still allow the object is then asked again.
func (w *write) putNew(ctx context.Context, key string, raw []byte, conds []storage.Condition) (storage.Revision, error) {
	if w.dryRun {
		found, err := w.res.read(ctx, key)
		if err == nil && found != nil {
			err = storage.ErrExists
		}
		return 0, err
	}
	for {
		rev, err := w.res.registry.store.Create(ctx, key, raw, conds...)
		if !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		if conds, err = w.readConditions(ctx); err != nil {
			return 0, err
		}
	}
}

// conditions are what a new object requires: the revision of its namespace and of its definition, at which
// neither was being deleted. With them in the create's transaction, nothing can be created in a namespace
// once its deletion has begun (that is a write to the namespace), so that what its controller has emptied
// stays empty; and the same for the objects of a definition.
//
// They're taken from the cache, which may be older than etcd; a refusal is given only after reading etcd. A dry run
// changes nothing and always reads.
func (w *write) conditions(ctx context.Context) ([]storage.Condition, error) {
	if w.res.terminating || w.dryRun {
		return w.readConditions(ctx)
	}
	conds := make([]storage.Condition, 0, 2)
	if w.res.definition.Key != "" {
		conds = append(conds, w.res.definition)
	}
	if w.Namespace != "" {
		ns := w.res.registry.namespaces.cached(w.Namespace)
		if ns == nil || ns.DeletionTimestamp != "" {
			return w.readConditions(ctx)
		}
		conds = append(conds, storage.Condition{Key: ns.Key, Revision: ns.Revision})
	}
	return conds, nil
}

// readConditions is conditions from etcd.
func (w *write) readConditions(ctx context.Context) ([]storage.Condition, error) {
	conds := make([]storage.Condition, 0, 2)
	if w.res.definition.Key != "" {
		def, err := w.readDefinition(ctx)
		if err != nil {
			return nil, err
		}
		if def.DeletionTimestamp != "" {
			return nil, w.forbidden("", "create not allowed while custom resource definition is terminating")
		}
		conds = append(conds, storage.Condition{Key: def.Key, Revision: def.Revision})
	}
	if w.Namespace != "" {
		cond, err := w.res.registry.namespaces.require(ctx, w)
		if err != nil {
			return nil, err
		}
		conds = append(conds, cond)
	}
	return conds, nil
}
