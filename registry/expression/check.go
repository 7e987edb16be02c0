package expression

import (
	"strings"

	"github.com/google/cel-go/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// Schema is what objects of a kind look like: the name of their schema, and by their names that schema and all that it
// refers to.
type Schema struct {
	Root    string
	Schemas map[string]*spec.Schema
}

// NewChecks returns a Set for each kind of objects, whose expressions are checked against the types of the objects and can't be
// evaluated: Define and Compile return what is wrong with an expression for such objects. What several of them are given is
// parsed once. params is nil for a policy without any; the zero Schema is that of objects of which nothing is known.
func NewChecks(objects []Schema, params *Schema) (sets []*Set) {
	together := map[string]parsed{}
	for _, object := range objects {
		s := New(params != nil)
		s.check, s.parsed = &types{object: object.declared("Object")}, together
		if params != nil {
			s.check.params = params.declared("Params")
		}
		sets = append(sets, s)
	}
	return sets
}

// parsed is a text that was parsed, which takes as long as to check it.
type parsed struct {
	ast    *cel.Ast
	issues *cel.Issues
}

// checked is env.Compile, with what other sets have parsed.
func (s *Set) checked(env *cel.Env, text string) (*cel.Ast, *cel.Issues) {
	p, known := s.parsed[text]
	if !known {
		p.ast, p.issues = env.Parse(text)
		s.parsed[text] = p
	}
	if p.issues.Err() != nil {
		return nil, p.issues
	}
	return env.Check(p.ast)
}

// declared returns the schema as a type of CEL, nil for any.
func (s Schema) declared(name string) *apiservercel.DeclType {
	root, ok := s.Schemas[s.Root]
	if !ok {
		return nil
	}
	whole := s.whole(root, nil)
	t := common.SchemaDeclType(&openapi.Schema{Schema: &whole}, true)
	if t == nil {
		return nil
	}
	return t.MaybeAssignTypeName("kubernetes." + name)
}

// whole returns a schema with what it refers to in the place of each reference. inside are the names of the
// schemas around it: one that refers to itself is an object of which nothing is known.
func (s Schema) whole(of *spec.Schema, inside []string) spec.Schema {
	out := *of
	if name := reference(of); name != "" {
		for _, outer := range inside {
			if outer == name {
				return *anything()
			}
		}
		target, ok := s.Schemas[name]
		if !ok {
			return *anything()
		}
		out, inside = *target, append(inside[:len(inside):len(inside)], name)
	}
	if out.Properties != nil {
		properties := make(map[string]spec.Schema, len(out.Properties))
		for name, p := range out.Properties {
			properties[name] = s.whole(&p, inside)
		}
		out.Properties = properties
	}
	if a := out.AdditionalProperties; a != nil && a.Schema != nil {
		values := s.whole(a.Schema, inside)
		out.AdditionalProperties = &spec.SchemaOrBool{Allows: a.Allows, Schema: &values}
	}
	if out.Items != nil && out.Items.Schema != nil {
		items := s.whole(out.Items.Schema, inside)
		out.Items = &spec.SchemaOrArray{Schema: &items}
	}
	return out
}

func anything() *spec.Schema { return new(spec.Schema).Typed("object", "") }

// reference returns the name that a schema refers to, also if a description is beside the reference; "" for none.
func reference(s *spec.Schema) string {
	ref := s.Ref.String()
	for i := range s.AllOf {
		if ref == "" {
			ref = s.AllOf[i].Ref.String()
		}
	}
	return ref[strings.LastIndexByte(ref, '/')+1:]
}
