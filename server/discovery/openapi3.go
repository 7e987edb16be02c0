package discovery

import (
	"bytes"
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
func schemasOf(e *registry.Endpoint, types derived, f *schemaForm) (schemaNames, map[string]part, error) {
	all := map[string]part{}
	add := func(schemas map[string]*spec.Schema) {
		for name, s := range schemas {
			all[name] = madeSchema{f, func() (*spec.Schema, error) { return s, nil }}
		}
	}
	of := reads.Of(e)
	kind := of.ModelName()
	if e.GoType() {
		_, schemas, err := f.openAPI(of)
		if err != nil {
			return schemaNames{}, nil, err
		}
		add(schemas)
	} else {
		meta, err := types.of(reflect.TypeFor[metav1.ObjectMeta]())
		if err != nil {
			return schemaNames{}, nil, err
		}
		add(meta.schemas)
		all[kind] = madeSchema{f, func() (*spec.Schema, error) {
			_, schemas, err := f.openAPI(of)
			return schemas[kind], err
		}}
	}
	names := namesOf(e, kind)
	all[names.list] = madeSchema{f, func() (*spec.Schema, error) { return listSchema(e, names), nil }}
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
		add(shared.schemas)
	}
	return names, all, nil
}

// derived remembers the schemas of Go types while a document is built.
type derived map[reflect.Type]derivedSchemas

type derivedSchemas struct {
	root    string
	schemas map[string]*spec.Schema
}

// of is gotype.Of.
func (d derived) of(t reflect.Type) (derivedSchemas, error) {
	if known, ok := d[t]; ok {
		return known, nil
	}
	root, schemas, err := gotype.Of(t)
	if err == nil {
		d[t] = derivedSchemas{root, schemas}
	}
	return d[t], err
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
	s.AddExtension("x-kubernetes-group-version-kind", []any{object{"group": e.Group, "version": e.Version, "kind": e.ListKind}})
	if fields := reads.Of(e).SelectableFields(); len(fields) > 0 { // kube-apiserver says it of lists, too
		s.AddExtension("x-kubernetes-selectable-fields", fields)
	}
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
		_, err := b.document(to, resources)
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

// document writes a document of some resources, of which nil is what is about none, and returns its schemas: those that haven't been seen.
func (b building3) document(to io.Writer, resources []*registry.Endpoint) (object, error) {
	paths, components := object{}, object{}
	for _, e := range resources {
		if theirs := b.kubernetes.of(b.path, e); e == nil || len(theirs) > 0 {
			maps.Copy(paths, theirs)
			b.kubernetes.addTo(components, object{}, theirs, b.seen)
			continue
		}
		names, schemas, err := schemasOf(e, b.types, form3)
		if err != nil {
			return nil, err
		}
		shared, err := b.shared()
		if err != nil {
			return nil, err
		}
		for name, schema := range schemas {
			if shared.add(name, components, object{}, b.seen); components[name] == nil && !b.seen[name] {
				components[name] = schema
			}
		}
		rendering3.add(operationsOf(e, names), paths)
	}
	own := len(b.kubernetes.Paths) > 0
	out := stream{to: to}
	out.raw(`{"components":{`)
	if len(components) > 0 {
		out.raw(`"schemas":{`)
		if err := out.members(components); err != nil {
			return nil, err
		}
		out.close('}')
	}
	info := definitionsInfo
	if own {
		info = b.info
		if err := out.members(object{"securitySchemes": securitySchemes}); err != nil {
			return nil, err
		}
	}
	out.close('}')
	if err := out.members(object{"info": info, "openapi": "3.0.0"}); err != nil {
		return nil, err
	}
	out.raw(`"paths":{`)
	if err := out.members(paths); err != nil {
		return nil, err
	}
	out.close('}')
	out.close('}')
	return components, out.end()
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
	var body bytes.Buffer
	schemas, err := b.document(&body, []*registry.Endpoint{e})
	if err != nil {
		return nil, err
	}
	if body.Len() > maxProto {
		return nil, fmt.Errorf("its schema and paths are %d bytes of JSON, over %d", body.Len(), maxProto)
	}
	doc, err := openapi_v3.ParseDocument(body.Bytes())
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
