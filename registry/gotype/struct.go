package gotype

import (
	"reflect"
	"slices"
	"strings"

	"github.com/swaggest/jsonschema-go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// structSchema returns the schema of a struct, which refers to those of the named structs in its fields.
func structSchema(t reflect.Type) (*spec.Schema, error) {
	reflector := jsonschema.Reflector{}
	found, err := reflector.Reflect(reflect.Zero(t).Interface(),
		jsonschema.InlineRefs, jsonschema.ProcessWithoutTags, jsonschema.SkipEmbeddedMapsSlices,
		jsonschema.InterceptSchema(stopAtKnown), jsonschema.InterceptProp(readTags))
	if err != nil {
		return nil, err
	}
	schema := convert(&found)
	schema.Description = docs(t)[""]
	if isOneValue(t) {
		schema.AddExtension(mapType, "atomic")
	}
	for name, property := range schema.Properties {
		if property.Description == "" {
			property.Description = comment(t, name)
			schema.Properties[name] = property
		}
	}
	return &schema, complete(&schema, Name(t))
}

// isOneValue reports whether server-side apply takes a struct as one value. Kubernetes says so in a comment on the type
// (+structType=atomic), which a program doesn't have.
func isOneValue(t reflect.Type) bool {
	return t == reflect.TypeFor[metav1.OwnerReference]() || t == reflect.TypeFor[metav1.LabelSelector]()
}

// stopAtKnown gives jsonschema the schemas of leaves, and references to named structs; it goes on with the rest.
func stopAtKnown(params jsonschema.InterceptSchemaParams) (stop bool, err error) {
	if params.Processed || len(params.Context.Path) == 1 { // the struct itself
		return false, nil
	}
	t := params.Schema.ReflectType
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out := jsonschema.Schema{}
	switch known := leaf(t); {
	case referred(t):
		out.WithRef(RefPrefix + Name(t))
	case known != nil:
		for _, typ := range known.Type {
			out.AddType(jsonschema.SimpleType(typ))
		}
		if known.Format != "" {
			out.WithFormat(known.Format)
		}
		out.ExtraProperties = known.Extensions
	default:
		return false, nil
	}
	*params.Schema = out
	return true, nil
}

// readTags adds to a field what jsonschema leaves out.
func readTags(params jsonschema.InterceptPropParams) error {
	if !params.Processed {
		return nil
	}
	f, schema := params.Field, params.PropertySchema
	_, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
	if has("string") && typeOf(schema) != "" && strings.Contains("integer number boolean", typeOf(schema)) { // in quotes
		schema.WithType(jsonschema.String.Type())
		schema.Format = nil
	}
	if !has("omitempty") && !has("omitzero") && f.Type.Kind() != reflect.Pointer && !slices.Contains(params.ParentSchema.Required, params.Name) {
		params.ParentSchema.Required = append(params.ParentSchema.Required, params.Name)
	}
	if f.Tag.Get("nullable") == "true" {
		schema.WithExtraPropertiesItem(nullable, true)
	}
	addListType(f, schema)
	return nil
}

// addListType says how a list is merged: by a key or as a set where strategic merge does so, and else not at all. Lists
// of Kubernetes's own conditions have the type as their key, as its conventions want it.
func addListType(f reflect.StructField, schema *jsonschema.Schema) {
	t := f.Type
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	strategy, key := f.Tag.Get("patchStrategy"), f.Tag.Get("patchMergeKey")
	if strategy != "" {
		schema.WithExtraPropertiesItem(patchStrategy, strategy)
	}
	if t.Kind() != reflect.Slice || typeOf(schema) != "array" {
		return
	}
	merged := slices.Contains(strings.Split(strategy, ","), "merge")
	if t.Elem() == reflect.TypeFor[metav1.Condition]() && strategy == "" {
		merged, key = true, "type"
	}
	switch {
	case merged && key != "":
		if strategy != "" {
			schema.WithExtraPropertiesItem(patchMergeKey, key)
		}
		schema.WithExtraPropertiesItem(listType, "map")
		schema.WithExtraPropertiesItem(listMapKeys, []any{key})
	case merged && scalarOf(t.Elem()) != nil:
		schema.WithExtraPropertiesItem(listType, "set")
	default:
		schema.WithExtraPropertiesItem(listType, "atomic")
	}
}

// convert makes an OpenAPI schema of a JSON schema.
func convert(in *jsonschema.Schema) spec.Schema {
	out := spec.Schema{}
	if in.Ref != nil {
		out = *spec.RefSchema(*in.Ref)
	}
	if typ := typeOf(in); typ != "" {
		out.Type = spec.StringOrArray{typ}
	}
	out.Required = in.Required
	for name, property := range in.Properties {
		if out.Properties == nil {
			out.Properties = make(map[string]spec.Schema, len(in.Properties))
		}
		out.Properties[name] = convert(property.TypeObject)
	}
	if in.Items != nil && in.Items.SchemaOrBool != nil {
		items := convert(in.Items.SchemaOrBool.TypeObject)
		out.Items = &spec.SchemaOrArray{Schema: &items}
	}
	if in.AdditionalProperties != nil && in.AdditionalProperties.TypeObject != nil {
		values := convert(in.AdditionalProperties.TypeObject)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: true, Schema: &values}
	}
	for name, value := range in.ExtraProperties {
		switch {
		case name == nullable:
			out.Nullable = true
		case strings.HasPrefix(name, "x-"):
			out.AddExtension(name, value)
		}
	}
	addValidation(&out, in)
	if in.Ref == nil && len(out.Type) == 0 && len(out.Extensions) == 0 { // an interface
		out.AddExtension(preserveUnknown, true)
	}
	return out
}

// typeOf is a schema's type. That it may also be null, as Go's slices and pointers may, is no concern of the API.
func typeOf(s *jsonschema.Schema) string {
	if s.Type == nil {
		return ""
	}
	all := s.Type.SliceOfSimpleTypeValues
	if s.Type.SimpleTypes != nil {
		all = []jsonschema.SimpleType{*s.Type.SimpleTypes}
	}
	for _, typ := range all {
		if typ != jsonschema.Null {
			return string(typ)
		}
	}
	return ""
}

// addValidation copies what jsonschema read from a field's tags.
func addValidation(out *spec.Schema, in *jsonschema.Schema) {
	copyTo(&out.Title, in.Title)
	copyTo(&out.Description, in.Description)
	copyTo(&out.Format, in.Format)
	copyTo(&out.Pattern, in.Pattern)
	copyTo(&out.Default, in.Default)
	copyTo(&out.UniqueItems, in.UniqueItems)
	out.Enum = in.Enum
	out.MultipleOf, out.Maximum, out.Minimum = in.MultipleOf, in.Maximum, in.Minimum
	if in.ExclusiveMaximum != nil {
		out.Maximum, out.ExclusiveMaximum = in.ExclusiveMaximum, true
	}
	if in.ExclusiveMinimum != nil {
		out.Minimum, out.ExclusiveMinimum = in.ExclusiveMinimum, true
	}
	out.MaxLength, out.MinLength = in.MaxLength, positive(in.MinLength)
	out.MaxItems, out.MinItems = in.MaxItems, positive(in.MinItems)
	out.MaxProperties, out.MinProperties = in.MaxProperties, positive(in.MinProperties)
}

func copyTo[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func positive(n int64) *int64 {
	if n > 0 {
		return &n
	}
	return nil
}
