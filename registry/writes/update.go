package writes

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// Update replaces the object that Target names, or one of its subresources, by the body, and answers with the object as it
// was stored. It creates nothing, except for a Type with CreateOnUpdate: Result.Created is set then. Of the query it reads
// the same parameters as Create.
//
// If somebody else writes the object meanwhile, Update tries again until ctx ends. A body with a resourceVersion (custom
// resources need one) isn't written over another version: 409. Errors are those of Create, and 404 for a missing object.
// The caller owns the Result's bytes.
func (e Writer) Update(ctx context.Context, r *registry.Request) (registry.Result, error) {
	return e.perform(ctx, r, updateOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		if w.Subresource == registry.AtScale {
			return w.putScale(ctx, r.Body)
		}
		in, err := w.readNamed(r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		stored, err := w.update(ctx, w.loaded(ctx, func(prev *object.Object) (outcome, error) { return w.nextFrom(ctx, prev, in) }))
		switch {
		case err == nil:
			return w.answer(ctx, stored)
		case w.createsOnUpdate() && apierrors.IsNotFound(err) && !registry.IsHookError(err):
			return w.createUpdated(ctx, in)
		}
		return registry.Result{}, err
	})
}

// createsOnUpdate tells whether a PUT to a name that is free makes the object.
func (w *write) createsOnUpdate() bool {
	return w.Typed != nil && w.Typed.CreateOnUpdate && w.Subresource == registry.Whole
}

// createUpdated makes a new object of what was to take the place of one.
func (w *write) createUpdated(ctx context.Context, in *object.Object) (registry.Result, error) {
	if err := w.askCreate(ctx); err != nil {
		return registry.Result{}, err
	}
	if in.Meta.UID != "" {
		return registry.Result{}, w.goneConflict(in.Meta) // it was about an object that is gone
	}
	withoutSystemMeta(&in.Meta)
	in.Meta.ResourceVersion = ""
	if err := w.track(in, in, nil); err != nil {
		return registry.Result{}, err
	}
	return w.insertAndAnswer(ctx, in)
}

// goneConflict refuses a PUT that is about an object that is gone, in the words of kube-apiserver's storage.
func (w *write) goneConflict(m metav1.ObjectMeta) error {
	at := ""
	if w.Typed != nil {
		at = w.Typed.Stored.At
	}
	key := path.Join("/registry", cmp.Or(at, w.Plural), w.Namespace, m.Name)
	return apierrors.NewConflict(w.GroupResource(), m.Name, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, UID in object meta: ",
		clip.Text(key), clip.Text(string(m.UID))))
}

// checkNamed checks that an object that is to take the place of the target has its name. It also drops owners that are
// named more than once.
func (w *write) checkNamed(in *object.Object) error {
	if err := checkNamed(in, w.Target); err != nil {
		return err
	}
	if err := w.place(in); err != nil {
		return err
	}
	w.warnings = append(w.warnings, in.DropRepeatedOwners(w.patches)...) // those of a patch are what it made
	if !w.GoType() {
		//lint:ignore SA1019 it's deprecated, and still sent
		in.Meta.SelfLink = ""
	}
	return nil
}

// place checks the namespace of an object that is to take the place of the target, and fills it in.
func (w *write) place(in *object.Object) error {
	if sent := in.Meta.Namespace; w.patches && (w.GoType() || w.applies) && w.Namespace != "" && sent != "" && sent != w.Namespace {
		return registry.BadRequest("the namespace of the object (%s) does not match the namespace on the request (%s)", clip.Text(sent), w.Namespace)
	}
	return placeIn(in, w.Namespace)
}

// checkNamed checks the name in a body against the URL.
func checkNamed(in *object.Object, t registry.Target) error {
	if in.Meta.Name == "" {
		return registry.BadRequest("the name of the object (%s based on URL) was undeterminable: name must be provided", t.Name)
	}
	if in.Meta.Name != t.Name {
		return registry.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", clip.Text(in.Meta.Name), t.Name)
	}
	return nil
}

// nextFrom makes the new object from the one before it and from what a client sent. It doesn't change in, which is needed
// again if somebody else writes first.
func (w *write) nextFrom(ctx context.Context, prev, in *object.Object) (outcome, error) {
	if err := w.checkUID(in, prev); err != nil {
		return outcome{}, err
	}
	next, sent := in.Clone(), in
	if part := w.Part(w.Subresource); part != nil && !part.OwnsAll { // which takes nothing else
		sent = w.selectPart(in.Clone(), prev)
	}
	if err := w.track(next, sent, prev); err != nil {
		return outcome{}, err
	}
	return w.outcomeOf(ctx, next, prev)
}

// outcomeOf is the outcome that puts what was sent for an object in the place of prev, after admission and validation. It removes an
// object that is being deleted and that nothing holds any more.
func (w *write) outcomeOf(ctx context.Context, in, prev *object.Object) (outcome, error) {
	if err := w.admit(ctx, in, prev); err != nil {
		return outcome{}, err
	}
	if err := w.checkVersion(in, prev); err != nil {
		return outcome{}, err
	}
	next, raw, err := w.finish(ctx, in, prev)
	if err != nil {
		return outcome{}, err
	}
	remove, err := w.unheld(next)
	return outcome{value: raw, remove: remove}, err
}

// checkUID checks the uid that a body names against that of the stored object. To a patch, another uid is a change that validation refuses, as
// in kube-apiserver.
func (w *write) checkUID(in, prev *object.Object) error {
	if w.patches || in.Meta.UID == "" || in.Meta.UID == prev.Meta.UID {
		return nil
	}
	return w.differs("UID", string(in.Meta.UID), string(prev.Meta.UID))
}

// checkVersion checks the resourceVersion that a body names, or that a hook has left, against that of the stored object.
func (w *write) checkVersion(in, prev *object.Object) error {
	e, name := w.Endpoint, prev.Meta.Name
	version := in.Meta.ResourceVersion
	if version == "" || version == "0" {
		if e.Typed != nil && e.Typed.UnconditionalUpdate {
			return nil
		}
		// The details name the resource, where other refusals name the kind: so does kube-apiserver.
		return registry.Invalid(schema.GroupKind{Group: e.Group, Kind: e.Plural}, name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	}
	rev, err := reads.ParseRevision(version)
	if err != nil {
		return registry.Unforeseen(clip.Text(err.Error()))
	}
	if rev.String() != prev.Meta.ResourceVersion || rev == transaction.NewRevision && !w.patches { // which no object has, and a patch has from prev
		return e.Conflict(name)
	}
	return nil
}

// differs is the conflict of a precondition with the target, in the words of Kubernetes' storage.
func (w *write) differs(member, want, is string) error {
	return apierrors.NewConflict(w.GroupResource(), w.Name, fmt.Errorf("StorageError: invalid object, Code: 4, Key: %s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: %[2]s in precondition: %[3]s, %[2]s in object meta: %[4]s",
		w.storedAt(), member, clip.Text(want), is))
}

// storedAt is where kube-apiserver keeps the target: its errors name it. A dry run's know no prefix.
func (w *write) storedAt() string {
	at := []string{"", w.Group, w.Plural}
	if w.Typed != nil && !registry.SeparateGroups[w.Group] {
		at = []string{"", cmp.Or(keptAs[w.Plural], w.Plural)}
	}
	if w.Namespace != "" {
		at = append(at, w.Namespace)
	}
	key := strings.Join(append(at, w.Name), "/")
	if w.dryRun {
		return key
	}
	return "/registry" + key
}

// keptAs are the names under which kube-apiserver keeps what isn't under the resource's.
var keptAs = map[string]string{
	"endpoints": "services/endpoints", "ingresses": "ingress", "nodes": "minions", "replicationcontrollers": "controllers", "services": "services/specs",
}

// selectPart returns an object of which the part that the path is about is in's, and the rest is prev's. in is no longer the caller's. Who wrote what is
// in's, whatever the part is.
func (w *write) selectPart(in, prev *object.Object) *object.Object {
	next := in
	switch s := w.Part(w.Subresource); {
	case w.Subresource == registry.AtStatus:
		next = prev.Clone()
		next.Carry(in, registry.AtStatus)
		if t := w.Typed; t != nil && t.StatusResets != nil {
			next.Meta = t.StatusMeta(&in.Meta, &prev.Meta)
		}
	case s == nil:
		if w.Has(registry.AtStatus) {
			next.Carry(prev, registry.AtStatus)
		}
	case s.Whole == nil || !s.Whole(prev.Content, in.Content):
		next = prev.Clone()
		s.Select(next.Content, in.Content)
		if s.Metadata {
			next.Meta = in.Meta
		}
	}
	next.Managed = in.Managed
	return next
}

// raiseGeneration adds one to metadata.generation if the object's content has changed: anything outside metadata, and
// outside status where that has its own subresource. Where they count, a change of annotations raises it, too.
func (e Writer) raiseGeneration(next, prev *object.Object, subresource string) {
	if t := e.Typed; t != nil && t.Generation != nil && next.Meta.Generation == prev.Meta.Generation { // what the server writes itself isn't prepared
		if obj, was, err := t.Pair(next.Clone(), prev.Clone()); err == nil {
			next.Meta.Generation = t.Generation(obj, was)
		}
	}
	if e.Typed != nil && (e.Typed.NoGeneration || e.Typed.Generation != nil) {
		return
	}
	except := ""
	if e.Has(registry.AtStatus) {
		except = registry.AtStatus
	}
	if !object.SameContent(next, prev, except) || subresource == registry.Whole && e.Typed != nil && e.Typed.AnnotationsCount && !sameTexts(next.Meta.Annotations, prev.Meta.Annotations) {
		next.Meta.Generation++
	}
}

// sameTexts tells whether two maps have the same: none is as good as an empty one.
func sameTexts(a, b map[string]string) bool { return len(a)+len(b) == 0 || maps.Equal(a, b) }

// unheld tells whether an object is being deleted and nothing holds it any more.
func (e Writer) unheld(o *object.Object) (bool, error) {
	if o.Meta.DeletionTimestamp == nil || len(o.Meta.Finalizers) > 0 || periodOf(o) > 0 {
		return false, nil
	}
	held, err := e.heldBesides(o)
	return !held, err
}
