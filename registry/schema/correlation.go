package schema

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiserver/pkg/cel/common"
)

// correlation is a structural schema for pairing objects with old ones. It's upstream's adaptor, which
// makes all properties anew whenever one is asked for, with the parts made once.
type correlation struct {
	model.Structural
	items      common.Schema
	properties map[string]common.Schema
	additional common.SchemaOrBool
}

func newCorrelation(s *structuralschema.Structural) common.Schema {
	if s == nil {
		s = &structuralschema.Structural{}
	}
	c := &correlation{Structural: model.Structural{Structural: s}}
	if s.Items != nil {
		c.items = newCorrelation(s.Items)
	}
	if a := s.AdditionalProperties; a != nil {
		additional := &schemaOrBool{allows: a.Bool}
		if a.Structural != nil {
			additional.schema = newCorrelation(a.Structural)
		}
		c.additional = additional
	}
	if len(s.Properties) > 0 {
		c.properties = make(map[string]common.Schema, len(s.Properties))
	}
	for name, property := range s.Properties {
		c.properties[name] = newCorrelation(&property)
	}
	return c
}

func (c *correlation) Items() common.Schema                      { return c.items }
func (c *correlation) Properties() map[string]common.Schema      { return c.properties }
func (c *correlation) AdditionalProperties() common.SchemaOrBool { return c.additional }

type schemaOrBool struct {
	schema common.Schema
	allows bool
}

func (s *schemaOrBool) Schema() common.Schema { return s.schema }
func (s *schemaOrBool) Allows() bool          { return s.allows }
