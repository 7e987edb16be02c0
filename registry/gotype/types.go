package gotype

import (
	"encoding"
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Extensions.
const (
	preserveUnknown = "x-kubernetes-preserve-unknown-fields"
	intOrString     = "x-kubernetes-int-or-string"
	listType        = "x-kubernetes-list-type"
	listMapKeys     = "x-kubernetes-list-map-keys"
	patchStrategy   = "x-kubernetes-patch-strategy"
	patchMergeKey   = "x-kubernetes-patch-merge-key"
	mapType         = "x-kubernetes-map-type"
	nullable        = "nullable" // a field in OpenAPI, but not in JSON Schema
)

// Methods by which types say what they look like in JSON, the first two as for Kubernetes's openapi-gen.
type (
	typer     interface{ OpenAPISchemaType() []string }
	formatter interface{ OpenAPISchemaFormat() string }
	oneOfer   interface{ OpenAPIV3OneOfTypes() []string }
	docer     interface{ SwaggerDoc() map[string]string }
)

// leaf returns the schema of a type that isn't looked into: scalars, what has a form of its own, and what may be
// anything. It's nil for the others.
func leaf(t reflect.Type) *spec.Schema {
	switch t {
	case reflect.TypeFor[time.Time]():
		return scalar("string", "date-time")
	case reflect.TypeFor[metav1.FieldsV1]():
		return scalar("object", "")
	case reflect.TypeFor[runtime.RawExtension](), reflect.TypeFor[unstructured.Unstructured](), reflect.TypeFor[unstructured.UnstructuredList]():
		schema := scalar("object", "")
		schema.AddExtension(preserveUnknown, true)
		return schema
	}
	if t.Kind() == reflect.Pointer { // its methods are those of what it points to
		return nil
	}
	value := instance(t)
	if typer, ok := value.(typer); ok {
		return ownSchema(typer)
	}
	if _, ok := value.(json.Marshaler); ok {
		return anything()
	}
	if _, ok := value.(encoding.TextMarshaler); ok {
		return scalar("string", "")
	}
	return scalarOf(t)
}

// instance returns a pointer to a new value, for its methods. Some may be those of a struct to which an embedded pointer
// points.
func instance(t reflect.Type) any {
	v := reflect.New(t)
	if t.Kind() == reflect.Struct {
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Anonymous && f.IsExported() && f.Type.Kind() == reflect.Pointer {
				v.Elem().Field(i).Set(reflect.New(f.Type.Elem()))
			}
		}
	}
	return v.Interface()
}

// ownSchema is what a type says of itself.
func ownSchema(t typer) *spec.Schema {
	schema := &spec.Schema{}
	if f, ok := t.(formatter); ok {
		schema.Format = f.OpenAPISchemaFormat()
	}
	if o, ok := t.(oneOfer); ok && len(o.OpenAPIV3OneOfTypes()) > 0 {
		for _, typ := range o.OpenAPIV3OneOfTypes() {
			schema.OneOf = append(schema.OneOf, *scalar(typ, ""))
		}
		if schema.Format == "int-or-string" {
			schema.AddExtension(intOrString, true)
		}
		return schema
	}
	if schema.Type = t.OpenAPISchemaType(); len(schema.Type) == 0 { // any
		schema.AddExtension(preserveUnknown, true)
	}
	return schema
}

// scalarOf returns the schema of a kind of Go values, nil for those with parts and those without a form.
func scalarOf(t reflect.Type) *spec.Schema {
	switch t.Kind() {
	case reflect.Interface:
		return anything()
	case reflect.String:
		return scalar("string", "")
	case reflect.Bool:
		return scalar("boolean", "")
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Uint8, reflect.Uint16:
		return scalar("integer", "int32")
	case reflect.Int, reflect.Int64, reflect.Uint, reflect.Uint32, reflect.Uint64:
		return scalar("integer", "int64")
	case reflect.Float32:
		return scalar("number", "float")
	case reflect.Float64:
		return scalar("number", "double")
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return scalar("string", "byte")
		}
	}
	return nil
}

func scalar(typ, format string) *spec.Schema {
	return &spec.Schema{SchemaProps: spec.SchemaProps{Type: spec.StringOrArray{typ}, Format: format}}
}

func anything() *spec.Schema {
	schema := &spec.Schema{}
	schema.AddExtension(preserveUnknown, true)
	return schema
}

// textKey tells whether JSON can have a map's keys.
func textKey(t reflect.Type) bool {
	switch k := t.Kind(); {
	case k == reflect.String, k >= reflect.Int && k <= reflect.Uint64:
		return true
	}
	return t.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

// referred tells whether others refer to the schema of a type, which has a name then. Kubernetes refers to structs
// and writes all else out.
func referred(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && t.Name() != "" && t != reflect.TypeFor[time.Time]()
}

var unfit = regexp.MustCompile(`[^A-Za-z0-9._-]`) // in a name: type parameters

// Name returns the name of a type's schema, as Kubernetes makes it: what the type says, or its path with the domain
// reversed. "" for what has no name.
func Name(t reflect.Type) string {
	if t.Name() == "" {
		return ""
	}
	if model := modelName(t); model != "" {
		return model
	}
	name := t.PkgPath() + "." + t.Name()
	if strings.Contains(t.PkgPath(), "/") { // else there's no domain to reverse
		name = util.ToRESTFriendlyName(name)
	}
	return unfit.ReplaceAllString(name, "_")
}

// modelName is what a type itself says its name is. A struct's method may be one that it has from a struct
// embedded in it.
func modelName(t reflect.Type) string {
	model, ok := instance(t).(util.OpenAPIModelNamer)
	if !ok || t.Kind() == reflect.Interface {
		return ""
	}
	name := model.OpenAPIModelName()
	for embedded := range embeddedIn(t) {
		if other, ok := instance(embedded).(util.OpenAPIModelNamer); ok && other.OpenAPIModelName() == name {
			return ""
		}
	}
	return name
}

// docs is what a type itself says of its fields by their JSON names, and of itself by "".
func docs(t reflect.Type) map[string]string {
	docer, ok := instance(t).(docer)
	if !ok || t.Kind() == reflect.Interface {
		return nil
	}
	doc := docer.SwaggerDoc()
	for embedded := range embeddedIn(t) {
		if other := docs(embedded); reflect.ValueOf(other).Pointer() == reflect.ValueOf(doc).Pointer() {
			return nil
		}
	}
	return doc
}

// embeddedIn yields the structs that are embedded in a struct.
func embeddedIn(t reflect.Type) func(yield func(reflect.Type) bool) {
	return func(yield func(reflect.Type) bool) {
		if t.Kind() != reflect.Struct {
			return
		}
		for i := range t.NumField() {
			f := t.Field(i)
			if f.Type.Kind() == reflect.Pointer {
				f.Type = f.Type.Elem()
			}
			if f.Anonymous && f.Type.Kind() == reflect.Struct && !yield(f.Type) {
				return
			}
		}
	}
}

// comment describes the field of a struct by its JSON name. Embedded structs describe theirs.
func comment(t reflect.Type, name string) string {
	if text := docs(t)[name]; text != "" {
		return text
	}
	for embedded := range embeddedIn(t) {
		if text := comment(embedded, name); text != "" {
			return text
		}
	}
	return ""
}
