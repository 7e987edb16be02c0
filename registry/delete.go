package registry

import (
	"context"
	"fmt"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Delete removes an object, or marks it as being deleted if something holds it. The body is DeleteOptions
// or empty. The answer's object is a Status when the object is gone, else the object. Errors are Status
// errors.
func (e *Endpoint) Delete(ctx context.Context, namespace, name string, q url.Values, body []byte) (*Result, error) {
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	opts, err := e.parseDeleteOptions(q, body)
	if err != nil {
		return nil, err
	}
	if t := e.res.typed; t != nil && t.undeletable != nil && t.undeletable(name) {
		return nil, e.forbidden(name, "this "+e.Singular+" may not be deleted")
	}
	return e.current(ctx, func(e *Endpoint) (*Result, error) {
		d := deletion{endpoint: e, ctx: ctx, pre: opts.Preconditions, writeOptions: e.deleting(opts)}
		stored, err := e.write(ctx, key, name, d.dryRun, d.decide)
		if err != nil {
			return nil, err
		}
		if d.gone {
			return &Result{Object: e.deleted(name, d.uid), Warnings: d.warnings}, nil
		}
		return e.result(ctx, stored, &Result{Warnings: d.warnings})
	})
}

// deletion decides what a delete does to an object. It's asked again after a conflict.
type deletion struct {
	writeOptions
	endpoint *Endpoint
	ctx      context.Context // of the request
	pre      *metav1.Preconditions
	uid      string // of the object
	gone     bool   // it's removed, not only marked
	warnings []string
}

// deleting are a client's deletion's options as those of a write.
func (e *Endpoint) deleting(opts *metav1.DeleteOptions) writeOptions {
	return writeOptions{dryRun: len(opts.DryRun) > 0, manager: managed.ManagerName("", e.userAgent), asked: true}
}

func (d *deletion) decide(old *cacher.Object) (change, error) {
	e := d.endpoint
	d.uid, d.gone = "", false
	prev, err := object.DecodeStored(old.Raw())
	if old.Err != nil || err != nil {
		// Nobody can read it, so nothing can hold it: deleting is the way out.
		d.gone = true
		return change{remove: true}, d.check(old, "")
	}
	d.uid = string(prev.Meta.UID)
	if err := d.check(old, d.uid); err != nil {
		return change{}, err
	}
	if err := d.admit(old); err != nil {
		return change{}, err
	}
	if prev.Meta.DeletionTimestamp != nil {
		d.gone, err = e.unheld(prev)
		return change{raw: old.Raw(), remove: d.gone}, err
	}
	if len(prev.Meta.Finalizers) > 0 { // it's written again, in the form it has by now
		if prev, err = e.load(d.ctx, old); err != nil {
			return change{}, err
		}
	}
	next := prev.Clone()
	var zero int64
	at := now()
	next.Meta.DeletionTimestamp, next.Meta.DeletionGracePeriodSeconds = &at, &zero
	if next.Meta.Generation > 0 {
		next.Meta.Generation++
	}
	if t := e.res.typed; t != nil && t.markDeleted != nil {
		if err := t.markDeleted(next); err != nil {
			return change{}, err
		}
	}
	if d.gone, err = e.unheld(next); err != nil || d.gone {
		return change{remove: true}, err
	}
	raw, err := e.encode(d.ctx, next)
	return change{raw: raw}, err
}

// admit asks admission about a deletion.
func (d *deletion) admit(old *cacher.Object) error {
	e := d.endpoint
	if !d.asked || !e.admits() {
		return nil
	}
	o, err := e.load(d.ctx, old)
	if err != nil {
		return err
	}
	o.Meta.ResourceVersion = old.Revision.String()
	d.warnings, err = e.admit(d.ctx, d.writeOptions, Delete, nil, o, main)
	return err
}

// check holds the preconditions against the object.
func (d *deletion) check(old *cacher.Object, uid string) error {
	if d.pre == nil {
		return nil
	}
	refuse := func(what, want, have string) error {
		return apierrors.NewConflict(d.endpoint.resource(), old.Name(), preconditionFailed(what, want, have))
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
