package schema

import (
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// compiled is a schema as the shape of objects depends on it.
type compiled struct {
	structural *structuralschema.Structural
	root       *node
	embedded   bool                         // there are embedded resources
	fillsMeta  bool                         // there are defaults for the object's own apiVersion, kind or metadata, or in them
	lists      *structuralschema.Structural // what leads to lists whose items are unique; nil if there are none
	defaults   *structuralschema.Structural // what leads to defaults
}

// newStructural makes the structural schema of v1, with which it shares lists and values. Its defaults are its own.
func newStructural(v1 *apiextensionsv1.JSONSchemaProps) (*structuralschema.Structural, error) {
	in, err := internal(v1)
	if err != nil {
		return nil, err
	}
	s, err := structuralschema.NewStructural(in)
	if err != nil {
		return nil, fmt.Errorf("the schema of the definition is not structural: %w", err)
	}
	if err := defaulting.PruneDefaults(s); err != nil {
		return nil, fmt.Errorf("the defaults of the definition can't be pruned: %w", err)
	}
	return s, nil
}

func newCompiled(v1 *apiextensionsv1.JSONSchemaProps) (*compiled, error) {
	s, err := newStructural(v1)
	if err != nil {
		return nil, err
	}
	s = s.DeepCopy() // it shares with v1
	f := &compiled{structural: s, root: newNode(s)}
	if f.root == nil {
		f.root = &node{}
	}
	hasDefault := func(n *node) bool { return n.defaulted }
	f.embedded = f.root.any(func(n *node) bool { return n.embedded })
	f.fillsMeta = f.root.additional.any(hasDefault)
	for _, name := range metaNames {
		f.fillsMeta = f.fillsMeta || f.root.properties[name].any(hasDefault)
	}
	f.lists = leading(s, func(s *structuralschema.Structural) bool { return s.XListType != nil && *s.XListType != "atomic" })
	f.defaults = leading(s, func(s *structuralschema.Structural) bool { return s.Default.Object != nil })
	return f, nil
}

// leading returns of a schema what leads to the nodes that are wanted, and nil if there are none, so that
// upstream's pass doesn't walk through everything. What value validation says is left out.
func leading(s *structuralschema.Structural, wanted func(*structuralschema.Structural) bool) *structuralschema.Structural {
	if s == nil {
		return nil
	}
	way := &structuralschema.Structural{Generic: s.Generic, Extensions: s.Extensions, Items: leading(s.Items, wanted)}
	found := wanted(s) || way.Items != nil
	if a := s.AdditionalProperties; a != nil {
		if additional := leading(a.Structural, wanted); additional != nil {
			way.AdditionalProperties = &structuralschema.StructuralOrBool{Structural: additional, Bool: a.Bool}
			way.Properties = s.Properties // or they'd fall under additionalProperties
			return way
		}
	}
	way.Properties = map[string]structuralschema.Structural{}
	for name, property := range s.Properties {
		if p := leading(&property, wanted); p != nil {
			way.Properties[name] = *p
			found = true
		}
	}
	if !found {
		return nil
	}
	return way
}

// MalformedError says that an object can't be brought into the schema's form because of an embedded resource: its
// apiVersion or kind is no string, or its metadata can't be decoded. kube-apiserver answers 400 to that.
type MalformedError struct {
	Field *field.Error // where, and what
}

func (e *MalformedError) Error() string { return e.Field.Error() }

// Shape brings an object into the schema's form, in place, as kube-apiserver does with what it decodes:
// unknown fields are pruned, null is dropped where it may not be and there is no default, the metadata of
// embedded resources is decoded and encoded again, and defaults are filled in.
//
// content may have the object's own apiVersion, kind and metadata; none of them is added or removed, and
// unknown fields of metadata are for the caller to find.
//
// An error is a *MalformedError, or else says that the schema can't be compiled. The object may have been changed then.
func (s *Schema) Shape(content map[string]any) error {
	_, err := s.shape(content, quietly, refuses)
	return err
}

// ShapeStored is Shape for an object as it's stored. The definition may have begun to take a part of it for an embedded
// resource since. So what is malformed there is dropped, as kube-apiserver does with what it reads from etcd.
func (s *Schema) ShapeStored(content map[string]any) error {
	_, err := s.shape(content, quietly, drops)
	return err
}

// ShapeReporting is Shape, and returns the paths of what was pruned ("spec.foo"), sorted, at most maxUnknown. That takes
// another walk through the object.
func (s *Schema) ShapeReporting(content map[string]any) (unknown []string, err error) {
	return s.shape(content, reporting, refuses)
}

// report says whether unknown fields are collected.
type report bool

const (
	quietly   report = false
	reporting report = true
)

// malformed says what becomes of embedded metadata that is malformed: it's an error, or dropped.
type malformed bool

const (
	refuses malformed = false
	drops   malformed = true
)

func (s *Schema) shape(content map[string]any, report report, m malformed) (unknown []string, err error) {
	if s.trivial {
		return nil, nil
	}
	f, err := s.compile()
	if err != nil {
		return nil, err
	}
	own := takeOwn(content)
	w := f.work(content)
	if report == reporting && (w&prune != 0 || f.embedded) {
		unknown = f.unknown(content)
	}
	err = f.coerce(content, w, m)
	own.putBack(content)
	if err != nil {
		return nil, err
	}
	f.fill(content, w, &own)
	return unknown, nil
}

// fill fills in defaults.
func (f *compiled) fill(content map[string]any, w work, own *own) {
	if w&(fill|drop) != 0 || f.fillsMeta && own.some {
		defaulting.Default(content, f.defaults)
		own.dropOthers(content)
	}
}

// Default fills in what Shape does and removes nothing: it's what kube-apiserver does with an object that a webhook has changed. Its error
// is that of Shape.
func (s *Schema) Default(content map[string]any) error {
	if s.trivial {
		return nil
	}
	f, err := s.compile()
	if err != nil {
		return err
	}
	own := takeOwn(content)
	w := f.work(content)
	own.putBack(content)
	f.fill(content, w, &own)
	return nil
}

// Prune removes what Shape removes, and fills nothing in: it's what kube-apiserver does with an object that
// was converted from another version. Its error is that of Shape.
func (s *Schema) Prune(content map[string]any) error {
	if s.trivial {
		return nil
	}
	f, err := s.compile()
	if err != nil {
		return err
	}
	own := takeOwn(content)
	defer own.putBack(content)
	return f.coerce(content, f.work(content), refuses)
}

// work returns what there is to do with an object; everything if there may be embedded resources, because
// decoding their metadata changes what follows.
func (f *compiled) work(content map[string]any) work {
	if f.embedded {
		return prune | drop | fill
	}
	return f.root.work(content, false)
}

// coerce takes away what the schema doesn't allow for.
func (f *compiled) coerce(content map[string]any, w work, m malformed) error {
	if w&prune != 0 {
		pruning.Prune(content, f.structural, true)
	}
	if w&drop != 0 {
		defaulting.PruneNonNullableNullsWithoutDefaults(content, f.structural)
	}
	if f.embedded {
		if err := objectmeta.Coerce(nil, content, f.structural, false, bool(m)); err != nil {
			return &MalformedError{err}
		}
	}
	return nil
}

// metaNames are the fields that an object has without its schema saying so.
var metaNames = [...]string{"apiVersion", "kind", "metadata"}

// own are the apiVersion, kind and metadata of an object, taken aside while its schema is applied.
type own struct {
	values [len(metaNames)]any
	given  [len(metaNames)]bool
	some   bool
}

func takeOwn(content map[string]any) (o own) {
	for i, name := range metaNames {
		if o.values[i], o.given[i] = content[name]; o.given[i] {
			o.some = true
			delete(content, name)
		}
	}
	return o
}

func (o *own) putBack(content map[string]any) {
	for i, name := range metaNames {
		if o.given[i] {
			content[name] = o.values[i]
		}
	}
}

// dropOthers removes those that defaults have added.
func (o *own) dropOthers(content map[string]any) {
	for i, name := range metaNames {
		if !o.given[i] {
			delete(content, name)
		}
	}
}
