package managed

import (
	"fmt"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
)

// Types says how the objects of one kind merge, in all its versions: which lists are maps or sets, and which
// lists and maps are one value. The kind's managers share it. It's safe for concurrent use.
type Types struct {
	zero  func(apiVersion string) map[string]any // see NewGoTypes; nil for custom resources
	build func() (definitions map[string]*spec.Schema, err error)

	once        sync.Once
	converter   managedfields.TypeConverter
	apiVersions []string       // in which there are types
	unowned     *fieldpath.Set // what nobody's record has
	err         error

	parsed sync.Map // of a Go type: the *typed.TypedValue of the empty object, by its schema.GroupVersionKind
}

// NewTypes returns types that build describes when they're first needed; build is called once.
//
// The definitions are OpenAPI schemas by name, and have one marked with SetKind for each version of the kind
// (Define makes those of a custom resource). References between them end in a name. A definition that is
// referred to and missing is an error of each merge that meets it, except those of metadata, which are added.
// Without definitions types are deduced from the values: maps are merged, lists are single values.
// Fields that no schema declares are errors, where it doesn't allow them for itself.
func NewTypes(build func() (definitions map[string]*spec.Schema, err error)) *Types {
	return &Types{build: build}
}

// NewGoTypes is NewTypes for a kind whose objects are values of Go types. zero returns such a value with nothing set, in one of the
// versions, as a new tree. A new object is compared with it: what a Go type always writes, such as a struct without omitempty, is
// nobody's unless there's something in it. An entry of a version that there's no more is dropped, as kube-apiserver does; that
// of a custom resource is an error.
func NewGoTypes(zero func(apiVersion string) map[string]any, build func() (definitions map[string]*spec.Schema, err error)) *Types {
	return &Types{zero: zero, build: build}
}

// empty returns the object that a create starts from.
func (t *Types) empty(gvk schema.GroupVersionKind) map[string]any {
	tree, apiVersion := map[string]any{}, gvk.GroupVersion().String()
	if t.zero != nil {
		tree = t.zero(apiVersion)
	}
	tree["apiVersion"], tree["kind"] = apiVersion, gvk.Kind
	return tree
}

// load builds the types at its first call.
func (t *Types) load() error {
	t.once.Do(func() {
		definitions, err := t.build()
		if err != nil {
			t.err = err
			return
		}
		t.unowned = unowned()
		if len(definitions) == 0 {
			t.converter = managedfields.NewDeducedTypeConverter()
			return
		}
		all, err := metaDefinitions()
		if err != nil {
			t.err = err
			return
		}
		for name, s := range definitions {
			all[name] = s
			t.apiVersions = append(t.apiVersions, apiVersionsOf(s)...)
		}
		t.converter, t.err = managedfields.NewTypeConverter(all, false)
	})
	return t.err
}

// knows reports whether there are types for a version. Deduced ones fit every version.
func (t *Types) knows(apiVersion string) bool {
	return len(t.apiVersions) == 0 || slices.Contains(t.apiVersions, apiVersion)
}

// ObjectToTyped and TypedToObject make Types a managedfields.TypeConverter, for objects and for the
// configuration in kubectl's annotation, which the library decodes by itself.
func (t *Types) ObjectToTyped(obj runtime.Object, opts ...typed.ValidationOptions) (*typed.TypedValue, error) {
	o, ok := obj.(*object)
	if !ok {
		return t.converter.ObjectToTyped(obj, opts...)
	}
	if o.typed != nil {
		return o.typed, nil
	}
	if t.zero == nil || !slices.Contains(opts, typed.AllowDuplicates) || !t.knows(o.GetAPIVersion()) {
		return t.converter.ObjectToTyped(o.Unstructured, opts...)
	}
	// What was a value of the type fits it. To look is a third of what an update's record costs.
	empty, err := t.parsedEmpty(o.GroupVersionKind())
	if err != nil {
		return nil, err
	}
	//lint:ignore SA1019 the library advises to validate always, which takes it a tenth of a second per thousand updates of a Pod
	return typed.AsTypedUnvalidated(value.NewValueInterface(o.Object), empty.Schema(), empty.TypeRef()), nil
}

// parsedEmpty returns the empty object of a Go type, which has the type's schema.
func (t *Types) parsedEmpty(gvk schema.GroupVersionKind) (*typed.TypedValue, error) {
	if known, ok := t.parsed.Load(gvk); ok {
		return known.(*typed.TypedValue), nil
	}
	empty, err := t.converter.ObjectToTyped(newObject(t.empty(gvk), nil).Unstructured)
	if err == nil {
		t.parsed.Store(gvk, empty)
	}
	return empty, err
}

// TypedToObject is the way back; the value becomes part of the object.
func (t *Types) TypedToObject(v *typed.TypedValue) (runtime.Object, error) {
	root, ok := v.AsValue().Unstructured().(map[string]any)
	if !ok {
		return nil, fmt.Errorf("the merged object is a %T instead of a map", v.AsValue().Unstructured())
	}
	return newObject(root, nil), nil
}

// unowned returns the fields that identify an object or are the server's. The library takes them out of all
// records (its stripMeta).
func unowned() *fieldpath.Set {
	set := fieldpath.NewSet(fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"))
	for _, name := range []string{"name", "namespace", "creationTimestamp", "selfLink", "uid", "clusterName", "generation",
		"managedFields", "resourceVersion"} {
		set.Insert(fieldpath.MakePathOrDie("metadata", name))
	}
	return set
}

// kindExtension marks a schema as that of a kind.
const kindExtension = "x-kubernetes-group-version-kind"

// SetKind marks a schema as the one that describes the objects of a kind.
func SetKind(s *spec.Schema, gvk schema.GroupVersionKind) {
	s.AddExtension(kindExtension, []any{map[string]any{"group": gvk.Group, "version": gvk.Version, "kind": gvk.Kind}})
}

// apiVersionsOf returns what SetKind wrote.
func apiVersionsOf(s *spec.Schema) (apiVersions []string) {
	kinds, _ := s.Extensions[kindExtension].([]any)
	for _, k := range kinds {
		m, _ := k.(map[string]any)
		group, _ := m["group"].(string)
		if version, ok := m["version"].(string); ok {
			apiVersions = append(apiVersions, schema.GroupVersion{Group: group, Version: version}.String())
		}
	}
	return apiVersions
}

// Define adds the definition of a custom resource in one version. The schema is that of the definition
// (Structural.ToKubeOpenAPI); Define completes it with apiVersion, kind and metadata, also where it embeds
// resources, and keeps it. A nil schema allows everything.
// Source: apiextensions-apiserver's OpenAPI builder.
func Define(definitions map[string]*spec.Schema, gvk schema.GroupVersionKind, s *spec.Schema) {
	if s == nil {
		s = new(spec.Schema).Typed("object", "")
	} else {
		embed(s)
		addMeta(s)
	}
	SetKind(s, gvk)
	definitions[gvk.Group+"."+gvk.Version+"."+gvk.Kind] = s
}

// embed completes the schemas of embedded resources.
func embed(s *spec.Schema) {
	if s == nil {
		return
	}
	for name, property := range s.Properties {
		embed(&property)
		s.Properties[name] = property
	}
	if s.Items != nil {
		embed(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		embed(s.AdditionalProperties.Schema)
	}
	if embedded, _ := s.Extensions.GetBool("x-kubernetes-embedded-resource"); embedded {
		addMeta(s)
	}
}

func addMeta(s *spec.Schema) {
	s.SetProperty("apiVersion", *spec.StringProperty())
	s.SetProperty("kind", *spec.StringProperty())
	s.SetProperty("metadata", *spec.RefSchema(gotype.RefPrefix + metav1.ObjectMeta{}.OpenAPIModelName()))
}

// metaDefinitions describes metadata, as gotype does for Go types.
func metaDefinitions() (map[string]*spec.Schema, error) {
	_, definitions, err := gotype.Merging(reflect.TypeFor[metav1.ObjectMeta]())
	return definitions, err
}
