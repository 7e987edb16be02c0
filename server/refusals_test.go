package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestRefusalsOfGoTypes: what can't be read of a request about a built-in kind is refused in Kubernetes' words, which are others
// than those for custom resources.
func TestRefusalsOfGoTypes(t *testing.T) {
	s := servertest.New(t)
	const (
		leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
		one    = leases + "/one"
		lease  = `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":"one"}}`
		merge  = "application/merge-patch+json"
		strat  = "application/strategic-merge-patch+json"
		scheme = ` in scheme "pkg/runtime/scheme.go:111"`
		parse  = "the object provided is unrecognized (must be of type Lease): couldn't get version/kind; json parse error: "
		handle = ` in version "v1" cannot be handled as a Lease: `
	)
	if res, body := s.Do("POST", leases, lease); res.StatusCode != http.StatusCreated {
		t.Fatal(res.Status, body)
	}
	for name, c := range map[string]struct {
		method, path, body string
		header             []string
		code               int
		message            string
	}{
		"method":             {"POST", one, lease, nil, 405, "the server does not allow this method on the requested resource"},
		"path below":         {"GET", one + "/nothing", "", nil, 404, "the server could not find the requested resource"},
		"empty":              {"POST", leases, "", nil, 400, parse + "unexpected end of JSON input (<empty>)"},
		"no JSON":            {"POST", leases, "{", nil, 400, parse + "unexpected end of JSON input ({)"},
		"no object":          {"POST", leases, "5", nil, 400, parse + "json: cannot unmarshal number into Go value of type struct {"},
		"kind is a number":   {"POST", leases, `{"kind":5}`, nil, 400, parse + "json: cannot unmarshal number into Go struct field .kind of type string ({\"kind\":5})"},
		"null":               {"POST", leases, "null", nil, 422, `Lease.coordination.k8s.io "" is invalid: metadata.name: Required value`},
		"list":               {"POST", leases, `{"apiVersion":"v1","kind":"List"}`, nil, 400, "List" + handle + "converting (v1.List) to (coordination.Lease): unknown conversion"},
		"other kind":         {"POST", leases, strings.Replace(lease, `"Lease"`, `"Other"`, 1), nil, 400, "Other" + handle + `no kind "Other" is registered for version "coordination.k8s.io/v1"` + scheme},
		"other version":      {"POST", leases, `{"apiVersion":"a.b/v1","kind":"Lease"}`, nil, 400, "Lease" + handle + `no kind "Lease" is registered for version "a.b/v1"` + scheme},
		"wrong type":         {"POST", leases, `{"metadata":{"name":"x"},"spec":5}`, nil, 400, "Lease" + handle + "json: cannot unmarshal number into Go struct field Lease.spec of type v1.LeaseSpec"},
		"unknown strict":     {"POST", leases + "?fieldValidation=Strict", strings.Replace(lease, "{", `{"more":1,`, 1), nil, 400, "Lease" + handle + `strict decoding error: unknown field "more"`},
		"media type":         {"POST", leases, lease, []string{"Content-Type", "text/plain"}, 415, "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		"accept":             {"GET", one, "", []string{"Accept", "text/plain"}, 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		"get version":        {"GET", one + "?resourceVersion=x", "", nil, 500, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"list version":       {"GET", leases + "?resourceVersion=x", "", nil, 400, `invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"watch version":      {"GET", leases + "?watch=1&resourceVersion=x", "", nil, 500, `resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		"update version":     {"PUT", one, strings.Replace(lease, `"name"`, `"resourceVersion":"x","name"`, 1), nil, 500, `strconv.ParseUint: parsing "x": invalid syntax`},
		"token":              {"GET", leases + "?continue=%20", "", nil, 400, "invalid continue token: continue key is not valid: illegal base64 data at input byte 0"},
		"limit":              {"GET", leases + "?limit=x", "", nil, 400, `strconv.ParseInt: parsing "x": invalid syntax`},
		"labels":             {"GET", leases + "?labelSelector=a%3D%3D%3Db", "", nil, 400, "unable to parse requirement: found '=', expected: identifier"},
		"fields":             {"GET", leases + "?fieldSelector=a", "", nil, 400, "invalid selector: 'a'; can't understand 'a'"},
		"field":              {"GET", leases + "?fieldSelector=spec.a%3Db", "", nil, 400, `"spec.a" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		"patch type":         {"PATCH", one, "{}", []string{"Content-Type", "text/plain"}, 415, "415: Unsupported Media Type"},
		"patch no JSON":      {"PATCH", one, "{", []string{"Content-Type", merge}, 400, "invalid JSON patch"},
		"patch no object":    {"PATCH", one, "[]", []string{"Content-Type", merge}, 400, "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		"patch other kind":   {"PATCH", one, `{"kind":"Other"}`, []string{"Content-Type", merge}, 422, ` "" is invalid: patch: Invalid value: `},
		"operations":         {"PATCH", one, "{}", []string{"Content-Type", "application/json-patch+json"}, 400, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"},
		"operation fails":    {"PATCH", one, `[{"op":"remove","path":"/none"}]`, []string{"Content-Type", "application/json-patch+json"}, 422, "the server rejected our request due to an error in our request"},
		"strategic":          {"PATCH", one, `{"metadata":{"$patch":"be"}}`, []string{"Content-Type", strat}, 500, "unknown patch type: be in map: map[$patch:be]"},
		"apply other kind":   {"PATCH", one + "?fieldManager=a", strings.Replace(lease, `"Lease"`, `"Other"`, 1), []string{"Content-Type", "application/apply-patch+yaml"}, 400, "invalid object type: coordination.k8s.io/v1, Kind=Other"},
		"options of another": {"DELETE", one, `{"apiVersion":"v1","kind":"ConfigMap"}`, nil, 400, `no kind "ConfigMap" is registered for version "v1"` + scheme},
	} {
		res, body := s.Do(c.method, c.path, c.body, c.header...)
		if got := status(t, res, body); res.StatusCode != c.code || !strings.HasPrefix(got.Message, c.message) {
			t.Errorf("%s: %s %q, want %d %q", name, res.Status, got.Message, c.code, c.message)
		}
	}
}
