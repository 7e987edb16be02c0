package server_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// gizmos is a definition with a schema that says something, every subresource, and versions that are deprecated.
const gizmos = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gizmos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: gizmos, kind: Gizmo}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    schema: &schema
      openAPIV3Schema:
        type: object
        properties:
          data: {type: string}
          spec:
            type: object
            properties:
              size: {type: string, enum: [S, M, L], default: M}
              replicas: {type: integer, format: int32}
              big: {type: integer, format: int64}
              text: {type: string, maxLength: 2000000}
              fixed: {type: string, x-kubernetes-validations: [{rule: self == oldSelf, message: fixed is immutable}]}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer}}}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              atoms: {type: array, items: {type: object, properties: {a: {type: integer}}}}
              any: {type: object, x-kubernetes-preserve-unknown-fields: true}
              inner: {type: object, x-kubernetes-embedded-resource: true, properties: {data: {type: string}}}
          status:
            type: object
            properties: {phase: {type: string}, replicas: {type: integer}, selector: {type: string}}
  - {name: v1beta1, served: true, storage: false, deprecated: true, subresources: {status: {}}, schema: SCHEMA}
  - {name: v1alpha1, served: true, storage: false, deprecated: true, deprecationWarning: 'use "v1"', subresources: {status: {}}, schema: SCHEMA}
`

const (
	gizmosPath = "/apis/example.com/v1/namespaces/default/gizmos"

	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// gizmosDefinition fills the schema in where its text says so: aliases are refused.
func gizmosDefinition() string {
	const open = "{openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}"
	return strings.ReplaceAll(strings.Replace(gizmos, "schema: &schema", "schema:", 1), "SCHEMA", open)
}

// attempt is a request about an object that is made for it, and what must come of it. In path, body and want, @NAME,
// @RV and UID stand for the object's.
type attempt struct {
	name   string
	object string // what it has in metadata besides its name, and after a brace that closes that; "none" for no object

	method, path, media, body string // path follows the object's, or the collection's for a POST

	code     int
	message  string // parts of an error's, with | between them
	causes   string // "Reason field, Reason field"
	want     string // of a success: "path=value path=value"
	warnings string // with | between them
}

// collection is where attempts are made.
type collection struct {
	path, apiVersion, kind, plural string
}

var gizmoCollection = collection{gizmosPath, "example.com/v1", "Gizmo", "gizmos"}

// try makes attempts, each as a subtest, and checks that refused ones left their objects as they were.
func (c collection) try(t *testing.T, s *servertest.Server, attempts []attempt) {
	t.Helper()
	for i, a := range attempts {
		t.Run(a.name, func(t *testing.T) { c.one(t, s, a, "x"+strconv.Itoa(i)) })
	}
}

func (c collection) one(t *testing.T, s *servertest.Server, a attempt, name string) {
	t.Helper()
	before := ""
	fill := strings.NewReplacer("@NAME", name)
	if a.object != "none" && a.method != "POST" {
		before = s.PostYAML(c.path, c.object(name, a.object))
		fill = strings.NewReplacer("@NAME", name, "@RV", value(before, "metadata.resourceVersion"), "@UID", value(before, "metadata.uid"))
	}
	path := c.path
	if a.method != "POST" {
		path += "/" + name
	}
	var headers []string
	if a.media != "" {
		headers = []string{"Content-Type", a.media}
	}
	res, body := s.Do(a.method, path+fill.Replace(a.path), fill.Replace(a.body), headers...)
	if a.code >= 400 {
		c.refused(t, res, body, a, fill, name)
		if before != "" && s.Get(c.path+"/"+name) != before {
			t.Errorf("it is %s\nand was %s", s.Get(c.path+"/"+name), before)
		}
	} else if res.StatusCode != a.code {
		t.Fatalf("%s, want %d: %.1000s", res.Status, a.code, body)
	} else {
		check(t, body, fill.Replace(a.want))
	}
	if got := strings.Join(warningsOf(t, res), "|"); got != a.warnings {
		t.Errorf("warnings %q, want %q", got, a.warnings)
	}
}

// object is one with more members of its metadata and, after a closing brace, of its own.
func (c collection) object(name, more string) string {
	if !strings.Contains(more, `},"`) {
		more += `}`
	}
	return `{"apiVersion":"` + c.apiVersion + `","kind":"` + c.kind + `","metadata":{"name":"` + name + `"` + more + `}`
}

// reasons are those that go with codes; 409 has two.
var reasons = map[int]string{400: "BadRequest", 403: "Forbidden", 404: "NotFound", 405: "MethodNotAllowed", 409: "Conflict", 413: "RequestEntityTooLarge", 415: "UnsupportedMediaType", 422: "Invalid", 500: "InternalError"}

func (c collection) refused(t *testing.T, res *http.Response, body string, a attempt, fill *strings.Replacer, name string) {
	t.Helper()
	got := status(t, res, body)
	reason := reasons[a.code]
	if strings.Contains(a.message, "already exists") {
		reason = "AlreadyExists"
	}
	if a.code == http.StatusInternalServerError { // it can't be merged
		reason = ""
	}
	if res.StatusCode != a.code || string(got.Reason) != reason {
		t.Fatalf("%s %s, want %d %s: %.1000s", res.Status, got.Reason, a.code, reason, got.Message)
	}
	for part := range strings.SplitSeq(fill.Replace(a.message), "|") {
		if !strings.Contains(got.Message, part) {
			t.Errorf("the message is %.1000q, which lacks %q", got.Message, part)
		}
	}
	if causes := causesOf(got); causes != sorted(a.causes) {
		t.Errorf("the causes are %q, want %q", causes, a.causes)
	}
	if kind := got.Details; kind != nil && kind.Group == "example.com" {
		want := map[int]string{422: c.kind, 404: c.plural, 409: c.plural, 403: c.plural, 413: c.plural}[a.code]
		if strings.Contains(a.message, "must be specified for an update") {
			want = c.plural // as from kube-apiserver
		}
		if strings.Contains(a.message, "must be "+c.kind) {
			want = "Gadget" // the kind that came, as from kube-apiserver
		}
		if kind.Kind != want || a.method != "POST" && kind.Name != name && kind.Name != "" {
			t.Errorf("details name %s %s, want %s", kind.Kind, kind.Name, want)
		}
	}
}

func causesOf(s metav1.Status) string {
	var causes []string
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			causes = append(causes, string(c.Type)+" "+c.Field)
		}
	}
	return sorted(strings.Join(causes, ", "))
}

// sorted orders a list: causes come in any order, as kube-apiserver's do, and an update's refusal has some of them again.
func sorted(list string) string {
	all := strings.Split(list, ", ")
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ", ")
}

// value returns what stands at a path in JSON, "" for nothing: strings as they are, all else as JSON.
func value(doc, path string) string {
	text, _, _ := valueAt(doc, path)
	return text
}

// valueAt is value, and tells whether there's something, and how many steps of the path lead somewhere.
func valueAt(doc, path string) (text string, found bool, steps int) {
	d := json.NewDecoder(strings.NewReader(doc))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return err.Error(), true, 0
	}
	for step := range strings.SplitSeq(path, ".") {
		var child any
		var ok bool
		switch parent := v.(type) {
		case map[string]any:
			child, ok = parent[strings.ReplaceAll(step, "~", ".")]
		case []any:
			if i, err := strconv.Atoi(step); err == nil && i < len(parent) {
				child, ok = parent[i], true
			}
		}
		if !ok {
			return "", false, steps
		}
		v = child
		steps++
	}
	if text, ok := v.(string); ok {
		return text, true, steps
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return err.Error(), true, steps
	}
	return strings.TrimSuffix(out.String(), "\n"), true, steps
}

// check compares values in JSON with what is wanted: "path=value path=value". "path!=value" is another value, and
// "path=" is nothing in something that's there, or in a spec or status that isn't: a mistyped path is neither.
func check(t *testing.T, doc, want string) {
	t.Helper()
	for pair := range strings.FieldsSeq(want) {
		path, wanted, _ := strings.Cut(pair, "=")
		path, not := strings.CutSuffix(path, "!")
		got, found, steps := valueAt(doc, path)
		somewhere := found || steps == strings.Count(path, ".") && steps > 0 || steps == 0 && slices.Contains([]string{"spec", "status"}, strings.Split(path, ".")[0])
		if (got == wanted) == not || not && !found || !somewhere {
			t.Errorf("%s is %q, want %q in %.2000s", path, got, pair, doc)
		}
	}
}

var warningForm = regexp.MustCompile(`^299 - "((?:[^"\\]|\\.)*)"$`)

func warningsOf(t *testing.T, res *http.Response) (texts []string) {
	t.Helper()
	for _, header := range res.Header.Values("Warning") {
		m := warningForm.FindStringSubmatch(header)
		if m == nil {
			t.Errorf("the warning is %s", header)
			continue
		}
		texts = append(texts, regexp.MustCompile(`\\(.)`).ReplaceAllString(m[1], "$1"))
	}
	return texts
}

func newGizmos(t *testing.T, options ...func(*server.Server)) *servertest.Server {
	t.Helper()
	s := servertest.New(t, options...)
	s.PostYAML(definitionsPath, gizmosDefinition())
	s.Quiescent() // as in newWidgets
	return s
}

// send is Do with a code to expect.
func send(t *testing.T, s *servertest.Server, code int, method, path, media, body string) string {
	t.Helper()
	res, answer := s.Do(method, path, body, "Content-Type", media)
	if res.StatusCode != code {
		t.Fatalf("%s %s: %s, want %d: %.1000s", method, path, res.Status, code, answer)
	}
	return answer
}

// notChecked is the cause that tells that rules weren't evaluated, with kube-apiserver's text for no field.
const notChecked = ", FieldValueInvalid <nil>"

const aMeta = `{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":`

func TestCreate(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const owner = `{"apiVersion":"v1","kind":"Pod","name":"p","uid":"%s"%s}`
	owners := func(all ...string) string {
		return aMeta + `{"name":"o","ownerReferences":[` + strings.Join(all, ",") + `]}}`
	}
	s.PostYAML(gizmosPath, aMeta+`{"name":"taken"}}`)
	post := func(name, body string, code int, message, causes string) attempt {
		return attempt{name: name, method: "POST", body: body, code: code, message: message, causes: causes}
	}
	named := func(name string, code int, causes string) attempt {
		return post(fmt.Sprintf("name %.40q", name), aMeta+`{"name":`+strconv.Quote(name)+`}}`, code, "", causes)
	}
	const invalidName = "FieldValueInvalid metadata.name"
	gizmoCollection.try(t, s, []attempt{
		{name: "what the server sets", method: "POST", code: 201,
			body: aMeta + `{"name":"set","uid":"mine","generation":7,"creationTimestamp":"2001-01-01T00:00:00.5+07:00","deletionTimestamp":"2001-01-01T00:00:00Z",
				"deletionGracePeriodSeconds":30,"selfLink":"/x","managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1"}]},"spec":{"big":1},"status":{"phase":"x"}}`,
			want: "metadata.uid!=mine metadata.generation=1 metadata.deletionTimestamp= metadata.deletionGracePeriodSeconds= metadata.selfLink= metadata.managedFields= " +
				"status= spec.big=1 spec.size=M metadata.namespace=default apiVersion=example.com/v1 kind=Gizmo metadata.resourceVersion!= metadata.resourceVersion!=0"},
		post("resourceVersion", aMeta+`{"name":"v","resourceVersion":"1"}}`, 500, "resourceVersion should not be set on objects to be created", ""),
		post("taken", aMeta+`{"name":"taken"}}`, 409, `gizmos.example.com "taken" already exists`, ""),
		post("no name", aMeta+`{}}`, 422, `Gizmo.example.com "" is invalid: [metadata.name: Required value: name or generateName is required, <nil>: `, "FieldValueRequired metadata.name"+notChecked),
		post("no metadata", `{"apiVersion":"example.com/v1","kind":"Gizmo"}`, 422, "name or generateName is required", "FieldValueRequired metadata.name"+notChecked),
		named(strings.Repeat("a", 253), 201, ""),
		named(strings.Repeat("a", 254), 422, invalidName),
		named("1.a-b", 201, ""),
		named("A", 422, invalidName),
		named("a..b", 422, invalidName),
		named("a.", 422, invalidName),
		named("-a", 422, invalidName),
		named("a_b", 422, invalidName),
		named("ä", 422, invalidName),
		named("a/b", 422, invalidName),
		named("..", 422, invalidName),
		named("a%b", 422, invalidName),
		post("generateName", aMeta+`{"generateName":"A_"}}`, 422, "metadata.generateName", "FieldValueInvalid metadata.generateName, "+invalidName),
		{name: "name before generateName", method: "POST", code: 201, body: aMeta + `{"name":"plain","generateName":"made-"}}`, want: "metadata.name=plain metadata.generateName=made-"},
		{name: "its namespace", method: "POST", code: 201, body: aMeta + `{"name":"here","namespace":"default"}}`, want: "metadata.namespace=default"},
		post("another namespace", aMeta+`{"name":"there","namespace":"kube-system"}}`, 400, "the namespace of the provided object does not match the namespace sent on the request", ""),
		post("another version", strings.Replace(aMeta, "/v1", "/v2", 1)+`{"name":"x"}}`, 400, "the API version in the data (example.com/v2) does not match the expected API version (example.com/v1)", ""),
		post("another kind", strings.Replace(aMeta, "Gizmo", "Gadget", 1)+`{"name":"x"}}`, 422, `kind: Invalid value: "Gadget": must be Gizmo`, "FieldValueInvalid kind"),
		post("label key", aMeta+`{"name":"x","labels":{"a b":"x"}}}`, 422, "", "FieldValueInvalid metadata.labels"),
		post("label value", aMeta+`{"name":"x","labels":{"a":"`+strings.Repeat("x", 64)+`"}}}`, 422, "", "FieldValueInvalid metadata.labels"),
		post("annotation key", aMeta+`{"name":"x","annotations":{"a b":"x"}}}`, 422, "", "FieldValueInvalid metadata.annotations"),
		post("annotations of 256 KiB", aMeta+`{"name":"big","annotations":{"a":"`+strings.Repeat("x", 256<<10-1)+`"}}}`, 201, "", ""),
		post("annotations of more", aMeta+`{"name":"x","annotations":{"a":"`+strings.Repeat("x", 256<<10)+`"}}}`, 422, "", "FieldValueTooLong metadata.annotations"+notChecked),
		post("finalizer", aMeta+`{"name":"x","finalizers":["a b"]}}`, 422, "", "FieldValueInvalid metadata.finalizers"),
		{name: "finalizer without a domain", method: "POST", code: 201, body: aMeta + `{"name":"f","finalizers":["mine"]}}`,
			warnings: `metadata.finalizers: "mine": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`},
		{name: "an owner twice", method: "POST", code: 201, body: owners(fmt.Sprintf(owner, "1", ""), fmt.Sprintf(owner, "2", ""), fmt.Sprintf(owner, "1", "")),
			want:     "metadata.ownerReferences.0.uid=1 metadata.ownerReferences.1.uid=2 metadata.ownerReferences.2=",
			warnings: `.metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1`},
		post("two controllers", owners(fmt.Sprintf(owner, "1", `,"controller":true`), fmt.Sprintf(owner, "2", `,"controller":true`)), 422, "Only one reference can have Controller set to true", "FieldValueInvalid metadata.ownerReferences"),
		post("an owner without a uid", owners(fmt.Sprintf(owner, "", "")), 422, "", "FieldValueRequired metadata.ownerReferences[0].uid"+notChecked),
		post("enum", aMeta+`{"name":"x"},"spec":{"size":"XL"}}`, 422, `Gizmo.example.com "x" is invalid: [spec.size: Unsupported value: "XL": supported values: "S", "M", "L"`, "FieldValueNotSupported spec.size"+notChecked),
		post("int64 overflow", aMeta+`{"name":"x"},"spec":{"big":9223372036854775808}}`, 422, "spec.big", "FieldValueTypeInvalid spec.big"+notChecked+notChecked),
		post("int32 overflow", aMeta+`{"name":"x"},"spec":{"replicas":2147483648}}`, 422, "spec.replicas", "FieldValueInvalid <nil>, FieldValueInvalid .spec.replicas"),
		post("missing namespace", aMeta+`{"name":"x","namespace":"nowhere"}}`, 400, "does not match", ""),
	})
	made := s.Get(gizmosPath + "/set")
	if at := value(made, "metadata.creationTimestamp"); !regexp.MustCompile(`^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$`).MatchString(at) || strings.HasPrefix(at, "2001") {
		t.Errorf("it was created at %s", at)
	}
	if uid := value(made, "metadata.uid"); !regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`).MatchString(uid) {
		t.Errorf("the uid is %s", uid)
	}
	res, body := s.Do("POST", "/api/v1/namespaces", `{"metadata":{"name":"`+strings.Repeat("a", 64)+`"}}`)
	if got := status(t, res, body); res.StatusCode != 422 || causesOf(got) != "FieldValueInvalid metadata.labels, "+invalidName || got.Details.Kind != "Namespace" {
		t.Errorf("a namespace of 64 letters: %s %s", res.Status, body)
	}
}

func TestGeneratedNames(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	long := strings.Repeat("b", 70)
	for base, form := range map[string]string{"job-": "^job-", long: "^" + long[:58], "a.b-": `^a\.b-`} {
		seen := map[string]bool{}
		for range 20 {
			body := s.PostYAML(gizmosPath, aMeta+`{"generateName":"`+base+`"}}`)
			name := value(body, "metadata.name")
			if !regexp.MustCompile(form+"[bcdfghjklmnpqrstvwxz2456789]{5}$").MatchString(name) || seen[name] || value(body, "metadata.generateName") != base {
				t.Errorf("of %s came %s", base, name)
			}
			seen[name] = true
		}
	}
}

func TestPut(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	s.PostYAML(gizmosPath, aMeta+`{"name":"other"}}`)
	put := func(meta, more string) string { return aMeta + `{"name":"@NAME"` + meta + `}` + more + `}` }
	const rv, old = `,"resourceVersion":"@RV"`, `},"spec":{"size":"S"},"data":"d"`
	const noVersion = "FieldValueInvalid metadata.resourceVersion"
	gizmoCollection.try(t, s, []attempt{
		{name: "spec", object: old, method: "PUT", body: put(rv, `,"spec":{"size":"L"},"data":"d"`), code: 200, want: "metadata.generation=2 spec.size=L metadata.uid=@UID metadata.resourceVersion!=@RV"},
		{name: "what isn't spec", object: old, method: "PUT", body: put(rv, `,"spec":{"size":"S"},"data":"e"`), code: 200, want: "metadata.generation=2 data=e"},
		{name: "labels", object: old, method: "PUT", body: put(rv+`,"labels":{"a":"b"}`, `,"spec":{"size":"S"},"data":"d"`), code: 200, want: "metadata.generation=1 metadata.labels.a=b metadata.resourceVersion!=@RV"},
		{name: "nothing", object: old, method: "PUT", body: put(rv, `,"spec":{"size":"S"},"data":"d"`), code: 200, want: "metadata.generation=1 metadata.resourceVersion=@RV"},
		{name: "status", object: old, method: "PUT", body: put(rv, `,"spec":{"size":"S"},"data":"d","status":{"phase":"x"}`), code: 200, want: "metadata.generation=1 metadata.resourceVersion=@RV status="},
		{name: "spec through status", object: old, method: "PUT", path: "/status", body: put(rv+`,"labels":{"a":"b"},"finalizers":["x.y/z"]`, `,"spec":{"size":"L"},"data":"e","status":{"phase":"x"}`), code: 200,
			want: "metadata.generation=1 spec.size=S data=d status.phase=x metadata.labels= metadata.finalizers= metadata.resourceVersion!=@RV"},
		{name: "only labels through status", object: old, method: "PUT", path: "/status", body: put(rv+`,"labels":{"a":"b"}`, ``), code: 200, want: "metadata.resourceVersion=@RV metadata.labels= spec.size=S"},
		{name: "its uid", object: old, method: "PUT", body: put(rv+`,"uid":"@UID"`, ``), code: 200, want: "metadata.uid=@UID spec="},
		{name: "another uid", object: old, method: "PUT", body: put(rv+`,"uid":"mine"`, ``), code: 409, message: "Precondition failed: UID in precondition: mine, UID in object meta: @UID"},
		{name: "another uid through status", object: old, method: "PUT", path: "/status", body: put(rv+`,"uid":"mine"`, ``), code: 409, message: "Precondition failed: UID"},
		{name: "no version", object: old, method: "PUT", body: put("", ""), code: 422, message: "metadata.resourceVersion: Invalid value: 0: must be specified for an update", causes: noVersion},
		{name: "no version for status", object: old, method: "PUT", path: "/status", body: put("", ""), code: 422, message: "must be specified for an update", causes: noVersion},
		{name: "version 0", object: old, method: "PUT", body: put(`,"resourceVersion":"0"`, ""), code: 422, message: "must be specified for an update", causes: noVersion},
		{name: "no number", object: old, method: "PUT", body: put(`,"resourceVersion":"x"`, ""), code: 500, message: `strconv.ParseUint: parsing "x": invalid syntax`},
		{name: "stale version", object: old, method: "PUT", body: put(`,"resourceVersion":"1"`, ""), code: 409, message: `Operation cannot be fulfilled on gizmos.example.com "@NAME": |please apply your changes to the latest version and try again`},
		{name: "version to come", object: old, method: "PUT", body: put(`,"resourceVersion":"999999999"`, ""), code: 409, message: "please apply your changes"},
		{name: "missing", object: "none", method: "PUT", body: put(`,"resourceVersion":"7"`, ""), code: 404, message: `gizmos.example.com "@NAME" not found`},
		{name: "missing, no version", object: "none", method: "PUT", body: put("", ""), code: 404, message: `gizmos.example.com "@NAME" not found`},
		{name: "status of what is missing", object: "none", method: "PUT", path: "/status", body: put(`,"resourceVersion":"7"`, ""), code: 404, message: `gizmos.example.com "@NAME" not found`},
		{name: "another name", object: old, method: "PUT", body: aMeta + `{"name":"other","resourceVersion":"@RV"}}`, code: 400, message: "the name of the object (other) does not match the name on the URL (@NAME)"},
		{name: "no name", object: old, method: "PUT", body: aMeta + `{"resourceVersion":"@RV"}}`, code: 400, message: "the name of the object (@NAME based on URL) was undeterminable: name must be provided"},
		{name: "another namespace", object: old, method: "PUT", body: put(rv+`,"namespace":"kube-system"`, ""), code: 400, message: "does not match the namespace sent on the request"},
		{name: "another version", object: old, method: "PUT", body: strings.Replace(put(rv, ""), "/v1", "/v1beta1", 1), code: 400, message: "does not match the expected API version"},
		{name: "another kind", object: old, method: "PUT", body: strings.Replace(put(rv, ""), "Gizmo", "Gadget", 1), code: 422, message: "must be Gizmo", causes: "FieldValueInvalid kind"},
		{name: "creationTimestamp", object: old, method: "PUT", body: put(rv+`,"creationTimestamp":"2001-01-01T00:00:00Z","generation":9,"deletionGracePeriodSeconds":null`, `,"spec":{"size":"S"},"data":"d"`), code: 200, want: "metadata.resourceVersion=@RV metadata.generation=1"},
		{name: "deletionTimestamp", object: old, method: "PUT", body: put(rv+`,"deletionTimestamp":"2001-01-01T00:00:00Z"`, ``), code: 422, message: "field is immutable", causes: "FieldValueInvalid metadata.deletionTimestamp"},
		{name: "schema", object: old, method: "PUT", body: put(rv, `,"spec":{"tags":["a","a"]}`), code: 422, message: `Gizmo.example.com "@NAME" is invalid: spec.tags[1]: Duplicate value: "a"`, causes: "FieldValueDuplicate spec.tags[1]"},
		{name: "rule", object: `},"spec":{"fixed":"a"}`, method: "PUT", body: put(rv, `,"spec":{"fixed":"b"}`), code: 422, message: "spec.fixed: Invalid value: |fixed is immutable", causes: "FieldValueInvalid spec.fixed"},
		{name: "status's schema", object: old, method: "PUT", path: "/status", body: put(rv, `,"status":{"replicas":"x"}`), code: 422, message: "status.replicas", causes: "FieldValueTypeInvalid status.replicas" + notChecked + ", FieldValueInvalid .status.replicas"},
		{name: "spec's schema through status", object: old, method: "PUT", path: "/status", body: put(rv, `,"spec":{"size":"XL"},"status":{"phase":"y"}`), code: 200, want: "spec.size=S status.phase=y"},
		{name: "owners twice", object: old, method: "PUT", body: put(rv+`,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"},{"apiVersion":"v1","kind":"Pod","name":"p","uid":"1"}]`, ""), code: 200,
			want: "metadata.ownerReferences.1=", warnings: `.metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: 1`},
		{name: "finalizer without a domain", object: old, method: "PUT", body: put(rv+`,"finalizers":["a.b"]`, ""), code: 200,
			warnings: `metadata.finalizers: "a.b": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`},
	})
	// Kinds that can be replaced without a version, and one that can't.
	send(t, s, 200, "PUT", "/api/v1/namespaces/default", "application/json", `{"metadata":{"name":"default","labels":{"a":"b"}}}`)
	res, body := s.Do("PUT", definitionsPath+"/gizmos.example.com", gizmosDefinition(), "Content-Type", "application/yaml")
	if got := status(t, res, body); res.StatusCode != 422 || causesOf(got) != noVersion || got.Details.Kind != "customresourcedefinitions" {
		t.Errorf("a definition without a version: %s %s", res.Status, body)
	}
}

// TestStatusWithoutSubresource: where there's none, status is a field as others are.
func TestStatusWithoutSubresource(t *testing.T) {
	t.Parallel()
	s := newGadgets(t)
	made := s.PostYAML(gadgetsPath, strings.Replace(aGadget("d", 1), `"spec"`, `"status":{"ok":1},"spec"`, 1))
	check(t, made, "status.ok=1 metadata.generation=1")
	check(t, patchGadget(t, s, gadgetsPath+"/d", `{"status":{"ok":2}}`), "status.ok=2 metadata.generation=2")
	send(t, s, 404, "PUT", gadgetsPath+"/d/status", "application/json", made)
	send(t, s, 404, "PATCH", gadgetsPath+"/d/status", mergePatch, "{}")
}

// TestDeletedObjects: what can be done with an object that finalizers hold.
func TestDeletedObjects(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	path := gizmosPath + "/held"
	s.PostYAML(gizmosPath, aMeta+`{"name":"held","finalizers":["x.y/a","x.y/b"]}}`)
	events := s.Watch(path + "?watch=true")
	next(t, events)
	marked := send(t, s, 200, "DELETE", path, "application/json", "")
	check(t, marked, "metadata.generation=2 metadata.deletionTimestamp!= metadata.deletionGracePeriodSeconds=0 kind=Gizmo")
	if again := send(t, s, 200, "DELETE", path, "application/json", ""); again != marked {
		t.Errorf("deleting again: %s\nwas %s", again, marked)
	}
	at := value(marked, "metadata.deletionTimestamp")
	for _, tc := range []struct {
		name, patch string
		code        int
		causes      string
		want        string
	}{
		{"a new finalizer", `{"metadata":{"finalizers":["x.y/a","x.y/b","x.y/c"]}}`, 422, "FieldValueForbidden metadata.finalizers", ""},
		{"another finalizer", `{"metadata":{"finalizers":["x.y/c"]}}`, 422, "FieldValueForbidden metadata.finalizers", ""},
		{"no deletion", `{"metadata":{"deletionTimestamp":null,"deletionGracePeriodSeconds":null}}`, 200, "", "metadata.resourceVersion=" + value(marked, "metadata.resourceVersion")},
		{"another time", `{"metadata":{"deletionTimestamp":"2001-01-01T00:00:00Z"}}`, 200, "", "metadata.resourceVersion=" + value(marked, "metadata.resourceVersion")},
		{"spec", `{"spec":{"size":"L"}}`, 200, "", "metadata.generation=3 spec.size=L metadata.deletionTimestamp=" + at},
		{"a finalizer less", `{"metadata":{"finalizers":["x.y/b"]}}`, 200, "", "metadata.generation=3 metadata.finalizers.1="},
		{"that one again", `{"metadata":{"finalizers":["x.y/b","x.y/a"]}}`, 422, "FieldValueForbidden metadata.finalizers", ""},
	} {
		res, body := s.Do("PATCH", path, tc.patch, "Content-Type", mergePatch)
		if res.StatusCode != tc.code {
			t.Fatalf("%s: %s: %s", tc.name, res.Status, body)
		}
		if tc.code != 200 && causesOf(status(t, res, body)) != tc.causes {
			t.Errorf("%s: %s", tc.name, body)
		}
		check(t, body, tc.want)
	}
	last := send(t, s, 200, "PATCH", path, mergePatch, `{"metadata":{"finalizers":null}}`)
	check(t, last, "kind=Gizmo metadata.finalizers= metadata.deletionTimestamp="+at)
	send(t, s, 404, "GET", path, "application/json", "")
	var got []string
	for len(got) == 0 || !strings.HasPrefix(got[len(got)-1], "DELETED") {
		got = append(got, next(t, events).Type)
	}
	if want := "[MODIFIED MODIFIED MODIFIED DELETED]"; fmt.Sprint(got) != want {
		t.Errorf("the events are %v, want %s", got, want)
	}
}

// TestUnchanged: what changes nothing is no write: the version stays and watches see nothing.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	made := s.PostYAML(gizmosPath, aMeta+`{"name":"a","labels":{"a":"b"},"annotations":{}},"spec":{"big":1,"any":{"f":1.5}}}`)
	path := gizmosPath + "/a"
	applied := aMeta + `{"name":"applied"},"spec":{"size":"L"}}`
	asApplied := send(t, s, 201, "PATCH", gizmosPath+"/applied?fieldManager=m", applyPatch, applied)
	w := s.Watch(gizmosPath + "?watch=true&resourceVersion=" + value(asApplied, "metadata.resourceVersion"))
	for _, tc := range []struct{ method, path, media, body, want string }{
		{"PUT", path, "application/json", made, made},
		{"PUT", path, "application/json", strings.Replace(made, `"big":1`, `"big":1.0`, 1), made},
		{"PUT", path, "application/json", strings.Replace(made, `,"size":"M"`, ``, 1), made},
		{"PUT", path + "/status", "application/json", made, made},
		{"PATCH", path, mergePatch, `{}`, made},
		{"PATCH", path, mergePatch, `{"spec":{"big":1,"size":null,"none":null}}`, made},
		{"PATCH", path, mergePatch, `{"status":{"phase":"x"}}`, made},
		{"PATCH", path + "/status", mergePatch, `{"spec":{"big":2}}`, made},
		{"PATCH", path, jsonPatch, `[]`, made},
		{"PATCH", path, jsonPatch, `[{"op":"add","path":"/spec/size","value":"L"},{"op":"replace","path":"/spec/size","value":"M"}]`, made},
		{"PATCH", gizmosPath + "/applied?fieldManager=m", applyPatch, applied, asApplied},
		{"PATCH", gizmosPath + "/applied?fieldManager=m&force=true", applyPatch, applied, asApplied},
		{"PUT", gizmosPath + "/applied", "application/json", asApplied, asApplied},
		{"PATCH", gizmosPath + "/applied", mergePatch, `{"spec":{"size":"L"}}`, asApplied},
	} {
		if got := send(t, s, 200, tc.method, tc.path, tc.media, tc.body); got != tc.want {
			t.Errorf("%s %s %s: %s\nwas %s", tc.method, tc.path, tc.body, got, tc.want)
		}
	}
	for _, kind := range []string{"/api/v1/namespaces/default", definitionsPath + "/gizmos.example.com"} {
		was := s.Get(kind)
		for _, media := range []string{mergePatch, strategicPatch} {
			if got := send(t, s, 200, "PATCH", kind, media, `{}`); got != was {
				t.Errorf("%s: %s\nwas %s", kind, got, was)
			}
		}
		if got := send(t, s, 200, "PUT", kind, "application/json", was); got != was {
			t.Errorf("%s: %s\nwas %s", kind, got, was)
		}
	}
	s.PostYAML(gizmosPath, aMeta+`{"name":"last"}}`)
	if e := next(t, w); e.String() != "ADDED last" {
		t.Errorf("there was an event: %s", e)
	}
}

func TestPatches(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	const old = `,"labels":{"a":"b"}},"spec":{"size":"S","big":9007199254740993,"tags":["x"],"ports":[{"name":"a","port":1}]}`
	merge := func(name, body string, code int, more ...string) attempt {
		a := attempt{name: name, object: old, method: "PATCH", media: mergePatch, body: body, code: code}
		fillIn(&a, more)
		return a
	}
	ops := func(name, body string, code int, more ...string) attempt {
		a := merge(name, body, code, more...)
		a.media = jsonPatch
		return a
	}
	at := func(path string, a attempt) attempt { a.path = path; return a }
	of := func(media string, a attempt) attempt { a.media = media; return a }
	const rejected = "the server rejected our request due to an error in our request"
	const unknownForm = "the body of the request was in an unknown format - accepted media types include: application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
	gizmoCollection.try(t, s, []attempt{
		merge("merge", `{"spec":{"size":"L","tags":null,"any":{"x":null,"y":"<&>"}}}`, 200, "spec.size=L spec.tags= spec.big=9007199254740993 spec.any={\"y\":\"<&>\"} metadata.generation=2 metadata.uid=@UID"),
		of(mergePatch+"; charset=utf-8", merge("parameters", `{"spec":{"size":"L"}}`, 200, "spec.size=L")),
		of("APPLICATION/Merge-Patch+JSON;a=b;c=d", merge("in capitals", `{"spec":{"size":"L"}}`, 200, "spec.size=L")),
		of(jsonPatch+";charset=UTF-8", ops("operations with parameters", `[]`, 200, "metadata.resourceVersion=@RV")),
		ops("operations", `[{"op":"test","path":"/spec/size","value":"S"},{"op":"replace","path":"/spec/size","value":"L"},{"op":"add","path":"/spec/tags/-","value":"y"},
			{"op":"remove","path":"/metadata/labels/a"},{"op":"copy","from":"/spec/tags/0","path":"/spec/text"},{"op":"move","from":"/spec/big","path":"/spec/any"},{"op":"replace","path":"/spec/any","value":{}}]`, 200,
			`spec.size=L spec.tags=["x","y"] spec.text=x spec.big= metadata.generation=2`),
		of("", merge("no type", `{}`, 415, unknownForm)),
		of("application/json", merge("JSON", `{}`, 415, unknownForm)),
		of("application/yaml", merge("YAML", `{}`, 415, unknownForm)),
		of("application/vnd.kubernetes.protobuf", merge("protobuf", "k8s\x00", 415, unknownForm)),
		of("application/apply-patch+cbor", merge("CBOR", "\xd9\xd9\xf7", 415, unknownForm)),
		of(";;;", merge("no media type", `{}`, 415, unknownForm)),
		of(strategicPatch, merge("strategic", `{}`, 415, unknownForm)),
		at("/scale", of(strategicPatch, merge("strategic for scale", `{"spec":{"replicas":3}}`, 415, unknownForm))),
		at("/scale", merge("fewer than no replicas", `{"spec":{"replicas":-1}}`, 422, "", "FieldValueInvalid .spec.replicas")),
		at("/scale", merge("merge for scale", `{"spec":{"replicas":3}}`, 200, "kind=Scale apiVersion=autoscaling/v1 spec.replicas=3 metadata.uid=@UID metadata.resourceVersion!=@RV")),
		at("/scale", ops("operations for scale", `[{"op":"add","path":"/spec/replicas","value":4}]`, 200, "kind=Scale spec.replicas=4")),
		at("/scale?fieldManager=m", of(applyPatch, merge("apply for scale", "apiVersion: autoscaling/v1\nkind: Scale\nspec: {replicas: 5}\n", 200, "kind=Scale spec.replicas=5"))),

		merge("its version", `{"metadata":{"resourceVersion":"@RV"},"spec":{"size":"L"}}`, 200, "spec.size=L"),
		merge("stale version", `{"metadata":{"resourceVersion":"1"},"spec":{"size":"L"}}`, 409, "please apply your changes to the latest version and try again"),
		merge("stale version and no change", `{"metadata":{"resourceVersion":"1"}}`, 409, "please apply your changes"),
		ops("stale version", `[{"op":"replace","path":"/metadata/resourceVersion","value":"1"}]`, 409, "please apply your changes"),
		ops("test of the version", `[{"op":"test","path":"/metadata/resourceVersion","value":"@RV"},{"op":"add","path":"/spec/size","value":"L"}]`, 200, "spec.size=L"),
		ops("test of a stale version", `[{"op":"test","path":"/metadata/resourceVersion","value":"1"}]`, 422, rejected),
		at("/status", merge("stale version for status", `{"metadata":{"resourceVersion":"1"},"status":{}}`, 409, "please apply your changes")),
		merge("no version", `{"metadata":{"resourceVersion":null},"spec":{"size":"L"}}`, 422, "must be specified for an update", "FieldValueInvalid metadata.resourceVersion"),
		merge("odd version", `{"metadata":{"resourceVersion":"x"}}`, 500, `strconv.ParseUint: parsing "x": invalid syntax`),

		at("/status", merge("status", `{"spec":{"size":"L"},"metadata":{"labels":{"c":"d"}},"status":{"phase":"x"}}`, 200, "spec.size=S metadata.labels.c= status.phase=x metadata.generation=1")),
		merge("status by the main path", `{"spec":{"size":"L"},"status":{"phase":"x"}}`, 200, "spec.size=L status= metadata.generation=2"),
		merge("labels", `{"metadata":{"labels":{"c":"d"}}}`, 200, `metadata.labels={"a":"b","c":"d"} metadata.generation=1`),
		merge("default again", `{"spec":{"size":null}}`, 200, "spec.size=M metadata.generation=2"),

		merge("another name", `{"metadata":{"name":"other"}}`, 400, "the name of the object (other) does not match the name on the URL (@NAME)"),
		merge("no name", `{"metadata":{"name":null}}`, 400, "the name of the object (@NAME based on URL) was undeterminable: name must be provided"),
		merge("another namespace", `{"metadata":{"namespace":"kube-system"}}`, 400, "the namespace of the provided object does not match the namespace sent on the request"),
		merge("another kind", `{"kind":"Gadget"}`, 422, "must be Gizmo", "FieldValueInvalid kind"),
		merge("no kind", `{"kind":null}`, 422, "Object 'Kind' is missing in", "FieldValueInvalid patch"),
		merge("another version", `{"apiVersion":"example.com/v1beta1"}`, 422, "must be example.com/v1", "FieldValueInvalid apiVersion"),
		merge("another group", `{"apiVersion":"apps/v1"}`, 422, "must be example.com/v1", "FieldValueInvalid apiVersion"),
		merge("another uid", `{"metadata":{"uid":"mine"}}`, 422, "field is immutable", "FieldValueInvalid metadata.uid"),
		merge("no metadata", `{"metadata":null}`, 400, "name must be provided"),
		merge("no object", `{"metadata":[]}`, 422, "metadata", "FieldValueInvalid patch"),
		at("?fieldValidation=Strict", merge("unknown field", `{"spec":{"sise":1}}`, 422, `unknown field "spec.sise"`, "FieldValueInvalid patch")),
		at("?fieldValidation=Strict", merge("field given twice", `{"spec":{"size":"S","size":"L"}}`, 422, `duplicate field "spec.size"`, "FieldValueInvalid patch")),
		merge("another time", `{"metadata":{"creationTimestamp":"2001-01-01T00:00:00Z","generation":9,"selfLink":"/x"}}`, 200, "metadata.resourceVersion=@RV metadata.generation=1"),
		merge("odd time", `{"metadata":{"creationTimestamp":"yesterday"}}`, 422, "metadata", "FieldValueInvalid patch"),
		ops("another name", `[{"op":"replace","path":"/metadata/name","value":"other"}]`, 400, "the name of the object (other)"),
		ops("another kind", `[{"op":"replace","path":"/kind","value":"Gadget"}]`, 422, "must be Gizmo", "FieldValueInvalid kind"),
		ops("another uid", `[{"op":"replace","path":"/metadata/uid","value":"mine"}]`, 422, "field is immutable", "FieldValueInvalid metadata.uid"),
		ops("another object", `[{"op":"replace","path":"","value":{"apiVersion":"example.com/v1","kind":"Gizmo","metadata":{"name":"other"}}}]`, 400, "the name of the object (other)"),
		ops("a number instead", `[{"op":"replace","path":"","value":1}]`, 422, rejected),
		ops("nothing left", `[{"op":"remove","path":""}]`, 422, ""),

		merge("malformed", `{`, 400, ""),
		merge("empty", ``, 400, ""),
		merge("array", `[]`, 400, ""),
		merge("null", `null`, 400, "must be a JSON object, not null"),
		merge("two documents", `{}{}`, 400, ""),
		ops("malformed", `[`, 400, ""),
		ops("empty", ``, 400, ""),
		ops("an object", `{}`, 400, ""),
		ops("no operation", `[null]`, 400, "operation 0: must be an object"),
		ops("unknown operation", `[{"op":"frob","path":"/spec"}]`, 422, rejected),
		ops("no value", `[{"op":"add","path":"/spec/size"}]`, 422, rejected),
		ops("no path", `[{"op":"remove"}]`, 422, rejected),
		ops("no pointer", `[{"op":"remove","path":"spec"}]`, 422, rejected),
		ops("no from", `[{"op":"move","path":"/spec/x"}]`, 422, rejected),
		ops("failing test", `[{"op":"test","path":"/spec/size","value":"M"}]`, 422, rejected),
		ops("test of what is missing", `[{"op":"test","path":"/spec/none","value":"M"}]`, 422, rejected),
		ops("remove what is missing", `[{"op":"remove","path":"/spec/none"}]`, 422, rejected),
		ops("replace what is missing", `[{"op":"replace","path":"/spec/text","value":"x"}]`, 200, "spec.text=x"), // as with kube-apiserver, against RFC 6902
		ops("into what is missing", `[{"op":"add","path":"/nowhere/x","value":1}]`, 422, rejected),
		ops("past the end", `[{"op":"add","path":"/spec/tags/9","value":"y"}]`, 422, rejected),
		ops("huge index", `[{"op":"add","path":"/spec/tags/99999999999999999999","value":"y"}]`, 422, ""),
		ops("into a string", `[{"op":"add","path":"/spec/size/x","value":"y"}]`, 422, ""),
		ops("later test", `[{"op":"replace","path":"/spec/size","value":"L"},{"op":"test","path":"/spec/size","value":"S"}]`, 422, rejected),

		merge("schema", `{"spec":{"size":"XL"}}`, 422, `Gizmo.example.com "@NAME" is invalid: [spec.size: Unsupported value: "XL"`, "FieldValueNotSupported spec.size"+notChecked),
		merge("several fields", `{"spec":{"size":1,"tags":"x","ports":[{}]}}`, 422, "", "FieldValueRequired spec.ports[0].name, FieldValueTypeInvalid spec.size, FieldValueNotSupported spec.size, FieldValueTypeInvalid spec.tags"+notChecked),
		merge("int64 overflow", `{"spec":{"big":9223372036854775808}}`, 422, "spec.big", "FieldValueTypeInvalid spec.big"+notChecked+notChecked),
		ops("int64 overflow", `[{"op":"replace","path":"/spec/big","value":1e30}]`, 422, "spec.big", "FieldValueTypeInvalid spec.big"+notChecked+notChecked),
		merge("number out of range", `{"spec":{"big":1e999}}`, 400, ""),
		merge("two controllers", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"1","controller":true},{"apiVersion":"v1","kind":"P","name":"p","uid":"2","controller":true}]}}`, 422,
			"Only one reference can have Controller set to true", "FieldValueInvalid metadata.ownerReferences"),
		{name: "missing object", object: "none", method: "PATCH", media: mergePatch, body: `{}`, code: 404, message: `gizmos.example.com "@NAME" not found`},
		{name: "status of a missing object", object: "none", method: "PATCH", path: "/status", media: jsonPatch, body: `[]`, code: 404, message: `gizmos.example.com "@NAME" not found`},
		{name: "scale of a missing object", object: "none", method: "PATCH", path: "/scale", media: mergePatch, body: `{}`, code: 404, message: `gizmos.example.com "@NAME" not found`},
		at("/nothing", merge("unknown subresource", `{}`, 404, `gizmos.example.com "@NAME" not found`)),
		at("?force=true", merge("force", `{}`, 422, "force", "FieldValueForbidden force")),
		at("?fieldManager="+strings.Repeat("x", 129), merge("long manager", `{}`, 422, "fieldManager", "FieldValueTooLong fieldManager")),
		at("?fieldManager=a%07", merge("manager that doesn't print", `{}`, 422, "fieldManager", "FieldValueInvalid fieldManager")),
	})
}

// fillIn takes, for refusals, the message and the causes, and for successes what is wanted.
func fillIn(a *attempt, more []string) {
	if len(more) > 0 && a.code < 400 {
		a.want = more[0]
	} else if len(more) > 0 {
		a.message = more[0]
	}
	if len(more) > 1 {
		a.causes = more[1]
	}
}

// TestPatchesOfGoTypes: they take strategic merge patches besides.
func TestPatchesOfGoTypes(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	c := collection{"/api/v1/namespaces", "v1", "Namespace", "namespaces"}
	c.try(t, s, []attempt{
		{name: "merge", method: "PATCH", media: mergePatch, body: `{"metadata":{"labels":{"a":"b"}}}`, code: 200, want: "metadata.labels.a=b"},
		{name: "strategic", method: "PATCH", media: strategicPatch + "; charset=utf-8", object: `,"finalizers":["x.y/a"]`, body: `{"metadata":{"finalizers":["x.y/b"],"$deleteFromPrimitiveList/finalizers":["x.y/a"]}}`, code: 200, want: `metadata.finalizers=["x.y/b"]`},
		{name: "strategic list by key", method: "PATCH", media: strategicPatch, object: `,"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"p","uid":"1"}]`, body: `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"P","name":"q","uid":"2"}]}}`, code: 200, want: `metadata.ownerReferences.0.uid=2 metadata.ownerReferences.1.uid=1`},
		{name: "operations", method: "PATCH", media: jsonPatch, body: `[{"op":"add","path":"/metadata/annotations","value":{"a":"b"}}]`, code: 200, want: "metadata.annotations.a=b"},
		{name: "apply", method: "PATCH", path: "?fieldManager=m", media: applyPatch, body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"@NAME","labels":{"a":"b"}}}`, code: 200, want: "metadata.labels.a=b"},
		{name: "malformed strategic", method: "PATCH", media: strategicPatch, body: `{"metadata":{"$patch":"frob"}}`, code: 500},
		{name: "strategic with a wrong type", method: "PATCH", media: strategicPatch, body: `{"metadata":{"finalizers":"x"}}`, code: 422, causes: "FieldValueInvalid patch"},
		{name: "wrong type", method: "PATCH", media: mergePatch, body: `{"metadata":{"labels":{"a":1}}}`, code: 422, causes: "FieldValueInvalid patch"},
		{name: "unknown type", method: "PATCH", media: "application/json", body: `{}`, code: 415, message: "415: Unsupported Media Type"},
		{name: "another name", method: "PATCH", media: strategicPatch, body: `{"metadata":{"name":"other"}}`, code: 400, message: "the name of the object (other)"},
		{name: "status", method: "PATCH", path: "/status", media: strategicPatch, body: `{"metadata":{"labels":{"a":"b"}},"status":{"conditions":[{"type":"X","status":"True"}]}}`, code: 200, want: "status.conditions.0.type=X metadata.labels.a=b"},
		{name: "finalize", method: "PATCH", path: "/finalize", media: mergePatch, body: `{}`, code: 405},
	})
	// A definition's versions have no key by which they could be merged: the list is replaced.
	res, body := s.Do("PATCH", definitionsPath+"/gizmos.example.com", `{"spec":{"names":{"shortNames":["gz"]}}}`, "Content-Type", strategicPatch)
	if res.StatusCode != 200 || value(body, "spec.names.shortNames.0") != "gz" || value(body, "status.acceptedNames.shortNames.0") != "gz" || value(body, "spec.versions.2.name") != "v1alpha1" {
		t.Errorf("%s: %s", res.Status, body)
	}
}

// TestHugePatches: they're refused, and nothing comes of them.
func TestHugePatches(t *testing.T) {
	t.Parallel()
	s := newGizmos(t)
	nested := func(levels, size int) string {
		return strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", size) + `"` + strings.Repeat(`}`, levels)
	}
	copies := []string{`{"op":"add","path":"/spec/any","value":{"x":"` + strings.Repeat("x", 4096) + `"}}`}
	for i := range 30 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/spec","path":"/spec/any/c%d"}`, i))
	}
	list := func(ops []string) string { return "[" + strings.Join(ops, ",") + "]" }
	const remove = `{"op":"test","path":"/kind","value":"Gizmo"}`
	patch := func(name, media, body string, code int, message string) attempt {
		path := ""
		if media == applyPatch {
			path = "?fieldManager=m"
		}
		return attempt{name: name, object: `},"spec":{}`, method: "PATCH", path: path, media: media, body: body, code: code, message: message}
	}
	applied := func(spec string) string { return aMeta + `{"name":"@NAME"},"spec":` + spec + `}` }
	gizmoCollection.try(t, s, []attempt{
		patch("copy bomb", jsonPatch, list(copies), 413, "copy operations of the JSON patch add up to more than 3145728 bytes"),
		patch("10 000 operations", jsonPatch, list(slices.Repeat([]string{remove}, 10_000)), 200, ""),
		patch("10 001 operations", jsonPatch, list(slices.Repeat([]string{remove}, 10_001)), 413, "the allowed maximum of operations in a JSON patch is 10000, got 10001"),
		patch("70 000 operations", jsonPatch, list(slices.Repeat([]string{`{"op":"remove","path":"/kind"}`}, 70_000)), 413, "got 70000"),
		patch("operations of 3 MiB", jsonPatch, list(slices.Repeat([]string{remove}, 80_000)), 413, "3145728 bytes"),
		patch("deep value", jsonPatch, `[{"op":"add","path":"/spec/any","value":`+nested(5000, 1<<20)+`}]`, 413, "levels of nesting"),
		patch("value of 11 000 levels", jsonPatch, `[{"op":"add","path":"/spec/any","value":`+nested(11_000, 1)+`}]`, 400, "invalid JSON patch"),
		patch("deep path", jsonPatch, `[{"op":"add","path":"`+strings.Repeat("/a", 500_000)+`","value":1}]`, 413, "levels of nesting"),
		patch("deep merge", mergePatch, `{"spec":{"any":`+nested(5000, 1<<20)+`}}`, 413, "levels of nesting"),
		patch("merge of 11 000 levels", mergePatch, `{"spec":{"any":`+nested(11_000, 1)+`}}`, 400, "invalid JSON patch"),
		patch("unclosed", mergePatch, strings.Repeat(`{"a":`, 200_000), 400, "invalid JSON patch"),
		patch("deep enough", mergePatch, `{"spec":{"any":`+nested(1000, 1)+`}}`, 200, ""),
		patch("large merge", mergePatch, `{"spec":{"text":"`+strings.Repeat("x", 1600<<10)+`"}}`, 413, "is larger than the limit of 1572864 bytes for one stored object"),
		patch("merge of 3 MiB", mergePatch, `{"spec":{"text":"`+strings.Repeat("x", 3<<20)+`"}}`, 413, "3145728 bytes"),
		patch("deep apply", applyPatch, applied(`{"any":`+nested(600, 1)+`}`), 413, "nests deeper than 500 levels"),
		patch("apply of 11 000 levels", applyPatch, applied(`{"any":`+nested(11_000, 1)+`}`), 400, "nests deeper than 10000 levels"),
		patch("large apply", applyPatch, applied(`{"text":"`+strings.Repeat("x", 1600<<10)+`"}`), 413, "is larger than the limit of 1572864 bytes"),
		patch("apply that renames", applyPatch, strings.Replace(applied(`{}`), "@NAME", "other", 1), 400, "the name of the object (other)"),
		patch("apply of another version", applyPatch, strings.Replace(applied(`{}`), "/v1", "/v2", 1), 400, "invalid object type: example.com/v2, Kind=Gizmo"),
		patch("a regex for a name", mergePatch, `{"metadata":{"name":"^(a+)+$"}}`, 400, "does not match the name"),
	})
	if got := s.Get(gizmosPath + "?limit=1"); !strings.Contains(got, `"items":[{`) {
		t.Errorf("afterwards a list is %s", got)
	}
}
