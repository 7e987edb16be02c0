package discovery

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
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

const refPrefix2 = "#/definitions/"

// building2 is what the parts of the document of version 2 share.
type building2 struct {
	info    object // of the API
	catalog *registry.Catalog
	archive *published
	shared  *publication // the schemas and parameters of Kubernetes' own kinds
	types   derived
	seen    map[string]bool // definitions that are in a part
	with    *foreign2
}

func newBuilding2(c *registry.Catalog, with *foreign2) (*building2, error) {
	archive, err := openPublished()
	if err != nil {
		return nil, err
	}
	shared, err := archive.read(publishedAll2)
	return &building2{catalog: c, archive: archive, shared: shared, types: derived{}, seen: map[string]bool{}, with: with}, err
}

// at returns what Kubernetes publishes below a path.
func (b *building2) at(path string) (*publication, error) {
	p, err := b.archive.read(publishedPaths2 + path)
	if err == nil {
		p.Schemas, p.Parameters = b.shared.Schemas, b.shared.Parameters
	}
	return p, err
}

// writeOpenAPI2 writes the document of everything, with what other servers have. It goes from group version to group version,
// so that no more than one of this server's is in memory at a time.
func (d *Discovery) writeOpenAPI2(to io.Writer, encoding form.Encoding, c *registry.Catalog, others []*spec.Swagger) error {
	with, err := newForeign2(c, others)
	if err != nil {
		return err
	}
	b, err := newBuilding2(c, with)
	if err != nil {
		return err
	}
	b.info = d.info()
	if encoding == form.Protobuf {
		return b.writeProto(to, d.Log)
	}
	rest, restDefinitions, err := b.rest()
	if err != nil {
		return err
	}
	maps.Copy(rest, with.paths)
	maps.Copy(restDefinitions, with.definitions)
	out := stream{to: to}
	out.open('{')
	if err := out.members(object{"swagger": "2.0"}); err != nil {
		return err
	}
	if err := out.members(object{"info": b.info}); err != nil {
		return err
	}
	if err := b.section(&out, "paths", b.paths, rest); err != nil {
		return err
	}
	if err := b.section(&out, "definitions", b.definitions, restDefinitions); err != nil {
		return err
	}
	parameters, err := b.parameters()
	if err != nil {
		return err
	}
	end := maps.Clone(security2) // "parameters" comes before its names
	if len(parameters) > 0 {
		end["parameters"] = parameters
	}
	if err := out.members(end); err != nil {
		return err
	}
	out.close('}')
	return out.end()
}

// section writes a member of the document: what is made of each group version, and more.
func (b *building2) section(to *stream, name string, of func(path string, resources []*registry.Endpoint) (object, error), more object) error {
	to.name(name)
	to.open('{')
	for _, g := range b.catalog.Groups {
		for _, v := range g.Versions {
			all, err := of(pathOf(g, v), withNone(v.Resources))
			if err != nil {
				return err
			}
			if err := to.members(all); err != nil {
				return err
			}
		}
	}
	if err := to.members(more); err != nil {
		return err
	}
	to.close('}')
	return nil
}

// withNone puts nil before resources, for what is about none.
func withNone(resources []*registry.Endpoint) []*registry.Endpoint {
	return append([]*registry.Endpoint{nil}, resources...)
}

// security2 says in version 2 how requests are authenticated.
var security2 = object{"securityDefinitions": securitySchemes, "security": []any{object{"BearerToken": []any{}}}}

// rest returns the paths that are of no group version, and the definitions to which they refer, but for those that were seen.
func (b *building2) rest() (paths, definitions object, err error) {
	paths, definitions = object{}, object{}
	for _, path := range b.restPaths() {
		p, err := b.at(path)
		if err != nil {
			return nil, nil, err
		}
		found := p.of(path, nil)
		maps.Copy(paths, found)
		p.addTo(definitions, object{}, found, b.seen)
	}
	for name := range definitions {
		b.seen[name] = true
	}
	return paths, definitions, nil
}

// restPaths are the paths of no group version with a document of their own.
func (b *building2) restPaths() []string {
	paths := slices.Clone(publishedRoots)
	for _, g := range b.catalog.Groups {
		if g.Name != "" {
			paths = append(paths, "apis/"+g.Name)
		}
	}
	return paths
}

// parameters returns those to which operations refer, of this server and of others.
func (b *building2) parameters() (object, error) {
	all := object{}
	for _, g := range b.catalog.Groups {
		for _, v := range g.Versions {
			path := pathOf(g, v)
			p, err := b.at(path)
			if err != nil {
				return nil, err
			}
			for _, e := range withNone(v.Resources) {
				p.addTo(object{}, all, p.of(path, e), nil)
			}
		}
	}
	maps.Copy(all, b.with.parameters)
	return all, nil
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
	b, err := newBuilding2(c, with)
	if err != nil {
		return nil, err
	}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			own, err := b.definitions(pathOf(g, v), withNone(v.Resources))
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
	var body text
	if err = body.any(schema); err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}

// writeProto writes the parts of the document one after the other, a resource each: protobuf takes that for the
// whole. A resource whose part is too large, or isn't what the library for that takes, is left out, so that the
// others are there.
func (b *building2) writeProto(to io.Writer, log *slog.Logger) error {
	rest, definitions, err := b.rest()
	if err != nil {
		return err
	}
	parameters, err := b.parameters()
	if err != nil {
		return err
	}
	maps.Copy(rest, b.with.paths)
	maps.Copy(definitions, b.with.definitions)
	part, err := b.proto(object{"paths": rest, "definitions": definitions, "parameters": parameters, "securityDefinitions": security2["securityDefinitions"], "security": security2["security"]})
	if err != nil {
		log.Warn("what is about no resource, and aggregated API servers, are left out of OpenAPI v2 as protobuf", "error", err)
	}
	if _, err := to.Write(part); err != nil {
		return err
	}
	for _, g := range b.catalog.Groups {
		for _, v := range g.Versions {
			for _, e := range withNone(v.Resources) {
				part, err := b.part(pathOf(g, v), e)
				if e == nil && err != nil {
					return err
				}
				if err != nil {
					log.Warn("a resource is left out of OpenAPI v2 as protobuf", "group", e.Group, "version", e.Version, "resource", e.Plural, "error", err)
				}
				if _, err := to.Write(part); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// part returns one resource's part of the document as protobuf.
func (b *building2) part(path string, e *registry.Endpoint) (_ []byte, err error) {
	paths, err := b.paths(path, []*registry.Endpoint{e})
	if err != nil {
		return nil, err
	}
	definitions, err := b.definitions(path, []*registry.Endpoint{e})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // the next one that refers to them has to bring them
			for name := range definitions {
				delete(b.seen, name)
			}
		}
	}()
	return b.proto(object{"paths": paths, "definitions": definitions})
}

// proto returns a part of the document as protobuf.
func (b *building2) proto(part object) ([]byte, error) {
	part["swagger"], part["info"] = "2.0", b.info
	var body text
	if err := body.any(part); err != nil {
		return nil, err
	}
	if len(body) > maxProto {
		return nil, fmt.Errorf("its schema and paths are %d bytes of JSON, over %d", len(body), maxProto)
	}
	doc, err := openapi_v2.ParseDocument(body)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(doc)
}

// paths returns those of some resources of a group version, of which nil is what is about none.
func (b *building2) paths(path string, resources []*registry.Endpoint) (object, error) {
	kubernetes, err := b.at(path)
	if err != nil {
		return nil, err
	}
	paths := object{}
	for _, e := range resources {
		if theirs := kubernetes.of(path, e); e == nil || len(theirs) > 0 {
			maps.Copy(paths, theirs)
			continue
		}
		rendering2.add(operationsOf(e, namesOf(e, reads.Of(e).ModelName())), paths)
	}
	return paths, nil
}

// definitions returns the schemas of some resources that haven't been seen, as they are with those of other servers.
func (b *building2) definitions(path string, resources []*registry.Endpoint) (object, error) {
	kubernetes, err := b.at(path)
	if err != nil {
		return nil, err
	}
	definitions := object{}
	for _, e := range resources {
		if theirs := kubernetes.of(path, e); e == nil || len(theirs) > 0 {
			kubernetes.addTo(definitions, object{}, theirs, b.seen)
			continue
		}
		_, schemas, err := schemasOf(e, b.types, form2)
		if err != nil {
			return nil, err
		}
		for name, schema := range schemas {
			if b.shared.add(name, definitions, object{}, b.seen); !b.seen[name] && definitions[name] == nil {
				definitions[name] = schema
			}
		}
	}
	for name := range definitions {
		b.seen[name] = true
		if merged, ok := b.with.shared[name]; ok {
			definitions[name] = merged
		}
	}
	return definitions, nil
}
