package writes

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/crd"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// RenameDefinition asks again for the names that a definition didn't get. This and the two below return the definition's revision
// afterwards. If it's gone they change nothing, and return 0. Errors are Status errors, or failures of the server.
func RenameDefinition(ctx context.Context, d *registry.StoredDefinition) (storage.Revision, error) {
	return editDefinition(ctx, d, d.Complete)
}

// HoldDefinition notes in a definition that finalizers hold some of its objects.
func HoldDefinition(ctx context.Context, d *registry.StoredDefinition) (storage.Revision, error) {
	return editDefinition(ctx, d, d.Hold)
}

// ReleaseDefinition ends the watches of a definition's objects, and lets the definition go. The caches must have no objects of the definition
// any more.
func ReleaseDefinition(ctx context.Context, d *registry.StoredDefinition) (storage.Revision, error) {
	d.EndWatches()
	return editDefinition(ctx, d, d.Release)
}

// editDefinition changes a definition on the server's own account.
func editDefinition(ctx context.Context, d *registry.StoredDefinition, fn func(obj *crd.Definition)) (storage.Revision, error) {
	e := d.Definitions()
	key, err := e.Key("", d.Name())
	if err != nil {
		return 0, err
	}
	w := &write{Writer: Of(e), Target: registry.Target{Name: d.Name(), Subresource: registry.AtStatus}, targetKey: key}
	w.manager = e.Res.Registry.Manager
	stored, err := w.update(ctx, func(old *kube.Object) (outcome, error) {
		o, err := object.DecodeStored(old.Raw())
		if err != nil {
			return outcome{}, w.Unreadable(old.Name(), err)
		}
		if o.Meta.UID != d.UID() {
			return outcome{value: old.Raw()}, nil // another of that name
		}
		if err := w.readTurn(ctx); err != nil { // names are taken
			return outcome{}, err
		}
		next := o.Clone()
		if err := registry.Through(next, fn); err != nil {
			return outcome{}, err
		}
		return w.unchecked(ctx, next, o)
	})
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return stored.Revision, nil
}
