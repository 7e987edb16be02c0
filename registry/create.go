package registry

import (
	"context"
	"errors"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Create stores a new object. Errors are Status errors.
func (e *Endpoint) Create(ctx context.Context, namespace string, q url.Values, body []byte) (*Result, error) {
	if (namespace != "") != e.Namespaced {
		return nil, e.methodNotAllowed("create")
	}
	return e.current(ctx, func(e *Endpoint) (*Result, error) {
		opts, err := e.writeOptions(q, "CreateOptions", "")
		if err != nil {
			return nil, err
		}
		d := &decoder{endpoint: e, writeOptions: opts}
		o, err := d.object(body)
		if err != nil {
			return nil, err
		}
		if err := e.placeIn(o, namespace); err != nil {
			return nil, err
		}
		return e.store(ctx, namespace, o, d, false)
	})
}

// store makes a new object of what a client sent. applied tells that its managedFields are the server's.
func (e *Endpoint) store(ctx context.Context, namespace string, o *object.Object, d *decoder, applied bool) (*Result, error) {
	if err := e.initMeta(o); err != nil {
		return nil, err
	}
	d.warnings = append(d.warnings, o.DropRepeatedOwners()...)
	d.warnings = append(d.warnings, object.FinalizerWarnings(o, nil)...)
	if _, ok := o.Content[status]; ok && e.hasStatus() {
		delete(o.Content, status)
		if _, err := e.shape(o, false); err != nil { // it may have a default
			return nil, err
		}
	}
	if !applied {
		if err := e.track(nil, o, d, main); err != nil {
			return nil, err
		}
	}
	end, err := e.res.begin(ctx)
	if err != nil {
		return nil, e.fail(o.Meta.Name, err)
	}
	defer end()
	stored, err := e.create(ctx, namespace, o, d)
	if err != nil {
		return nil, e.fail(o.Meta.Name, err)
	}
	if !d.dryRun {
		err = e.res.written(ctx, stored.Revision)
	}
	if err != nil {
		return nil, e.fail(o.Meta.Name, err)
	}
	return e.result(ctx, stored, &Result{Created: true, Warnings: d.warnings})
}

// create finds a name, asks admission, validates and writes. A dry run ends before the write; its object has no revision.
func (e *Endpoint) create(ctx context.Context, namespace string, in *object.Object, d *decoder) (*cacher.Object, error) {
	// What the object needs to be there comes first: in a missing namespace, the answer is about that.
	conds, err := e.conditions(ctx, namespace, d.dryRun)
	if err != nil {
		return nil, err
	}
	generate := in.Meta.Name == "" && in.Meta.GenerateName != ""
	warned := len(d.warnings)
	for try := 1; ; try++ {
		if generate {
			in.Meta.Name = generatedName(in.Meta.GenerateName)
		}
		o := in
		if generate { // each name gets the object as it came
			o, d.warnings = in.Clone(), d.warnings[:warned]
		}
		raw, err := e.admitNew(ctx, o, d)
		if err != nil {
			return nil, err
		}
		key, err := e.key(namespace, o.Meta.Name)
		if err != nil {
			return nil, err
		}
		rev, err := storage.Revision(0), error(nil)
		if d.dryRun {
			err = e.tryInsert(ctx, key)
		} else {
			rev, err = e.insert(ctx, namespace, key, raw, conds)
		}
		if err == nil {
			return cacher.NewObject(key, raw, rev), nil
		}
		if !generate || !errors.Is(err, storage.ErrExists) {
			return nil, err
		}
		if try == generateTries {
			return nil, apierrors.NewGenerateNameConflict(e.resource(), o.Meta.Name, retryAfter)
		}
	}
}

// admitNew asks admission about a new object, validates it and encodes it.
func (e *Endpoint) admitNew(ctx context.Context, o *object.Object, d *decoder) ([]byte, error) {
	admitted, err := e.admit(ctx, d.writeOptions, Create, o, nil, main)
	if err != nil {
		return nil, err
	}
	raw, err := e.validNew(ctx, d, o)
	if err != nil {
		return nil, err
	}
	d.warnings = append(d.warnings, admitted...)
	return raw, e.warn(ctx, d, o, nil, main)
}

// validNew validates a new object and encodes it.
func (e *Endpoint) validNew(ctx context.Context, d *decoder, o *object.Object) ([]byte, error) {
	errs := e.validateNew(o)
	if t := e.res.typed; t != nil {
		more, err := t.rules(ctx, o, nil, main)
		if err != nil {
			return nil, err
		}
		errs = append(errs, more...)
	}
	errs = append(errs, d.validate(ctx, o, nil, main)...)
	if err := invalid(e.groupKind(), o.Meta.Name, errs); err != nil {
		return nil, err
	}
	return e.encode(ctx, o)
}

// tryInsert is insert without the write.
func (e *Endpoint) tryInsert(ctx context.Context, key string) error {
	found, err := e.res.read(ctx, key)
	if err == nil && found != nil {
		err = storage.ErrExists
	}
	return err
}

// insert creates a key under its conditions. A failed condition means that the namespace or the
// definition changed: whether they still allow the object is then asked again.
func (e *Endpoint) insert(ctx context.Context, namespace, key string, raw []byte, conds []storage.Condition) (storage.Revision, error) {
	for {
		rev, err := e.res.registry.store.Create(ctx, key, raw, conds...)
		if !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		if conds, err = e.readConditions(ctx, namespace, false); err != nil {
			return 0, err
		}
	}
}

// conditions are what a new object requires: the revision of its namespace and of its definition, at which
// neither was being deleted. With them in the create's transaction, nothing can be created in a namespace
// once its deletion has begun (that is a write to the namespace), so that what its controller has emptied
// stays empty; and the same for the objects of a definition.
//
// They're taken from the cache, which may be behind; a refusal is given only after reading etcd. A dry run
// changes nothing and always reads.
func (e *Endpoint) conditions(ctx context.Context, namespace string, dryRun bool) ([]storage.Condition, error) {
	if e.res.terminating || dryRun {
		return e.readConditions(ctx, namespace, dryRun)
	}
	conds := make([]storage.Condition, 0, 2)
	if e.res.definition.Key != "" {
		conds = append(conds, e.res.definition)
	}
	if namespace != "" {
		ns := e.res.registry.namespaces.cached(namespace)
		if ns == nil || ns.DeletionTimestamp != "" {
			return e.readConditions(ctx, namespace, false)
		}
		conds = append(conds, storage.Condition{Key: ns.Key, Revision: ns.Revision})
	}
	return conds, nil
}

// readConditions is conditions from etcd.
func (e *Endpoint) readConditions(ctx context.Context, namespace string, dryRun bool) ([]storage.Condition, error) {
	conds := make([]storage.Condition, 0, 2)
	if e.res.definition.Key != "" {
		def, err := e.readDefinition(ctx)
		if err != nil {
			return nil, err
		}
		if def.DeletionTimestamp != "" {
			return nil, e.forbidden("", "create not allowed while custom resource definition is terminating")
		}
		conds = append(conds, storage.Condition{Key: def.Key, Revision: def.Revision})
	}
	if namespace != "" {
		cond, err := e.res.registry.namespaces.require(ctx, e, namespace, dryRun)
		if err != nil {
			return nil, err
		}
		conds = append(conds, cond)
	}
	return conds, nil
}
