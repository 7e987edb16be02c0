package server_test

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	openapi_v2 "github.com/google/gnostic-models/openapiv2"
	openapi_v3 "github.com/google/gnostic-models/openapiv3"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// detailed is a definition whose schema has something of everything.
const detailed = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: details.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {plural: details, singular: detail, kind: Detail}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    selectableFields: [{jsonPath: .spec.color}]
    schema:
      openAPIV3Schema:
        type: object
        description: Detail has something of everything.
        required: [spec]
        properties:
          spec:
            type: object
            description: What is wanted.
            properties:
              color: {type: string, description: The color., enum: [red, blue], default: red}
              replicas: {type: integer, format: int32, minimum: 0}
              port: {x-kubernetes-int-or-string: true}
              maybe: {type: string, nullable: true}
              anything: {type: object, x-kubernetes-preserve-unknown-fields: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              labels: {type: object, additionalProperties: {type: string}}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}}}
          status: {type: object, properties: {replicas: {type: integer}}}
`

const detail = "org.example.v1.Detail"

type openAPIDocument struct {
	Paths       map[string]map[string]any
	Components  struct{ Schemas map[string]map[string]any }
	Definitions map[string]map[string]any
	Parameters  map[string]any
}

// openAPI fetches a document; root is the path of its group version, or "" for version 2.
func openAPI(t *testing.T, s *servertest.Server, root string) (doc openAPIDocument) {
	t.Helper()
	url := "/openapi/v2"
	if root != "" {
		url = openAPIURLs(t, s)[root]
	}
	if err := json.Unmarshal([]byte(s.Get(url)), &doc); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return doc
}

// openAPIURLs returns where the documents of version 3 are, with their hashes.
func openAPIURLs(t *testing.T, s *servertest.Server) map[string]string {
	t.Helper()
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal([]byte(s.Get("/openapi/v3")), &root); err != nil {
		t.Fatal(err)
	}
	urls := map[string]string{}
	for path, one := range root.Paths {
		urls[path] = one.ServerRelativeURL
	}
	return urls
}

func newDetails(t *testing.T, options ...func(*server.Server)) *servertest.Server {
	s := newWidgets(t, options...)
	s.PostYAML(definitionsPath, detailed)
	return s
}

// at goes down a piece of JSON.
func at(v any, path ...string) any {
	for _, name := range path {
		m, _ := v.(map[string]any)
		v = m[name]
	}
	return v
}

func text(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestOpenAPISchemas(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	doc := openAPI(t, s, "apis/example.org/v1")
	const objectMeta = `[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]`
	for _, test := range []struct {
		path string
		want string
	}{
		{"type", `"object"`},
		{"description", `"Detail has something of everything."`},
		{"required", `["spec"]`},
		{"x-kubernetes-group-version-kind", `[{"group":"example.org","kind":"Detail","version":"v1"}]`},
		{"x-kubernetes-selectable-fields", `[{"fieldPath":"spec.color"}]`},
		{"properties/metadata/allOf", objectMeta},
		{"properties/apiVersion/type", `"string"`},
		{"properties/spec/description", `"What is wanted."`},
		{"properties/spec/properties/color", `{"default":"red","description":"The color.","enum":["red","blue"],"type":"string"}`},
		{"properties/spec/properties/replicas", `{"format":"int32","minimum":0,"type":"integer"}`},
		{"properties/spec/properties/port", `{"anyOf":[{"type":"integer"},{"type":"string"}],"x-kubernetes-int-or-string":true}`},
		{"properties/spec/properties/maybe", `{"nullable":true,"type":"string"}`},
		{"properties/spec/properties/template/properties/metadata/allOf", objectMeta},
		{"properties/spec/properties/template/required", `["kind","apiVersion"]`},
		{"properties/spec/properties/labels", `{"additionalProperties":{"type":"string"},"type":"object"}`},
		{"properties/spec/properties/parts/x-kubernetes-list-map-keys", `["name"]`},
	} {
		if got := text(at(doc.Components.Schemas[detail], strings.Split(test.path, "/")...)); got != test.want {
			t.Errorf("%s is %s, want %s", test.path, got, test.want)
		}
	}
	list := doc.Components.Schemas[detail+"List"]
	if got := text(at(list, "properties", "items", "items")); got != `{"$ref":"#/components/schemas/`+detail+`"}` {
		t.Errorf("the list has %s", got)
	}
	widget := openAPI(t, s, "apis/example.com/v1").Components.Schemas["com.example.v1.Widget"]
	if got := len(at(widget, "properties").(map[string]any)); got != 3 || at(widget, "x-kubernetes-preserve-unknown-fields") != true {
		t.Errorf("a kind without a schema is %s", text(widget))
	}
}

func TestOpenAPIOfGoTypes(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) {
		s.API.Register = func(r *registry.Registry) {
			registry.Register(r, registry.Definition[gauge]{Group: "example.net", Version: "v1", Kind: "Gauge"})
			registry.Register(r, registry.Definition[odd]{Group: "example.net", Version: "v1", Kind: "Odd"})
		}
	})
	schemas := openAPI(t, s, "apis/example.net/v1").Components.Schemas
	const name = "com.github.apiserver-lite.apiserver-lite.server_test.gauge"
	if got := text(at(schemas[name], "properties", "level")); got != `{"format":"int32","type":"integer"}` {
		t.Errorf("its field is %s", got)
	}
	if got := text(at(schemas[name], "x-kubernetes-group-version-kind")); got != `[{"group":"example.net","kind":"Gauge","version":"v1"}]` {
		t.Errorf("its kind is %s", got)
	}
	if got := text(schemas["com.github.apiserver-lite.apiserver-lite.server_test.odd"]); !strings.HasPrefix(got, `{"type":"object","x-kubernetes-group`) {
		t.Errorf("a type without a schema is %s", got)
	}
	namespace := openAPI(t, s, "api/v1").Components.Schemas["io.k8s.api.core.v1.Namespace"]
	if got, _ := at(namespace, "properties", "spec", "description").(string); !strings.HasPrefix(got, "Spec defines") {
		t.Errorf("the spec of a namespace is described as %q", got)
	}
	definition := openAPI(t, s, "apis/apiextensions.k8s.io/v1").Components.Schemas
	const props = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
	if got := text(at(definition[props], "properties", "not")); got != `{"$ref":"#/components/schemas/`+props+`"}` {
		t.Errorf("a schema's not is %s", got)
	}
}

type gauge struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Level             int32 `json:"level"`
}

// odd has no schema.
type odd struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Done              chan int `json:"done,omitempty"`
}

func TestOpenAPIOperations(t *testing.T) {
	t.Parallel()
	doc := openAPI(t, newDetails(t), "apis/example.org/v1")
	const collection = "/apis/example.org/v1/namespaces/{namespace}/details"
	for _, test := range []struct{ path, method, action, id string }{
		{"/apis/example.org/v1/details", "get", "list", "listExampleOrgV1DetailForAllNamespaces"},
		{collection, "get", "list", "listExampleOrgV1NamespacedDetail"},
		{collection, "post", "post", "createExampleOrgV1NamespacedDetail"},
		{collection, "delete", "deletecollection", "deleteExampleOrgV1CollectionNamespacedDetail"},
		{collection + "/{name}", "get", "get", "readExampleOrgV1NamespacedDetail"},
		{collection + "/{name}", "put", "put", "replaceExampleOrgV1NamespacedDetail"},
		{collection + "/{name}", "delete", "delete", "deleteExampleOrgV1NamespacedDetail"},
		{collection + "/{name}", "patch", "patch", "patchExampleOrgV1NamespacedDetail"},
		{collection + "/{name}/status", "patch", "patch", "patchExampleOrgV1NamespacedDetailStatus"},
		{collection + "/{name}/scale", "get", "get", "readExampleOrgV1NamespacedDetailScale"},
	} {
		op := doc.Paths[test.path][test.method]
		if at(op, "x-kubernetes-action") != test.action || at(op, "operationId") != test.id {
			t.Errorf("%s %s is %v %v, want %s %s", test.method, test.path, at(op, "x-kubernetes-action"), at(op, "operationId"), test.action, test.id)
		}
	}
	content, _ := at(doc.Paths[collection+"/{name}"]["patch"], "requestBody", "content").(map[string]any)
	for _, media := range []string{"application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"} {
		if content[media] == nil {
			t.Errorf("a patch may not be %s", media)
		}
	}
	if got := text(at(doc.Paths[collection+"/{name}/scale"]["get"], "x-kubernetes-group-version-kind", "kind")); got != `"Detail"` { // as kube-apiserver says it: the schema is that of a Scale
		t.Errorf("the kind of the scale subresource is %s", got)
	}
}

// TestOpenAPIReferences: no document refers to a schema that it hasn't.
func TestOpenAPIReferences(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	check := func(name, body, prefix string, schemas map[string]map[string]any) {
		for part := range strings.SplitSeq(body, `"$ref":"`) {
			ref, _, _ := strings.Cut(part, `"`)
			if target, ok := strings.CutPrefix(ref, prefix); ok && schemas[target] == nil || strings.HasPrefix(ref, "#") && !ok {
				t.Errorf("%s refers to %s, which isn't there", name, ref)
			}
		}
	}
	for path, url := range openAPIURLs(t, s) {
		check(path, s.Get(url), "#/components/schemas/", openAPI(t, s, path).Components.Schemas)
	}
	two := openAPI(t, s, "")
	for name := range two.Parameters {
		two.Definitions["parameters/"+name] = map[string]any{}
	}
	body := strings.ReplaceAll(s.Get("/openapi/v2"), "#/parameters/", "#/definitions/parameters/")
	check("version 2", body, "#/definitions/", two.Definitions)
}

func TestOpenAPI2(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	doc := openAPI(t, s, "")
	schema := doc.Definitions[detail]
	for _, test := range []struct{ path, want string }{
		{"properties/metadata/$ref", `"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"`},
		{"properties/spec/properties/maybe", `{}`},
		{"properties/spec/properties/port", `{"x-kubernetes-int-or-string":true}`},
		{"properties/spec/properties/anything", `{"x-kubernetes-preserve-unknown-fields":true}`},
		{"properties/spec/properties/color/enum", `["red","blue"]`},
	} {
		if got := text(at(schema, strings.Split(test.path, "/")...)); got != test.want {
			t.Errorf("%s is %s, want %s", test.path, got, test.want)
		}
	}
	if got := at(doc.Definitions["com.example.v1.Widget"], "properties"); got != nil {
		t.Errorf("a kind without a schema has the fields %s", text(got))
	}
	for _, path := range []string{"/api/v1/namespaces", "/apis/example.com/v1/widgets", "/apis/example.org/v1/namespaces/{namespace}/details/{name}"} {
		if doc.Paths[path] == nil {
			t.Errorf("there is no %s", path)
		}
	}
}

// TestOpenAPIProtobuf asks as client-go does, and finds what is in the JSON.
func TestOpenAPIProtobuf(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	get := func(url, version string) []byte {
		for _, accept := range []string{"application/com.github.proto-openapi.spec." + version + "@v1.0+protobuf", "application/com.github.proto-openapi.spec." + version + ".v1.0+protobuf, application/json"} {
			res, body := s.Do("GET", url, "", "Accept", accept)
			if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "application/com.github.proto-openapi.spec."+version+".v1.0+protobuf" {
				t.Fatalf("GET %s: %s, %s", url, res.Status, res.Header.Get("Content-Type"))
			}
			if res, _ := s.Do("GET", url, "", "Accept", accept, "If-None-Match", res.Header.Get("ETag")); res.StatusCode != http.StatusNotModified {
				t.Errorf("the same again: %s", res.Status)
			}
			if accept[len(accept)-4:] == "json" {
				return []byte(body)
			}
		}
		return nil
	}
	two := &openapi_v2.Document{}
	if err := proto.Unmarshal(get("/openapi/v2", "v2"), two); err != nil {
		t.Fatal(err)
	}
	want := openAPI(t, s, "")
	if two.Swagger != "2.0" || len(two.Definitions.AdditionalProperties) != len(want.Definitions) || len(two.Paths.Path) != len(want.Paths) {
		t.Errorf("version %q with %d definitions and %d paths, want %d and %d", two.Swagger, len(two.Definitions.AdditionalProperties), len(two.Paths.Path), len(want.Definitions), len(want.Paths))
	}
	three := &openapi_v3.Document{}
	if err := proto.Unmarshal(get(openAPIURLs(t, s)["apis/example.org/v1"], "v3"), three); err != nil {
		t.Fatal(err)
	}
	want = openAPI(t, s, "apis/example.org/v1")
	if got := len(three.Components.Schemas.AdditionalProperties); got != len(want.Components.Schemas) || len(three.Paths.Path) != len(want.Paths) {
		t.Errorf("%d schemas, want %d", got, len(want.Components.Schemas))
	}
}

// TestOpenAPIWithoutOne: a resource that can't be put into protobuf, or that is too large for it, isn't in the
// document, and the others are. Without any resource it's still a document.
func TestOpenAPIWithoutOne(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Log = slog.New(slog.DiscardHandler) })
	define := func(name, schema string) {
		t.Helper()
		s.PostYAML(definitionsPath, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.example.net}
spec:
  group: example.net
  scope: Cluster
  names: {plural: %[1]s, kind: K%[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, %[2]s}}
`, name, schema))
	}
	const noText = `description: "no text for a parser of YAML: \u007f"`
	var large strings.Builder // much more when apiVersion, kind and metadata are added to each
	for i := range 6000 {
		fmt.Fprintf(&large, "p%d: {type: object, x-kubernetes-embedded-resource: true, properties: {a: {type: string}}}, ", i)
	}
	define("aaas", noText) // before others
	define("bbbs", "properties: {"+large.String()+"}")
	define("zzzs", noText) // after others
	document3 := func() *openapi_v3.Document {
		t.Helper()
		res, body := s.Do("GET", "/openapi/v3/apis/example.net/v1", "", "Accept", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf")
		doc := &openapi_v3.Document{}
		if err := proto.Unmarshal([]byte(body), doc); err != nil || res.StatusCode != http.StatusOK {
			t.Fatalf("v3: %s, %v: %.300s", res.Status, err, body)
		}
		if doc.Openapi != "3.0.0" || doc.Info.GetTitle() == "" {
			t.Errorf("v3: it's version %q of %v", doc.Openapi, doc.Info)
		}
		return doc
	}
	if doc := document3(); len(doc.GetComponents().GetSchemas().GetAdditionalProperties()) > 0 {
		t.Errorf("v3: without a resource there is %v", doc.Components)
	}
	define("mmms", "description: As it should be.")

	res, body := s.Do("GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf")
	two := &openapi_v2.Document{}
	if err := proto.Unmarshal([]byte(body), two); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("v2: %s, %v: %.300s", res.Status, err, body)
	}
	schemas := map[string]map[string]bool{"v2": {}, "v3": {}}
	for _, d := range two.Definitions.AdditionalProperties {
		schemas["v2"][d.Name] = true
	}
	for _, d := range document3().Components.Schemas.AdditionalProperties {
		schemas["v3"][d.Name] = true
	}
	for version, names := range schemas {
		for name, want := range map[string]bool{
			"net.example.v1.Kmmms": true, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": true,
			"net.example.v1.Kaaas": false, "net.example.v1.Kbbbs": false, "net.example.v1.Kzzzs": false,
		} {
			if names[name] != want {
				t.Errorf("%s: %s is there: %v, want %v", version, name, names[name], want)
			}
		}
	}
}

// TestOpenAPIHashes: a hash changes with what is in its document, and with nothing else.
func TestOpenAPIHashes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	durable := func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
	s := newDetails(t, durable)
	before := openAPIURLs(t, s)
	patch := func(body string) map[string]string {
		if res, body := s.Do("PATCH", definitionsPath+"/details.example.org", body, "Content-Type", "application/merge-patch+json"); res.StatusCode != http.StatusOK {
			t.Fatal(res.Status, body)
		}
		return openAPIURLs(t, s)
	}
	changed := func(after map[string]string) (paths []string) {
		for path, url := range after {
			if before[path] != url {
				paths = append(paths, path)
			}
		}
		before = after
		return paths
	}
	if got := changed(patch(`{"metadata":{"labels":{"a":"b"}}}`)); len(got) > 0 {
		t.Errorf("a label of a definition changes %q", got)
	}
	old := before["apis/example.org/v1"]
	schema := `{"spec":{"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","description":"Another."}}}]}}`
	if got := changed(patch(schema)); !slices.Equal(got, []string{"apis/example.org/v1"}) {
		t.Errorf("a schema changes %q", got)
	}
	if res, body := s.Do("GET", old, ""); res.Request.URL.RequestURI() != before["apis/example.org/v1"] || !strings.Contains(body, "Another.") {
		t.Errorf("the old hash leads to %s", res.Request.URL.RequestURI())
	}
	two, _ := s.Do("GET", "/openapi/v2", "")
	s.Server.Close()

	s = servertest.New(t, durable)
	if got := changed(openAPIURLs(t, s)); len(got) > 0 {
		t.Errorf("a restart changes %q", got)
	}
	if again, _ := s.Do("GET", "/openapi/v2", ""); again.Header.Get("ETag") != two.Header.Get("ETag") {
		t.Error("a restart changes version 2")
	}
}

// TestLargeOpenAPI: large documents are compressed for those who want it, and each form has its tag.
func TestLargeOpenAPI(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	s.PostYAML(definitionsPath, strings.Replace(detailed, "What is wanted.", strings.Repeat("What is wanted. ", 10_000), 1))
	url := openAPIURLs(t, s)["apis/example.org/v1"]
	_, plain := s.Do("GET", url, "", "Accept-Encoding", "identity")

	for _, headers := range [][]string{{}, {"User-Agent", "curl/8"}} {
		res, body := s.Do("GET", url, "", append(headers, "Accept-Encoding", "gzip")...)
		if res.Header.Get("Content-Encoding") != "gzip" || len(body) > len(plain)/4 {
			t.Fatalf("%d bytes, encoded as %q", len(body), res.Header.Get("Content-Encoding"))
		}
		zip, err := gzip.NewReader(strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		unzipped, err := io.ReadAll(zip)
		if err != nil || (string(unzipped) != plain) != (len(headers) > 0) {
			t.Errorf("the compressed one is another: %v", err)
		}
		if again, _ := s.Do("GET", url, "", append(headers, "Accept-Encoding", "gzip", "If-None-Match", res.Header.Get("ETag"))...); again.StatusCode != http.StatusNotModified {
			t.Errorf("the same again: %s", again.Status)
		}
	}
	for _, root := range []string{"/openapi/v2", "/openapi/v3", url} {
		if res, body := s.Do("HEAD", root, ""); res.StatusCode != http.StatusOK || body != "" || res.Header.Get("ETag") == "" {
			t.Errorf("HEAD %s: %s, %v", root, res.Status, res.Header)
		}
		if res, _ := s.Do("GET", root, "", "Accept", "text/html"); res.StatusCode != http.StatusNotAcceptable {
			t.Errorf("GET %s as HTML: %s", root, res.Status)
		}
	}
}

// TestOpenAPIWhileDefinitionsChange: every document that is answered is whole.
func TestOpenAPIWhileDefinitionsChange(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for _, url := range []string{"/openapi/v2", "/openapi/v3/apis/example.org/v1", "/openapi/v3/api/v1", "/openapi/v3"} {
		readers.Go(func() {
			for {
				res, body := s.Do("GET", url, "")
				if res.StatusCode != http.StatusOK || !json.Valid([]byte(body)) {
					t.Errorf("GET %s: %s", url, res.Status)
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for i := range 10 {
		s.Do("PATCH", definitionsPath+"/details.example.org", fmt.Sprintf(`{"spec":{"names":{"shortNames":["d%d"]}}}`, i), "Content-Type", "application/merge-patch+json")
	}
	close(done)
	readers.Wait()
}

// TestOpenAPIForApply: what is published is what server-side apply's clients, and tools, can merge by.
func TestOpenAPIForApply(t *testing.T) {
	t.Parallel()
	s := newDetails(t)
	for path, url := range openAPIURLs(t, s) {
		var doc struct {
			Components struct{ Schemas map[string]*spec.Schema }
		}
		if err := json.Unmarshal([]byte(s.Get(url)), &doc); err != nil {
			t.Fatal(err)
		}
		converter, err := managedfields.NewTypeConverter(doc.Components.Schemas, false)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if path != "apis/example.org/v1" {
			continue
		}
		obj := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.org/v1", "kind": "Detail",
			"spec": map[string]any{"parts": []any{map[string]any{"name": "a"}}, "port": "http"},
		}}
		typed, err := converter.ObjectToTyped(obj)
		if err != nil {
			t.Fatal(err)
		}
		if set, err := typed.ToFieldSet(); err != nil || !strings.Contains(set.String(), `.spec.parts[name="a"].name`) {
			t.Errorf("parts aren't merged by name: %v, %v", set, err)
		}
	}
}

func BenchmarkOpenAPI(b *testing.B) {
	s := servertest.New(b)
	s.PostYAML(definitionsPath, detailed)
	for i := range 100 {
		name := fmt.Sprintf("things%d", i)
		s.PostYAML(definitionsPath, strings.NewReplacer("details", name, "singular: detail", "singular: "+name, "Detail", "Thing"+name).Replace(detailed))
	}
	for _, path := range []string{"/openapi/v3", "/openapi/v3/apis/example.org/v1", "/openapi/v2"} {
		b.Run(path[1:], func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ { // each time after a change
				b.StopTimer()
				s.Do("PATCH", definitionsPath+"/details.example.org", fmt.Sprintf(`{"spec":{"names":{"shortNames":["d%d"]}}}`, i), "Content-Type", "application/merge-patch+json")
				b.StartTimer()
				s.Get(path)
			}
		})
	}
}

// TestOpenAPIOfManyLargeDefinitions: what is too large for one piece of protobuf is made of several.
func TestOpenAPIOfManyLargeDefinitions(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	long := strings.Repeat("words ", 200_000)
	for _, kind := range []string{"Aa", "Bb", "Cc", "Dd"} {
		s.PostYAML(definitionsPath, fmt.Sprintf(`
metadata: {name: %[1]ss.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: %[1]ss, kind: %[2]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, description: %[3]q}}}]
`, strings.ToLower(kind), kind, long))
	}
	for path, accept := range map[string]string{
		"/openapi/v2":                     "application/com.github.proto-openapi.spec.v2@v1.0+protobuf",
		"/openapi/v3/apis/example.com/v1": "application/com.github.proto-openapi.spec.v3@v1.0+protobuf",
	} {
		res, body := s.Do("GET", path, "", "Accept", accept)
		if res.StatusCode != http.StatusOK || len(body) < 4*len(long) {
			t.Errorf("%s: %s with %d bytes", path, res.Status, len(body))
		}
		for _, kind := range []string{"Aa", "Bb", "Cc", "Dd"} {
			if !strings.Contains(body, "com.example.v1."+kind) {
				t.Errorf("%s lacks %s", path, kind)
			}
		}
	}
}
