package schema

import (
	"math"
	"regexp"
	"slices"
	"unicode/utf8"

	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
)

// quick knows the checks that most schemas consist of, and answers one question: whether a value is surely
// valid. No means that upstream has to be asked, whose validators are made anew for every value and
// cost a hundred times as much. It may answer no for a valid value, never yes for an invalid one. A fuzz test checks that.
type quick struct {
	ignorant bool // there are checks that quick doesn't know

	types    kinds // none given: any
	nullable bool
	enum     map[any]struct{} // nil: any

	number quickNumber
	text   quickString
	array  quickArray
	object quickObject

	allOf, anyOf []*quick
}

// quickNumber is what a schema says of numbers.
type quickNumber struct {
	integer, int32   bool // numbers are integers, of 32 bits
	minimum, maximum *float64
	over, below      bool // the bounds themselves are excluded
}

// quickString is what a schema says of strings.
type quickString struct {
	minLength, maxLength *int64 // in characters
	pattern              *regexp.Regexp
	format               string
}

// quickArray is what a schema says of arrays.
type quickArray struct {
	items              *quick
	minItems, maxItems *int64
}

// quickObject is what a schema says of objects.
type quickObject struct {
	properties                   map[string]*quick
	additional                   *quick
	required                     []string
	minProperties, maxProperties *int64
}

// kinds is a set of the types of JSON values.
type kinds uint8

const (
	kindObject kinds = 1 << iota
	kindArray
	kindString
	kindInteger
	kindNumber
	kindBoolean
)

var kindByName = map[string]kinds{
	"object": kindObject, "array": kindArray, "string": kindString, "integer": kindInteger, "number": kindNumber, "boolean": kindBoolean,
}

func newQuick(s *spec.Schema) *quick {
	if s == nil {
		return nil
	}
	q := &quick{
		nullable: s.Nullable,
		number:   quickNumber{minimum: s.Minimum, maximum: s.Maximum, over: s.ExclusiveMinimum, below: s.ExclusiveMaximum},
		text:     quickString{minLength: s.MinLength, maxLength: s.MaxLength},
		array:    quickArray{minItems: s.MinItems, maxItems: s.MaxItems},
		object:   quickObject{required: s.Required, minProperties: s.MinProperties, maxProperties: s.MaxProperties},
	}
	q.ignorant = len(s.OneOf) > 0 || s.Not != nil || s.MultipleOf != nil || s.UniqueItems ||
		len(s.PatternProperties) > 0 || len(s.Dependencies) > 0 || s.AdditionalItems != nil ||
		s.Items != nil && len(s.Items.Schemas) > 0 ||
		s.AdditionalProperties != nil && !s.AdditionalProperties.Allows
	for _, name := range s.Type {
		kind, known := kindByName[name]
		q.types |= kind
		q.ignorant = q.ignorant || !known
	}
	q.learnFormat(s)
	q.learnBounds()
	q.learnEnum(s.Enum)
	if s.Pattern != "" {
		pattern, err := regexp.Compile(s.Pattern)
		q.text.pattern, q.ignorant = pattern, q.ignorant || err != nil
	}
	q.learnParts(s)
	return q
}

func (q *quick) learnFormat(s *spec.Schema) {
	q.number.integer = len(s.Type) == 1 && s.Type[0] == "integer"
	switch {
	case s.Format == "" || q.number.integer && s.Format == "int64" || q.types == kindNumber && s.Format == "double":
	case q.number.integer && s.Format == "int32":
		q.number.int32 = true
	case q.types != kindString:
		q.ignorant = true
	case strfmt.Default.ContainsName(s.Format): // others aren't checked
		q.text.format = s.Format
	}
}

// learnBounds leaves to upstream bounds that aren't of the type which they bound.
func (q *quick) learnBounds() {
	for _, bound := range []*float64{q.number.minimum, q.number.maximum} {
		if bound == nil {
			continue
		}
		limit := float64(1 << 53) // up to here float64 has every integer
		if q.number.int32 {
			limit = math.MaxInt32
		}
		if math.IsNaN(*bound) || math.Abs(*bound) > limit || q.number.integer && *bound != math.Trunc(*bound) {
			q.ignorant = true
		}
	}
}

func (q *quick) learnEnum(values []any) {
	if len(values) == 0 {
		return
	}
	q.enum = make(map[any]struct{}, len(values))
	for _, v := range values {
		switch v.(type) {
		case string, int64, float64, bool:
			q.enum[v] = struct{}{}
		}
	}
}

func (q *quick) learnParts(s *spec.Schema) {
	if s.Items != nil {
		q.array.items = newQuick(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		q.object.additional = newQuick(s.AdditionalProperties.Schema)
	}
	if len(s.Properties) > 0 {
		q.object.properties = make(map[string]*quick, len(s.Properties))
	}
	for name, property := range s.Properties {
		q.object.properties[name] = newQuick(&property)
	}
	for i := range s.AllOf {
		q.allOf = append(q.allOf, newQuick(&s.AllOf[i]))
	}
	for i := range s.AnyOf {
		q.anyOf = append(q.anyOf, newQuick(&s.AnyOf[i]))
	}
}

// property returns what is known of a field; nil if the schema says nothing of it.
func (o *quickObject) property(name string) *quick {
	if p, ok := o.properties[name]; ok {
		return p
	}
	return o.additional
}

// accepts tells whether a value is surely valid. A nil quick accepts everything, as no schema would.
func (q *quick) accepts(value any) bool {
	switch {
	case q == nil:
		return true
	case value == nil: // upstream looks no further
		return q.enum == nil && (q.nullable || q.types == 0) && !q.ignorant
	case q.ignorant || !q.acceptsKind(value):
		return false
	}
	for _, all := range q.allOf {
		if !all.accepts(value) {
			return false
		}
	}
	return len(q.anyOf) == 0 || slices.ContainsFunc(q.anyOf, func(any *quick) bool { return any.accepts(value) })
}

func (q *quick) acceptsKind(value any) bool {
	switch value := value.(type) {
	case map[string]any:
		return q.enum == nil && q.hasType(kindObject) && q.object.accepts(value)
	case []any:
		return q.enum == nil && q.hasType(kindArray) && q.array.accepts(value)
	case string:
		return q.hasType(kindString) && q.text.accepts(value) && q.listed(value)
	case int64:
		return q.hasType(kindInteger|kindNumber) && q.number.acceptsInteger(value) && q.listed(value)
	case float64:
		return q.hasType(kindNumber) && q.number.accepts(value) && q.listed(value)
	case bool:
		return q.hasType(kindBoolean) && q.listed(value)
	default:
		return false
	}
}

func (q *quick) hasType(k kinds) bool { return q.types == 0 || q.types&k != 0 }

func (q *quick) listed(value any) bool {
	if q.enum == nil {
		return true
	}
	_, ok := q.enum[value]
	return ok
}

func (o *quickObject) accepts(object map[string]any) bool {
	if !within(int64(len(object)), o.minProperties, o.maxProperties) {
		return false
	}
	for _, name := range o.required {
		if _, ok := object[name]; !ok {
			return false
		}
	}
	if o.properties == nil && o.additional == nil {
		return true
	}
	for name, v := range object {
		if !o.property(name).accepts(v) {
			return false
		}
	}
	return true
}

func (a *quickArray) accepts(array []any) bool {
	if !within(int64(len(array)), a.minItems, a.maxItems) {
		return false
	}
	if a.items == nil {
		return true
	}
	for _, v := range array {
		if !a.items.accepts(v) {
			return false
		}
	}
	return true
}

func (t *quickString) accepts(s string) bool {
	if (t.minLength != nil || t.maxLength != nil) && !within(int64(utf8.RuneCountInString(s)), t.minLength, t.maxLength) {
		return false
	}
	return (t.pattern == nil || t.pattern.MatchString(s)) &&
		(t.format == "" || strfmt.Default.Validates(t.format, s))
}

// acceptsInteger is accepts for an integer. It compares as upstream does, which cuts bounds off to integers.
func (n *quickNumber) acceptsInteger(i int64) bool {
	if n.int32 && i != int64(int32(i)) {
		return false
	}
	if n.minimum != nil && (i < int64(*n.minimum) || n.over && i == int64(*n.minimum)) {
		return false
	}
	return n.maximum == nil || i < int64(*n.maximum) || !n.below && i == int64(*n.maximum)
}

func (n *quickNumber) accepts(f float64) bool {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return false
	}
	if n.minimum != nil && (f < *n.minimum || n.over && f == *n.minimum) {
		return false
	}
	return n.maximum == nil || f < *n.maximum || !n.below && f == *n.maximum
}

func within(n int64, lowest, highest *int64) bool {
	return (lowest == nil || n >= *lowest) && (highest == nil || n <= *highest)
}
