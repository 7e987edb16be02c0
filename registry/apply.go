package registry

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// applyConfiguration merges an applied configuration into the object, or creates the object of it.
func (w *write) applyConfiguration(ctx context.Context, body []byte) (Result, error) {
	w.applies = true
	wanted, err := w.readConfiguration(body)
	if err != nil {
		return Result{}, err
	}
	given := len(w.warnings)
	for {
		w.warnings = w.warnings[:given] // without those of an earlier attempt
		stored, err := w.update(ctx, func(old *cacher.Object) (outcome, error) { return w.applyTo(ctx, old, wanted) })
		switch {
		case err == nil:
			return w.answer(ctx, stored)
		case !apierrors.IsNotFound(err) || isRefusal(err) || w.Subresource != whole:
			return Result{}, err
		}
		res, err := w.createApplied(ctx, wanted)
		if !apierrors.IsAlreadyExists(err) || isRefusal(err) { // else somebody else has just created it
			return res, err
		}
	}
}

// readConfiguration reads and checks an applied configuration.
func (w *write) readConfiguration(body []byte) (map[string]any, error) {
	_, tree, err := w.parse(body)
	if err != nil {
		return nil, err
	}
	// Read as an object, it must be one of this path. The tree that is merged stays as it was sent.
	o, _, err := w.split(object.DeepCopy(tree))
	if err != nil {
		return nil, err
	}
	if o.Managed != nil {
		return nil, badRequest("metadata.managedFields must be nil")
	}
	if o.Meta.Name == "" { // an object that exists has its name
		err = placeIn(o, w.Namespace)
	} else {
		err = checkNamed(o, w.Target)
	}
	if err != nil {
		return nil, err
	}
	metadata := object.Map(tree["metadata"])
	if metadata == nil {
		metadata = map[string]any{}
		tree["metadata"] = metadata
	}
	if w.Namespace != "" {
		metadata["namespace"] = w.Namespace
	} else {
		delete(metadata, "namespace") // cluster scope has none, whatever the client sent
	}
	return tree, nil
}

// applyTo makes the new object from the old one and a configuration.
func (w *write) applyTo(ctx context.Context, old *cacher.Object, wanted map[string]any) (outcome, error) {
	prev, err := w.load(ctx, old)
	if err != nil {
		return outcome{}, err
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
	if err := w.checkPrecondition(in, prev, old.Revision); err != nil {
		return outcome{}, err
	}
	next := w.selectPart(in, prev)
	next.Managed = in.Managed // who applied a part is recorded, whatever that part is
	inheritMeta(next, prev, old.Revision)
	return w.outcomeOf(ctx, next, prev)
}

// createApplied makes a new object of a configuration.
func (w *write) createApplied(ctx context.Context, wanted map[string]any) (Result, error) {
	o, err := w.merge(wanted, nil)
	if err != nil {
		return Result{}, err
	}
	switch {
	case o.Meta.Name == "":
		return Result{}, badRequest("the name of the object (%s based on URL) was undeterminable: metadata.name must be provided to create it", w.Name)
	case o.Meta.UID != "":
		return Result{}, w.conflict(o.Meta.Name) // it was about an object that is gone
	}
	if err := w.fill(o); err != nil {
		return Result{}, err
	}
	return w.insertAndAnswer(ctx, o)
}

// merge applies a configuration to a whole object, or to none if live is nil, and shapes the result.
func (w *write) merge(wanted, live map[string]any) (*object.Object, error) {
	merged, err := w.managers.of(w.Subresource).Apply(live, object.DeepCopy(wanted), w.manager, w.force)
	if err != nil {
		return nil, w.fail(w.Name, err)
	}
	o, err := object.FromTree(merged)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	return o, w.shape(o)
}
