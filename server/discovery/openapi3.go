package discovery

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"sync"

	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/gotype"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
)

// The names of the schemas that many operations share.
var (
	listMetaSchema      = metav1.ListMeta{}.OpenAPIModelName()
	statusSchema        = metav1.Status{}.OpenAPIModelName()
	deleteOptionsSchema = metav1.DeleteOptions{}.OpenAPIModelName()
	patchSchema         = metav1.Patch{}.OpenAPIModelName()
	scaleSchema         = autoscalingv1.Scale{}.OpenAPIModelName()
)

// sharedTypes are those of these schemas.
var sharedTypes = map[reflect.Type]object{
	reflect.TypeFor[metav1.ListMeta]():      nil,
	reflect.TypeFor[metav1.Status]():        {"group": "", "version": "v1", "kind": "Status"},
	reflect.TypeFor[metav1.DeleteOptions](): {"group": "", "version": "v1", "kind": "DeleteOptions"},
	reflect.TypeFor[metav1.Patch]():         nil,
	reflect.TypeFor[autoscalingv1.Scale]():  {"group": "autoscaling", "version": "v1", "kind": "Scale"},
}

// schemasOf returns the schemas of an endpoint's objects and lists, and all those that its operations refer to.
func schemasOf(e *registry.Endpoint, types derived, openAPI func(reads.Reader) (string, map[string]*spec.Schema, error)) (schemaNames, map[string]*spec.Schema, error) {
	kind, schemas, err := openAPI(reads.Of(e))
	if err != nil {
		return schemaNames{}, nil, err
	}
	names := namesOf(e, kind)
	schemas[names.list] = listSchema(e, names)
	// kube-apiserver says of lists, too, by which fields they can be selected.
	const selectableFields = "x-kubernetes-selectable-fields"
	if fields, ok := schemas[kind].Extensions[selectableFields]; ok {
		schemas[names.list].AddExtension(selectableFields, fields)
	}
	for t, gvk := range sharedTypes {
		if gvk["kind"] == "Scale" && !slices.Contains(e.Subresources, "scale") {
			continue
		}
		shared, err := types.of(t)
		if err != nil {
			return names, nil, err
		}
		if gvk != nil {
			shared.schemas[shared.root].AddExtension("x-kubernetes-group-version-kind", []any{gvk})
		}
		maps.Copy(schemas, shared.schemas)
	}
	return names, schemas, nil
}

func listSchema(e *registry.Endpoint, names schemaNames) *spec.Schema {
	typeDoc, listDoc := metav1.TypeMeta{}.SwaggerDoc(), metav1.PartialObjectMetadataList{}.SwaggerDoc()
	items := spec.ArrayProperty(spec.RefSchema(gotype.RefPrefix + names.kind))
	s := (&spec.Schema{}).Typed("object", "").WithRequired("items").
		WithDescription(e.ListKind+" is a list of "+e.Kind).
		SetProperty("apiVersion", *spec.StringProperty().WithDescription(typeDoc["apiVersion"])).
		SetProperty("kind", *spec.StringProperty().WithDescription(typeDoc["kind"])).
		SetProperty("metadata", *spec.RefSchema(gotype.RefPrefix + listMetaSchema).WithDescription(listDoc["metadata"])).
		SetProperty("items", *items.WithDescription("List of " + e.Plural + ". More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"))
	s.AddExtension("x-kubernetes-group-version-kind", []any{gvk(e, e.ListKind)})
	return s
}

// writeOpenAPI3 writes the document of a group version. As protobuf it's a part with what isn't about any resource, and one
// for each resource, which together are the whole. A resource whose part is too large, or isn't what the library for that
// takes, is left out, so that the others are there.
func (d *Discovery) writeOpenAPI3(to io.Writer, encoding form.Encoding, path string, v registry.Version) error {
	archive, err := openPublished()
	if err != nil {
		return err
	}
	kubernetes, err := archive.read(publishedOne + path)
	if err != nil {
		return err
	}
	b := building3{info: d.info(), path: path, kubernetes: kubernetes, shared: sync.OnceValues(archive.shared), types: derived{}, seen: map[string]bool{}}
	resources := withNone(v.Resources)
	if encoding != form.Protobuf {
		body, _, err := b.document(resources)
		if err == nil {
			_, err = to.Write(body)
		}
		return err
	}
	for _, e := range resources {
		part, err := b.part(e)
		if e == nil && err != nil {
			return err
		}
		if err != nil {
			d.Log.Warn("a resource is left out of OpenAPI v3 as protobuf", "group", e.Group, "version", e.Version, "resource", e.Plural, "error", err)
			continue
		}
		if _, err := to.Write(part); err != nil {
			return err
		}
	}
	return nil
}

// building3 is what the parts of a document of version 3 share.
type building3 struct {
	info       object                       // of the API
	path       string                       // of the group version
	kubernetes *publication                 // there
	shared     func() (*publication, error) // what is in documents of other resources, too; only those that Kubernetes doesn't have need it
	types      derived
	seen       map[string]bool // schemas that are in a part
}

// document returns a document of some resources, of which nil is what is about none, and its schemas: those that haven't been seen.
func (b building3) document(resources []*registry.Endpoint) ([]byte, object, error) {
	paths, components := object{}, object{}
	for _, e := range resources {
		if theirs := b.kubernetes.of(b.path, e); e == nil || len(theirs) > 0 {
			maps.Copy(paths, theirs)
			b.kubernetes.addTo(components, object{}, theirs, b.seen)
			continue
		}
		names, schemas, err := schemasOf(e, b.types, reads.Reader.OpenAPI)
		if err != nil {
			return nil, nil, err
		}
		shared, err := b.shared()
		if err != nil {
			return nil, nil, err
		}
		for name, schema := range schemas {
			if shared.add(name, components, object{}, b.seen); components[name] == nil && !b.seen[name] {
				components[name] = util.WrapRefs(schema)
			}
		}
		if err := rendering3.add(operationsOf(e, names), b.types, paths); err != nil {
			return nil, nil, err
		}
	}
	info, members := b.info, object{"securitySchemes": securitySchemes}
	if len(b.kubernetes.Paths) == 0 {
		info, members = definitionsInfo, object{}
	}
	if len(components) > 0 {
		members["schemas"] = components
	}
	body, err := json.Marshal(object{
		"openapi":    "3.0.0",
		"info":       info,
		"paths":      paths,
		"components": members,
	})
	return body, components, err
}

// info is what documents of Kubernetes' API say of it.
func (d *Discovery) info() object {
	return object{"title": "Kubernetes", "version": d.Version.Major + "." + d.Version.Minor}
}

// securitySchemes is how clients say who they are.
var securitySchemes = object{"BearerToken": object{"type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header"}}

// definitionsInfo is what kube-apiserver says of the documents of definitions.
var definitionsInfo = object{"title": "Kubernetes CRD Swagger", "version": "v0.1.0"}

// maxProto is how much JSON is made into protobuf at once: that takes some fifty times as much memory.
const maxProto = 4 << 20

// part returns a document of one resource, or with nil of what is about none, as protobuf. Its schemas are seen then. After an error they aren't:
// the next part that refers to them has to bring them.
func (b building3) part(e *registry.Endpoint) ([]byte, error) {
	body, schemas, err := b.document([]*registry.Endpoint{e})
	if err != nil {
		return nil, err
	}
	if len(body) > maxProto {
		return nil, fmt.Errorf("its schema and paths are %d bytes of JSON, over %d", len(body), maxProto)
	}
	doc, err := openapi_v3.ParseDocument(body)
	if err != nil {
		return nil, err
	}
	part, err := proto.Marshal(doc)
	if err != nil {
		return nil, err
	}
	for name := range schemas {
		b.seen[name] = true
	}
	return part, nil
}

// answerTypes are the media types of an operation's answers.
func (op operation) answerTypes() []string { return []string{mediaJSON, mediaYAML} }

var rendering3 = rendering{operation3, parameters3}

func operation3(op operation, params []parameter) object {
	content := func(types []string, schema string) object {
		out := object{}
		for _, media := range types {
			out[media] = object{"schema": object{"$ref": gotype.RefPrefix + schema}}
		}
		return out
	}
	out := object{
		"operationId": op.id, "description": op.description, "tags": []string{op.tag()},
		"responses": op.responses(func(text, schema string) object {
			return object{"description": text, "content": content(op.answerTypes(), schema)}
		}),
		"x-kubernetes-action": op.action, "x-kubernetes-group-version-kind": op.gvk(),
	}
	if op.takes != "" {
		body := object{"content": content(op.consumes, op.takes)}
		if !op.optional {
			body["required"] = true
		}
		out["requestBody"] = body
	}
	if len(params) > 0 {
		out["parameters"] = parameters3(params)
	}
	return out
}

func parameters3(params []parameter) []object {
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
