package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

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
	_, tree, err := d.parsed(body)
	if err != nil {
		return nil, err
	}
	// As an object of its own it has to be one of this path; what it's merged from stays as it was sent.
	o, _, err := d.endpoint.split(object.DeepCopy(tree))
	if err != nil {
		return nil, err
	}
	if o.Managed != nil {
		return nil, badRequest("metadata.managedFields must be nil")
	}
	if err := d.endpoint.checkNamed(o, namespace, name); err != nil {
		return nil, err
	}
	if metadata := object.Map(tree["metadata"]); namespace != "" {
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
	prev.Meta.ResourceVersion = old.Revision.String()
	live, err := prev.Tree(e.apiVersion(), e.Kind)
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
	next.Managed = in.Managed // who applied a part is recorded, whatever that part is
	e.inheritMeta(next, prev, old.Revision.String())
	return e.revised(ctx, d, old, prev, next, subresource)
}

// createApplied makes a new object of a configuration.
func (e *Endpoint) createApplied(ctx context.Context, namespace string, d *decoder, wanted map[string]any) (*Result, error) {
	o, err := e.merge(nil, wanted, d, main)
	if err != nil {
		return nil, err
	}
	if o.Meta.UID != "" {
		return nil, e.conflict(o.Meta.Name) // it was about an object that is gone
	}
	return e.store(ctx, namespace, o, d, true)
}

// merge applies a configuration to a whole object, or to none, and gives it the schema's form.
func (e *Endpoint) merge(live, wanted map[string]any, d *decoder, subresource string) (*object.Object, error) {
	merged, err := e.managers.of(subresource).Apply(live, object.DeepCopy(wanted), d.manager, d.force)
	if err != nil {
		return nil, e.fail("", err)
	}
	o, err := object.FromTree(merged)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	_, err = e.shape(o, false)
	return o, err
}
