package writes

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"path"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Create stores the object in the body, and answers with it as it was stored. The body's name counts, or for generateName
// one that the server makes up; Target.Name is ignored. Of the query it reads dryRun, fieldValidation, fieldManager, and for
// Tables includeObject.
//
// Errors are Status errors: 400 for a body or parameters that can't be read, 403 from admission or in a namespace that is
// being deleted, 404 for a missing namespace, 405 without a namespace that the resource needs, 409 for a name that is taken,
// 413 for too large an object, 422 for an invalid one, 429 while its definition changes, 503 and 507 from
// storage, 504 if ctx ends. Others are failures of the server, which it logs. Result.Created is set. The caller
// owns the Result's bytes.
func (e Writer) Create(ctx context.Context, r *registry.Request) (registry.Result, error) {
	if (r.Namespace != "") != e.Namespaced {
		return registry.Result{}, e.MethodNotAllowed("create")
	}
	switch {
	case e.Typed != nil && e.Typed.Unstored.Forward != nil:
		return e.forward(ctx, r)
	case e.Res.Answered:
		return e.ask(ctx, r)
	case r.Subresource != registry.Whole:
		return e.act(ctx, r)
	}
	return e.perform(ctx, r, createOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		w.targetKey = "" // whatever name the path has
		o, err := w.readNew(r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		return w.insertAndAnswer(ctx, o)
	})
}

// ask answers a question of a Go type's, of which nothing is stored.
func (e Writer) ask(ctx context.Context, r *registry.Request) (registry.Result, error) {
	return e.perform(ctx, r, createOptions, func(ctx context.Context, w *write) (registry.Result, error) {
		o, err := w.read(r.Body)
		if err != nil {
			return registry.Result{}, err
		}
		if err := placeIn(o, w.Namespace); err != nil {
			return registry.Result{}, err
		}
		withoutSystemMeta(&o.Meta)
		w.warnings = append(w.warnings, o.DropRepeatedOwners(false)...)
		if err := w.trackQuestion(o); err != nil {
			return registry.Result{}, err
		}
		_, _, errs, err := w.Typed.Prepared(ctx, o, nil, registry.Whole)
		if err != nil {
			return registry.Result{}, err
		}
		if err := registry.Invalid(runtimeschema.GroupKind{Group: w.Group}, "", errs); err != nil { // kube-apiserver doesn't say of which kind
			return registry.Result{}, err
		}
		raw, err := w.answerTo(ctx, o)
		return registry.Result{Object: raw, Created: true}, err
	})
}

// trackQuestion notes in a question's managedFields who asked. Rules and answers have it as part of the metadata, as nothing is stored.
func (w *write) trackQuestion(o *object.Object) error {
	if err := w.track(o, o, nil); err != nil || o.Managed == nil {
		return err
	}
	list, err := json.Marshal(o.Managed)
	if err != nil {
		return err
	}
	return json.Unmarshal(list, &o.Meta.ManagedFields)
}

// answerTo lets the type answer a question, and encodes that.
func (w *write) answerTo(ctx context.Context, o *object.Object) ([]byte, error) {
	obj, err := w.Typed.FromObject(o)
	if err != nil {
		return nil, err
	}
	if w.Typed.Unstored.AnswerMeta != nil {
		*registry.MetaOf(obj), o.Managed = w.Typed.Unstored.AnswerMeta(), nil
	}
	var refusal error
	if err := w.Typed.On(obj, "Answer", func() { refusal = w.Typed.Unstored.Answer(ctx, obj) }); err != nil {
		return nil, err
	}
	if refusal != nil {
		return nil, w.Fail(o.Meta.Name, refusal)
	}
	if m, ok := obj.(registry.Message); ok && w.shown.Encoding == form.Protobuf {
		return registry.EncodeApart(w.shown, metav1.TypeMeta{APIVersion: w.APIVersion(), Kind: w.Kind}, m)
	}
	if err := registry.ToObject(obj, o); err != nil {
		return nil, err
	}
	tree, err := o.Tree(w.APIVersion(), w.Kind)
	if err != nil {
		return nil, err
	}
	return object.EncodeJSON(tree)
}

// insertAndAnswer stores a new object, and answers with it.
func (w *write) insertAndAnswer(ctx context.Context, o *object.Object) (registry.Result, error) {
	stored, err := w.inBrackets(ctx, func() (*kube.Object, error) {
		stored, err := w.storeNamed(ctx, o)
		return stored, w.taken(ctx, err)
	})
	if err != nil {
		return registry.Result{}, err
	}
	res, err := w.answer(ctx, stored)
	res.Created = true
	return res, err
}

// taken says more of the error of a create if that is about a name that an object has which is being deleted.
func (w *write) taken(ctx context.Context, err error) error {
	if registry.IsHookError(err) || !errors.Is(err, storage.ErrExists) && !apierrors.IsAlreadyExists(err) {
		return err
	}
	key, badKey := w.Endpoint.Key(w.Namespace, w.Name)
	if badKey != nil {
		return err
	}
	if found, unread := w.Res.Read(ctx, key); unread != nil || found == nil || found.DeletionTimestamp == "" {
		return err
	}
	refused := w.Fail(w.Name, err)
	if s := (*apierrors.StatusError)(nil); errors.As(refused, &s) {
		s.ErrStatus.Message = "object is being deleted: " + s.ErrStatus.Message
	}
	return refused
}

// dropStatus drops the status of a new object where that has its own subresource and the kind's strategy doesn't leave it to the client.
func (w *write) dropStatus(o *object.Object) error {
	if !w.Has(registry.AtStatus) || w.Typed != nil && w.Typed.CreatesStatus {
		return nil
	}
	if o.Value != nil {
		statusOf(o.Value).SetZero()
	}
	if _, ok := o.Content[registry.AtStatus]; !ok {
		return nil
	}
	delete(o.Content, registry.AtStatus)
	if w.Typed != nil { // a Go type may always write it
		if empty, ok := w.Typed.EmptyStatus(); ok {
			o.Content[registry.AtStatus] = runtime.DeepCopyJSONValue(empty)
		}
		return nil
	}
	return w.Shape(o) // status may have a default
}

// storeNamed has a new object admitted, gives it a name if it has none, and stores it. If a generated name is taken, it tries others: hooks
// that change objects are asked before, and once.
func (w *write) storeNamed(ctx context.Context, in *object.Object) (*kube.Object, error) {
	// The conditions come first: in a missing namespace, the answer is about the namespace.
	w.Name = cmp.Or(in.Meta.Name, in.Meta.GenerateName) // by which that calls the object
	conds, err := w.conditions(ctx)
	if err != nil {
		return nil, err
	}
	w.Name = in.Meta.Name
	if err := w.admit(ctx, in, nil); err != nil {
		return nil, err
	}
	if in.Meta.Name == "" && in.Meta.GenerateName == "" && w.Typed != nil && w.Typed.NamesNew {
		in.Meta.Name = uuid.NewString()
	}
	generate := in.Meta.Name == "" && in.Meta.GenerateName != ""
	w.unlabelled = w.unlabelled && !generate // Kubernetes copies it before
	given := len(w.warnings)
	for try := 1; ; try++ {
		o := in
		if generate || w.Res.Turn != nil { // each attempt starts from the object as it was admitted
			o, w.warnings = in.Clone(), w.warnings[:given]
		}
		if generate {
			o.Meta.Name = w.newName(in.Meta.GenerateName)
		}
		w.Name = o.Meta.Name
		o, raw, err := w.finish(ctx, o, nil)
		if err == nil {
			err = w.unversioned(&o.Meta)
		}
		if err != nil {
			return nil, err
		}
		stored, err := w.storeNew(ctx, o, raw, conds)
		switch {
		case errors.Is(err, storage.ErrOutOfTurn):
			try--
		case in.Meta.GenerateName == "" || !errors.Is(err, storage.ErrExists):
			return stored, err
		case !generate || try == generateTries:
			return nil, apierrors.NewGenerateNameConflict(w.GroupResource(), w.Name, registry.RetryAfter)
		}
	}
}

// storeNew stores the bytes of a new object. A dry run ends before that; its object has the version that was sent, which storage would have refused.
func (w *write) storeNew(ctx context.Context, o *object.Object, raw []byte, conds []storage.Condition) (*kube.Object, error) {
	if s := w.Strategy(); s != nil && s.SettledByUpdate {
		raw = append(raw, ' ') // which means nothing to readers, and no update writes it
	}
	key, err := w.Endpoint.Key(w.Namespace, w.Name)
	if err != nil {
		return nil, err
	}
	if w.targetKey != "" && key != w.targetKey {
		return nil, registry.BadRequest("the name of the object (%s) does not match the name on the URL (%s)", clip.Text(w.Name), path.Base(w.targetKey))
	}
	rev, err := w.storeCreate(w.inItsTurn(ctx), key, raw, conds)
	w.told.unknown = errors.Is(err, storage.ErrUnknownOutcome)
	if err != nil {
		return nil, err
	}
	if w.dryRun {
		rev, _ = reads.ParseRevision(o.Meta.ResourceVersion)
	}
	return kube.NewObject(key, raw, rev), nil
}

// storeCreate creates a key under conditions. A failed condition means that the namespace or the definition has changed.
// It then asks again whether they still allow the object.
func (w *write) storeCreate(ctx context.Context, key string, raw []byte, conds []storage.Condition) (storage.Revision, error) {
	if w.dryRun {
		found, err := w.latest(ctx, key)
		if err == nil && found != nil {
			err = storage.ErrExists
		}
		if op := w.operation(ctx); op != nil && err == nil {
			err = op.Assume(ctx, storage.Write{Key: key, Value: raw}, 0, conds...)
		}
		return 0, err
	}
	for {
		rev, err := w.store(ctx).Create(w.Res.Noting(ctx), key, raw, conds...)
		if w.Res.Noted(rev); !errors.Is(err, storage.ErrConditionFailed) {
			return rev, err
		}
		if conds, err = w.readConditions(ctx); err != nil {
			return 0, err
		}
	}
}

// conditions returns what a new object requires: the revisions of its namespace and of its definition, at which neither
// was being deleted. The create's transaction compares them. The deletion of a namespace begins with a write to the
// namespace, so nothing can be created in it from then on, and what its controller has emptied stays empty. The same
// holds for the objects of a definition. A create that presumes compares one key that stands for all of them.
//
// The revisions come from the cache, which may be older than etcd. A refusal is given only after reading etcd. A dry run
// stores nothing, so no transaction would notice an old cache: it always reads etcd.
func (w *write) conditions(ctx context.Context) ([]storage.Condition, error) {
	if w.Res.Terminating || w.dryRun {
		return w.readConditions(ctx)
	}
	conds := make([]storage.Condition, 0, 2)
	if w.Res.Condition.Key != "" {
		conds = append(conds, w.Res.Condition)
	}
	inNew, err := w.inPending(ctx)
	if err != nil {
		return nil, err
	}
	if w.Namespace != "" && !inNew {
		ns := w.Res.Registry.Namespaces.Cached(w.Namespace)
		if ns == nil || ns.DeletionTimestamp != "" {
			return w.readConditions(ctx)
		}
		conds = append(conds, storage.Condition{Key: ns.Key, Revision: ns.Revision})
	}
	if registry.Presumes(ctx) {
		return nil, nil // both are rules
	}
	return conds, nil
}

// readConditions returns the conditions as they are in etcd.
func (w *write) readConditions(ctx context.Context) ([]storage.Condition, error) {
	conds := make([]storage.Condition, 0, 2)
	if w.Res.Condition.Key != "" {
		def, err := w.readDefinition(ctx)
		if err != nil {
			return nil, err
		}
		if def.DeletionTimestamp != "" {
			return nil, w.Forbidden("", "create not allowed while custom resource definition is terminating")
		}
		conds = append(conds, storage.Condition{Key: def.Key, Revision: def.Revision})
	}
	inNew, err := w.inPending(ctx)
	if err != nil {
		return nil, err
	}
	if w.Namespace != "" && !inNew {
		cond, err := w.namespaceCondition(ctx)
		if err != nil {
			return nil, err
		}
		conds = append(conds, cond)
	}
	return conds, nil
}

// readDefinition reads the endpoint's definition from etcd. The error is ErrChanged if the definition says something else
// than when the endpoint was made.
func (e Writer) readDefinition(ctx context.Context) (*kube.Object, error) {
	def, err := e.Res.Read(ctx, e.Res.Condition.Key)
	if err != nil {
		return nil, err
	}
	if def == nil || def.Err != nil {
		return nil, registry.ErrNotServed
	}
	o, err := object.DecodeStored(def.Raw())
	if err != nil {
		return nil, registry.ErrNotServed
	}
	if o.Meta.Generation != e.Res.Generation || o.Meta.UID != e.Res.UID {
		return nil, registry.ErrChanged
	}
	return def, nil
}
