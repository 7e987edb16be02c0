package schematest

import (
	_ "embed"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// ThirtyDefinition is a definition with 30 fields and two rules, as YAML.
//
//go:embed thirty.yaml
var ThirtyDefinition []byte

// Thirty returns the schema of thirty.yaml, which has 30 fields and two rules.
func Thirty(t testing.TB) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(ThirtyDefinition, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Versions[0].Schema.OpenAPIV3Schema
}

// Props decodes a schema from YAML.
func Props(t testing.TB, text string) *apiextensionsv1.JSONSchemaProps {
	t.Helper()
	p := &apiextensionsv1.JSONSchemaProps{}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(text, "\t", "  ")), p); err != nil {
		t.Fatalf("schema: %v\n%s", err, text)
	}
	return p
}

// Widget is the schema of the benchmarks' definition: seven fields, no rule.
const Widget = `
type: object
required: [spec]
properties:
  spec:
    type: object
    required: [size, color]
    properties:
      size: {type: integer, minimum: 0, maximum: 1000000000}
      color: {type: string, enum: [red, green, blue]}
      owner: {type: string, maxLength: 64, pattern: "^[a-z0-9-]+$"}
      replicas: {type: integer, format: int32, minimum: 0}
      ratio: {type: number, minimum: 0, maximum: 1}
      tags: {type: array, maxItems: 8, items: {type: string, maxLength: 32}}
      payload: {type: string, maxLength: 1048576}
`

// Schemas returns those that are compared with upstream and fuzzed, by name.
func Schemas(t testing.TB) map[string]*apiextensionsv1.JSONSchemaProps {
	all := map[string]*apiextensionsv1.JSONSchemaProps{"thirty": Thirty(t), "widget": Props(t, Widget)}
	for name, text := range Texts {
		all[name] = Props(t, text)
	}
	return all
}

// Texts are schemas as YAML, by name.
var Texts = map[string]string{
	"trivial":  `{type: object, x-kubernetes-preserve-unknown-fields: true}`,
	"preserve": `{type: object, x-kubernetes-preserve-unknown-fields: true, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {num: {type: object, properties: {m: {x-kubernetes-preserve-unknown-fields: true}}}}}}}`,
	"types": `
type: object
properties:
  o: {type: object, maxProperties: 2, minProperties: 1, additionalProperties: {type: integer}}
  a: {type: array, minItems: 1, maxItems: 2, items: {type: string, minLength: 1}}
  s: {type: string, minLength: 1, maxLength: 5, pattern: '^[a-z]*$'}
  i: {type: integer, minimum: 1, maximum: 10, exclusiveMaximum: true}
  i32: {type: integer, format: int32, minimum: 2}
  i64: {type: integer, format: int64, maximum: 9007199254740993}
  m: {type: integer, multipleOf: 5}
  num: {type: number, minimum: 0.5, exclusiveMinimum: true, maximum: 7}
  d: {type: number, format: double}
  f: {type: number, format: float}
  b: {type: boolean}
  x: {x-kubernetes-int-or-string: true, maximum: 80, maxLength: 4}
  any: {x-kubernetes-preserve-unknown-fields: true}
`,
	"enums": `
type: object
properties:
  s: {type: string, enum: [a, b, ""]}
  i: {type: integer, enum: [1, 2, 80]}
  num: {type: number, enum: [0.5, 1, 7]}
  b: {type: boolean, enum: [true]}
  z: {type: string, nullable: true, enum: [a, null]}
  o: {type: object, x-kubernetes-preserve-unknown-fields: true, enum: [{}, {b: true}]}
`,
	"formats": `
type: object
properties:
  date: {type: string, format: date}
  datetime: {type: string, format: date-time}
  ipv4: {type: string, format: ipv4}
  ipv6: {type: string, format: ipv6}
  cidr: {type: string, format: cidr}
  uri: {type: string, format: uri}
  email: {type: string, format: email}
  hostname: {type: string, format: hostname}
  uuid: {type: string, format: uuid}
  byte: {type: string, format: byte}
  duration: {type: string, format: duration}
  short: {type: string, format: k8s-short-name}
  long: {type: string, format: k8s-long-name}
  own: {type: string, format: of-our-own}
`,
	"nullable": `
type: object
properties:
  a: {type: string, nullable: true}
  b: {type: string}
  c: {type: string, default: x}
  d: {type: string, nullable: true, default: x}
  list: {type: array, items: {type: string, nullable: true}}
  other: {type: array, items: {type: object, properties: {a: {type: integer, default: 1}, b: {type: string}}}}
  map: {type: object, additionalProperties: {type: string}}
  nulls: {type: object, additionalProperties: {type: string, nullable: true}}
  open: {type: object, additionalProperties: true}
`,
	"defaults": `
type: object
properties:
  spec:
    type: object
    default: {}
    properties:
      a: {type: integer, default: 5}
      b: {type: object, default: {c: [1, 2]}, properties: {c: {type: array, items: {type: integer}}, d: {type: boolean, default: true}}}
      list: {type: array, items: {type: object, properties: {a: {type: string, default: z}}}}
      map: {type: object, additionalProperties: {type: object, default: {a: 1}, properties: {a: {type: integer}, b: {type: number, default: 0.5}}}}
`,
	"embedded": `
type: object
properties:
  pod: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
  pods: {type: array, items: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: object, properties: {a: {type: integer, default: 1}}}}}}
  map: {type: object, additionalProperties: {type: object, x-kubernetes-embedded-resource: true, properties: {spec: {type: string}}}}
`,
	"lists": `
type: object
properties:
  set: {type: array, x-kubernetes-list-type: set, items: {type: string}}
  map: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a], items: {type: object, required: [a], properties: {a: {type: integer}, b: {type: string, maxLength: 3}}}}
  two: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, required: [a], properties: {a: {type: string}, b: {type: boolean, default: false}}}}
  atomic: {type: array, x-kubernetes-list-type: atomic, items: {type: string, maxLength: 3}}
  deep: {type: object, additionalProperties: {type: array, items: {type: array, x-kubernetes-list-type: set, items: {type: integer}}}}
`,
	"logic": `
type: object
properties:
  any: {type: object, properties: {a: {type: integer}, b: {type: string}}, anyOf: [{required: [a], properties: {a: {minimum: 2}}}, {required: [b], properties: {b: {minLength: 1}}}]}
  all: {type: string, allOf: [{minLength: 1}, {maxLength: 5}, {pattern: '^[a-z]'}]}
  one: {type: integer, oneOf: [{minimum: 2}, {maximum: 3}]}
  not: {type: string, not: {enum: [a, b]}}
  port: {x-kubernetes-int-or-string: true, anyOf: [{type: integer}, {type: string}]}
  both: {x-kubernetes-int-or-string: true, allOf: [{anyOf: [{type: integer}, {type: string}]}, {maximum: 80}]}
  list: {type: array, items: {type: object, properties: {a: {type: integer}}, not: {required: [a], properties: {a: {maximum: 1}}}}}
`,
	"rules": `
type: object
x-kubernetes-validations:
- {rule: "self.metadata.name != 'forbidden'"}
properties:
  spec:
    type: object
    x-kubernetes-validations:
    - {rule: "!has(self.min) || !has(self.max) || self.min <= self.max", messageExpression: "'min is above ' + (self.max == 0 ? 'nothing' : 'max')", fieldPath: .min}
    - {rule: "has(self.frozen) == has(oldSelf.frozen)", message: frozen stays, reason: FieldValueForbidden}
    properties:
      min: {type: integer}
      max: {type: integer, maximum: 1000}
      frozen: {type: string, maxLength: 300, x-kubernetes-validations: [{rule: self == oldSelf, message: frozen}]}
      grows: {type: integer, x-kubernetes-validations: [{rule: "!oldSelf.hasValue() || oldSelf.value() <= self", optionalOldSelf: true, message: must not shrink}]}
      names: {type: array, maxItems: 10, items: {type: string, maxLength: 200, x-kubernetes-validations: [{rule: self.size() > 0, reason: FieldValueRequired, message: give a name}]}}
      items:
        type: array
        maxItems: 10
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [id]
        items: {type: object, required: [id], properties: {id: {type: string, maxLength: 200}, num: {type: integer, x-kubernetes-validations: [{rule: self >= oldSelf}]}}}
      map: {type: object, maxProperties: 10, additionalProperties: {type: integer, x-kubernetes-validations: [{rule: self < 5}]}}
      port: {x-kubernetes-int-or-string: true, x-kubernetes-validations: [{rule: "type(self) == int ? self < 100 : self.size() < 5"}]}
      divided: {type: integer, x-kubernetes-validations: [{rule: 10 / self > 1}]}
  status: {type: object, properties: {num: {type: integer, minimum: 0}, s: {type: string, maxLength: 300, x-kubernetes-validations: [{rule: self == oldSelf}]}}}
`,
	"status": `
type: object
required: [spec]
properties:
  spec: {type: object, required: [a], properties: {a: {type: integer, minimum: 3}, set: {type: array, x-kubernetes-list-type: set, items: {type: integer}}}}
  status: {type: object, required: [kind], properties: {kind: {type: string, maxLength: 5}, num: {type: integer, minimum: 1}, list: {type: array, items: {type: object, properties: {a: {type: string, maxLength: 3}}}}}}
`,
	"meta": `
type: object
required: [kind, spec]
properties:
  kind: {type: string, enum: [Thing]}
  metadata: {type: object, properties: {name: {type: string, pattern: '^[a-z]$'}}}
  spec: {type: object, maxProperties: 3, x-kubernetes-preserve-unknown-fields: true}
`,
}
