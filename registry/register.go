package registry

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
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

	Strategy

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
	Deletion[*T]
}

// Deletion is when objects of a kind are deleted, and what happens then. O is how its functions take an object.
type Deletion[O any] struct {
	// TTL is how long an object lives after its last write. The server deletes it then. 0 keeps objects.
	TTL time.Duration
	// Times are the fields in which an object says when it was last written, as "lastTimestamp". Together with
	// metadata.creationTimestamp they decide, with TTL, about objects that were written before the server started.
	Times []string
	// Deleting is called when a deletion begins; what it changes is stored if something holds the object.
	Deleting func(obj O)
	// Held tells whether something besides metadata.finalizers keeps an object that is being deleted.
	Held func(obj O) bool
	// Grace returns how many seconds an object that is being deleted has until somebody must have ended what it
	// stands for, and deletes it again with 0. asked is what the deletion asks for, nil for nothing. 0 is none,
	// and so is a nil Grace.
	Grace func(obj O, asked *int64) int64
	// Policy is that of the deletion that begins it, which no grace period and no generation tells; nil: what the deletion says.
	Policy func(o *metav1.DeleteOptions) metav1.DeletionPropagation
	// Undeletable tells of which objects no deletion is taken. Those of such a kind aren't deleted all at once.
	Undeletable func(name string) bool
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
func Register[T any, P Pointer[T]](r *Registry, d Definition[T]) { r.Add(typeOf[T, P](r, d)) }

// typeOf describes a definition's type without the type parameter.
func typeOf[T any, P Pointer[T]](r *Registry, d Definition[T]) Type {
	t := Type{
		Names: Names{
			Group: d.Group, Version: d.Version, Kind: d.Kind, ListKind: d.ListKind, Plural: d.Plural, Singular: d.Singular,
			ShortNames: d.ShortNames, Categories: d.Categories,
		},
		New:           func() Typed { return P(new(T)) },
		ClusterScoped: d.ClusterScoped, Status: d.Status, Selection: Selection{Fields: d.Fields},
		Strategy: d.Strategy, ValidName: d.ValidName,
		Deletion: Deletion[Typed]{TTL: d.TTL, Times: d.Times, Policy: d.Policy, Undeletable: d.Undeletable},
	}
	if len(d.Columns) > 0 {
		t.Columns = func() []Column { return d.Columns }
	}
	one := func(t Typed) *T {
		p, _ := t.(P)
		return p
	}
	if d.Default != nil {
		t.Default = func(obj Typed) { d.Default(one(obj)) }
	}
	if d.Prepare != nil {
		t.Prepare = func(_ context.Context, obj, old Typed, subresource string) {
			d.Prepare(one(obj), one(old), subresource)
		}
	}
	if d.Validate != nil {
		t.Validate = func(ctx context.Context, obj, old Typed, subresource string) field.ErrorList {
			return d.Validate(ctx, one(obj), one(old), subresource)
		}
	}
	if d.Warnings != nil {
		t.Warnings = func(ctx context.Context, obj, old Typed, subresource string) []string {
			return d.Warnings(ctx, one(obj), one(old), subresource)
		}
	}
	if d.Deleting != nil {
		t.Deleting = func(obj Typed) { d.Deleting(one(obj)) }
	}
	if d.Grace != nil {
		t.Grace = func(obj Typed, asked *int64) int64 { return d.Grace(one(obj), asked) }
	}
	if d.Held != nil {
		t.Held = func(obj Typed) bool { return d.Held(one(obj)) }
	}
	if hooks := hooks(d.Admission); len(hooks) > 0 {
		t.Admit = func(ctx context.Context, e *Endpoint, a *Attributes, obj, old Typed) (Typed, error) {
			call := HookCall[T]{Endpoint: e, About: a, Obj: one(obj), Old: one(old), Meta: func(obj *T) metav1.Object { return P(obj).GetObjectMeta() }}
			admitted, err := call.To(ctx, hooks)
			return P(admitted), err
		}
	}
	return t
}
