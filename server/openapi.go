package server

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// openAPIRoot names the document that lists the others.
const openAPIRoot = ""

// serveOpenAPIRoot serves /openapi/v3: which documents there are, by the hash of their contents.
func (h *handler) serveOpenAPIRoot(w *response, r *http.Request) error {
	if _, err := negotiate(r.Header.Values("Accept"), acceptJSON); err != nil {
		return err
	}
	built, err := h.openapi.get(h.registry.Catalog(), buildOpenAPI)
	if err != nil {
		return err
	}
	w.writeDocument(r, built[openAPIRoot], string(mediaJSON))
	return nil
}

// serveOpenAPI serves one group version's document. With its hash in the query it can be kept forever;
// with an old one the client is sent to the new.
func (h *handler) serveOpenAPI(w *response, r *http.Request) error {
	if _, err := negotiate(r.Header.Values("Accept"), acceptJSON); err != nil {
		return err
	}
	built, err := h.openapi.get(h.registry.Catalog(), buildOpenAPI)
	if err != nil {
		return err
	}
	path := chi.URLParam(r, "*")
	doc := built[path]
	if doc == nil || path == openAPIRoot {
		return errUnknownPath()
	}
	if asked := w.query.Get("hash"); asked != "" {
		if asked != doc.hash() {
			http.Redirect(w, r, openAPIURL(path, doc), http.StatusMovedPermanently)
			return nil
		}
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(http.TimeFormat))
	}
	w.writeDocument(r, doc, string(mediaJSON))
	return nil
}

func openAPIURL(path string, doc *document) string {
	return "/openapi/v3/" + path + "?hash=" + url.QueryEscape(doc.hash())
}

// object is a piece of JSON; encoding/json sorts its keys, so that equal documents have equal hashes.
type object = map[string]any

// buildOpenAPI builds the documents of all group versions, by their path ("api/v1"), and the one that
// lists them.
//
// They say what paths there are, which kinds they serve, and which parameters their operations take:
// kubectl looks at those of PATCH before it asks the server to validate. Of the kinds they say only
// what all have in common.
func buildOpenAPI(c *registry.Catalog) (map[string]*document, error) {
	built := map[string]*document{}
	paths := object{}
	for _, g := range c.Groups {
		for _, v := range g.Versions {
			path := "apis/" + g.Name + "/" + v.Name
			if g.Name == "" {
				path = "api/" + v.Name
			}
			body, err := json.Marshal(groupDocument("/"+path, v))
			if err != nil {
				return nil, err
			}
			built[path] = newDocument(body)
			paths[path] = object{"serverRelativeURL": openAPIURL(path, built[path])}
		}
	}
	body, err := json.Marshal(object{"paths": paths})
	if err != nil {
		return nil, err
	}
	built[openAPIRoot] = newDocument(body)
	return built, nil
}

func groupDocument(prefix string, v registry.Version) object {
	paths, schemas := object{}, object{}
	for _, e := range v.Resources {
		addPaths(paths, prefix, e)
		schemas[schemaName(e, e.Kind)] = kindSchema(e, e.Kind, object{"metadata": object{"type": "object"}})
		schemas[schemaName(e, e.ListKind)] = kindSchema(e, e.ListKind, object{
			"metadata": object{"type": "object"},
			"items":    object{"type": "array", "items": object{"$ref": schemaRef(e, e.Kind)}},
		})
	}
	return object{
		"openapi":    "3.0.0",
		"info":       object{"title": "apiserver-lite", "version": apiVersion},
		"paths":      paths,
		"components": object{"schemas": schemas},
	}
}

// schemaName is "com.example.v1.Widget" for the kind Widget of example.com/v1.
func schemaName(e *registry.Endpoint, kind string) string {
	if e.Group == "" {
		return "io.k8s.api.core." + e.Version + "." + kind
	}
	labels := strings.Split(e.Group, ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "." + e.Version + "." + kind
}

func schemaRef(e *registry.Endpoint, kind string) string {
	return "#/components/schemas/" + schemaName(e, kind)
}

func kindSchema(e *registry.Endpoint, kind string, properties object) object {
	properties["apiVersion"] = object{"type": "string"}
	properties["kind"] = object{"type": "string"}
	return object{
		"type":                                 "object",
		"properties":                           properties,
		"x-kubernetes-preserve-unknown-fields": true,
		"x-kubernetes-group-version-kind":      []object{gvk(e, kind)},
	}
}

func gvk(e *registry.Endpoint, kind string) object {
	return object{"group": e.Group, "version": e.Version, "kind": kind}
}

// parameters are the query parameters of each action.
var parameters = map[string][]string{
	"list":   {"labelSelector", "fieldSelector", "limit", "resourceVersion", "watch", "allowWatchBookmarks", "sendInitialEvents", "resourceVersionMatch", "timeoutSeconds"},
	"get":    {},
	"post":   {"dryRun", "fieldManager", "fieldValidation"},
	"put":    {"dryRun", "fieldManager", "fieldValidation"},
	"patch":  {"dryRun", "fieldManager", "fieldValidation", "force"},
	"delete": {"dryRun", "gracePeriodSeconds", "propagationPolicy"},
}

// actions says under which API verb an action is offered.
var actions = map[string]string{"list": "list", "get": "get", "post": "create", "put": "update", "patch": "patch", "delete": "delete"}

func addPaths(paths object, prefix string, e *registry.Endpoint) {
	collection := prefix + "/" + e.Plural
	var inPath []string
	if e.Namespaced {
		paths[collection] = operations(e, "", nil, e.Verbs, "list")
		collection = prefix + "/namespaces/{namespace}/" + e.Plural
		inPath = []string{"namespace"}
	}
	paths[collection] = operations(e, "", inPath, e.Verbs, "list", "post")
	inPath = append(inPath, "name")
	paths[collection+"/{name}"] = operations(e, "", inPath, e.Verbs, "get", "put", "patch", "delete")
	for _, subresource := range e.Subresources {
		paths[collection+"/{name}/"+subresource] = operations(e, subresource, inPath, subresourceVerbs(subresource), "get", "put", "patch")
	}
}

// operations returns a path item with those of the named actions that the verbs allow.
func operations(e *registry.Endpoint, subresource string, inPath, verbs []string, names ...string) object {
	item := object{}
	var params []object
	for _, name := range inPath {
		params = append(params, object{"name": name, "in": "path", "required": true, "schema": object{"type": "string"}})
	}
	if len(params) > 0 {
		item["parameters"] = params
	}
	for _, action := range names {
		if !slices.Contains(verbs, actions[action]) {
			continue
		}
		method := action
		if action == "list" {
			method = "get"
		}
		item[method] = operation(e, subresource, action, len(inPath) > 0 && inPath[0] == "namespace")
	}
	return item
}

func operation(e *registry.Endpoint, subresource, action string, namespaced bool) object {
	id := action + strings.ToUpper(e.Version[:1]) + e.Version[1:]
	if namespaced {
		id += "Namespaced"
	}
	id += e.Kind + strings.ToUpper(subresource[:min(1, len(subresource))]) + subresource[min(1, len(subresource)):]
	if e.Namespaced && !namespaced {
		id += "ForAllNamespaces"
	}
	kind := e.Kind
	if action == "list" {
		kind = e.ListKind
	}
	params := []object{}
	for _, name := range parameters[action] {
		params = append(params, object{"name": name, "in": "query", "schema": object{"type": "string"}})
	}
	op := object{
		"operationId": id,
		"parameters":  params,
		"responses": object{"200": object{
			"description": "OK",
			"content":     object{string(mediaJSON): object{"schema": object{"$ref": schemaRef(e, kind)}}},
		}},
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": gvk(e, e.Kind),
	}
	switch action {
	case "post", "put":
		op["requestBody"] = requestBody(schemaRef(e, e.Kind), string(mediaJSON), string(mediaYAML))
	case "patch":
		op["requestBody"] = requestBody(schemaRef(e, e.Kind), "application/merge-patch+json", "application/json-patch+json")
	}
	return op
}

func requestBody(schema string, media ...string) object {
	content := object{}
	for _, m := range media {
		content[m] = object{"schema": object{"$ref": schema}}
	}
	return object{"content": content, "required": true}
}
