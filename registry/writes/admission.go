package writes

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// admits tells whether there are hooks for the resource.
func (e Writer) admits() bool {
	return len(e.Res.Registry.Admission) > 0 || e.Typed != nil && e.Typed.Admit != nil
}

// operationOf tells what a write does: o is nil for a Delete, and old for a Create.
func operationOf(o, old *object.Object) registry.Operation {
	switch {
	case o == nil:
		return registry.Delete
	case old == nil:
		return registry.Create
	}
	return registry.Update
}

// attributes are what hooks learn of the write of an object.
func (w *write) attributes(ctx context.Context, op registry.Operation, of registry.Target) *registry.Attributes {
	return &registry.Attributes{
		Operation: op, Kind: w.GVK(), Resource: w.Path(),
		Subresource: w.Subresource, Namespace: of.Namespace, Name: of.Name, Listed: w.listed,
		DryRun: w.dryRun, FieldManager: w.manager, UserAgent: w.userAgent, User: registry.UserFrom(ctx), Course: &w.Course,
	}
}

func targetOf(o *object.Object) registry.Target {
	return registry.Target{Namespace: o.Meta.Namespace, Name: o.Meta.Name}
}

// optionsOf are a request's options, as hooks see them.
func (w *write) optionsOf(op registry.Operation) any {
	var dryRun []string
	if w.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch op {
	case registry.Create:
		return &metav1.CreateOptions{DryRun: dryRun, FieldManager: w.said.manager, FieldValidation: w.said.validation}
	case registry.Update:
		return &metav1.UpdateOptions{DryRun: dryRun, FieldManager: w.said.manager, FieldValidation: w.said.validation}
	}
	return w.deleteOptions
}

// admit lets the hooks judge a client's write, before validation. o, which is nil for a Delete, becomes what they make of
// it; old is nil for a Create.
func (w *write) admit(ctx context.Context, o, old *object.Object) error {
	w.left = left{}
	defer func() { w.ScaleSent = nil }()
	if !w.asked || !w.admits() {
		return nil
	}
	subject := o
	if o == nil {
		subject = old
	}
	a := w.attributes(ctx, operationOf(o, old), targetOf(subject))
	concerned := w.concerned(a)
	if len(concerned) == 0 && (w.Typed == nil || w.Typed.Admit == nil) {
		return nil
	}
	if registry.Presumes(ctx) {
		return registry.ErrJudged // hooks may go by any object, and are to be asked once
	}
	a.Options = w.optionsOf(a.Operation)
	var tracked []any
	if o != nil {
		tracked = o.Managed
		if o.Value != nil {
			if err := w.unfold(o); err != nil {
				return err
			}
		}
	}
	err := w.callAll(ctx, a, concerned, pair{o, old})
	if err == nil && o != nil {
		o.Meta.ManagedFields = nil
		if was, unread := jsontree.Whole(tracked); unread == nil && object.EqualJSON(o.Managed, was) {
			o.Managed = tracked
		} else if err := managed.Validate(o.Managed); err != nil {
			a.Warn(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: " + clip.Text(err.Error()))
			o.Managed = tracked
		}
	}
	w.warnings = append(w.warnings, a.Warnings...)
	return err
}

// askValidators asks the hooks that want to see an object as it would be stored.
func (w *write) askValidators(ctx context.Context, o, old *object.Object) error {
	if !w.asked || len(w.Res.Registry.Admission) == 0 {
		return nil
	}
	w.ended() // an earlier attempt
	subject := o
	if o == nil {
		subject = old
	}
	a := w.attributes(ctx, operationOf(o, old), targetOf(subject))
	concerned := validators(w.concerned(a))
	if len(concerned) == 0 {
		return nil
	}
	if registry.Presumes(ctx) {
		return registry.ErrJudged // see admit
	}
	a.Options = w.optionsOf(a.Operation)
	call, err := w.hookCall(a, pair{o, old})
	if err != nil {
		return err
	}
	err = w.callValidators(ctx, call, concerned)
	w.warnings = append(w.warnings, a.Warnings...)
	return err
}

// validators are those of the hooks that want to see an object as it would be stored. It changes hooks.
func validators(hooks []registry.Admission[unstructured.Unstructured]) []registry.Admission[unstructured.Unstructured] {
	return slices.DeleteFunc(hooks, func(hook registry.Admission[unstructured.Unstructured]) bool {
		_, validates := hook.(registry.Validator)
		return !validates
	})
}

// callValidators asks Validators one after the other.
func (e Writer) callValidators(ctx context.Context, c registry.HookCall[unstructured.Unstructured], hooks []registry.Admission[unstructured.Unstructured]) error {
	for _, hook := range hooks {
		r := &registry.AdmissionRequest[unstructured.Unstructured]{Attributes: *c.About, Object: c.Obj, Old: c.Old}
		var said registry.Verdict
		var failed error
		if err := e.Res.Registry.Call("validation by "+registry.NameOf(hook), func() { said, failed = hook.(registry.Validator).Validate(ctx, r) }); err != nil {
			return err
		}
		c.About.Warnings = r.Warnings
		if err := e.Heed(ctx, c.About.Name, said, failed); err != nil {
			return err
		}
	}
	return nil
}

// concerned returns the hooks for all resources that a request concerns.
func (e Writer) concerned(a *registry.Attributes) (hooks []registry.Admission[unstructured.Unstructured]) {
	for _, hook := range e.Res.Registry.Admission {
		if s, ok := hook.(registry.Selective); !ok || s.Concerns(a) {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

// pair is an object that is to be written and the one before it. One of them may be nil.
type pair struct{ obj, old *object.Object }

// callAll calls the definition's hooks and then those that are for all resources.
func (w *write) callAll(ctx context.Context, a *registry.Attributes, hooks []registry.Admission[unstructured.Unstructured], p pair) error {
	if t := w.Typed; t != nil {
		if err := t.AdmitTyped(ctx, w.Endpoint, a, p.obj, p.old); err != nil {
			return err
		}
	}
	if len(hooks) == 0 {
		return nil
	}
	return w.admitTree(ctx, a, hooks, p)
}

// hookCall prepares a call of the hooks that are for all resources. They are shown what the pair holds.
func (e Writer) hookCall(a *registry.Attributes, p pair) (call registry.HookCall[unstructured.Unstructured], err error) {
	call = registry.HookCall[unstructured.Unstructured]{Endpoint: e.Endpoint, About: a, Meta: func(u *unstructured.Unstructured) metav1.Object { return u }}
	if call.Obj, err = e.unstructured(p.obj); err != nil {
		return call, err
	}
	call.Old, err = e.unstructured(p.old)
	return call, err
}

// admitTree calls the hooks that are for all resources.
func (w *write) admitTree(ctx context.Context, a *registry.Attributes, hooks []registry.Admission[unstructured.Unstructured], p pair) error {
	call, err := w.hookCall(a, p)
	if err != nil {
		return err
	}
	switch { // hooks change it
	case call.Obj == nil:
	case p.old == nil && !w.applies: // nobody else has it, but for what they're compared with afterwards
		if len(p.obj.Managed) > 0 {
			object.Map(call.Obj.Object["metadata"])["managedFields"] = managed.CopyEntries(object.Map(call.Obj.Object["metadata"])["managedFields"].([]any))
		}
	default:
		call.Obj.Object = object.DeepCopy(call.Obj.Object)
	}
	obj, err := call.To(ctx, hooks)
	if err != nil || p.obj == nil {
		return err
	}
	next, err := w.takeOver(obj.Object)
	if err != nil {
		return err
	}
	next.Empty = p.obj.Empty
	*p.obj = *next
	return nil
}

// left is what hooks have left of an object that isn't as one can be that a client sends: it waits for the stage that refuses or drops it.
type left struct {
	kind     *string        // that it says it's of, if it isn't the resource's
	bare     bool           // its metadata is no object
	unread   map[string]any // members of its metadata that aren't what they should be
	unpruned bool           // it may have what its schema doesn't know
}

// takeOver makes an object of what the hooks have left.
func (w *write) takeOver(tree map[string]any) (*object.Object, error) {
	plain, err := jsontree.Plain(tree) // a hook may leave any of Go's types
	if err != nil {
		return nil, fmt.Errorf("admission left an object that can't be encoded: %w", err)
	}
	if tree = object.Map(plain); tree == nil {
		tree = map[string]any{}
	}
	if w.Typed == nil {
		if err := w.takeOverCustom(tree); err != nil {
			return nil, err
		}
	}
	o, err := object.FromTree(tree)
	if err != nil {
		return nil, fmt.Errorf("admission left an object that can't be decoded: %w", err)
	}
	return o, nil
}

// takeOverCustom looks for what only a custom resource can be left with, because it has no Go type, and takes it out.
func (w *write) takeOverCustom(tree map[string]any) error {
	w.left.unpruned = true
	if of := (&unstructured.Unstructured{Object: tree}).GroupVersionKind(); of.GroupVersion() != w.GVK().GroupVersion() {
		return registry.Unforeseen(clip.Text(fmt.Sprintf("%v is unstructured and is not suitable for converting to %q", of, w.APIVersion())))
	}
	w.left.kind = w.otherKindOf(tree)
	if metadata, ok := tree["metadata"]; ok && object.Map(metadata) == nil {
		delete(tree, "metadata")
		w.left.bare = true
	}
	w.left.unread = object.TakeUnreadable(object.Map(tree["metadata"]))
	delete(w.left.unread, "creationTimestamp") // which is the server's in any case
	return w.Schema.Default(tree)
}

// unstructured is an object as hooks see it; nil for nil. It shares the content.
func (e Writer) unstructured(o *object.Object) (*unstructured.Unstructured, error) {
	if o == nil {
		return nil, nil
	}
	tree, err := o.Tree(e.APIVersion(), e.Kind)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: tree}, nil
}
