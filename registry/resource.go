package registry

import (
	"context"
	"slices"
	"strings"

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

// Resource is one kind of stored object with all its versions, from a Go type or from a definition.
// Immutable: a changed definition makes a new one.
type Resource struct {
	Registry   *Registry
	Group      string
	Plural     string
	Namespaced bool
	Prefix     storage.Prefix
	Cache      *cacher.Resource
	endpoints  []*Endpoint // one for each served version; none while its names aren't accepted
	Storage    *Endpoint   // of the version in which objects are stored; it may not be served

	Turn     *turn // in which what only one of its objects may have is decided; nil if there's nothing like that
	Answered bool  // its objects are questions, and none is stored; it has no cache
	custom         // what a definition adds; zero for Go types, but for versions
}

// custom is a definition's part in a resource: see definitions.go and convert.go.
type custom struct {
	Condition   storage.Condition // the definition, at the revision from which the resource was made
	UID         types.UID         // of the definition
	Generation  int64             // of the definition
	since       storage.Revision  // objects with a higher revision were written under this generation
	Terminating bool              // the definition is being deleted
	Versions    []*Endpoint       // all versions, also those that aren't served
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

// Endpoint is a resource at one served version. Packages reads and writes have its verbs. Immutable. Its fields up to StorageVersionHash are
// what discovery shows.
type Endpoint struct {
	Names
	Namespaced   bool
	Verbs        []string
	Subresources []string // "status", "scale", "finalize"
	Warning      string   // for every answer: the version is deprecated
	// StorageVersionHash is of the group, version and kind that are stored; "" if that version isn't served.
	StorageVersionHash string

	Res    *Resource `json:"-"`
	Digest [32]byte  // of what discovery shows; see seal

	reading `json:"-"`
	writing `json:"-"`
}

// reading is how an endpoint's objects are read.
type reading struct {
	View     *kube.View  // whole ones
	Whole    *form.Shown // the answers that show whole ones
	Messages *form.Shown // the answers that show whole ones as protobuf; nil if there is no such form
	Written  *written    // the messages of what was stored lately
	Forms    *form.Forms // the others
	Selection
}

// writing is how an endpoint's objects are written.
type writing struct {
	Typed    *typed         // what a Go type adds; nil for custom resources
	Managers *managers      // of managedFields
	Schema   *schema.Schema // of custom resources
	Scale    *apiextensionsv1.CustomResourceSubresourceScale
}

// What every resource offers, in the orders in which kube-apiserver's discovery lists them.
var (
	customVerbs  = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	builtinVerbs = slices.Sorted(slices.Values(customVerbs))
)

func (n *Names) APIVersion() string {
	if n.Group == "" {
		return n.Version
	}
	return n.Group + "/" + n.Version
}

func (e *Endpoint) Has(subresource string) bool { return slices.Contains(e.Subresources, subresource) }

// Key builds an object's key. A namespace on a cluster-scoped resource, or none on a namespaced one, is a
// path that doesn't exist.
func (e *Endpoint) Key(namespace, name string) (string, error) {
	if (namespace != "") != e.Namespaced {
		return "", ErrNotServed
	}
	key, err := e.Res.Prefix.Key(namespace, name)
	if err != nil {
		if e.Res.Prefix != "" && name != "" && namespace != "" {
			if _, nameErr := e.Res.Prefix.Key("", name); nameErr == nil {
				name = namespace
			}
		}
		return "", e.Fail(name, err)
	}
	return key, nil
}

// Show returns an object as a view shows it.
func (e *Endpoint) Show(ctx context.Context, v *kube.View, o *kube.Object) ([]byte, error) {
	if o.Err != nil {
		return nil, e.Unreadable(o.Name(), o.Err)
	}
	shown, err := v.Shown(ctx, o)
	if err != nil {
		return nil, e.Fail(o.Name(), err)
	}
	if v.Encoding == nil {
		return appendObject(v, shown), nil
	}
	m, err := v.Message(shown)
	if err != nil {
		return nil, e.Unreadable(o.Name(), err)
	}
	return Enveloped(v, m, o.Revision), nil
}

// Enveloped returns a message as a view of protobuf shows it.
func Enveloped(v *kube.View, m kubeproto.Message, at storage.Revision) []byte {
	t, rev := v.Envelope(), int64(at)
	return m.AppendObject(make([]byte, 0, m.ObjectSize(t, rev)), t, rev)
}

func appendObject(v *kube.View, o *kube.Object) []byte {
	const room = 64 // for the resourceVersion
	return v.Append(make([]byte, 0, len(o.Raw())+room), o)
}

// indexFields tells the cache which fields to index: those that are selectable in some served version.
func (r *Resource) indexFields() {
	var fields []string
	for _, e := range r.endpoints {
		for _, field := range e.Fields {
			if field = e.StoredTerm(selectors.FieldTerm{Field: field}).Field; field != NameAlias {
				fields = append(fields, field)
			}
		}
	}
	slices.Sort(fields)
	r.Cache.SetFields(slices.Compact(fields))
}

// Begin and Written are the brackets of a write; they do nothing for most resources.
func (r *Resource) Begin(ctx context.Context) (func(), error) {
	if t := r.Storage.Typed; t != nil && t.Guard.begin != nil {
		return t.Guard.begin(ctx)
	}
	return func() {}, nil
}

// OneByOne tells whether no two objects of the resource are written at the same time: Begin waits.
func (r *Resource) OneByOne() bool {
	t := r.Storage.Typed
	return t != nil && t.Guard.begin != nil
}

func (r *Resource) Written(ctx context.Context, rev storage.Revision) error {
	switch t := r.Storage.Typed; {
	case t == nil:
		return nil
	case t.Guard.written != nil:
		return t.Guard.written(ctx, rev)
	case t.Awaited:
		return r.Registry.Cacher.WaitFor(ctx, rev)
	}
	return nil
}

// Read reads an object from etcd, past the cache. It's nil when there is none.
func (r *Resource) Read(ctx context.Context, key string) (*kube.Object, error) {
	return r.Registry.Read(ctx, key)
}

// PatchTypes returns the media types of the patches that the endpoint takes. The slice is the caller's.
func (e *Endpoint) PatchTypes() []types.PatchType {
	all := []types.PatchType{types.JSONPatchType, types.MergePatchType}
	if e.Typed != nil {
		all = append(all, types.StrategicMergePatchType)
	}
	return append(all, types.ApplyYAMLPatchType)
}

// ModelName is "com.example.v1.Widget" for the kind Widget of example.com/v1.
func ModelName(group, version, kind string) string {
	labels := strings.Split(group, ".")
	slices.Reverse(labels)
	return strings.Join(append(labels, version, kind), ".")
}
