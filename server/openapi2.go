package server

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
)

const refPrefix2 = "#/definitions/"

// writeOpenAPI2 writes the document of everything, with what other servers have. It goes from group version to group version,
// so that no more than one of this server's is in memory at a time.
func writeOpenAPI2(to io.Writer, media mediaType, c *registry.Catalog, others []*spec.Swagger, log *slog.Logger) error {
	with, err := newForeign2(c, others)
	if err != nil {
		return err
	}
	if media == mediaOpenAPI2 {
		return writeProto2(to, c, with, log)
	}
	types, seen := derived{}, map[string]bool{}
	head := `{"swagger":"2.0","info":` + string(info2()) + `,"paths":`
	if err := writeMembers(to, head, c, func(v registry.Version) (object, error) { return paths2(v, types) }, with.paths); err != nil {
		return err
	}
	definitions := func(v registry.Version) (object, error) { return definitions2(v, types, seen, with) }
	if err := writeMembers(to, `,"definitions":`, c, definitions, with.definitions); err != nil {
		return err
	}
	if len(with.parameters) > 0 {
		none := func(registry.Version) (object, error) { return nil, nil }
		if err := writeMembers(to, `,"parameters":`, c, none, with.parameters); err != nil {
			return err
		}
	}
	_, err = io.WriteString(to, "}")
	return err
}

// foreign2 is what other servers add to the document of version 2.
type foreign2 struct {
	paths, definitions, parameters object                 // theirs
	shared                         map[string]spec.Schema // definitions of this server's that others have, too, with all kinds that they are of
}

// newForeign2 merges what other servers have, in their order, with what this server has. What has the name of something else
// gets another one, and what has the path of something else is left out. The rules are those of upstream's library.
func newForeign2(c *registry.Catalog, others []*spec.Swagger) (*foreign2, error) {
	with := &foreign2{}
	if len(others) == 0 {
		return with, nil
	}
	wanted := map[string]bool{}
	for _, other := range others {
		for name := range other.Definitions {
			wanted[name] = true
		}
	}
	merged := &spec.Swagger{SwaggerProps: spec.SwaggerProps{Definitions: spec.Definitions{}, Paths: &spec.Paths{}}}
	types, seen := derived{}, map[string]bool{}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			own, err := definitions2(v, types, seen, with)
			if err != nil {
				return nil, err
			}
			for name, schema := range own {
				if first, _, _ := strings.Cut(name, "_v"); !wanted[name] && !wanted[first] {
					continue
				}
				copied, err := copySchema(schema)
				if err != nil {
					return nil, err
				}
				merged.Definitions[name] = copied
			}
		}
	}
	ours := maps.Clone(merged.Definitions)
	for _, other := range others {
		if err := aggregator.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(merged, other); err != nil {
			return nil, err
		}
	}
	with.paths, with.definitions, with.parameters, with.shared = object{}, object{}, object{}, map[string]spec.Schema{}
	for path, item := range merged.Paths.Paths {
		with.paths[path] = item
	}
	for name, p := range merged.Parameters {
		with.parameters[name] = p
	}
	for name, schema := range merged.Definitions {
		if _, own := ours[name]; own {
			with.shared[name] = schema
		} else {
			with.definitions[name] = schema
		}
	}
	return with, nil
}

// copySchema returns a schema as one that was read has it.
func copySchema(schema any) (out spec.Schema, err error) {
	body, err := json.Marshal(schema)
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}

func info2() json.RawMessage {
	return json.RawMessage(`{"title":"apiserver-lite","version":"` + kubeVersion + `"}`)
}

// writeMembers writes one JSON object with the members that all group versions have, and more.
func writeMembers(to io.Writer, head string, c *registry.Catalog, members func(registry.Version) (object, error), more object) error {
	separator := head + "{"
	write := func(all object) error {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			key, _ := json.Marshal(name) // a string always encodes
			value, err := json.Marshal(all[name])
			if err != nil {
				return err
			}
			if _, err := io.WriteString(to, separator+string(key)+":"+string(value)); err != nil {
				return err
			}
			separator = ","
		}
		return nil
	}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			all, err := members(v)
			if err != nil {
				return err
			}
			if err := write(all); err != nil {
				return err
			}
		}
	}
	if err := write(more); err != nil {
		return err
	}
	if separator != "," { // there was none
		if _, err := io.WriteString(to, separator); err != nil {
			return err
		}
	}
	_, err := io.WriteString(to, "}")
	return err
}

// writeProto2 writes the parts of the document one after the other, a resource each: protobuf takes that for the
// whole. A resource whose part is too large, or isn't what the library for that takes, is left out, so that the
// others are there.
func writeProto2(to io.Writer, c *registry.Catalog, with *foreign2, log *slog.Logger) error {
	types, seen := derived{}, map[string]bool{}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			for _, e := range v.Resources {
				part, err := part2(registry.Version{Name: v.Name, Resources: []*registry.Endpoint{e}}, types, seen, with)
				if err != nil {
					log.Warn("a resource is left out of OpenAPI v2 as protobuf", "group", e.Group, "version", e.Version, "resource", e.Plural, "error", err)
				}
				if _, err := to.Write(part); err != nil {
					return err
				}
			}
		}
	}
	if len(with.paths) == 0 {
		return nil
	}
	part, err := proto2(object{"paths": with.paths, "definitions": with.definitions, "parameters": with.parameters})
	if err != nil {
		log.Warn("aggregated API servers are left out of OpenAPI v2 as protobuf", "error", err)
	}
	_, err = to.Write(part)
	return err
}

// part2 returns one resource's part of the document as protobuf.
func part2(v registry.Version, types derived, seen map[string]bool, with *foreign2) (_ []byte, err error) {
	paths, err := paths2(v, types)
	if err != nil {
		return nil, err
	}
	definitions, err := definitions2(v, types, seen, with)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // the next one that refers to them has to bring them
			for name := range definitions {
				delete(seen, name)
			}
		}
	}()
	return proto2(object{"paths": paths, "definitions": definitions})
}

// proto2 returns a part of the document as protobuf.
func proto2(part object) ([]byte, error) {
	part["swagger"], part["info"] = "2.0", info2()
	body, err := json.Marshal(part)
	if err != nil {
		return nil, err
	}
	if len(body) > maxOpenAPIProto {
		return nil, fmt.Errorf("its schema and paths are %d bytes of JSON, over %d", len(body), maxOpenAPIProto)
	}
	doc, err := openapi_v2.ParseDocument(body)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

func paths2(v registry.Version, types derived) (object, error) {
	paths := object{}
	for _, e := range v.Resources {
		for _, op := range operationsOf(e, namesOf(e, e.ModelName())) {
			if err := addOperation(paths, op, types, operation2); err != nil {
				return nil, err
			}
		}
	}
	return paths, nil
}

// definitions2 returns the schemas of a group version that haven't been seen, as they are with those of other servers.
func definitions2(v registry.Version, types derived, seen map[string]bool, with *foreign2) (object, error) {
	definitions := object{}
	for _, e := range v.Resources {
		_, schemas, err := schemasOf(e, types, (*registry.Endpoint).OpenAPIV2)
		if err != nil {
			return nil, err
		}
		for name, schema := range schemas {
			if !seen[name] {
				seen[name] = true
				definitions[name] = schema2.WalkSchema(schema)
				if merged, ok := with.shared[name]; ok {
					definitions[name] = merged
				}
			}
		}
	}
	return definitions, nil
}

// schema2 brings a schema into the form of version 2. What may be one of several types is what it's as text.
var schema2 = &schemamutation.Walker{
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

func operation2(op operation, params []parameter) object {
	list := []object{}
	if op.takes != "" {
		body := object{"name": "body", "in": "body", "schema": object{"$ref": refPrefix2 + op.takes}}
		if !op.optional {
			body["required"] = true
		}
		list = append(list, body)
	}
	for _, p := range params {
		one := object{"name": p.name, "in": p.in, "description": p.description, "type": p.typ, "uniqueItems": true}
		if p.required {
			one["required"] = true
		}
		list = append(list, one)
	}
	out := object{
		"operationId": op.id, "description": op.description, "tags": []string{op.tag()}, "schemes": []string{"https"},
		"produces": op.answerTypes(), "parameters": list,
		"responses": op.responses(func(text, schema string) object {
			return object{"description": text, "schema": object{"$ref": refPrefix2 + schema}}
		}),
		"x-kubernetes-action": op.action, "x-kubernetes-group-version-kind": op.gvk(),
	}
	if op.consumes != nil {
		out["consumes"] = op.consumes
	}
	return out
}
