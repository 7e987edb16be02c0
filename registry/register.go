package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Column is a column of the tables in which kubectl prints objects.
type Column = form.Column

// Definition makes a resource of the Go type T: a struct with metav1.TypeMeta and metav1.ObjectMeta
// embedded, and JSON tags. Only Version and Kind are needed; all functions may be nil.
type Definition[T any] struct {
	Group, Version, Kind string // Group "" is the core group
	Plural               string // defaults to Kind in lower case and "s"
	Singular             string // defaults to Kind in lower case
	ListKind             string // defaults to Kind and "List"
	ShortNames           []string
	Categories           []string
	ClusterScoped        bool
	Status               bool     // serve the status subresource, and keep status out of other writes
	Fields               []string // selectable ones, as "spec.color", besides metadata.name and metadata.namespace
	Columns              []Column // of tables, after the name; defaults to the age

	// UnconditionalUpdate lets a PUT leave resourceVersion out.
	UnconditionalUpdate bool
	// NoGeneration leaves metadata.generation out.
	NoGeneration bool

	// What follows may be called several times for one request, from many goroutines at once, and must not keep what it's
	// given. What only the server decides of metadata (see AdmissionRequest) it must leave as it is. A panic is
	// answered 500.

	// Default fills in what a client may leave out.
	Default func(obj *T)
	// Admission changes or refuses what clients write, each in turn: see there. Nils are left out.
	Admission []Admission[T]
	// Prepare sets what the server decides. old is nil for a new object; subresource is "", "status" or
	// "finalize".
	Prepare func(obj, old *T, subresource string)
	// Validate checks an object that was defaulted and prepared; old as for Prepare.
	Validate func(ctx context.Context, obj, old *T, subresource string) field.ErrorList
	// Warnings returns what the client is told, in Warning headers, besides the answer about an object that is valid; old
	// as for Prepare.
	Warnings func(ctx context.Context, obj, old *T, subresource string) []string
	// ValidName returns what is wrong with a name, or with a generateName if prefix is set. Defaults to
	// the rules of a DNS subdomain.
	ValidName func(name string, prefix bool) []string
	// Deleting is called when a deletion begins; what it changes is stored if something holds the object.
	Deleting func(obj *T)
	// Held tells whether something besides metadata.finalizers keeps an object that is being deleted.
	Held func(obj *T) bool

	policy       func(o *metav1.DeleteOptions) metav1.DeletionPropagation // see typed
	undeletable  func(name string) bool
	subresources []string // besides status
	begin        func(ctx context.Context) (end func(), err error)
	written      func(ctx context.Context, rev storage.Revision) error
}

// Pointer is what a type that Register takes can do through its pointer.
type Pointer[T any] interface {
	*T
	metav1.ObjectMetaAccessor
}

// Register adds a resource for a Go type. It's for the program's start, before Run; a definition that
// can't be served is a mistake in the program and panics.
//
//	registry.Register(r, registry.Definition[Gadget]{Group: "example.com", Version: "v1", Kind: "Gadget"})
func Register[T any, P Pointer[T]](r *Registry, d Definition[T]) {
	if d.Version == "" || d.Kind == "" {
		panic(fmt.Sprintf("registry: a definition of %T needs a version and a kind", *new(T)))
	}
	if _, ok := P(new(T)).GetObjectMeta().(*metav1.ObjectMeta); !ok {
		panic(fmt.Sprintf("registry: %T must embed metav1.ObjectMeta", *new(T)))
	}
	lower := strings.ToLower(d.Kind)
	d.Plural = defaultTo(d.Plural, lower+"s")
	d.Singular = defaultTo(d.Singular, lower)
	d.ListKind = defaultTo(d.ListKind, d.Kind+"List")
	d.Admission = hooks(d.Admission)
	f := &functions[T, P]{Definition: d, registry: r}
	res := &resource{
		registry: r, group: d.Group, plural: d.Plural, namespaced: !d.ClusterScoped,
		prefix: storage.PrefixOf(d.Group, d.Plural),
		typed: &typed{
			normalize: normalize[T], rules: f.rules, admit: f.admit, hooked: len(d.Admission) > 0, zero: *new(T),
			validName: d.ValidName, policy: d.policy, undeletable: d.undeletable,
			unconditional: d.UnconditionalUpdate, noGeneration: d.NoGeneration,
			begin: d.begin, written: d.written,
		},
	}
	if _, ok := any(new(T)).(message); ok {
		res.typed.message = func() message { return any(new(T)).(message) }
	}
	if d.Deleting != nil {
		res.typed.markDeleted = f.deleting
	}
	if d.Held != nil {
		res.typed.held = f.held
	}
	if d.Warnings != nil {
		res.typed.warnings = f.warnings
	}
	e := &Endpoint{
		Names: Names{
			Group: d.Group, Version: d.Version, Kind: d.Kind, ListKind: d.ListKind, Plural: d.Plural, Singular: d.Singular,
			ShortNames: d.ShortNames, Categories: d.Categories,
		},
		Namespaced: !d.ClusterScoped, Verbs: builtinVerbs, Subresources: d.subresources, fields: d.Fields, res: res,
		StorageVersionHash: storageVersionHash(schema.GroupVersionKind{Group: d.Group, Version: d.Version, Kind: d.Kind}),
	}
	if d.Status {
		e.Subresources = append([]string{status}, e.Subresources...)
	}
	if d.undeletable != nil { // not all at once, then
		e.Verbs = slices.DeleteFunc(slices.Clone(e.Verbs), func(v string) bool { return v == "deletecollection" })
	}
	e.view = &cacher.View{APIVersion: e.apiVersion(), Kind: e.Kind}
	e.whole = form.NewWhole(e.view, &cacher.View{APIVersion: e.apiVersion(), Kind: e.Kind, OmitTypeMeta: true}, e.ListKind)
	e.forms = form.New(d.Columns)
	e.messages = e.newMessages()
	e.seal()
	e.managers = newManagers(e)
	res.endpoints, res.storage = []*Endpoint{e}, e
	r.add(res)
}

func defaultTo(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}

// normalize decodes a document, which is a JSON object, into a T, and encodes the T as a tree. So the tree has the fields
// that T has, as T writes them. complaints are about members that T doesn't have or that are given twice.
func normalize[T any](doc *object.Document) (tree map[string]any, complaints []error, err error) {
	members, levels := doc.Size()
	if levels*len(doc.Text) > maxTypedWork {
		return nil, nil, badRequest("the body of the request nests too deeply for its size: %d levels in %d bytes", levels, len(doc.Text))
	}
	var obj T
	if levels*members > object.MaxComplaintWork {
		complaints = []error{errors.New("the object is too large for its fields to be checked")}
		err = kjson.UnmarshalCaseSensitivePreserveInts(doc.Text, &obj)
	} else {
		complaints, err = kjson.UnmarshalStrict(doc.Text, &obj, kjson.DisallowDuplicateFields, kjson.DisallowUnknownFields)
	}
	if err != nil {
		return nil, nil, badBody(object.Undecodable(err))
	}
	tree, err = runtime.DefaultUnstructuredConverter.ToUnstructured(&obj)
	return tree, complaints, badBody(object.Undecodable(err))
}

// fromObject makes a T of an object; nil of nil. It shares nothing with it: a field of any type would.
func fromObject[T any, P Pointer[T]](o *object.Object) (*T, error) {
	if o == nil {
		return nil, nil
	}
	obj := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.DeepCopy(o.Content), obj); err != nil {
		return nil, badRequest("the object can't be decoded: %s", clip.Text(err.Error()))
	}
	*P(obj).GetObjectMeta().(*metav1.ObjectMeta) = *o.Meta.DeepCopy()
	return obj, nil
}

// toObject writes a T back.
func toObject[T any, P Pointer[T]](obj *T, o *object.Object) error {
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return fmt.Errorf("encode %T: %w", *obj, err)
	}
	for _, name := range []string{"apiVersion", "kind", "metadata"} {
		delete(tree, name)
	}
	o.Content, o.Meta = tree, *P(obj).GetObjectMeta().(*metav1.ObjectMeta)
	return nil
}

// through lets fn change an object as a T.
func through[T any, P Pointer[T]](o *object.Object, fn func(obj *T)) error {
	obj, err := fromObject[T, P](o)
	if err != nil {
		return err
	}
	fn(obj)
	return toObject[T, P](obj, o)
}

// functions are a Definition's, as the verbs call them: on objects.
type functions[T any, P Pointer[T]] struct {
	Definition[T]
	registry *Registry
}

// on calls one of the functions on an object.
func (f *functions[T, P]) on(obj *T, name string, fn func()) error {
	what := fmt.Sprintf("%s of %T", name, f.Definition)
	return f.registry.call(what, func() metav1.Object { return P(obj).GetObjectMeta() }, fn)
}

// setDefaults calls Default, if there is one.
func (f *functions[T, P]) setDefaults(obj *T) error {
	if f.Default == nil {
		return nil
	}
	return f.on(obj, "Default", func() { f.Default(obj) })
}

// pair makes Ts of the new object, if there is one, and of the old, if there is one.
func (f *functions[T, P]) pair(o, old *object.Object) (obj, prev *T, err error) {
	if obj, err = fromObject[T, P](o); err != nil {
		return nil, nil, err
	}
	prev, err = fromObject[T, P](old)
	return obj, prev, err
}

// admit fills in defaults and calls the definition's hooks.
func (f *functions[T, P]) admit(ctx context.Context, e *Endpoint, a *Attributes, o, old *object.Object) error {
	obj, prev, err := f.pair(o, old)
	switch {
	case err != nil && o == nil: // as a T nobody can read it, and deleting is the way out
		return nil
	case err != nil:
		return err
	}
	if o != nil {
		if err := f.setDefaults(obj); err != nil {
			return err
		}
	}
	call := hookCall[T]{endpoint: e, about: a, obj: obj, old: prev, meta: func(obj *T) metav1.Object { return P(obj).GetObjectMeta() }}
	obj, err = call.to(ctx, f.Admission)
	if err != nil || o == nil {
		return err
	}
	return toObject[T, P](obj, o)
}

// rules defaults, prepares and validates an object for a write.
func (f *functions[T, P]) rules(ctx context.Context, o, old *object.Object, subresource string) (errs field.ErrorList, err error) {
	obj, prev, err := f.pair(o, old)
	if err != nil {
		return nil, err
	}
	if err := f.setDefaults(obj); err != nil {
		return nil, err
	}
	if f.Prepare != nil {
		if err := f.on(obj, "Prepare", func() { f.Prepare(obj, prev, subresource) }); err != nil {
			return nil, err
		}
	}
	if f.Validate != nil {
		if err := f.on(obj, "Validate", func() { errs = f.Validate(ctx, obj, prev, subresource) }); err != nil {
			return nil, err
		}
	}
	return errs, toObject[T, P](obj, o)
}

func (f *functions[T, P]) warnings(ctx context.Context, o, old *object.Object, subresource string) (texts []string, err error) {
	obj, prev, err := f.pair(o, old)
	if err != nil {
		return nil, err
	}
	err = f.on(obj, "Warnings", func() { texts = f.Warnings(ctx, obj, prev, subresource) })
	return texts, err
}

func (f *functions[T, P]) deleting(o *object.Object) error {
	obj, err := fromObject[T, P](o)
	if err != nil {
		return err
	}
	if err := f.on(obj, "Deleting", func() { f.Deleting(obj) }); err != nil {
		return err
	}
	return toObject[T, P](obj, o)
}

func (f *functions[T, P]) held(o *object.Object) (held bool, err error) {
	obj, err := fromObject[T, P](o)
	if err != nil {
		return false, err
	}
	err = f.on(obj, "Held", func() { held = f.Held(obj) })
	return held, err
}
