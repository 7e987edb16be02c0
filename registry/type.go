package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// Typed is an object as a value of its Go type: a pointer to a struct with metav1.TypeMeta and metav1.ObjectMeta
// embedded, and JSON tags.
type Typed = metav1.ObjectMetaAccessor

// Type makes a resource of a Go type, as a Definition does. Its functions take objects of the type as an interface. So a
// program with many types has one copy of the code that serves them, where each Definition is compiled anew. Only
// Version, Kind and New are needed. What most kinds have stands here, and what few have in a struct that says what it's about; so the
// line of a kind names only what that kind has.
type Type struct {
	Names
	New           func() Typed // returns a new, empty object
	ClusterScoped bool
	Status        bool            // serve the status subresource, and keep status out of other writes
	Parts         Parts           // the other subresources
	Columns       func() []Column // called when the first table is made; nil: the age
	Warning       string          // goes with every answer: that the kind is deprecated
	Selection
	Strategy
	Stored   Stored
	Unstored Unstored

	// These are called as a Definition's. old is nil where that is.
	Default   func(obj Typed)
	Prepare   func(ctx context.Context, obj, old Typed, subresource string)
	Validate  func(ctx context.Context, obj, old Typed, subresource string) field.ErrorList
	Warnings  func(ctx context.Context, obj, old Typed, subresource string) []string
	ValidName func(name string, prefix bool) []string
	Deletion[Typed]

	Guard  Guard
	Admit  func(ctx context.Context, e *Endpoint, a *Attributes, obj, old Typed) (Typed, error) // nil: no hooks
	Follow func(obj Typed)                                                                      // adds to the status what kube-apiserver's controllers make of what was written
}

// Selection is by which fields objects of a kind are selected.
type Selection struct {
	Fields []string // labels of those that are selectable, as "spec.color", besides metadata.name and metadata.namespace
	// Aliases are labels of fields by which this version is selected, and the paths at which the stored version has
	// them; of several, with bars between them, the first with a value counts.
	Aliases map[string]string
	// False are selectable fields that are false where they're absent.
	False []string
	// NoNamespace keeps metadata.namespace from being selectable.
	NoNamespace bool
	// Unknown is what is said of a label that isn't selectable, with a verb for the label; "" for what is said of most kinds.
	Unknown string
}

// Parts are the subresources of a kind besides status.
type Parts struct {
	Own    []Subresource
	Scale  *Scale            // where the scale subresource finds its numbers; nil: there is none
	Absent map[string]Absent // those that Kubernetes has and this kind doesn't, by their names
}

// Stored is how objects of a kind are stored, here and in kube-apiserver.
type Stored struct {
	// In is the version in which kube-apiserver stores objects of the kind, if that's another one than here. Clients see a hash
	// of it.
	In string
	// At is where kube-apiserver's etcd has objects of the kind, if that isn't called as the resource. A conflict tells it.
	At string
	// To and From turn a whole object into one of the version in which the resource is stored, and back. They
	// leave apiVersion and kind alone. Only further versions of a resource have them.
	To, From func(tree map[string]any) error
}

// Unstored makes a kind of whose objects none is stored. At most one of Answer, Forward and Shown is set.
type Unstored struct {
	// Answer, if set, makes a kind of questions: one that is posted is answered with what Answer makes of it. Create is the only verb.
	Answer func(ctx context.Context, question Typed) error
	// AnswerMeta, if set, returns the metadata of an answer that has nothing of the question's.
	AnswerMeta func() metav1.ObjectMeta
	// Forward, if set, sends an object that is posted on to the subresource of the object that has its name, and that answers.
	// Create is the only verb.
	Forward *Forward
	// Shown, if set, returns all objects that there are, whole and without a version. Get and list are the only verbs.
	Shown func() []Typed
}

// Guard is what a write of a kind passes because of objects besides the one that it's about.
type Guard struct {
	// MayWrite, if set, refuses what the user of a client's write (UserFrom) may not give to an object, between Default and
	// Validate. Its error, a Status error, is answered.
	MayWrite func(ctx context.Context, obj, old Typed) error
	// Claim takes what only one object may have, such as an address, for a valid object that is about to be stored, and
	// completes the object with it. old is nil for a new object. Until settle is called, and the cache is at the revision that
	// settle was called with, nobody else may take the same. If the write is tried again, settle is called first. Of a dry run
	// nothing is stored, so it should take nothing. The error is a Status error. Writes of subresources claim nothing.
	Claim func(obj, old Typed, dryRun bool) (settle Settle, err error)

	begin   func(ctx context.Context) (end func(), err error)
	written func(ctx context.Context, rev storage.Revision) error
}

// Settle ends what was taken for a write: from a revision on the cache shows whether an object has it. 0 means that none has it,
// because of this write. It's called once, when it's known whether the object is stored. That may be long after the write, which
// then has ended without an answer.
type Settle func(shown storage.Revision)

// Forward says where objects of a kind go that are posted.
type Forward struct {
	APIVersion, Kind, Subresource string // a Subresource with the same Kind
}

// Subresource is a part of an object that has a path of its own, or something that is asked of an object there.
type Subresource struct {
	Name  string                           // "approval"
	Verbs []string                         // sorted
	Kind  runtimeschema.GroupVersionKind   // of what is sent and answered; zero for the object itself
	Also  []runtimeschema.GroupVersionKind // what may be sent in place of Kind, with the same fields
	// Select puts the part that the path is about from what a client sent into next, which holds what is stored. Both are
	// objects without metadata. It must not change in.
	Select func(next, in map[string]any)
	// Whole, if set, tells that what a client sent is to take the place of all that is stored, metadata too, because it isn't about the
	// part alone. The type's rules are to refuse that. It changes neither.
	Whole    func(stored, in map[string]any) bool
	Metadata bool     // what a client sent decides metadata, too
	Reset    []string // the fields at the top of an object that writes of the part don't change
	OwnsAll  bool     // managedFields say of all that was sent that its sender has set it, also where the part is another one
	// New returns an empty value of Kind, and Act answers a POST of one. A Status error of Act's is answered as it is, and
	// storage's errors as those of other verbs.
	New     func() Typed
	Default func(obj Typed) // fills in what a client may leave out; nil: nothing
	// Prepare, if set, judges and completes what was sent as the hooks have left it, before those that are Validators judge it. Its errors are as
	// Act's.
	Prepare     func(ctx context.Context, a *Action) error
	Act         func(ctx context.Context, a *Action) (answer any, err error)
	AnswersSent bool // the answer is what was sent, with more in it, and so says who has sent what, too
}

// Add adds a resource for a Go type. others are further versions of the same objects, in the same group or another one; in
// first they're stored. It's for the program's start, before Run; a Type that can't be served is a mistake in the program
// and panics.
func (r *Registry) Add(first Type, others ...Type) {
	first.setDefaults()
	res := &Resource{
		Registry: r, Group: first.Group, Plural: first.Plural, Namespaced: !first.ClusterScoped,
		Answered: first.Unstored.Answer != nil || first.Unstored.Forward != nil,
	}
	if !res.Answered {
		res.Prefix = storage.PrefixOf(first.Group, first.Plural)
	}
	res.Turn = newTurn(res, &first)
	hash := ""
	if !res.Answered && first.Unstored.Shown == nil {
		stored := first.GVK()
		stored.Version = cmp.Or(first.Stored.In, stored.Version)
		hash = storageVersionHash(stored)
	}
	for _, t := range append([]Type{first}, others...) {
		t.setDefaults()
		e := t.endpoint(res)
		e.StorageVersionHash = hash
		e.seal()
		e.Managers = NewManagers(e)
		res.endpoints = append(res.endpoints, e)
	}
	res.Versions, res.Storage = res.endpoints, res.endpoints[0]
	if r.Unserved != nil {
		res.endpoints = slices.DeleteFunc(slices.Clone(res.Versions), func(e *Endpoint) bool { return r.Unserved(e.Path()) })
	}
	r.add(res)
}

// Has tells whether a Go type has a resource's place.
func (r *Registry) Has(of runtimeschema.GroupResource) bool {
	return slices.ContainsFunc(r.builtins, func(res *Resource) bool { return res.Group == of.Group && res.Plural == of.Resource })
}

// setDefaults completes the names, and checks that the type can be served.
func (t *Type) setDefaults() {
	if t.Version == "" || t.Kind == "" {
		panic(fmt.Sprintf("registry: a definition of %T needs a version and a kind", t.New()))
	}
	if _, ok := t.New().GetObjectMeta().(*metav1.ObjectMeta); !ok {
		panic(fmt.Sprintf("registry: %T must embed metav1.ObjectMeta", t.New()))
	}
	lower := strings.ToLower(t.Kind)
	t.Plural = cmp.Or(t.Plural, lower+"s")
	t.Singular = cmp.Or(t.Singular, lower)
	t.ListKind = cmp.Or(t.ListKind, t.Kind+"List")
	for _, path := range t.StatusResets {
		if name, ok := strings.CutPrefix(path, "metadata."); ok && resetMeta[name] == nil {
			panic(fmt.Sprintf("registry: a write of the status of %s can't reset %s", t.Kind, path))
		}
	}
}

// endpoint makes the endpoint of a type, which isn't sealed yet.
func (t *Type) endpoint(res *Resource) *Endpoint {
	e := &Endpoint{
		Names: t.Names, Namespaced: !t.ClusterScoped, Verbs: builtinVerbs, Warning: t.Warning, Res: res,
		reading: reading{Selection: t.Selection},
		writing: writing{Typed: newTyped(*t, res.Registry)},
	}
	if t.Status {
		e.Subresources = append(e.Subresources, AtStatus)
	}
	if t.Parts.Scale != nil {
		e.Subresources = append(e.Subresources, AtScale)
		e.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: t.Parts.Scale.SpecReplicasPath, StatusReplicasPath: t.Parts.Scale.StatusReplicasPath,
		}
	}
	for _, s := range t.Parts.Own {
		e.Subresources = append(e.Subresources, s.Name)
	}
	slices.Sort(e.Subresources)
	switch {
	case t.Unstored.Answer != nil || t.Unstored.Forward != nil:
		e.Verbs = []string{"create"}
	case t.Unstored.Shown != nil:
		e.Verbs = []string{"get", "list"}
	case t.Undeletable != nil: // not all at once, then
		e.Verbs = slices.DeleteFunc(slices.Clone(e.Verbs), func(v string) bool { return v == "deletecollection" })
	}
	var conversion *kube.Conversion
	if t.Stored.From != nil {
		conversion = e.Res.Registry.Cacher.Conversions().New(0, func(*kube.Object) bool { return true }, e.fromStored)
	}
	e.View = &kube.View{APIVersion: e.APIVersion(), Kind: e.Kind, Conversion: conversion}
	e.Whole = form.NewWhole(e.View, &kube.View{APIVersion: e.APIVersion(), Kind: e.Kind, OmitTypeMeta: true, Conversion: conversion}, e.ListKind)
	e.Forms = form.NewLazy(t.Columns, t.HiddenAnnotation)
	e.Forms.Clock = e.Res.Registry.Clock
	e.Messages = e.newMessages()
	return e
}

// SubresourceVerbs returns what can be done with one of the endpoint's subresources. Nobody may change the slice.
func (e *Endpoint) SubresourceVerbs(name string) []string {
	if part := e.Part(name); part != nil {
		return part.Verbs
	}
	return []string{"get", "patch", "update"}
}

// SubresourceKind returns the kind that one of the endpoint's subresources takes and gives.
func (e *Endpoint) SubresourceKind(name string) runtimeschema.GroupVersionKind {
	if name == AtScale {
		return autoscalingv1.SchemeGroupVersion.WithKind("Scale")
	}
	if part := e.Part(name); part != nil && !part.Kind.Empty() {
		return part.Kind
	}
	return e.GVK()
}

// StoredTerm returns the term of a field selector as stored objects have the field.
func (s *Selection) StoredTerm(term selectors.FieldTerm) selectors.FieldTerm {
	if path, ok := s.Aliases[term.Field]; ok {
		term.Field = path
	}
	if term.Value == "false" && slices.Contains(s.False, term.Field) {
		term.Value, term.Not = "true", !term.Not
	}
	return term
}

// Part returns one of a Go type's own subresources, or nil.
func (e *Endpoint) Part(subresource string) *Subresource {
	if e.Typed == nil {
		return nil
	}
	for i := range e.Typed.Parts.Own {
		if s := &e.Typed.Parts.Own[i]; s.Name == subresource {
			return s
		}
	}
	return nil
}

// Absent is a subresource that Kubernetes has and a type here doesn't, because something would have to run.
type Absent struct {
	Why     string   // it isn't served
	Methods []string // that Kubernetes takes there; nil for all
	// Creates tells that who comes there needs the right to create, whatever the method is.
	Creates bool
	// Asked is what Kubernetes answers to a query before it looks for the object of the name; nil: nothing.
	Asked func(name string, query url.Values) error
	// Unreached is what Kubernetes itself answers about an object that nothing runs, which is given as it's shown, and nil where something
	// would run. ErrNoContent is an answer without anything.
	Unreached func(query url.Values, object []byte) error
}

// ErrNoContent is an answer that has nothing: 204.
var ErrNoContent = errors.New("there's nothing to answer")

// Absent returns what is said at a path below an object that isn't served and that Kubernetes serves. It's nil for other paths.
func (e *Endpoint) Absent(subresource string) *Absent {
	if e.Typed == nil {
		return nil
	}
	if absent, ok := e.Typed.Parts.Absent[subresource]; ok {
		return &absent
	}
	return nil
}

// The scale subresource shows the number of replicas of an object, wherever it has that, as an
// autoscaling/v1 Scale. What is written to it changes that number and nothing else.

// Scale says where an object has what its scale subresource shows.
type Scale struct {
	SpecReplicasPath, StatusReplicasPath string // as ".spec.replicas"
	// Selector returns the pods' selector as text, "" for none; nil: nothing has one.
	Selector func(content map[string]any) (string, error)
}
