package registry

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// resource is one kind of stored object with all its versions, from a Go type or from a definition.
// Immutable: a changed definition makes a new one.
type resource struct {
	registry   *Registry
	group      string
	plural     string
	namespaced bool
	prefix     storage.Prefix
	cache      *cacher.Resource
	endpoints  []*Endpoint // one for each served version; none while its names aren't accepted
	storage    *Endpoint   // of the version in which objects are stored; it may not be served

	typed  *typed // what a Go type adds; nil for custom resources
	custom        // what a definition adds; zero for Go types
}

// custom is a definition's part in a resource: see definitions.go and convert.go.
type custom struct {
	condition   storage.Condition // the definition, at the revision from which the resource was made
	uid         types.UID         // of the definition
	generation  int64             // of the definition
	since       storage.Revision  // objects with a higher revision were written under this generation
	terminating bool              // the definition is being deleted
	versions    []*Endpoint       // all versions, also those that aren't served
	converter   *converter        // between versions; nil if they differ in their apiVersion only
}

// typed is a Go type's part in the verbs: Definition's functions without the type parameter.
type typed struct {
	normalize     func(doc *object.Document) (tree map[string]any, unknown []error, err error)
	rules         func(ctx context.Context, o, old *object.Object, subresource string) (field.ErrorList, error)
	admit         func(ctx context.Context, e *Endpoint, a *Attributes, o, old *object.Object) error
	hooked        bool                                                                                   // the definition has an Admission
	warnings      func(ctx context.Context, o, old *object.Object, subresource string) ([]string, error) // nil: none
	markDeleted   func(o *object.Object) error                                                           // nil: nothing to do
	held          func(o *object.Object) (bool, error)                                                   // something besides metadata.finalizers holds it; nil: nothing
	policy        func(o *metav1.DeleteOptions) metav1.DeletionPropagation                               // of the deletion that begins it; nil: policyOf
	validName     func(name string, prefix bool) []string
	undeletable   func(name string) bool
	message       func() message // a new one, to be decoded from protobuf; nil if the type has no such form
	zero          any            // a T, for the patch strategies in its tags
	unconditional bool           // an update may leave resourceVersion out
	noGeneration  bool

	// The brackets of a write. begin is called before it, and the function that begin returns after it. written is called
	// with the revision that was stored, before the answer. Both may be nil.
	begin   func(ctx context.Context) (end func(), err error)
	written func(ctx context.Context, rev storage.Revision) error
}

// Names are how the objects of a resource are called in one version.
type Names struct {
	Group      string   // "example.com"; "" for the core group
	Version    string   // "v1"
	Kind       string   // "Widget", of one object
	ListKind   string   // "WidgetList"
	Plural     string   // "widgets", as in paths
	Singular   string   // "widget", for kubectl
	ShortNames []string // "wd", for kubectl
	Categories []string // "all": groups of resources that kubectl gets together
}

// Endpoint is a resource at one served version; the verbs are its methods. Immutable. Its exported fields are what
// discovery shows.
type Endpoint struct {
	Names
	Namespaced   bool
	Verbs        []string
	Subresources []string // "status", "scale", "finalize"
	Warning      string   // for every answer: the version is deprecated
	// StorageVersionHash is of the group, version and kind that are stored; "" if that version isn't served.
	StorageVersionHash string

	res    *resource
	digest [32]byte // of what discovery shows; see seal

	// how its objects are read
	view  *cacher.View // whole ones
	whole *form.Shown  // the answers that show whole ones
	forms *form.Forms  // the others

	messages *form.Shown // the answers that show whole ones as protobuf; nil if there is no such form
	fields   []string    // labels of the selectable fields besides metadata.name and metadata.namespace

	// how its objects are written; schema and scale are for custom resources
	managers *managers // of managedFields
	schema   *schema.Schema
	scale    *apiextensionsv1.CustomResourceSubresourceScale
}

// What every resource offers, in the orders in which kube-apiserver's discovery lists them.
var (
	customVerbs  = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	builtinVerbs = slices.Sorted(slices.Values(customVerbs))
)

func (n *Names) apiVersion() string {
	if n.Group == "" {
		return n.Version
	}
	return n.Group + "/" + n.Version
}

func (e *Endpoint) has(subresource string) bool {
	for _, s := range e.Subresources {
		if s == subresource {
			return true
		}
	}
	return false
}

// key builds an object's key. A namespace on a cluster-scoped resource, or none on a namespaced one, is a
// path that doesn't exist.
func (e *Endpoint) key(namespace, name string) (string, error) {
	if (namespace != "") != e.Namespaced {
		return "", errNotServed()
	}
	key, err := e.res.prefix.Key(namespace, name)
	if err != nil {
		if e.res.prefix != "" && name != "" && namespace != "" {
			if _, nameErr := e.res.prefix.Key("", name); nameErr == nil {
				name = namespace
			}
		}
		return "", e.fail(name, err)
	}
	return key, nil
}

// show returns an object as a view shows it.
func (e *Endpoint) show(ctx context.Context, v *cacher.View, o *cacher.Object) ([]byte, error) {
	if o.Err != nil {
		return nil, e.unreadable(o.Name(), o.Err)
	}
	shown, err := v.Shown(ctx, o)
	if err != nil {
		return nil, e.fail(o.Name(), err)
	}
	if v.Encoding == nil {
		return appendObject(v, shown), nil
	}
	m, err := v.Message(shown)
	if err != nil {
		return nil, e.unreadable(o.Name(), err)
	}
	t, rev := v.Envelope(), int64(o.Revision)
	return m.AppendObject(make([]byte, 0, m.ObjectSize(t, rev)), t, rev), nil
}

func appendObject(v *cacher.View, o *cacher.Object) []byte {
	const room = 64 // for the resourceVersion
	return v.Append(make([]byte, 0, len(o.Raw())+room), o)
}

// indexFields tells the cache which fields to index: those that are selectable in some served version.
func (r *resource) indexFields() {
	var labels []string
	for _, e := range r.endpoints {
		for _, label := range e.fields {
			if label != nameAlias {
				labels = append(labels, label)
			}
		}
	}
	r.cache.SetFields(labels)
}

// begin and written are the brackets of a write; they do nothing for most resources.
func (r *resource) begin(ctx context.Context) (func(), error) {
	if r.typed == nil || r.typed.begin == nil {
		return func() {}, nil
	}
	return r.typed.begin(ctx)
}

func (r *resource) written(ctx context.Context, rev storage.Revision) error {
	if r.typed == nil || r.typed.written == nil {
		return nil
	}
	return r.typed.written(ctx, rev)
}

// read reads an object from etcd, past the cache. It's nil when there is none.
func (r *resource) read(ctx context.Context, key string) (*cacher.Object, error) {
	return r.registry.read(ctx, key)
}
