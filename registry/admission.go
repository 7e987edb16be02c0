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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
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

	Course *Course // of the write; nil outside of one
}

// OnEnd has a function called when the write has ended that the hook is asked about: its object is stored, or won't be. It's
// called once, whatever ends the write, and also when the hook is about to be asked again. It's for Validators.
func (a *Attributes) OnEnd(end func()) { a.Course.Ends = append(a.Course.Ends, end) }

// Course is what a write and the hooks that judge it share.
type Course struct {
	Ends      []func()       // see Attributes.OnEnd
	ScaleSent map[string]any // the Scale that was sent, as hooks that change it see it; nil for other writes, and afterwards
}

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
	r.Admission = append(r.Admission, hooks...)
}

// HookCall is what hooks of one type are called with.
type HookCall[T any] struct {
	Endpoint *Endpoint
	About    *Attributes // the hooks' warnings are added to it
	Obj, Old *T
	Meta     func(*T) metav1.Object // metadata of a T
}

// To calls the hooks one after the other, and returns the object as they leave it.
func (c HookCall[T]) To(ctx context.Context, hooks []Admission[T]) (*T, error) {
	obj := c.Obj
	for _, hook := range hooks {
		r := &AdmissionRequest[T]{Attributes: *c.About, Object: obj, Old: c.Old}
		var said Verdict
		var failed error
		if err := c.Endpoint.Res.Registry.Call("admission by "+NameOf(hook), func() { said, failed = hook.Admit(ctx, r) }); err != nil {
			return nil, err
		}
		c.About.Warnings = r.Warnings
		name := c.About.Name
		if name == "" && obj != nil {
			name = c.Meta(obj).GetGenerateName()
		}
		if err := c.Endpoint.Heed(ctx, name, said, failed); err != nil {
			return nil, err
		}
		if obj == nil {
			continue
		}
		if obj = r.Object; obj == nil {
			return nil, fmt.Errorf("%s has left no object", NameOf(hook))
		}
	}
	return obj, nil
}

// NameOf names a hook by its type, or if it's a function by the function's name.
func NameOf(hook any) string {
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

// Call runs a function that the program brought. A panic is returned as an error, because much of this runs on
// goroutines where nobody else would stop it (see DeletersAtOnce).
func (r *Registry) Call(what string, fn func()) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = &PanicError{What: what, Cause: cause, Stack: debug.Stack()}
		}
	}()
	fn()
	return nil
}

// callLeaving is Call for a function that must leave what only the server decides about the object. It's an error if that changes it.
func (r *Registry) callLeaving(what string, of func() metav1.Object, fn func()) error {
	before := decidedOf(of())
	if err := r.Call(what, fn); err != nil {
		return err
	}
	after := decidedOf(of())
	if after == before {
		return nil
	}
	was, is := before.texts(), after.texts()
	for i, field := range decidedFields {
		if was[i] != is[i] {
			return fmt.Errorf("%s has changed metadata.%s from %q to %q, which only the server may", what, field, clip.Text(was[i]), clip.Text(is[i]))
		}
	}
	return nil
}

// decided is what only the server decides about an object.
type decided struct {
	name, namespace, resourceVersion string
	uid                              types.UID
	generation                       int64
	created, deleted                 int64 // seconds since 1970
	isDeleted                        bool
}

func decidedOf(m metav1.Object) decided {
	d := decided{
		name: m.GetName(), namespace: m.GetNamespace(), resourceVersion: m.GetResourceVersion(), uid: m.GetUID(), generation: m.GetGeneration(),
		created: m.GetCreationTimestamp().Unix(),
	}
	if t := m.GetDeletionTimestamp(); t != nil {
		d.deleted, d.isDeleted = t.Unix(), true
	}
	return d
}

var decidedFields = [...]string{"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp"}

// texts returns the fields as a message has them.
func (d decided) texts() [len(decidedFields)]string {
	deleted := ""
	if d.isDeleted {
		deleted = timeText(d.deleted)
	}
	return [...]string{d.name, d.namespace, string(d.uid), d.resourceVersion, strconv.FormatInt(d.generation, 10), timeText(d.created), deleted}
}

func timeText(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(time.RFC3339) }

// hooks returns the list without nils: a nil is a hook that is off.
func hooks[T any](list []Admission[T]) []Admission[T] {
	return slices.DeleteFunc(slices.Clone(list), func(a Admission[T]) bool { return a == nil })
}
