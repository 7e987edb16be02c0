package discovery

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/jsontree"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// schemaForm is how a version of OpenAPI says what a schema says.
type schemaForm struct {
	openAPI func(reads.Reader) (string, map[string]*spec.Schema, error)
	// node brings a schema into the form, without those in it. It returns the schema, or a changed copy.
	node func(*spec.Schema) *spec.Schema
	refs string // what references begin with, instead of gotype.RefPrefix
}

var (
	form2 = &schemaForm{reads.Reader.OpenAPIV2, node2, refPrefix2}
	form3 = &schemaForm{reads.Reader.OpenAPI, node3, gotype.RefPrefix}
)

// node2 leaves out what version 2 doesn't have. What may be one of several types is what it's as text.
func node2(s *spec.Schema) *spec.Schema {
	if len(s.OneOf) == 0 && !s.Nullable || len(s.AnyOf)+len(s.AllOf) > 0 {
		return s
	}
	out := *s
	if len(s.OneOf) > 0 && len(s.Type) == 0 {
		out.Type = spec.StringOrArray{"string"}
	}
	out.OneOf, out.Nullable = nil, false
	return &out
}

// node3 puts a reference that has members beside it into one, as version 3.0 wants it. It's what builder3/util.WrapRefs of kube-openapi does.
func node3(s *spec.Schema) *spec.Schema {
	if s.Ref.String() == "" || reflect.DeepEqual(*s, spec.Schema{SchemaProps: spec.SchemaProps{Ref: s.Ref}}) {
		return s
	}
	out := *s
	out.AllOf = []spec.Schema{{SchemaProps: spec.SchemaProps{Ref: s.Ref}}}
	out.Ref = spec.Ref{}
	return &out
}

// madeSchema is a schema that is made when it's written.
type madeSchema struct {
	*schemaForm
	make func() (*spec.Schema, error)
}

func (m madeSchema) write(to *text) error {
	s, err := m.make()
	if err != nil {
		return err
	}
	return m.schema(to, s)
}

// schema writes a schema as its MarshalJSON does, which takes most of the time of a large document: reflection, and a second encoder
// that goes through what the first one wrote. What is rare is left to it.
func (f *schemaForm) schema(to *text, s *spec.Schema) error {
	s = f.node(s)
	if isRare(s) {
		return f.rare(to, s)
	}
	to.open('{')
	to.optional("description", s.Description)
	for _, typ := range s.Type {
		to.member("type", typ)
	}
	to.flag("nullable", s.Nullable)
	to.optional("format", s.Format)
	to.optional("title", s.Title)
	if s.Default != nil {
		if err := f.value(to, "default", s.Default); err != nil {
			return err
		}
	}
	if err := writeBounds(to, s); err != nil {
		return err
	}
	if err := f.within(to, s); err != nil {
		return err
	}
	if ref := s.Ref.String(); ref != "" {
		to.member("$ref", f.reference(ref))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Extensions)) {
		if err := f.value(to, name, s.Extensions[name]); err != nil {
			return err
		}
	}
	to.close('}')
	return nil
}

func (f *schemaForm) reference(to string) string {
	if name, ok := strings.CutPrefix(to, gotype.RefPrefix); ok {
		return f.refs + name
	}
	return to
}

// isRare tells that a schema has what schema doesn't write.
func isRare(s *spec.Schema) bool {
	p, q := &s.SchemaProps, &s.SwaggerSchemaProps
	switch {
	case p.ID != "", p.Schema != "", p.Type != nil && len(p.Type) != 1, p.Items != nil && (p.Items.Schema == nil || p.Items.Schemas != nil),
		p.PatternProperties != nil, p.Dependencies != nil, p.AdditionalItems != nil, p.Definitions != nil,
		q.Discriminator != "", q.ReadOnly, q.ExternalDocs != nil, q.Example != nil, s.ExtraProps != nil:
		return true
	}
	for name := range s.Extensions {
		if !strings.HasPrefix(name, "x-") {
			return true
		}
	}
	return false
}

// rare writes a schema as upstream's libraries do, by which tests compare.
func (f *schemaForm) rare(to *text, s *spec.Schema) error {
	walker := schemamutation.Walker{SchemaCallback: f.node, RefCallback: func(ref *spec.Ref) *spec.Ref {
		if changed := f.reference(ref.String()); changed != ref.String() {
			out := spec.MustCreateRef(changed)
			return &out
		}
		return ref
	}}
	body, err := json.Marshal(walker.WalkSchema(s))
	to.raw(string(body))
	return err
}

// writeBounds writes what values are held to.
func writeBounds(to *text, s *spec.Schema) error {
	to.number("maximum", s.Maximum)
	to.flag("exclusiveMaximum", s.ExclusiveMaximum)
	to.number("minimum", s.Minimum)
	to.flag("exclusiveMinimum", s.ExclusiveMinimum)
	to.integer("maxLength", s.MaxLength)
	to.integer("minLength", s.MinLength)
	to.optional("pattern", s.Pattern)
	to.integer("maxItems", s.MaxItems)
	to.integer("minItems", s.MinItems)
	to.flag("uniqueItems", s.UniqueItems)
	to.number("multipleOf", s.MultipleOf)
	if len(s.Enum) > 0 {
		if err := form3.value(to, "enum", s.Enum); err != nil {
			return err
		}
	}
	to.integer("maxProperties", s.MaxProperties)
	to.integer("minProperties", s.MinProperties)
	if len(s.Required) > 0 {
		to.name("required")
		to.strings(s.Required...)
	}
	return nil
}

// within writes the schemas that are in a schema.
func (f *schemaForm) within(to *text, s *spec.Schema) error {
	if s.Items != nil {
		to.name("items")
		if err := f.schema(to, s.Items.Schema); err != nil {
			return err
		}
	}
	for i, list := range [][]spec.Schema{s.AllOf, s.OneOf, s.AnyOf} {
		if len(list) == 0 {
			continue
		}
		to.name([]string{"allOf", "oneOf", "anyOf"}[i])
		to.open('[')
		for i := range list {
			if err := f.schema(to, &list[i]); err != nil {
				return err
			}
		}
		to.close(']')
	}
	if s.Not != nil {
		to.name("not")
		if err := f.schema(to, s.Not); err != nil {
			return err
		}
	}
	if len(s.Properties) > 0 {
		to.name("properties")
		to.open('{')
		var property spec.Schema // one for all: it's large, and on the heap
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			property = s.Properties[name]
			to.name(name)
			if err := f.schema(to, &property); err != nil {
				return err
			}
		}
		to.close('}')
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		to.name("additionalProperties")
		return f.schema(to, a.Schema)
	} else if a != nil {
		to.name("additionalProperties")
		to.raw(strconv.FormatBool(a.Allows))
	}
	return nil
}

// value writes a member that may be anything.
func (f *schemaForm) value(to *text, name string, v any) (err error) {
	if isTree(v) {
		to.name(name)
		*to, err = jsontree.Append(*to, v)
		return err
	}
	// Upstream's encoder differs from encoding/json, such as in what it takes for empty.
	body, err := json.Marshal(spec.Schema{SchemaProps: spec.SchemaProps{Default: v}})
	to.name(name)
	to.raw(strings.TrimSuffix(strings.TrimPrefix(string(body), `{"default":`), "}"))
	return err
}

// isTree tells that a value is of the types that decoding JSON makes.
func isTree(v any) bool {
	switch v := v.(type) {
	case nil, bool, string, int64, float64:
		return true
	case map[string]any:
		for _, member := range v {
			if !isTree(member) {
				return false
			}
		}
		return v != nil
	case []any:
		return v != nil && !slices.ContainsFunc(v, func(element any) bool { return !isTree(element) })
	}
	return false
}

// The members that are left out where they say nothing.

func (t *text) optional(name, value string) {
	if value != "" {
		t.member(name, value)
	}
}

func (t *text) flag(name string, value bool) {
	if value {
		t.name(name)
		t.raw("true")
	}
}

func (t *text) number(name string, value *float64) {
	if value != nil {
		t.name(name)
		*t, _ = jsontree.Append(*t, *value)
	}
}

func (t *text) integer(name string, value *int64) {
	if value != nil {
		t.name(name)
		*t = strconv.AppendInt(*t, *value, 10)
	}
}
