package writes

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Of an object that can't be read, nobody knows what holds it. It may be readable again once a lost key is found. So a client deletes it only
// with ignoreStoreReadErrorWithClusterBreakingPotential, and with the right to that: see KEP-3926.

// unsafeDelete is the verb of that right.
const unsafeDelete = "unsafe-delete-ignore-read-errors"

// ignoresReadErrors tells whether the deletion is for an object that can't be read.
func (d *deletion) ignoresReadErrors() bool {
	asked := d.opts.IgnoreStoreReadErrorWithClusterBreakingPotential
	return asked != nil && *asked
}

// mayIgnoreReadErrors refuses a deletion of what can't be read unless its user has the right.
func (d *deletion) mayIgnoreReadErrors(ctx context.Context) error {
	if !d.ignoresReadErrors() {
		return nil
	}
	audit.Annotate(ctx, "apiserver.k8s.io/unsafe-delete-ignore-read-error", "")
	if registry.Presumes(ctx) {
		return registry.ErrJudged // the rights may have changed
	}
	if d.Res.Registry.Rights == nil {
		return nil
	}
	decision, reason, err := d.Res.Registry.Rights.Authorize(ctx, authorizer.AttributesRecord{
		User: registry.UserFrom(ctx), Verb: unsafeDelete, APIGroup: d.Group, APIVersion: d.Version, Resource: d.Plural,
		Namespace: d.Namespace, Name: d.Name, ResourceRequest: true,
	})
	switch {
	case err != nil:
		err = fmt.Errorf("error while checking permission for %q, %w", unsafeDelete, err)
	case decision == authorizer.DecisionAllow:
		return nil
	default:
		err = fmt.Errorf("not permitted to do %q, reason: %s", unsafeDelete, reason)
	}
	return apierrors.NewForbidden(d.GroupResource(), clip.Text(d.Name), err)
}

// decideUnreadable says what the deletion does to an object that can't be read, for a cause. What deletes a namespace's content doesn't delete it,
// either: it waits, and the namespace's condition says for what.
func (d *deletion) decideUnreadable(old *kube.Object, cause error) (outcome, error) {
	switch {
	case d.only != nil:
		return outcome{}, fmt.Errorf("delete %q, which can't be read: %w", old.Key, storage.ErrConflict)
	case !d.asked || !d.ignoresReadErrors():
		return outcome{}, d.Unreadable(old.Name(), cause)
	}
	d.gone = true
	return outcome{remove: true}, d.check(old, "")
}

// readable refuses a deletion that is only for what can't be read.
func (d *deletion) readable(old *kube.Object) error {
	return apierrors.NewConflict(d.GroupResource(), old.Name(), errors.New("unsafe deletion is not allowed because the object is decodable from storage"))
}
