package registry

import (
	"context"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/schema"
	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
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

	turn     *turn // in which what only one of its objects may have is decided; nil if there's nothing like that
	answered bool  // its objects are questions, and none is stored; it has no cache
	custom         // what a definition adds; zero for Go types, but for versions
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

	reading
	writing
}

// reading is how an endpoint's objects are read.
type reading struct {
	view     *kube.View  // whole ones
	whole    *form.Shown // the answers that show whole ones
	messages *form.Shown // the answers that show whole ones as protobuf; nil if there is no such form
	written  *written    // the messages of what was stored lately
	forms    *form.Forms // the others
	fields   []string    // labels of the selectable fields besides metadata.name and metadata.namespace
}

// writing is how an endpoint's objects are written.
type writing struct {
	typed    *typed         // what a Go type adds; nil for custom resources
	managers *managers      // of managedFields
	schema   *schema.Schema // of custom resources
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
func (e *Endpoint) show(ctx context.Context, v *kube.View, o *kube.Object) ([]byte, error) {
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
	return enveloped(v, m, o.Revision), nil
}

// enveloped returns a message as a view of protobuf shows it.
func enveloped(v *kube.View, m kubeproto.Message, at storage.Revision) []byte {
	t, rev := v.Envelope(), int64(at)
	return m.AppendObject(make([]byte, 0, m.ObjectSize(t, rev)), t, rev)
}

func appendObject(v *kube.View, o *kube.Object) []byte {
	const room = 64 // for the resourceVersion
	return v.Append(make([]byte, 0, len(o.Raw())+room), o)
}

// indexFields tells the cache which fields to index: those that are selectable in some served version.
func (r *resource) indexFields() {
	var fields []string
	for _, e := range r.endpoints {
		for _, field := range e.fields {
			if e.typed != nil {
				field = e.typed.storedTerm(selectors.FieldTerm{Field: field}).Field
			}
			if field != nameAlias {
				fields = append(fields, field)
			}
		}
	}
	slices.Sort(fields)
	r.cache.SetFields(slices.Compact(fields))
}

// begin and written are the brackets of a write; they do nothing for most resources.
func (r *resource) begin(ctx context.Context) (func(), error) {
	if t := r.storage.typed; t != nil && t.begin != nil {
		return t.begin(ctx)
	}
	return func() {}, nil
}

func (r *resource) written(ctx context.Context, rev storage.Revision) error {
	switch t := r.storage.typed; {
	case t == nil:
		return nil
	case t.written != nil:
		return t.written(ctx, rev)
	case t.Awaited:
		return r.registry.cacher.WaitFor(ctx, rev)
	}
	return nil
}

// read reads an object from etcd, past the cache. It's nil when there is none.
func (r *resource) read(ctx context.Context, key string) (*kube.Object, error) {
	return r.registry.read(ctx, key)
}
