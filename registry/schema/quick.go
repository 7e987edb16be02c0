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

	quickNumber
	quickString
	quickArray
	quickObject

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
		nullable:    s.Nullable,
		quickNumber: quickNumber{minimum: s.Minimum, maximum: s.Maximum, over: s.ExclusiveMinimum, below: s.ExclusiveMaximum},
		quickString: quickString{minLength: s.MinLength, maxLength: s.MaxLength},
		quickArray:  quickArray{minItems: s.MinItems, maxItems: s.MaxItems},
		quickObject: quickObject{required: s.Required, minProperties: s.MinProperties, maxProperties: s.MaxProperties},
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
		q.pattern, q.ignorant = pattern, q.ignorant || err != nil
	}
	q.learnParts(s)
	return q
}

func (q *quick) learnFormat(s *spec.Schema) {
	q.integer = len(s.Type) == 1 && s.Type[0] == "integer"
	switch {
	case s.Format == "" || q.integer && s.Format == "int64" || q.types == kindNumber && s.Format == "double":
	case q.integer && s.Format == "int32":
		q.int32 = true
	case q.types != kindString:
		q.ignorant = true
	case strfmt.Default.ContainsName(s.Format): // others aren't checked
		q.format = s.Format
	}
}

// learnBounds leaves to upstream bounds that aren't of the type which they bound.
func (q *quick) learnBounds() {
	for _, bound := range []*float64{q.minimum, q.maximum} {
		if bound == nil {
			continue
		}
		limit := float64(1 << 53) // up to here float64 has every integer
		if q.int32 {
			limit = math.MaxInt32
		}
		if math.IsNaN(*bound) || math.Abs(*bound) > limit || q.integer && *bound != math.Trunc(*bound) {
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
		q.items = newQuick(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		q.additional = newQuick(s.AdditionalProperties.Schema)
	}
	if len(s.Properties) > 0 {
		q.properties = make(map[string]*quick, len(s.Properties))
	}
	for name, property := range s.Properties {
		q.properties[name] = newQuick(&property)
	}
	for i := range s.AllOf {
		q.allOf = append(q.allOf, newQuick(&s.AllOf[i]))
	}
	for i := range s.AnyOf {
		q.anyOf = append(q.anyOf, newQuick(&s.AnyOf[i]))
	}
}

// property returns what is known of a field; nil if the schema says nothing of it.
func (q *quick) property(name string) *quick {
	if p, ok := q.properties[name]; ok {
		return p
	}
	return q.additional
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
		return q.enum == nil && q.hasType(kindObject) && q.acceptsObject(value)
	case []any:
		return q.enum == nil && q.hasType(kindArray) && q.acceptsArray(value)
	case string:
		return q.hasType(kindString) && q.acceptsString(value) && q.listed(value)
	case int64:
		return q.hasType(kindInteger|kindNumber) && q.acceptsInteger(value) && q.listed(value)
	case float64:
		return q.hasType(kindNumber) && q.acceptsNumber(value) && q.listed(value)
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

func (q *quick) acceptsObject(object map[string]any) bool {
	if !within(int64(len(object)), q.minProperties, q.maxProperties) {
		return false
	}
	for _, name := range q.required {
		if _, ok := object[name]; !ok {
			return false
		}
	}
	if q.properties == nil && q.additional == nil {
		return true
	}
	for name, v := range object {
		if !q.property(name).accepts(v) {
			return false
		}
	}
	return true
}

func (q *quick) acceptsArray(array []any) bool {
	if !within(int64(len(array)), q.minItems, q.maxItems) {
		return false
	}
	if q.items == nil {
		return true
	}
	for _, v := range array {
		if !q.items.accepts(v) {
			return false
		}
	}
	return true
}

func (q *quick) acceptsString(s string) bool {
	if (q.minLength != nil || q.maxLength != nil) && !within(int64(utf8.RuneCountInString(s)), q.minLength, q.maxLength) {
		return false
	}
	return (q.pattern == nil || q.pattern.MatchString(s)) &&
		(q.format == "" || strfmt.Default.Validates(q.format, s))
}

// acceptsInteger compares as upstream does, which cuts bounds off to integers.
func (q *quick) acceptsInteger(i int64) bool {
	if q.int32 && i != int64(int32(i)) {
		return false
	}
	if q.minimum != nil && (i < int64(*q.minimum) || q.over && i == int64(*q.minimum)) {
		return false
	}
	return q.maximum == nil || i < int64(*q.maximum) || !q.below && i == int64(*q.maximum)
}

func (q *quick) acceptsNumber(f float64) bool {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return false
	}
	if q.minimum != nil && (f < *q.minimum || q.over && f == *q.minimum) {
		return false
	}
	return q.maximum == nil || f < *q.maximum || !q.below && f == *q.maximum
}

func within(n int64, lowest, highest *int64) bool {
	return (lowest == nil || n >= *lowest) && (highest == nil || n <= *highest)
}
