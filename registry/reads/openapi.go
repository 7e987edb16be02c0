package reads

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	openapiv2 "k8s.io/apiextensions-apiserver/pkg/controller/openapi/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	registryschema "github.com/apiserver-lite/apiserver-lite/registry/schema"
)

// Extensions of schemas.
const (
	groupVersionKind = "x-kubernetes-group-version-kind"
	selectableFields = "x-kubernetes-selectable-fields"
	embeddedResource = "x-kubernetes-embedded-resource"
	preserveUnknown  = "x-kubernetes-preserve-unknown-fields"
)

// OpenAPI returns what the endpoint's objects look like: the name of their schema, and by their names that schema and
// all that it refers to (by gotype.RefPrefix). It's what is published in OpenAPI v3, and by which server-side apply
// merges. The map and the endpoint's own schema are made for this call and belong to the caller; those that it refers to may be shared.
//
// For custom resources they say what kube-apiserver publishes: the definition's schema with apiVersion, kind and
// metadata. A definition's schema that lists no fields lists those three alone then. A Go type that has no schema (see
// gotype.Of) is an object of which nothing is said.
func (e Reader) OpenAPI() (root string, schemas map[string]*spec.Schema, err error) {
	return e.openAPI(openAPIv3)
}

// OpenAPIV2 is OpenAPI in what OpenAPI v2 can express. Kubectl takes an object whose schema lists fields to have no
// others, so one that may have others lists none.
func (e Reader) OpenAPIV2() (root string, schemas map[string]*spec.Schema, err error) {
	return e.openAPI(openAPIv2)
}

// OpenAPIDigest changes when what OpenAPI and OpenAPIV2 return, or what discovery says of the endpoint, may have changed:
// for custom resources with each generation of the definition. It's the same after a restart, and cheap.
func (e Reader) OpenAPIDigest() (digest [sha256.Size]byte, err error) {
	var content any = []any{e.Res.UID, e.Res.Generation, e.Fields}
	if e.Typed != nil {
		schemas, err := gotype.Digest(reflect.TypeOf(e.Typed.Zero))
		content = []any{e.ModelName(), schemas, e.Fields, err != nil} // a type without a schema is an object of which nothing is said
	}
	body, err := json.Marshal(content)
	if err != nil {
		return digest, err
	}
	return sha256.Sum256(append(body, e.Digest[:]...)), nil
}

// openAPIVersion is a version of OpenAPI, by what it can express.
type openAPIVersion int

const (
	openAPIv2 openAPIVersion = 2
	openAPIv3 openAPIVersion = 3
)

func (e Reader) openAPI(version openAPIVersion) (root string, schemas map[string]*spec.Schema, err error) {
	root = e.ModelName()
	if e.Typed != nil {
		_, schemas, err = gotype.Of(reflect.TypeOf(e.Typed.Zero))
	}
	switch {
	case e.Typed == nil || err != nil:
		meta, err := metaSchemas()
		if err != nil {
			return "", nil, err
		}
		schemas = maps.Clone(meta)
		schemas[root] = customSchema(e.published(), version)
	case version == openAPIv2: // in which Kubernetes publishes no defaults
		for _, s := range schemas {
			for name, p := range s.Properties {
				p.Default = nil
				s.Properties[name] = p
			}
		}
	}
	schemas[root].AddExtension(groupVersionKind, []any{map[string]any{"group": e.Group, "version": e.Version, "kind": e.Kind}})
	if fields := e.SelectableFields(); len(fields) > 0 {
		schemas[root].AddExtension(selectableFields, fields)
	}
	return root, schemas, nil
}

// metaSchemas are those of what all objects have, which nobody changes. Thousands of definitions need them.
var metaSchemas = sync.OnceValues(func() (map[string]*spec.Schema, error) {
	_, schemas, err := gotype.Of(reflect.TypeFor[metav1.ObjectMeta]())
	return schemas, err
})

// structural returns the definition's schema, and one that says nothing where there is none: for a Go type that has no
// schema, and for a definition that was stored by a program with other rules.
func (e Reader) structural() *schema.Structural {
	return e.structuralOf((*registryschema.Schema).Structural)
}

// published is structural for the caller alone, who may change it.
func (e Reader) published() *schema.Structural {
	return e.structuralOf((*registryschema.Schema).Published)
}

func (e Reader) structuralOf(get func(*registryschema.Schema) (*schema.Structural, error)) *schema.Structural {
	if e.Schema != nil {
		if s, err := get(e.Schema); err == nil {
			return s
		}
	}
	return nil
}

// ModelName returns the name of the objects' schema: "com.example.v1.Widget" for the kind Widget of example.com/v1, and for
// a Go type what gotype.Of says.
func (e Reader) ModelName() string {
	if e.Typed != nil {
		return gotype.Name(reflect.TypeOf(e.Typed.Zero))
	}
	return registry.ModelName(e.Group, e.Version, e.Kind)
}

// SelectableFields are the fields by which objects can be selected, as OpenAPI's documents say it.
func (e Reader) SelectableFields() []any {
	var fields []any
	for _, label := range e.Fields {
		if label != registry.NameAlias {
			fields = append(fields, map[string]any{"fieldPath": label})
		}
	}
	return fields
}

// customSchema completes a definition's schema.
func customSchema(s *schema.Structural, version openAPIVersion) *spec.Schema {
	object := &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{"object"}}}
	if s == nil || version == openAPIv2 && s.XPreserveUnknownFields {
		return object
	}
	if version == openAPIv2 {
		s = openapiv2.ToStructuralOpenAPIV2(s) // which has nothing of what Unfold would add
	} else {
		s = s.Unfold()
	}
	out := s.ToKubeOpenAPI()
	addObjectFields(out)
	if hasEmbedded(*out) { // few have, and it copies all
		addEmbedded(out, version)
	}
	return out
}

// hasEmbedded tells whether there are objects inside an object.
func hasEmbedded(s spec.Schema) bool {
	if embedded, _ := s.Extensions.GetBool(embeddedResource); embedded {
		return true
	}
	for _, property := range s.Properties {
		if hasEmbedded(property) {
			return true
		}
	}
	return s.Items != nil && s.Items.Schema != nil && hasEmbedded(*s.Items.Schema) ||
		s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil && hasEmbedded(*s.AdditionalProperties.Schema)
}

// addObjectFields adds the fields that every object has.
func addObjectFields(s *spec.Schema) {
	doc := metav1.TypeMeta{}.SwaggerDoc()
	for _, name := range []string{"apiVersion", "kind"} {
		s.SetProperty(name, *spec.StringProperty().WithDescription(doc[name]))
	}
	metadata := gotype.RefPrefix + metav1.ObjectMeta{}.OpenAPIModelName()
	s.SetProperty("metadata", *spec.RefSchema(metadata).WithDescription(metav1.PartialObjectMetadata{}.SwaggerDoc()["metadata"]))
}

// addEmbedded adds them to the objects inside an object, too.
func addEmbedded(s *spec.Schema, version openAPIVersion) {
	for name, property := range s.Properties {
		addEmbedded(&property, version)
		s.Properties[name] = property
	}
	if s.Items != nil && s.Items.Schema != nil {
		addEmbedded(s.Items.Schema, version)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		addEmbedded(s.AdditionalProperties.Schema, version)
	}
	if embedded, _ := s.Extensions.GetBool(embeddedResource); !embedded {
		return
	}
	if open, _ := s.Extensions.GetBool(preserveUnknown); open && version == openAPIv2 {
		return
	}
	addObjectFields(s)
	required := slices.Clone(s.Required) // the definition's own
	for _, name := range []string{"kind", "apiVersion"} {
		if !slices.Contains(required, name) {
			required = append(required, name)
		}
	}
	s.Required = required
}
