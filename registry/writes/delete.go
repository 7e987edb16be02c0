package writes

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// Delete removes the object that Target names. If finalizers hold the object, Delete marks it as being deleted. The body is
// DeleteOptions or empty; without a body, the query's parameters of the same names count. Result.Object is the object, or a
// Status when it's gone and the kind has no ReturnDeleted; the caller owns the bytes.
//
// Errors are Status errors: 400 for options that can't be read, 403 from admission or for a namespace that can't be deleted,
// 404 for a missing object, 409 for a precondition that doesn't hold, 422 for options that contradict, 503 and 507 from
// storage, 504 if ctx ends. Others are failures of the server, which it logs.
func (e Writer) Delete(ctx context.Context, r *registry.Request) (registry.Result, error) {
	return e.deleteOne(ctx, r, func(*deletion) {})
}

// deleteOne is Delete. prepare may change how it's done.
func (e Writer) deleteOne(ctx context.Context, r *registry.Request, prepare func(*deletion)) (registry.Result, error) {
	key, err := e.Key(r.Namespace, r.Name)
	if err != nil {
		return registry.Result{}, err
	}
	opts, err := e.parseDeleteOptions(r)
	if err != nil {
		return registry.Result{}, err
	}
	if t := e.Typed; t != nil && t.Undeletable != nil && t.Undeletable(r.Name) {
		return registry.Result{}, e.Forbidden(r.Name, "this "+e.Singular+" may not be deleted")
	}
	return registry.Judged(ctx, e.Endpoint, r, func(ctx context.Context, e *registry.Endpoint) (registry.Result, error) {
		d := Of(e).newDeletion(r, opts)
		d.targetKey, d.Target = key, r.Target
		prepare(d)
		if err := d.mayIgnoreReadErrors(ctx); err != nil {
			return registry.Result{}, err
		}
		if d.shown, err = e.Shown(r); err != nil {
			return registry.Result{}, err
		}
		res, err := d.deleteAndAnswer(ctx)
		//lint:ignore SA1019 it's deprecated, and still sent
		res.Accepted = err == nil && !d.gone && opts.OrphanDependents != nil && !*opts.OrphanDependents
		res.Warnings = append(Of(e).deletionWarnings(opts), d.warnings...)
		return res, err
	})
}

// deletionWarnings are told a client whatever comes of a deletion.
func (e Writer) deletionWarnings(opts *metav1.DeleteOptions) []string {
	//lint:ignore SA1019 it's deprecated, and still sent
	if e.Typed == nil || e.Typed.DependentsWarning == "" || opts.PropagationPolicy != nil || opts.OrphanDependents != nil {
		return nil
	}
	return []string{e.Typed.DependentsWarning}
}

// deletion is the write that deletes an object.
type deletion struct {
	*write
	opts *metav1.DeleteOptions
	uid  string                           // of the object
	gone bool                             // the object is removed, and not only marked
	ends bool                             // it's marked, and removed by a second write
	only func(m *metav1.ObjectMeta) error // see Removal.If; may be nil
}

// newDeletion returns the deletion of an object by a client.
func (e Writer) newDeletion(r *registry.Request, opts *metav1.DeleteOptions) *deletion {
	return &deletion{opts: opts, write: &write{Writer: e, writeOptions: writeOptions{
		dryRun: len(opts.DryRun) > 0, manager: managed.ManagerName("", r.UserAgent), userAgent: r.UserAgent, asked: true,
		deleteOptions: opts,
	}}}
}

// deleteAndAnswer deletes, and tells what is left.
func (d *deletion) deleteAndAnswer(ctx context.Context) (registry.Result, error) {
	stored, err := d.delete(ctx)
	switch {
	case err != nil:
		return registry.Result{}, err
	case d.gone && (d.uid == "" || d.Typed == nil || !d.Typed.ReturnDeleted): // of one without a uid nobody could read more
		return registry.Result{Object: d.deleted()}, nil
	}
	return d.answer(ctx, stored)
}

// delete deletes on behalf of a client.
func (d *deletion) delete(ctx context.Context) (*kube.Object, error) {
	decide := func(old *kube.Object) (outcome, error) { return d.decide(ctx, old) }
	stored, err := d.update(ctx, decide)
	if err != nil || !d.ends || d.dryRun {
		return stored, err
	}
	d.goOn(stored.Revision)
	last, err := d.update(ctx, decide)
	switch {
	case apierrors.IsNotFound(err): // somebody else has seen the mark, and removed it
		d.gone = true
		return stored, nil
	case err != nil:
		return nil, err
	}
	return last, nil
}

// goOn prepares the second write of a deletion whose first has marked the object, at a revision. Another object of the name isn't
// found.
func (d *deletion) goOn(marked storage.Revision) {
	d.asked = false // they have judged it
	uid := d.uid
	d.only = func(m *metav1.ObjectMeta) error {
		if string(m.UID) != uid {
			return storage.ErrNotFound
		}
		return nil
	}
	var pre *metav1.Preconditions
	if d.opts.Preconditions != nil && d.opts.Preconditions.ResourceVersion != nil {
		version := marked.String()
		pre = &metav1.Preconditions{ResourceVersion: &version}
	}
	d.opts = d.opts.DeepCopy()
	d.opts.Preconditions = pre
}

// decide says what the deletion does to an object. It's called again after a conflict.
func (d *deletion) decide(ctx context.Context, old *kube.Object) (outcome, error) {
	d.uid, d.gone, d.ends = "", false, false
	prev, err := object.DecodeStored(old.Raw())
	switch {
	case old.Err != nil || err != nil:
		return d.decideUnreadable(old, cmp.Or(old.Err, err))
	case d.ignoresReadErrors():
		return outcome{}, d.readable(old)
	}
	if d.asked {
		if err := d.Readable(ctx, d.View, old); err != nil {
			return outcome{}, err
		}
	}
	d.uid = string(prev.Meta.UID)
	if err := d.check(old, d.uid); err != nil {
		return outcome{}, err
	}
	if d.only != nil {
		if err := d.only(&prev.Meta); err != nil {
			return outcome{}, err
		}
	}
	if err := d.admitDeletion(ctx, old); err != nil {
		return outcome{}, err
	}
	next, err := d.marked(prev)
	if err != nil {
		return outcome{}, err
	}
	if d.gone, err = d.unheld(next); err != nil {
		return outcome{}, err
	}
	if d.Typed != nil && d.Typed.Policy != nil && prev.Meta.DeletionTimestamp == nil {
		d.gone = false // it only begins to go, whatever holds it: see Type's policy
	}
	// An object that is given time to end is marked even if it has none, so that who watches it learns when it was to end.
	d.ends = d.gone && next != prev && d.Typed != nil && d.Typed.Grace != nil
	if d.gone && !d.ends {
		return outcome{remove: true}, nil
	}
	if next == prev {
		return outcome{value: old.Raw()}, nil
	}
	// It's stored again, so it's brought into the definition's newest form.
	if prev, err = d.Load(ctx, old); err != nil {
		return outcome{}, err
	}
	if next, err = d.marked(prev); err != nil {
		return outcome{}, err
	}
	raw, err := d.Encode(ctx, next)
	return outcome{value: raw}, err
}

// marked returns an object as one whose deletion has begun. If an earlier deletion has made it so already, it's the same
// object.
func (d *deletion) marked(o *object.Object) (*object.Object, error) {
	period, pending, err := d.period(o)
	if err != nil || pending {
		return o, err
	}
	finalizers, err := d.finalizers(o)
	if err != nil {
		return nil, err
	}
	next := o.Clone()
	next.Meta.Finalizers = finalizers
	switch {
	case o.Meta.DeletionTimestamp == nil:
		if err := d.mark(next, period); err != nil || d.Typed == nil || d.Typed.Follow == nil {
			return next, err
		}
		obj, err := d.Typed.FromObject(next)
		if err != nil {
			return nil, err
		}
		return next, d.follow(obj, next)
	case periodOf(o) > period:
		shorten(&next.Meta, period, d.Res.Registry.Now())
	case o.Meta.DeletionGracePeriodSeconds == nil: // of a kind whose deletion begins without one; see Type's policy
		if held, err := d.heldBesides(o); held || err != nil {
			return o, err
		}
		next.Meta.DeletionGracePeriodSeconds = &period
	case slices.Equal(finalizers, o.Meta.Finalizers):
		return o, nil
	}
	return next, nil
}

// mark marks an object whose deletion begins. period is its grace period, in seconds.
func (e Writer) mark(o *object.Object, period int64) error {
	at := metav1.NewTime(e.Res.Registry.Now().Add(time.Duration(period) * time.Second))
	t := e.Typed
	o.Meta.DeletionTimestamp = &at
	if t == nil || t.Policy == nil {
		o.Meta.DeletionGracePeriodSeconds = &period
		if o.Meta.Generation > 0 {
			o.Meta.Generation++
		}
	}
	if t != nil && t.Deleting != nil {
		return t.BeginDeleting(o)
	}
	return nil
}

// period returns the grace period that an object has with this deletion, in seconds. pending tells that it has one already
// that isn't longer: nothing changes then, finalizers neither.
func (d *deletion) period(o *object.Object) (seconds int64, pending bool, err error) {
	t := d.Typed
	if t == nil || t.Grace == nil {
		return 0, false, nil
	}
	asked := d.opts.GracePeriodSeconds
	if asked != nil && *asked < 0 {
		asked = new(int64(1))
	}
	if o.Meta.DeletionTimestamp == nil {
		seconds, err = t.GraceOf(o, asked)
		return seconds, false, err
	}
	switch given := periodOf(o); {
	case given == 0:
		return 0, false, nil
	case asked == nil || *asked >= given:
		return given, true, nil
	}
	return *asked, false, nil
}

// periodOf returns the grace period that an object was given, in seconds.
func periodOf(o *object.Object) int64 {
	if given := o.Meta.DeletionGracePeriodSeconds; given != nil {
		return *given
	}
	return 0
}

// shorten gives an object that is being deleted a shorter grace period. If that has passed already, the object keeps a
// second, in which whoever ends it may see so, unless it's to go at once.
func shorten(m *metav1.ObjectMeta, period int64, now metav1.Time) {
	at := metav1.NewTime(m.DeletionTimestamp.Add(time.Duration(period-*m.DeletionGracePeriodSeconds) * time.Second))
	if at.Before(&now) {
		at, period = now, min(period, 1)
	}
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = &at, &period
}

// finalizers returns the finalizers that an object has when its deletion has begun. A policy decides about the two by
// which the garbage collector is asked to act before the object goes; without a policy, these two stay as they are, too.
//
// While something besides metadata.finalizers holds an object that is being deleted, nothing changes, as with
// kube-apiserver's namespaces.
func (d *deletion) finalizers(o *object.Object) ([]string, error) {
	began := o.Meta.DeletionTimestamp != nil
	policy := registry.PolicyOf(d.opts)
	if t := d.Typed; t != nil {
		if began {
			if held, err := d.heldBesides(o); err != nil || held {
				return o.Meta.Finalizers, err
			}
		}
		switch {
		case t.Dependents == registry.NoDependents:
			policy = metav1.DeletePropagationBackground
		case !began && t.Policy != nil:
			policy = t.Policy(d.opts)
		case policy == "" && !slices.ContainsFunc(o.Meta.Finalizers, registry.OfCollector):
			policy = t.Dependents
		}
	}
	var asks string
	switch policy {
	case "":
		return o.Meta.Finalizers, nil
	case metav1.DeletePropagationOrphan:
		asks = metav1.FinalizerOrphanDependents
	case metav1.DeletePropagationForeground:
		asks = metav1.FinalizerDeleteDependents
	}
	finalizers := slices.DeleteFunc(slices.Clone(o.Meta.Finalizers), func(f string) bool {
		return f != asks && registry.OfCollector(f)
	})
	if asks != "" && !slices.Contains(finalizers, asks) {
		finalizers = append(finalizers, asks)
	}
	return finalizers, nil
}

// heldBesides tells whether something besides metadata.finalizers holds an object that is being deleted.
func (e Writer) heldBesides(o *object.Object) (bool, error) {
	if e.Typed == nil || e.Typed.Held == nil {
		return false, nil
	}
	return e.Typed.HeldBy(o)
}

// admitDeletion asks admission about a deletion.
func (d *deletion) admitDeletion(ctx context.Context, old *kube.Object) error {
	if !d.asked || !d.admits() {
		return nil
	}
	// An object that concerns no hook isn't loaded: it may have become unreadable, and deleting is the way out.
	about := d.attributes(ctx, registry.Delete, registry.Target{Namespace: old.Namespace(), Name: old.Name()})
	if len(d.concerned(about)) == 0 && (d.Typed == nil || d.Typed.Admit == nil) {
		return nil
	}
	o, err := d.Load(ctx, old)
	if err != nil {
		return err
	}
	if err := d.admit(ctx, nil, o); err != nil {
		return err
	}
	return d.askValidators(ctx, nil, o)
}

// check compares the preconditions with the object. The texts are Kubernetes's.
func (d *deletion) check(old *kube.Object, uid string) error {
	pre := d.opts.Preconditions
	if pre == nil {
		return nil
	}
	refuse := func(format, want, have string) error {
		about := d.Res.Storage.GroupResource()
		if d.Typed == nil || d.Typed.Policy == nil { // kube-apiserver names the kind, but not of namespaces and definitions
			about.Resource = d.Kind
		}
		return apierrors.NewConflict(about, old.Name(), fmt.Errorf(format, clip.Text(want), have))
	}
	otherUID := "the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated"
	otherVersion := "the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified"
	if d.Typed != nil && d.Typed.Policy != nil { // of these kinds kube-apiserver has other words
		failed := "precondition failed"
		if d.Res == d.Res.Registry.Namespaces.Res {
			failed = "Precondition failed"
		}
		otherUID = failed + ": UID in precondition: %s, UID in object meta: %s"
		otherVersion = failed + ": ResourceVersion in precondition: %s, ResourceVersion in object meta: %s"
	}
	if pre.UID != nil && string(*pre.UID) != uid {
		return refuse(otherUID, string(*pre.UID), uid)
	}
	if v := pre.ResourceVersion; v != nil && (*v != old.Revision.String() || old.Revision == transaction.NewRevision) { // which no object has
		return refuse(otherVersion, *v, old.Revision.String())
	}
	return nil
}

// deleted is the Status that answers a deletion.
func (d *deletion) deleted() []byte {
	status := &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusSuccess,
		Details:  &metav1.StatusDetails{Name: d.Name, Group: d.Group, Kind: d.Plural, UID: types.UID(d.uid)},
	}
	if d.ignoresReadErrors() { // kube-apiserver has another Status for what it couldn't read
		status.Code, status.Details = http.StatusOK, &metav1.StatusDetails{Name: d.Name, Kind: d.Kind}
	}
	b, err := registry.EncodeApart(d.shown, status.TypeMeta, status)
	if err != nil {
		panic(err) // a Status of strings always encodes
	}
	return b
}
