package registry

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Delete removes the object that Target names. If finalizers hold the object, Delete marks it as being deleted. The body is
// DeleteOptions or empty; without a body, the query's parameters of the same names count. Result.Object is a Status when the
// object is gone, else the object; the caller owns the bytes.
//
// Errors are Status errors: 400 for options that can't be read, 403 from admission or for a namespace that can't be deleted,
// 404 for a missing object, 409 for a precondition that doesn't hold, 422 for options that contradict, 503 and 507 from
// storage, 504 if ctx ends. Others are failures of the server, which it logs.
func (e *Endpoint) Delete(ctx context.Context, r *Request) (Result, error) {
	key, err := e.key(r.Namespace, r.Name)
	if err != nil {
		return Result{}, err
	}
	opts, err := e.parseDeleteOptions(r)
	if err != nil {
		return Result{}, err
	}
	if t := e.res.typed; t != nil && t.undeletable != nil && t.undeletable(r.Name) {
		return Result{}, e.forbidden(r.Name, "this "+e.Singular+" may not be deleted")
	}
	return current(ctx, e, func(e *Endpoint) (Result, error) {
		d := e.newDeletion(r, opts)
		d.targetKey, d.Target = key, r.Target
		if d.shown, err = e.shown(r); err != nil {
			return Result{}, err
		}
		res, err := d.deleteAndAnswer(ctx)
		//lint:ignore SA1019 it's deprecated, and still sent
		res.Accepted = err == nil && !d.gone && opts.OrphanDependents != nil // true was refused
		res.Warnings = d.warnings
		return res, err
	})
}

// deletion is the write that deletes an object.
type deletion struct {
	*write
	pre  *metav1.Preconditions
	uid  string // of the object
	gone bool   // the object is removed, and not only marked
}

// newDeletion returns the deletion of an object by a client.
func (e *Endpoint) newDeletion(r *Request, opts *metav1.DeleteOptions) *deletion {
	return &deletion{pre: opts.Preconditions, write: &write{Endpoint: e, writeOptions: writeOptions{
		dryRun: len(opts.DryRun) > 0, manager: managed.ManagerName("", r.UserAgent), userAgent: r.UserAgent, asked: true,
	}}}
}

// deleteAndAnswer deletes, and tells what is left.
func (d *deletion) deleteAndAnswer(ctx context.Context) (Result, error) {
	stored, err := d.delete(ctx)
	switch {
	case err != nil:
		return Result{}, err
	case d.gone:
		return Result{Object: d.deleted(d.Name, d.uid)}, nil
	}
	return d.answer(ctx, stored)
}

// delete deletes on behalf of a client.
func (d *deletion) delete(ctx context.Context) (*cacher.Object, error) {
	return d.update(ctx, func(old *cacher.Object) (outcome, error) { return d.decide(ctx, old) })
}

// decide says what the deletion does to an object. It's called again after a conflict.
func (d *deletion) decide(ctx context.Context, old *cacher.Object) (outcome, error) {
	d.uid, d.gone = "", false
	prev, err := object.DecodeStored(old.Raw())
	if old.Err != nil || err != nil {
		// Nobody can read it, so no finalizer can hold it. Deleting is all that a client can do about it.
		d.gone = true
		return outcome{remove: true}, d.check(old, "")
	}
	d.uid = string(prev.Meta.UID)
	if err := d.check(old, d.uid); err != nil {
		return outcome{}, err
	}
	if err := d.admitDeletion(ctx, old); err != nil {
		return outcome{}, err
	}
	if prev.Meta.DeletionTimestamp != nil {
		d.gone, err = d.unheld(prev)
		return outcome{value: old.Raw(), remove: d.gone}, err
	}
	if len(prev.Meta.Finalizers) > 0 { // it's stored again, so it's brought into the definition's newest form
		if prev, err = d.load(ctx, old); err != nil {
			return outcome{}, err
		}
	}
	next := prev.Clone()
	var zero int64
	at := now()
	next.Meta.DeletionTimestamp, next.Meta.DeletionGracePeriodSeconds = &at, &zero
	if next.Meta.Generation > 0 {
		next.Meta.Generation++
	}
	if t := d.res.typed; t != nil && t.markDeleted != nil {
		if err := t.markDeleted(next); err != nil {
			return outcome{}, err
		}
	}
	if d.gone, err = d.unheld(next); err != nil || d.gone {
		return outcome{remove: true}, err
	}
	raw, err := d.encode(ctx, next)
	return outcome{value: raw}, err
}

// admitDeletion asks admission about a deletion.
func (d *deletion) admitDeletion(ctx context.Context, old *cacher.Object) error {
	if !d.asked || !d.admits() {
		return nil
	}
	o, err := d.load(ctx, old)
	if err != nil {
		return err
	}
	o.Meta.ResourceVersion = old.Revision.String()
	return d.admit(ctx, Delete, nil, o)
}

// check compares the preconditions with the object.
func (d *deletion) check(old *cacher.Object, uid string) error {
	if d.pre == nil {
		return nil
	}
	refuse := func(what, want, have string) error {
		kind := schema.GroupResource{Group: d.Group, Resource: d.Kind} // which kube-apiserver names here
		return apierrors.NewConflict(kind, old.Name(), preconditionFailed(what, want, have))
	}
	if d.pre.UID != nil && string(*d.pre.UID) != uid {
		return refuse("UID", string(*d.pre.UID), uid)
	}
	if v := d.pre.ResourceVersion; v != nil && *v != old.Revision.String() {
		return refuse("ResourceVersion", *v, old.Revision.String())
	}
	return nil
}

// preconditionFailed has Kubernetes's text.
func preconditionFailed(what, want, have string) error {
	//lint:ignore ST1005 clients know the text
	return fmt.Errorf("Precondition failed: %s in precondition: %s, %s in object meta: %s", what, clip.Text(want), what, have)
}
