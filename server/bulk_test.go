package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	applyList  = bulk.ApplyPath + "?fieldManager=me"
	createList = bulk.CreatePath
)

// bulkResult is one result of a List.
type bulkResult struct {
	Code   int
	Object struct {
		Kind     string
		Metadata metav1.ObjectMeta
	}
	Status   metav1.Status
	Warnings []string
}

// String is the result in short: its code, and the object that is stored or why it isn't.
func (r bulkResult) String() string {
	if r.Object.Kind == "" {
		return fmt.Sprint(r.Code, " ", r.Status.Message)
	}
	return fmt.Sprint(r.Code, " ", r.Object.Kind, " ", strings.TrimPrefix(r.Object.Metadata.Namespace+"/"+r.Object.Metadata.Name, "/"))
}

// bulkResults reads the answer to a List.
func bulkResults(t *testing.T, body string) (got []bulkResult) {
	t.Helper()
	var all struct {
		Kind, APIVersion string
		Results          []bulkResult
		Failed           *int
	}
	if err := json.Unmarshal([]byte(body), &all); err != nil || all.Kind != "ResultList" || all.APIVersion != "apiserver-lite/v1" || all.Failed == nil {
		t.Fatalf("%v in %s", err, body)
	}
	failed := 0
	for _, r := range all.Results {
		if r.Code >= 400 {
			failed++
			if r.Status.Kind != "Status" || int(r.Status.Code) != r.Code {
				t.Errorf("the refusal %v has the status %+v", r, r.Status)
			}
		}
	}
	if failed != *all.Failed {
		t.Errorf("%d have failed, and it says %d", failed, *all.Failed)
	}
	return all.Results
}

// sendList sends objects in one request, and compares their results in short. A result that ends with an asterisk is compared up to there.
func sendList(t *testing.T, s *servertest.Server, path string, objects []string, want ...string) []bulkResult {
	t.Helper()
	res, body := s.Do("POST", path, `{"apiVersion":"v1","kind":"List","items":[`+strings.Join(objects, ",")+`]}`)
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	got := bulkResults(t, body)
	if len(got) != len(want) {
		t.Fatalf("%d results, want %d: %v", len(got), len(want), got)
	}
	for i, r := range got {
		begins, cut := strings.CutSuffix(want[i], "*")
		if short := r.String(); short != want[i] && !(cut && strings.HasPrefix(short, begins)) {
			t.Errorf("result %d is\n%q, want\n%q", i, short, want[i])
		}
	}
	return got
}

func anObject(apiVersion, kind, metadata string, more ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{%s}%s}`, apiVersion, kind, metadata, strings.Join(more, ""))
}

func aConfigMap(name, value string) string {
	return anObject("v1", "ConfigMap", `"name":"`+name+`"`, `,"data":{"a":"`+value+`"}`)
}

// TestListApplied: a definition and an object of it come in one List, a second apply changes what differs, and a refusal of one object
// leaves the others.
func TestListApplied(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	definition, err := os.ReadFile(filepath.Join("..", "testdata", "crds", "widgets.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	list := "apiVersion: v1\nkind: List\nitems:\n- " + strings.TrimSpace(strings.ReplaceAll(string(definition), "\n", "\n  ")) +
		"\n- {apiVersion: v1, kind: Namespace, metadata: {name: ns}}" +
		"\n- {apiVersion: example.com/v1, kind: Widget, metadata: {name: w, namespace: ns}, spec: {size: 1}}\n"
	res, body := s.Do("POST", applyList, list, "Content-Type", "application/yaml")
	if got := fmt.Sprint(bulkResults(t, body)); res.StatusCode != http.StatusOK || got != "[201 CustomResourceDefinition widgets.example.com 201 Namespace ns 201 Widget ns/w]" {
		t.Fatal(res.Status, got)
	}
	objects := []string{
		anObject("example.com/v1", "Widget", `"name":"w","namespace":"ns"`, `,"spec":{"size":2}`),
		anObject("example.com/v1", "Widget", `"name":"bad","namespace":"ns"`, `,"spec":{"size":"x"}`),
		aConfigMap("a", "1"),
		anObject("v1", "ConfigMap", `"name":"a","namespace":"nowhere"`),
	}
	first := sendList(t, s, applyList, objects,
		"200 Widget ns/w", `500 failed to create typed patch object (ns/bad; example.com/v1, Kind=Widget): .spec.size: expected numeric*`, "201 ConfigMap default/a", `404 namespaces "nowhere" not found`)
	again := sendList(t, s, applyList+"&namespace=ns", objects[:3], "200 Widget ns/w", "500*", "201 ConfigMap ns/a")
	if first[0].Object.Metadata.ResourceVersion != again[0].Object.Metadata.ResourceVersion {
		t.Error("the same apply has written again")
	}
	if m := first[0].Object.Metadata.ManagedFields; len(m) != 1 || m[0].Manager != "me" || m[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("the managed fields are %+v", m)
	}
	other := strings.Replace(applyList, "me", "other", 1)
	sendList(t, s, other, []string{aConfigMap("a", "2")}, `409 Apply failed with 1 conflict: conflict with "me": .data.a`)
	sendList(t, s, other+"&force=true", []string{aConfigMap("a", "2")}, "200 ConfigMap default/a")
	sendList(t, s, applyList+"&dryRun=All", []string{aConfigMap("dry", "2")}, "201 ConfigMap default/dry")
	if res, body := s.Do("GET", configMaps+"/dry", ""); res.StatusCode != http.StatusNotFound {
		t.Error("the dry run has stored", body)
	}
}

// TestListCreated: each object has what it would have got alone.
func TestListCreated(t *testing.T) {
	t.Parallel()
	s := newWidgets(t, func(s *server.Server) { s.Bounds.MaxReads = 1 })
	got := sendList(t, s, createList, []string{
		aConfigMap("a", "1"),
		aConfigMap("a", "1"),
		anObject("v1", "ConfigMap", `"generateName":"g-"`),
		anObject("v1", "ConfigMap", `"name":"a/b"`),
		anObject("v1", "ConfigMap", `"name":"a","namespace":"../x"`),
		anObject("v1", "Namespace", `"name":"n"`),
		anObject("v1", "Secret", `"name":"s","namespace":"n"`),
		anObject("v1", "Nothing", `"name":"n"`),
		anObject("example.com/v2", "Widget", `"name":"n"`),
		anObject("v1", "Pod", `"name":"n"`),
		`{}`, `7`, `null`, `{"apiVersion":1}`,
		anObject("v1", "ConfigMap", `"name":"c"`, `,"date":{}`),
	},
		"201 ConfigMap default/a", `409 configmaps "a" already exists`, "201 ConfigMap default/g-*",
		`422 ConfigMap "a/b" is invalid: metadata.name: Invalid value: "a/b"*`, `400 "../x" can't be a name: it may not contain '/'`,
		"201 Namespace n", "201 Secret n/s",
		"404 the server could not find the requested resource", "404 nothing of that kind is served: see /apis",
		"404 the server could not find the requested resource: pods is served, as data that nothing acts on, if the server is started with --builtin=all",
		"400 the object has no kind or no apiVersion", `400 the object must be a JSON object, and is "7"`, `400 the object must be a JSON object, and is "null"`, `400 the object can't be decoded: *`,
		"201 ConfigMap default/c")
	if w := got[14].Warnings; len(w) != 1 || w[0] != `unknown field "date"` {
		t.Errorf("the warnings are %q", w)
	}
	sendList(t, s, createList+"?fieldValidation=Strict", []string{anObject("v1", "ConfigMap", `"name":"d"`, `,"date":{}`)},
		`400 ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "date"`)
	sendList(t, s, applyList, []string{anObject("v1", "ConfigMap", `"generateName":"g-"`), anObject("v1", "ConfigMap", `"name":"a/status"`)},
		`400 metadata.name is missing, and an apply needs it: generated names are for /apiserver-lite/v1/create`, `400 "a/status" can't be a name: it may not contain '/'`)
	sendList(t, s, createList, nil)
}

// TestListRefused: what is no List is refused whole.
func TestListRefused(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	many := `{"apiVersion":"v1","kind":"List","items":[` + strings.Repeat("{},", bulk.MaxItems) + `{}]}`
	for name, tc := range map[string]struct {
		request, body, media string
		code                 int
		message              string
	}{
		"one object":       {"POST " + createList, aConfigMap("a", "1"), "", 400, `the body of the request has the kind "ConfigMap" of "v1", and must be a List of v1: send one object to the path of its kind`},
		"no items":         {"POST " + createList, `{"apiVersion":"v1","kind":"List"}`, "", 400, "the List has no items"},
		"no JSON":          {"POST " + createList, `{`, "", 400, "the body of the request can't be decoded: *"},
		"nothing":          {"POST " + createList, ``, "", 400, "the body of the request is empty: send a List as JSON or YAML"},
		"items":            {"POST " + createList, `{"apiVersion":"v1","kind":"List","items":{}}`, "", 400, "*"},
		"too many":         {"POST " + createList, many, "", 400, "the List has more than 20000 items, which is what may come in one request"},
		"no manager":       {"POST " + bulk.ApplyPath, `{"apiVersion":"v1","kind":"List","items":[]}`, "", 400, "the parameter fieldManager is missing: an apply needs the name of who owns the fields, as in /apiserver-lite/v1/apply?fieldManager=me"},
		"a form":           {"POST " + createList, `a=b`, "application/x-www-form-urlencoded", 415, "*"},
		"another method":   {"GET " + createList, ``, "", 405, "only POST is served here"},
		"two documents":    {"POST " + createList, `{"apiVersion":"v1","kind":"List","items":[]} {}`, "", 400, "the body of the request can't be decoded: something follows the List"},
		"large as JSON":    {"POST " + createList, "apiVersion: v1\nkind: List\nx: '" + strings.Repeat("<", 2<<20) + "'\n", "application/yaml", 413, "*"},
		"a path below":     {"POST " + createList + "/x", ``, "", 404, "*"},
		"broken YAML":      {"POST " + createList, "a: [", "application/yaml", 400, "*"},
		"repeated in YAML": {"POST " + createList + "?fieldValidation=Strict", "apiVersion: v1\nkind: List\nkind: List\nitems: []\n", "application/yaml", 400, `strict decoding error: yaml: unmarshal errors:*`},
	} {
		method, path, _ := strings.Cut(tc.request, " ")
		res, body := s.Do(method, path, tc.body, "Content-Type", tc.media)
		var status metav1.Status
		json.Unmarshal([]byte(body), &status) // a page that isn't there has none
		begins, cut := strings.CutSuffix(tc.message, "*")
		if res.StatusCode != tc.code || status.Message != tc.message && !(cut && strings.HasPrefix(status.Message, begins)) {
			t.Errorf("%s: %s %s", name, res.Status, body)
		}
	}
}

// TestListRights: each object needs its own right, and whoever takes the place of another one needs that right for each of them, too.
func TestListRights(t *testing.T) {
	t.Parallel()
	log := filepath.Join(t.TempDir(), "audit.log")
	s := newRuled(t, func(s *server.Server) {
		policy := filepath.Join(filepath.Dir(log), "policy.yaml")
		if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived, ResponseStarted]\n"+
			"rules: [{level: Metadata, verbs: [create, post]}]"), 0o600); err != nil {
			t.Fatal(err)
		}
		s.Audit = audit.Options{PolicyFile: policy, Path: log}
	})
	s.role("maps", "ann", `[`+aRule("", "configmaps", "create")+`]`)
	list := `{"apiVersion":"v1","kind":"List","items":[` + aConfigMap("a", "1") + `,` + anObject("v1", "Secret", `"name":"s"`) + `]}`
	expect := func(body string, want ...string) {
		t.Helper()
		var got []string
		for _, r := range bulkResults(t, body) {
			got = append(got, r.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("it is %q, want %q", got, want)
		}
	}
	secret := `403 secrets is forbidden: User "ann" cannot create resource "secrets" in API group "" in the namespace "default"`
	expect(s.expect("ann", "POST "+createList, list, 200, ""), "201 ConfigMap default/a", secret)
	unserved := strings.Replace(list, `"kind":"Secret"`, `"kind":"Nothing"`, 1)
	expect(s.expect("ann", "POST "+createList, unserved, 200, ""), `409 configmaps "a" already exists`, `403 nothings is forbidden: User "ann" cannot create resource "nothings" in API group "" in the namespace "default"`)
	s.expect("", "POST "+createList, list, 403, `forbidden: User "system:anonymous" cannot post path "/apiserver-lite/v1/create"`)

	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"as"},"rules":[`+aRule("authentication.k8s.io", "users", "impersonate:user-info")+`,`+
		aRule("", "configmaps", "impersonate-on:user-info:create")+`,{"nonResourceURLs":["`+createList+`"],"verbs":["impersonate-on:user-info:post"]}]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "as", "bob"), 201, "")
	res, body := s.Do("POST", createList, strings.ReplaceAll(list, `"name":"a"`, `"name":"b"`), "Content-Type", "application/json", "Authorization", "Bearer bob", "Impersonate-User", "ann")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	got := bulkResults(t, body)
	if got[1].Code != 403 || !strings.Contains(got[1].Status.Message, `User "bob" cannot impersonate`) {
		t.Errorf("what bob may not do as ann is %v", got[1])
	}
	if got[0].Code != 201 {
		t.Errorf("what bob may do as ann, who may, is %v", got[0])
	}

	var who []string
	for _, e := range (audited{s.Server, t, log}).events() {
		if ref := e.ObjectRef; ref != nil && (ref.Resource == "configmaps" || ref.Resource == "secrets") {
			as := ""
			if e.ImpersonatedUser != nil {
				as = " as " + e.ImpersonatedUser.Username
			}
			who = append(who, fmt.Sprint(e.User.Username, as, " ", ref.Resource, " ", e.ResponseStatus.Code))
		}
	}
	if want := []string{"ann configmaps 201", "ann secrets 403", "ann configmaps 409", "bob as ann configmaps 201", "bob secrets 403"}; !slices.Equal(who, want) {
		t.Errorf("the audit log has %q, want %q", who, want)
	}
}

// TestListImpersonatedNode: an object is written with the groups that its own impersonation gives, not with those of the List's.
func TestListImpersonatedNode(t *testing.T) {
	t.Parallel()
	s := newRuled(t)
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"as"},"rules":[`+aRule("authentication.k8s.io", "nodes", "impersonate:arbitrary-node")+`,`+
		aRule("", "users", "impersonate")+`,{"nonResourceURLs":["`+createList+`"],"verbs":["impersonate-on:arbitrary-node:post"]}]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "as", "bob"), 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"maps"},"rules":[`+aRule("", "configmaps", "create")+`]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"nodes"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"maps"},`+
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:nodes"}]}`, 201, "")
	res, body := s.Do("POST", createList, `{"apiVersion":"v1","kind":"List","items":[`+aConfigMap("a", "1")+`]}`,
		"Content-Type", "application/json", "Authorization", "Bearer bob", "Impersonate-User", "system:node:n")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, body)
	}
	if got := bulkResults(t, body)[0]; got.Code != http.StatusForbidden || !strings.Contains(got.Status.Message, `User "system:node:n" cannot create resource "configmaps"`) {
		t.Errorf("it is %v", got)
	}
}

// TestListResults: results come while later objects wait, more than a large answer's worth of them, and a client that leaves ends the rest.
func TestListResults(t *testing.T) {
	t.Parallel()
	s := servertest.New(t)
	big := strings.Repeat("x", 10_000)
	var objects, want []string
	for i := range 200 {
		objects, want = append(objects, aConfigMap(fmt.Sprintf("c%03d", i), big)), append(want, fmt.Sprintf("201 ConfigMap default/c%03d", i))
	}
	sendList(t, s, createList, objects, want...)

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	for i := range objects {
		objects[i] = strings.Replace(objects[i], `"name":"c`, `"name":"d`, 1)
	}
	r, err := http.NewRequestWithContext(ctx, "POST", s.URL+createList, strings.NewReader(`{"apiVersion":"v1","kind":"List","items":[`+strings.Join(objects, ",")+`]}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	res, err := s.Client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewReader(res.Body)
	for range 2 { // the begin, and the first result
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	leave()
	if res, body := s.Do("GET", configMaps+"/d000", ""); res.StatusCode != http.StatusOK {
		t.Error("what had its result isn't there:", body)
	}
}
