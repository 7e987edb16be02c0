package schema

import (
	"slices"
	"strings"
	"testing"
)

// validateCase is an object, maybe with an old one, and what is wrong with it.
type validateCase struct {
	name, schema string
	object, old  string
	want         []string
}

func (test validateCase) run(t *testing.T, validate func(s *Schema, obj, old map[string]any) []string) {
	t.Helper()
	s := New(Props(t, test.schema))
	got := validate(s, tree(t, test.object), tree(t, test.old))
	slices.Sort(got)
	slices.Sort(test.want)
	if !slices.Equal(got, test.want) {
		t.Errorf("the errors are\n%q, want\n%q", got, test.want)
	}
}

func runAll(t *testing.T, tests []validateCase) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, func(s *Schema, obj, old map[string]any) (texts []string) {
				for _, err := range s.Validate(t.Context(), obj, old, Found{}) {
					texts = append(texts, err.Error())
				}
				return texts
			})
		})
	}
}

func TestValidate(t *testing.T) {
	types, enums, formats, lists, logic := Texts["types"], Texts["enums"], Texts["formats"], Texts["lists"], Texts["logic"]
	runAll(t, []validateCase{
		{name: "empty", schema: types, object: `{}`},
		{name: "valid", schema: types, object: `{o: {a: 1}, a: [x], s: abc, i: 9, i32: 5, i64: 7, m: 10, num: 0.75, d: 1e300, f: 0.5, b: true, x: 80, any: [1, {}]}`},
		{name: "object", schema: types, object: `{o: [1]}`, want: []string{`o: Invalid value: "array": o in body must be of type object: "array"`}},
		{name: "too many properties", schema: types, object: `{o: {a: 1, b: 2, c: 3}}`, want: []string{`o: Too many: 3: must have at most 2 items`}},
		{name: "too few properties", schema: types, object: `{o: {}}`, want: []string{`o: Invalid value: 0: o in body should have at least 1 properties`}},
		{name: "additional property", schema: types, object: `{o: {a: x}}`, want: []string{`o.a: Invalid value: "string": o.a in body must be of type integer: "string"`}},
		{name: "array", schema: types, object: `{a: {}}`, want: []string{`a: Invalid value: "object": a in body must be of type array: "object"`}},
		{name: "items", schema: types, object: `{a: [x, ""]}`, want: []string{`a[1]: Invalid value: "": a[1] in body should be at least 1 chars long`}},
		{name: "too many items", schema: types, object: `{a: [x, w, z]}`, want: []string{`a: Too many: 3: must have at most 2 items`}},
		{name: "too few items", schema: types, object: `{a: []}`, want: []string{`a: Invalid value: 0: a in body should have at least 1 items`}},
		{name: "string", schema: types, object: `{s: 5}`, want: []string{`s: Invalid value: "integer": s in body must be of type string: "integer"`}},
		{name: "too long", schema: types, object: `{s: abcdef}`, want: []string{`s: Too long: may not be more than 5 bytes`}},
		{name: "too short", schema: types, object: `{s: ""}`, want: []string{`s: Invalid value: "": s in body should be at least 1 chars long`}},
		{name: "length in runes", schema: types, object: `{s: äöüäö}`, want: []string{`s: Invalid value: "äöüäö": s in body should match '^[a-z]*$'`}},
		{name: "pattern", schema: types, object: `{s: A}`, want: []string{`s: Invalid value: "A": s in body should match '^[a-z]*$'`}},
		{name: "integer", schema: types, object: `{i: "5"}`, want: []string{`i: Invalid value: "string": i in body must be of type integer: "string"`}},
		{name: "integer with a fraction", schema: types, object: `{i: 5.5}`, want: []string{
			`<nil>: Invalid value: "": Checked value must be of type integer (default format) in i`,
			`i: Invalid value: "number": i in body must be of type integer: "number"`,
		}},
		{name: "integer written as a float", schema: types, object: `{i: 5.0}`},
		{name: "below the minimum", schema: types, object: `{i: 0}`, want: []string{`i: Invalid value: 0: i in body should be greater than or equal to 1`}},
		{name: "at the excluded maximum", schema: types, object: `{i: 10}`, want: []string{`i: Invalid value: 10: i in body should be less than 10`}},
		{name: "not an int32", schema: types, object: `{i32: 2147483648}`, want: []string{`<nil>: Invalid value: "": Checked value must be of type integer with format int32 in i32`}},
		{name: "largest int32", schema: types, object: `{i32: 2147483647}`},
		{name: "largest int64", schema: types, object: `{m: 9223372036854775805}`},
		{name: "beyond int64", schema: types, object: `{i: 9223372036854775808}`, want: []string{
			`<nil>: Invalid value: "": Checked value must be of type integer (default format) in i`,
			`i: Invalid value: "number": i in body must be of type integer: "number"`,
			`i: Invalid value: 9.223372036854776e+18: i in body should be less than 10`,
		}},
		{name: "multiple", schema: types, object: `{m: 12}`, want: []string{`m: Invalid value: 12: m in body should be a multiple of 5`}},
		{name: "at the excluded minimum", schema: types, object: `{num: 0.5}`, want: []string{`num: Invalid value: 0.5: num in body should be greater than 0.5`}},
		{name: "number", schema: types, object: `{num: many}`, want: []string{`num: Invalid value: "string": num in body must be of type number: "string"`}},
		{name: "not a float32", schema: types, object: `{f: 1e300}`, want: []string{`<nil>: Invalid value: "": Checked value must be of type number with format float in f`}},
		{name: "boolean", schema: types, object: `{b: "true"}`, want: []string{`b: Invalid value: "string": b in body must be of type boolean: "string"`}},
		{name: "int-or-string as string", schema: types, object: `{x: http}`},
		{name: "int-or-string too large", schema: types, object: `{x: 81}`, want: []string{`x: Invalid value: 81: x in body should be less than or equal to 80`}},
		{name: "int-or-string too long", schema: types, object: `{x: https}`, want: []string{`x: Too long: may not be more than 4 bytes`}},
		{name: "int-or-string as neither", schema: types, object: `{x: true}`, want: []string{`x: Invalid value: "boolean": x in body must be of type integer,string: "boolean"`}},
		{name: "null", schema: types, object: `{i: null}`, want: []string{`i: Invalid value: "null": i in body must be of type integer: "null"`}},
		{name: "nullable", schema: Texts["nullable"], object: `{a: null, list: [null], nulls: {k: null}}`},
		{name: "required", schema: Widget, object: `{spec: {size: 1}}`, want: []string{`spec.color: Required value`}},
		{name: "required at the root", schema: Widget, object: `{}`, want: []string{`spec: Required value`}},
		{name: "enum", schema: enums, object: `{s: c}`, want: []string{`s: Unsupported value: "c": supported values: "a", "b", ""`}},
		{name: "enum of integers", schema: enums, object: `{i: 3}`, want: []string{`i: Unsupported value: 3: supported values: "1", "2", "80"`}},
		{name: "enum of integers, a string", schema: enums, object: `{i: "1"}`, want: []string{
			`i: Invalid value: "string": i in body must be of type integer: "string"`,
			`i: Unsupported value: "1": supported values: "1", "2", "80"`,
		}},
		{name: "enum of numbers", schema: enums, object: `{num: 1}`},
		{name: "enum of booleans", schema: enums, object: `{b: false}`, want: []string{`b: Unsupported value: false: supported values: "true"`}},
		{name: "enum with null", schema: enums, object: `{z: null}`, want: []string{`z: Unsupported value: null: supported values: "a", "null"`}},
		{name: "enum of objects", schema: enums, object: `{o: {b: true}}`},
		{name: "formats", schema: formats, object: `{date: 2026-01-02x, ipv4: "1", email: "@", uuid: "1", short: A_b, own: any, duration: 5 apples}`, want: []string{
			`date: Invalid value: "2026-01-02x": date in body must be of type date: "2026-01-02x"`,
			`duration: Invalid value: "5 apples": duration in body must be of type duration: "5 apples"`,
			`email: Invalid value: "@": email in body must be of type email: "@"`,
			`ipv4: Invalid value: "1": ipv4 in body must be of type ipv4: "1"`,
			`short: Invalid value: "A_b": short in body must be of type k8s-short-name: "A_b"`,
			`uuid: Invalid value: "1": uuid in body must be of type uuid: "1"`,
		}},
		{name: "good formats", schema: formats, object: `{date: "2026-01-02", datetime: "2026-01-02T03:04:05Z", ipv4: 1.2.3.4, ipv6: "::1", cidr: 1.2.3.0/24, uri: "https://a/b", email: a@b.c, uuid: 5f1c2b9e-9d3c-4f0e-8a51-0b9b3f9a0d11, byte: aGk=, short: a-b, long: a.b, duration: 5m}`},
		{name: "set", schema: lists, object: `{set: [a, b, a, a]}`, want: []string{`set[2]: Duplicate value: "a"`}},
		{name: "list map", schema: lists, object: `{map: [{a: 1}, {a: 2}, {a: 1, b: x}]}`, want: []string{`map[2]: Duplicate value: {"a":1}`}},
		{name: "list map of two keys", schema: lists, object: `{two: [{a: x, b: true}, {a: x, b: false}, {a: x, b: true}]}`, want: []string{`two[2]: Duplicate value: {"a":"x","b":true}`}},
		{name: "nested set", schema: lists, object: `{deep: {k: [[1], [2, 2]]}}`, want: []string{`deep[k][1][1]: Duplicate value: 2`}},
		{name: "atomic list", schema: lists, object: `{atomic: [a, a]}`},
		{name: "anyOf", schema: logic, object: `{any: {a: 1, b: ""}}`, want: []string{
			`<nil>: Invalid value: "": "any" must validate at least one schema (anyOf)`,
			`any.a: Invalid value: 1: any.a in body should be greater than or equal to 2`,
		}},
		{name: "anyOf, second branch", schema: logic, object: `{any: {a: 1, b: x}}`},
		{name: "allOf", schema: logic, object: `{all: "123456"}`, want: []string{
			`<nil>: Invalid value: "": "all" must validate all the schemas (allOf)`,
			`all: Invalid value: "123456": all in body should match '^[a-z]'`,
			`all: Too long: may not be more than 5 bytes`,
		}},
		{name: "oneOf, both", schema: logic, object: `{one: 3}`, want: []string{`<nil>: Invalid value: "": "one" must validate one and only one schema (oneOf). Found 2 valid alternatives`}},
		{name: "not", schema: logic, object: `{not: a}`, want: []string{`<nil>: Invalid value: "": "not" must not validate the schema (not)`}},
		{name: "metadata's name", schema: Texts["meta"], object: `{kind: Thing, metadata: {name: abc}, spec: {}}`, want: []string{`metadata.name: Invalid value: "abc": metadata.name in body should match '^[a-z]$'`}},
		{name: "embedded", schema: Texts["embedded"], object: `{pod: {metadata: {name: x}}}`, want: []string{
			`pod.apiVersion: Required value`,
			`pod.kind: Required value`,
		}},
		{name: "embedded, all wrong", schema: Texts["embedded"], object: `{pods: [{apiVersion: a/b/c, kind: "1", metadata: {name: "a/b", labels: {"-": x}}}]}`, want: []string{
			`pods[0].apiVersion: Invalid value: "a/b/c": unexpected GroupVersion string: a/b/c`,
			`pods[0].kind: Invalid value: "1": may have mixed case, but should otherwise match: a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')`,
			`pods[0].metadata.labels: Invalid value: "-": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`pods[0].metadata.name: Invalid value: "a/b": may not contain '/'`,
		}},
		{name: "embedded in a map", schema: Texts["embedded"], object: `{map: {k: {apiVersion: "", kind: ""}}}`, want: []string{
			`map[k].apiVersion: Invalid value: "": must not be empty`,
			`map[k].kind: Invalid value: "": must not be empty`,
		}},
		{name: "preserved", schema: `{type: object, properties: {spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {a: {type: integer}}}}}`, object: `{spec: {b: any, a: x}}`, want: []string{`spec.a: Invalid value: "string": spec.a in body must be of type integer: "string"`}},
	})
}

// TestRatchet has updates: errors of what is as it was are forgiven.
func TestRatchet(t *testing.T) {
	status, lists := Texts["status"], Texts["lists"]
	nested := `{type: object, properties: {spec: {type: object, required: [r], properties: {r: {type: string}, a: {type: string, maxLength: 3}, e: {type: string, enum: [x]}, num: {type: integer, minimum: 5}, m: {type: object, additionalProperties: {type: string, pattern: "^x"}}, l: {type: array, items: {type: string, maxLength: 1}}}}}}`
	runAll(t, []validateCase{
		{name: "unchanged field", schema: nested, old: `{spec: {r: a, a: long, num: 1}}`, object: `{spec: {r: b, a: long, num: 1}}`},
		{name: "changed to another bad value", schema: nested, old: `{spec: {r: a, a: long}}`, object: `{spec: {r: a, a: longer}}`, want: []string{`spec.a: Too long: may not be more than 3 bytes`}},
		{name: "one of two changed", schema: nested, old: `{spec: {r: a, a: long, num: 1}}`, object: `{spec: {r: a, a: long, num: 2}}`, want: []string{`spec.num: Invalid value: 2: spec.num in body should be greater than or equal to 5`}},
		{name: "missing, and the object changed", schema: nested, old: `{spec: {a: x}}`, object: `{spec: {a: w}}`, want: []string{`spec.r: Required value`}},
		{name: "missing, and the object unchanged", schema: nested, old: `{spec: {a: x}}`, object: `{spec: {a: x}, metadata: {labels: {}}}`},
		{name: "map", schema: nested, old: `{spec: {r: a, m: {k: bad}}}`, object: `{spec: {r: a, m: {k: bad, l: bad}}}`, want: []string{`spec.m.l: Invalid value: "bad": spec.m.l in body should match '^x'`}},
		{name: "enum", schema: nested, old: `{spec: {r: a, e: w}}`, object: `{spec: {r: b, e: w}}`},
		{name: "atomic list, unchanged", schema: nested, old: `{spec: {r: a, l: [long]}}`, object: `{spec: {r: b, l: [long]}}`},
		{name: "atomic list, changed elsewhere", schema: nested, old: `{spec: {r: a, l: [long]}}`, object: `{spec: {r: a, l: [long, b]}}`, want: []string{`spec.l[0]: Too long: may not be more than 1 byte`}},
		{name: "list map, by key", schema: lists, old: `{map: [{a: 1, b: long}, {a: 2}]}`, object: `{map: [{a: 2, b: x}, {a: 1, b: long}]}`},
		{name: "list map, item changed", schema: lists, old: `{map: [{a: 1, b: long}]}`, object: `{map: [{a: 1, b: longer}]}`, want: []string{`map[0].b: Too long: may not be more than 3 bytes`}},
		{name: "list map, new item", schema: lists, old: `{map: [{a: 1, b: long}]}`, object: `{map: [{a: 1, b: long}, {a: 2, b: long}]}`, want: []string{`map[1].b: Too long: may not be more than 3 bytes`}},
		{name: "duplicates before", schema: lists, old: `{set: [a, a]}`, object: `{set: [b, b]}`},
		{name: "no duplicates before", schema: lists, old: `{set: [a]}`, object: `{set: [a, a]}`, want: []string{`set[1]: Duplicate value: "a"`}},
		{name: "duplicates elsewhere before", schema: lists, old: `{set: [a, a]}`, object: `{set: [a, a], map: [{a: 1}, {a: 1}]}`},
		{name: "kind is not forgiven", schema: Texts["meta"], old: `{kind: Other, spec: {}}`, object: `{kind: Other, spec: {a: 1}}`, want: []string{`kind: Unsupported value: "Other": supported values: "Thing"`}},
		{name: "embedded is not forgiven", schema: Texts["embedded"], old: `{pod: {}}`, object: `{pod: {}}`, want: []string{
			`pod.apiVersion: Required value`,
			`pod.kind: Required value`,
		}},
		{name: "new object", schema: status, object: `{spec: {a: 1}}`, want: []string{`spec.a: Invalid value: 1: spec.a in body should be greater than or equal to 3`}},
		{name: "branches are not forgiven one by one", schema: Texts["logic"], old: `{one: 3, not: a}`, object: `{one: 3, not: b}`, want: []string{`<nil>: Invalid value: "": "not" must not validate the schema (not)`}},
	})
}

func TestRules(t *testing.T) {
	rules := Texts["rules"]
	runAll(t, []validateCase{
		{name: "valid", schema: rules, object: `{metadata: {name: x}, spec: {min: 1, max: 2, names: [a], map: {k: 1}, port: 80, divided: 2}}`},
		{name: "root, by name", schema: rules, object: `{metadata: {name: forbidden}}`, want: []string{`<nil>: Invalid value: failed rule: self.metadata.name != 'forbidden'`}},
		{name: "messageExpression and fieldPath", schema: rules, object: `{metadata: {name: x}, spec: {min: 3, max: 2}}`, want: []string{`spec.min: Invalid value: min is above max`}},
		{name: "message and reason", schema: rules, object: `{metadata: {name: x}, spec: {names: [a, ""]}}`, want: []string{`spec.names[1]: Required value: give a name`}},
		{name: "map", schema: rules, object: `{metadata: {name: x}, spec: {map: {k: 5}}}`, want: []string{`spec.map[k]: Invalid value: 5: failed rule: self < 5`}},
		{name: "int-or-string", schema: rules, object: `{metadata: {name: x}, spec: {port: 100}}`, want: []string{`spec.port: Invalid value: 100: failed rule: type(self) == int ? self < 100 : self.size() < 5`}},
		{name: "int-or-string, string", schema: rules, object: `{metadata: {name: x}, spec: {port: httpss}}`, want: []string{`spec.port: Invalid value: "httpss": failed rule: type(self) == int ? self < 100 : self.size() < 5`}},
		{name: "run-time error", schema: rules, object: `{metadata: {name: x}, spec: {divided: 0}}`, want: []string{`spec.divided: Invalid value: "integer": division by zero evaluating rule: 10 / self > 1`}},
		{name: "transition, new", schema: rules, object: `{metadata: {name: x}, spec: {frozen: a}}`},
		{name: "transition, same", schema: rules, object: `{metadata: {name: x}, spec: {frozen: a}}`, old: `{metadata: {name: x}, spec: {frozen: a}}`},
		{name: "transition, changed", schema: rules, object: `{metadata: {name: x}, spec: {frozen: b}}`, old: `{metadata: {name: x}, spec: {frozen: a}}`, want: []string{`spec.frozen: Invalid value: "b": frozen`}},
		{name: "transition, added", schema: rules, object: `{metadata: {name: x}, spec: {frozen: b}}`, old: `{metadata: {name: x}, spec: {}}`, want: []string{`spec: Forbidden: frozen stays`}},
		{name: "transition in a list map", schema: rules, object: `{metadata: {name: x}, spec: {items: [{id: b, num: 9}, {id: a, num: 1}]}}`, old: `{metadata: {name: x}, spec: {items: [{id: a, num: 2}]}}`, want: []string{`spec.items[1].num: Invalid value: 1: failed rule: self >= oldSelf`}},
		{name: "optionalOldSelf, new", schema: rules, object: `{metadata: {name: x}, spec: {grows: 1}}`},
		{name: "optionalOldSelf, smaller", schema: rules, object: `{metadata: {name: x}, spec: {grows: 1}}`, old: `{metadata: {name: x}, spec: {grows: 2}}`, want: []string{`spec.grows: Invalid value: 1: must not shrink`}},
		{name: "ratcheted", schema: rules, object: `{metadata: {name: x}, spec: {map: {k: 5}, min: 1}}`, old: `{metadata: {name: x}, spec: {map: {k: 5}}}`},
		{name: "not ratcheted", schema: rules, object: `{metadata: {name: x}, spec: {map: {k: 6}}}`, old: `{metadata: {name: x}, spec: {map: {k: 5}}}`, want: []string{`spec.map[k]: Invalid value: 6: failed rule: self < 5`}},
		{name: "blocked by a type", schema: rules, object: `{metadata: {name: forbidden}, spec: {min: x, map: {k: 5}}}`, want: []string{
			`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`,
			`spec.min: Invalid value: "string": spec.min in body must be of type integer: "string"`,
		}},
		{name: "not blocked by a bound", schema: rules, object: `{metadata: {name: x}, spec: {max: 1001, map: {k: 5}}}`, want: []string{
			`spec.map[k]: Invalid value: 5: failed rule: self < 5`,
			`spec.max: Invalid value: 1001: spec.max in body should be less than or equal to 1000`,
		}},
		{
			name: "budget of one rule", schema: costly(6_000), object: `{l: [` + repeated(long, 2) + `]}`,
			want: []string{`l[0]: Invalid value: "string": 'operation cancelled: actual cost limit exceeded': no further validation rules will be run due to call cost exceeds limit for rule: too much`},
		},
		{
			name: "budget of all rules", schema: costly(2_000), object: `{l: [` + repeated(long, 40) + `]}`,
			want: []string{`l[24]: Invalid value: "string": validation failed due to running out of cost budget, no further validation rules will be run`},
		},
	})
}

func TestValidateStatus(t *testing.T) {
	status, rules := Texts["status"], Texts["rules"]
	tests := []validateCase{
		{name: "valid", schema: status, old: `{spec: {a: 3}}`, object: `{spec: {a: 3}, status: {kind: x, num: 1}}`},
		{name: "spec isn't looked at", schema: status, old: `{spec: {}}`, object: `{spec: {}, status: {kind: x}}`},
		{name: "wrong", schema: status, old: `{spec: {a: 3}}`, object: `{spec: {a: 3}, status: {num: 0, list: [{a: long}]}}`, want: []string{
			`status.kind: Required value`,
			`status.list[0].a: Too long: may not be more than 3 bytes`,
			`status.num: Invalid value: 0: num in body should be greater than or equal to 1`,
		}},
		{name: "null", schema: status, old: `{spec: {a: 3}}`, object: `{spec: {a: 3}, status: null}`},
		{name: "ratcheted", schema: status, old: `{status: {kind: x, num: 0}}`, object: `{status: {kind: w, num: 0}}`},
		{name: "removed", schema: status, old: `{status: {kind: x}}`, object: `{}`},
		{name: "no status in the schema", schema: Texts["types"], old: `{}`, object: `{status: 5}`},
		{name: "list in spec, wrong before", schema: status, old: `{spec: {set: [1, 1]}}`, object: `{spec: {set: [1, 1]}, status: {kind: x}}`},
		{name: "rules", schema: rules, old: `{metadata: {name: x}, spec: {map: {k: 5}}, status: {s: a}}`, object: `{metadata: {name: x}, spec: {map: {k: 5}}, status: {s: b, num: -1}}`, want: []string{
			`status.num: Invalid value: -1: num in body should be greater than or equal to 0`,
			`status.s: Invalid value: "b": failed rule: self == oldSelf`,
		}},
		{name: "blocked rules", schema: rules, old: `{metadata: {name: x}, status: {s: a}}`, object: `{metadata: {name: x}, status: {s: b, num: x}}`, want: []string{
			`<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; correct the existing errors to complete validation`,
			`status.num: Invalid value: "string": num in body must be of type integer: "string"`,
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, func(s *Schema, obj, old map[string]any) (texts []string) {
				for _, err := range s.ValidateStatus(t.Context(), obj, old, Found{}) {
					texts = append(texts, err.Error())
				}
				return texts
			})
		})
	}
}

// long is a string that rules pay for by its length.
var long = strings.Repeat("a", 20_000)

// costly returns a schema of lists of such strings, each searched for n letters: n tenths of 2,000 cost units.
func costly(n int) string {
	return `{type: object, properties: {l: {type: array, items: {type: string, x-kubernetes-validations: [{message: too much, rule: "!self.contains('` +
		strings.Repeat("b", n) + `')"}]}}}}`
}

func repeated(s string, n int) string {
	all := s
	for range n - 1 {
		all += "," + s
	}
	return all
}
