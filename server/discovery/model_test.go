package discovery

import (
	"encoding/json"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// What documents are is said here a second time, by maps and upstream's libraries: slowly, and without anything that is kept or left out.
// The documents that are served have the same bytes.

// model is a version of OpenAPI.
type model struct {
	of         func(reads.Reader) (string, map[string]*spec.Schema, error)
	form       func(*spec.Schema) *spec.Schema
	operation  func(operation, []plainParameter) object
	parameters func([]plainParameter) []object
}

var (
	model2 = model{reads.Reader.OpenAPIV2, walker2.WalkSchema, plainOperation2, plainParameters2}
	model3 = model{reads.Reader.OpenAPI, util.WrapRefs, plainOperation3, plainParameters3}
)

var walker2 = &schemamutation.Walker{
	SchemaCallback: func(s *spec.Schema) *spec.Schema {
		if len(s.OneOf) == 0 && !s.Nullable || len(s.AnyOf)+len(s.AllOf) > 0 {
			return s
		}
		out := *s
		if len(s.OneOf) > 0 && len(s.Type) == 0 {
			out.Type = spec.StringOrArray{"string"}
		}
		out.OneOf, out.Nullable = nil, false
		return &out
	},
	RefCallback: func(ref *spec.Ref) *spec.Ref {
		name, ok := strings.CutPrefix(ref.String(), gotype.RefPrefix)
		if !ok {
			return ref
		}
		out := spec.MustCreateRef(refPrefix2 + name)
		return &out
	},
}

func mustOf(t *testing.T, typ reflect.Type) (root string, schemas map[string]*spec.Schema) {
	t.Helper()
	root, schemas, err := gotype.Of(typ)
	if err != nil {
		t.Fatal(err)
	}
	return root, schemas
}

// schemas are those of an endpoint that Kubernetes doesn't publish, and to which its operations refer.
func (m model) schemas(t *testing.T, e *registry.Endpoint) map[string]*spec.Schema {
	t.Helper()
	kind, schemas, err := m.of(reads.Of(e))
	if err != nil {
		t.Fatal(err)
	}
	names := namesOf(e, kind)
	list := listSchema(e, names)
	schemas[names.list] = list
	if fields, ok := schemas[kind].Extensions["x-kubernetes-selectable-fields"]; ok {
		list.AddExtension("x-kubernetes-selectable-fields", fields)
	}
	for typ, gvk := range sharedTypes {
		if gvk["kind"] == "Scale" && !slices.Contains(e.Subresources, "scale") {
			continue
		}
		root, shared := mustOf(t, typ)
		if gvk != nil {
			shared[root].AddExtension("x-kubernetes-group-version-kind", []any{gvk})
		}
		maps.Copy(schemas, shared)
	}
	return schemas
}

// paths are those of an endpoint that Kubernetes doesn't publish.
func (m model) paths(t *testing.T, e *registry.Endpoint) object {
	t.Helper()
	operations, paths := operationsOf(e, namesOf(e, reads.Of(e).ModelName())), object{}
	type located struct {
		path string
		plainParameter
	}
	params, has, methods := make([][]plainParameter, len(operations)), map[located]int{}, map[string]int{}
	for i, op := range operations {
		params[i] = plainParametersOf(t, op)
		methods[op.path]++
		for _, p := range params[i] {
			has[located{op.path, p}]++
		}
	}
	for i, op := range operations {
		item, _ := paths[op.path].(object)
		if item == nil {
			item = object{}
			paths[op.path] = item
		}
		var common, own []plainParameter
		for _, p := range params[i] {
			if has[located{op.path, p}] == methods[op.path] {
				common = append(common, p)
			} else {
				own = append(own, p)
			}
		}
		item["parameters"], item[op.method] = m.parameters(common), m.operation(op, own)
	}
	return paths
}

type plainParameter struct {
	name, in, description, typ string
	required                   bool
}

func plainParametersOf(t *testing.T, op operation) []plainParameter {
	t.Helper()
	all := []plainParameter{{name: "pretty", in: "query", typ: "string",
		description: "If 'true', then the output is pretty printed. Defaults to 'false' unless the user-agent indicates a browser or command-line HTTP tool (curl and wget)."}}
	if strings.Contains(op.path, "{name}") {
		all = append(all, plainParameter{name: "name", in: "path", typ: "string", required: true, description: "name of the " + op.endpoint.Kind})
	}
	if strings.Contains(op.path, "{namespace}") {
		all = append(all, plainParameter{name: "namespace", in: "path", typ: "string", required: true,
			description: "object name and auth scope, such as for teams and projects"})
	}
	root, schemas := mustOf(t, op.options)
	for name, property := range schemas[root].Properties {
		known := slices.ContainsFunc(all, func(p plainParameter) bool { return p.name == name })
		if known || slices.Contains(unpublished, name) || property.Ref.String() != "" {
			continue
		}
		p := plainParameter{name: name, in: "query", typ: property.Type[0], description: property.Description}
		if p.typ == "array" {
			p.typ = "string"
		}
		all = append(all, p)
	}
	slices.SortFunc(all, func(a, b plainParameter) int { return strings.Compare(a.name, b.name) })
	return all
}

func plainResponses(op operation, what func(text, schema string) object) object {
	out := object{"401": object{"description": "Unauthorized"}}
	for _, code := range op.codes {
		out[strconv.Itoa(code)] = what(http.StatusText(code), op.gives)
	}
	return out
}

func plainKind(op operation) object {
	return object{"group": op.endpoint.Group, "version": op.endpoint.Version, "kind": op.endpoint.Kind}
}

func plainOperation2(op operation, params []plainParameter) object {
	list := []object{}
	if op.takes != "" {
		body := object{"name": "body", "in": "body", "schema": object{"$ref": refPrefix2 + op.takes}}
		if !op.optional {
			body["required"] = true
		}
		list = append(list, body)
	}
	list = append(list, plainParameters2(params)...)
	out := object{
		"operationId": op.id, "description": op.description, "tags": []string{op.tag()}, "schemes": []string{"https"},
		"produces": []string{mediaJSON, mediaYAML}, "parameters": list,
		"responses": plainResponses(op, func(text, schema string) object {
			return object{"description": text, "schema": object{"$ref": refPrefix2 + schema}}
		}),
		"x-kubernetes-action": op.action, "x-kubernetes-group-version-kind": plainKind(op),
	}
	if op.consumes != nil {
		out["consumes"] = op.consumes
	}
	return out
}

func plainParameters2(params []plainParameter) []object {
	list := []object{}
	for _, p := range params {
		one := object{"name": p.name, "in": p.in, "description": p.description, "type": p.typ, "uniqueItems": true}
		if p.required {
			one["required"] = true
		}
		list = append(list, one)
	}
	return list
}

func plainOperation3(op operation, params []plainParameter) object {
	content := func(types []string, schema string) object {
		out := object{}
		for _, media := range types {
			out[media] = object{"schema": object{"$ref": gotype.RefPrefix + schema}}
		}
		return out
	}
	out := object{
		"operationId": op.id, "description": op.description, "tags": []string{op.tag()},
		"responses": plainResponses(op, func(text, schema string) object {
			return object{"description": text, "content": content([]string{mediaJSON, mediaYAML}, schema)}
		}),
		"x-kubernetes-action": op.action, "x-kubernetes-group-version-kind": plainKind(op),
	}
	if op.takes != "" {
		body := object{"content": content(op.consumes, op.takes)}
		if !op.optional {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	if len(params) > 0 {
		out["parameters"] = plainParameters3(params)
	}
	return out
}

func plainParameters3(params []plainParameter) []object {
	list := []object{}
	for _, p := range params {
		one := object{"name": p.name, "in": p.in, "description": p.description, "schema": object{"type": p.typ, "uniqueItems": true}}
		if p.required {
			one["required"] = true
		}
		list = append(list, one)
	}
	return list
}

// plainMembers are an object's members as encoding/json writes them, without the brackets.
func plainMembers(t *testing.T, of any) string {
	t.Helper()
	body, err := json.Marshal(of)
	if err != nil {
		t.Fatal(err)
	}
	return string(body[1 : len(body)-1])
}
