package registry

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/managed"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// Admission changes or refuses what clients write. Definition.Admission is asked about objects of the definition's type, and
// Options.Admission about objects of all resources, as unstructured.Unstructured. The server's own writes aren't
// asked about: the initial namespaces, and what the controllers delete and finish.
//
// The order for a new or changed object is: the defaults of its type or schema; the hooks of the definition; those of
// Options; defaults again; what the server decides; Prepare; validation; the hooks that are Validators; the transaction. So a hook
// may see an object that validation refuses afterwards, and what a hook makes of an object is validated. What it sees is what was
// sent, or what a patch made of the stored object. A new object has no uid, no creationTimestamp and for a generateName no name
// yet, and one that replaces another has of these, and of what the path isn't about, what the client wrote.
//
// Admit is called again when somebody else has written the object meanwhile and the write is tried again. So it must not
// count calls. Old is always the object with which the transaction compares. Admit may be called from many goroutines at
// once, and should end with ctx. It may use the server as a client does. But while it's asked about a definition it must not
// write another one: definitions are written one after the other, so it would wait for itself.
//
// What a hook says of the request is its Verdict. An error means that it couldn't judge, and goes the way of all errors: what
// storage says becomes what it becomes everywhere (503, 504, 507, or the write begins again after a reset), a Status error is
// answered as it is, and any other is logged and answered 500. So is a panic.
type Admission[T any] interface {
	Admit(ctx context.Context, r *AdmissionRequest[T]) (Verdict, error)
}

// Validator is a hook of Options.Admission, or of Registry.Use, that wants to judge an object as it would be stored. It's
// asked when all hooks have changed the object and validation has found it valid, about the same requests as Admit and
// with the same rules for verdicts and errors. It mustn't change the objects, because the next hook is asked about them, too.
type Validator interface {
	Validate(ctx context.Context, r *AdmissionRequest[unstructured.Unstructured]) (Verdict, error)
}

// Selective is a hook that is only asked about some requests. Concerns must be quick, because it's called for every write:
// for one that concerns no hook no object is copied.
type Selective interface {
	Concerns(a *Attributes) bool
}

// AdmissionFunc is a function as an Admission.
type AdmissionFunc[T any] func(ctx context.Context, r *AdmissionRequest[T]) (Verdict, error)

// Admit calls f.
func (f AdmissionFunc[T]) Admit(ctx context.Context, r *AdmissionRequest[T]) (Verdict, error) {
	return f(ctx, r)
}

// AdmissionRequest is what an Admission judges. In Admit a hook owns Object, which is a copy, until it returns: what it leaves there is
// the server's. Old, and what a Validator is asked about, is only lent: a hook neither changes nor keeps it.
type AdmissionRequest[T any] struct {
	Attributes
	// Object is what is to be written, nil for a Delete. The hook may change or replace it, its managedFields too. What becomes of its metadata
	// is judged as what a client sends is, so a new object may be given another name. Changes of what the path isn't about are
	// dropped: for the subresource "status" everything but status, and for "" status, if the resource has that
	// subresource.
	Object *T
	// Old is the stored object, in the request's version; nil for a Create.
	Old *T
}

// Attributes are what an Admission learns of a request besides the objects.
type Attributes struct {
	Operation Operation
	Kind      runtimeschema.GroupVersionKind     // of the object
	Resource  runtimeschema.GroupVersionResource // of the path
	// Subresource is "" for the object itself. The object is the whole one, but for what is asked of it by POST (eviction,
	// binding, token): that is what was sent.
	Subresource     string
	Namespace, Name string    // Namespace is "" for what has none, and Name is "" in Admit for a name that is to be generated
	Listed          bool      // the object is deleted with its collection, whose path doesn't name it
	DryRun          bool      // nothing will be written
	FieldManager    string    // the client's name in managedFields
	UserAgent       string    // "" where there's no HTTP request
	User            user.Info // who asks
	// Options are those of the request: *metav1.CreateOptions, UpdateOptions or DeleteOptions. Those of a patch or an
	// applied configuration are what it does: create or update. Nobody may change them. Selective hooks don't see them.
	Options  any
	Warnings []string // for the client, see Warn

	write *write // whose end OnEnd is about
}

// OnEnd has a function called when the write has ended that the hook is asked about: its object is stored, or won't be. It's
// called once, whatever ends the write, and also when the hook is about to be asked again. It's for Validators.
func (a *Attributes) OnEnd(end func()) { a.write.ends = append(a.write.ends, end) }

// Warn tells the client something besides the answer or the refusal, in a Warning header. What is said of several objects of a collection is said once.
func (a *Attributes) Warn(text string) { a.Warnings = append(a.Warnings, text) }

// Operation is what a request does to an object. Patches and applied configurations are a Create or an Update. A
// deletion that has to wait for finalizers is a Delete; the removal of the last one is an Update. Each object of
// a deleted collection is a Delete.
type Operation string

// The operations, with the names that Kubernetes has for them.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
)

// Use adds hooks after those of Options. It's for the program's start, before Run: for hooks that need the registry.
func (r *Registry) Use(hooks ...Admission[unstructured.Unstructured]) {
	r.admission = append(r.admission, hooks...)
}

// admits tells whether there are hooks for the resource.
func (e *Endpoint) admits() bool {
	return len(e.res.registry.admission) > 0 || e.typed != nil && e.typed.admit != nil
}

// operationOf tells what a write does: o is nil for a Delete, and old for a Create.
func operationOf(o, old *object.Object) Operation {
	switch {
	case o == nil:
		return Delete
	case old == nil:
		return Create
	}
	return Update
}

// attributes are what hooks learn of the write of an object.
func (w *write) attributes(ctx context.Context, op Operation, of Target) *Attributes {
	return &Attributes{
		Operation: op, Kind: w.kind(), Resource: w.path(),
		Subresource: w.Subresource, Namespace: of.Namespace, Name: of.Name, Listed: w.listed,
		DryRun: w.dryRun, FieldManager: w.manager, UserAgent: w.userAgent, User: UserFrom(ctx), write: w,
	}
}

func targetOf(o *object.Object) Target { return Target{Namespace: o.Meta.Namespace, Name: o.Meta.Name} }

// optionsOf are a request's options, as hooks see them.
func (w *write) optionsOf(op Operation) any {
	var dryRun []string
	if w.dryRun {
		dryRun = []string{metav1.DryRunAll}
	}
	switch op {
	case Create:
		return &metav1.CreateOptions{DryRun: dryRun, FieldManager: w.said.manager, FieldValidation: w.said.validation}
	case Update:
		return &metav1.UpdateOptions{DryRun: dryRun, FieldManager: w.said.manager, FieldValidation: w.said.validation}
	}
	return w.deleteOptions
}

// admit lets the hooks judge a client's write, before validation. o, which is nil for a Delete, becomes what they make of
// it; old is nil for a Create.
func (w *write) admit(ctx context.Context, o, old *object.Object) error {
	w.left = left{}
	defer func() { w.scaleSent = nil }()
	if !w.asked || !w.admits() {
		return nil
	}
	subject := o
	if o == nil {
		subject = old
	}
	a := w.attributes(ctx, operationOf(o, old), targetOf(subject))
	concerned := w.concerned(a)
	if len(concerned) == 0 && (w.typed == nil || w.typed.admit == nil) {
		return nil
	}
	if Presumes(ctx) {
		return errJudged // hooks may go by any object, and are to be asked once
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
		if object.EqualJSON(o.Managed, tracked) {
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
	if !w.asked || len(w.res.registry.admission) == 0 {
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
	if Presumes(ctx) {
		return errJudged // see admit
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
func validators(hooks []Admission[unstructured.Unstructured]) []Admission[unstructured.Unstructured] {
	return slices.DeleteFunc(hooks, func(hook Admission[unstructured.Unstructured]) bool {
		_, validates := hook.(Validator)
		return !validates
	})
}

// callValidators asks Validators one after the other.
func (e *Endpoint) callValidators(ctx context.Context, c hookCall[unstructured.Unstructured], hooks []Admission[unstructured.Unstructured]) error {
	for _, hook := range hooks {
		r := &AdmissionRequest[unstructured.Unstructured]{Attributes: *c.about, Object: c.obj, Old: c.old}
		var said Verdict
		var failed error
		if err := e.res.registry.call("validation by "+nameOf(hook), func() { said, failed = hook.(Validator).Validate(ctx, r) }); err != nil {
			return err
		}
		c.about.Warnings = r.Warnings
		if err := e.heed(ctx, c.about.Name, said, failed); err != nil {
			return err
		}
	}
	return nil
}

// concerned returns the hooks for all resources that a request concerns.
func (e *Endpoint) concerned(a *Attributes) (hooks []Admission[unstructured.Unstructured]) {
	for _, hook := range e.res.registry.admission {
		if s, ok := hook.(Selective); !ok || s.Concerns(a) {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}

// pair is an object that is to be written and the one before it. One of them may be nil.
type pair struct{ obj, old *object.Object }

// callAll calls the definition's hooks and then those that are for all resources.
func (w *write) callAll(ctx context.Context, a *Attributes, hooks []Admission[unstructured.Unstructured], p pair) error {
	if t := w.typed; t != nil {
		if err := t.admitTyped(ctx, w.Endpoint, a, p.obj, p.old); err != nil {
			return err
		}
	}
	if len(hooks) == 0 {
		return nil
	}
	return w.admitTree(ctx, a, hooks, p)
}

// hookCall prepares a call of the hooks that are for all resources. They are shown what the pair holds.
func (e *Endpoint) hookCall(a *Attributes, p pair) (call hookCall[unstructured.Unstructured], err error) {
	call = hookCall[unstructured.Unstructured]{endpoint: e, about: a, meta: func(u *unstructured.Unstructured) metav1.Object { return u }}
	if call.obj, err = e.unstructured(p.obj); err != nil {
		return call, err
	}
	call.old, err = e.unstructured(p.old)
	return call, err
}

// admitTree calls the hooks that are for all resources.
func (w *write) admitTree(ctx context.Context, a *Attributes, hooks []Admission[unstructured.Unstructured], p pair) error {
	call, err := w.hookCall(a, p)
	if err != nil {
		return err
	}
	switch { // hooks change it
	case call.obj == nil:
	case p.old == nil && !w.applies: // nobody else has it, but for what they're compared with afterwards
		if len(p.obj.Managed) > 0 {
			object.Map(call.obj.Object["metadata"])["managedFields"] = managed.CopyEntries(p.obj.Managed)
		}
	default:
		call.obj.Object = object.DeepCopy(call.obj.Object)
	}
	obj, err := call.to(ctx, hooks)
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
	if w.typed == nil {
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
	if of := (&unstructured.Unstructured{Object: tree}).GroupVersionKind(); of.GroupVersion() != w.kind().GroupVersion() {
		return unforeseen(clip.Text(fmt.Sprintf("%v is unstructured and is not suitable for converting to %q", of, w.apiVersion())))
	}
	w.left.kind = w.otherKindOf(tree)
	if metadata, ok := tree["metadata"]; ok && object.Map(metadata) == nil {
		delete(tree, "metadata")
		w.left.bare = true
	}
	w.left.unread = object.TakeUnreadable(object.Map(tree["metadata"]))
	delete(w.left.unread, "creationTimestamp") // which is the server's in any case
	return w.schema.Default(tree)
}

// unstructured is an object as hooks see it; nil for nil. It shares the content.
func (e *Endpoint) unstructured(o *object.Object) (*unstructured.Unstructured, error) {
	if o == nil {
		return nil, nil
	}
	tree, err := o.Tree(e.apiVersion(), e.Kind)
	if err != nil {
		return nil, err
	}
	return &unstructured.Unstructured{Object: tree}, nil
}

// hookCall is what hooks of one type are called with.
type hookCall[T any] struct {
	endpoint *Endpoint
	about    *Attributes // the hooks' warnings are added to it
	obj, old *T
	meta     func(*T) metav1.Object // metadata of a T
}

// to calls the hooks one after the other, and returns the object as they leave it.
func (c hookCall[T]) to(ctx context.Context, hooks []Admission[T]) (*T, error) {
	obj := c.obj
	for _, hook := range hooks {
		r := &AdmissionRequest[T]{Attributes: *c.about, Object: obj, Old: c.old}
		var said Verdict
		var failed error
		if err := c.endpoint.res.registry.call("admission by "+nameOf(hook), func() { said, failed = hook.Admit(ctx, r) }); err != nil {
			return nil, err
		}
		c.about.Warnings = r.Warnings
		name := c.about.Name
		if name == "" && obj != nil {
			name = c.meta(obj).GetGenerateName()
		}
		if err := c.endpoint.heed(ctx, name, said, failed); err != nil {
			return nil, err
		}
		if obj == nil {
			continue
		}
		if obj = r.Object; obj == nil {
			return nil, fmt.Errorf("%s has left no object", nameOf(hook))
		}
	}
	return obj, nil
}

// nameOf names a hook by its type, or if it's a function by the function's name.
func nameOf(hook any) string {
	if v := reflect.ValueOf(hook); v.Kind() == reflect.Func && !v.IsNil() {
		return runtime.FuncForPC(v.Pointer()).Name()
	}
	return fmt.Sprintf("%T", hook)
}

// PanicError is a panic of a function that the program brought.
type PanicError struct {
	What  string // which function
	Cause any    // what it panicked with
	Stack []byte
}

func (e *PanicError) Error() string { return e.What + " panicked" }

// call runs a function that the program brought. A panic is returned as an error, because much of this runs on
// goroutines where nobody else would stop it (see DeletersAtOnce).
func (r *Registry) call(what string, fn func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &PanicError{What: what, Cause: cause, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}

// callLeaving is call for a function that must leave what only the server decides about the object. It's an error if that changes it.
func (r *Registry) callLeaving(what string, of func() metav1.Object, fn func()) error {
	before := decidedOf(of())
	if err := r.call(what, fn); err != nil {
		return err
	}
	after := decidedOf(of())
	for i, field := range decidedFields {
		if after[i] != before[i] {
			return fmt.Errorf("%s has changed metadata.%s from %q to %q, which only the server may", what, field, clip.Text(before[i]), clip.Text(after[i]))
		}
	}
	return nil
}

var decidedFields = [...]string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}

func decidedOf(m metav1.Object) [len(decidedFields)]string {
	deleted := ""
	if t := m.GetDeletionTimestamp(); t != nil {
		deleted = timeText(*t)
	}
	return [...]string{
		m.GetName(), m.GetNamespace(), string(m.GetUID()), m.GetResourceVersion(),
		strconv.FormatInt(m.GetGeneration(), 10), timeText(m.GetCreationTimestamp()), deleted,
	}
}

func timeText(t metav1.Time) string { return t.UTC().Format(time.RFC3339) }

// hooks returns the list without nils: a nil is a hook that is off.
func hooks[T any](list []Admission[T]) []Admission[T] {
	return slices.DeleteFunc(slices.Clone(list), func(a Admission[T]) bool { return a == nil })
}
