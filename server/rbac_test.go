package server_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// ruled is a server with RBAC. Users' tokens are their names.
type ruled struct {
	*servertest.Server
	t testing.TB
}

func newRuled(t testing.TB, options ...func(*server.Server)) *ruled {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.csv")
	users := "root,root,1,system:masters\nann,ann,2,team\nbob,bob,3\neve,eve,4\nadmin,admin,5\n"
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	with := func(s *server.Server) {
		s.Access.TokenAuthFile, s.Access.AuthorizationMode = file, "RBAC"
	}
	return &ruled{servertest.New(t, append([]func(*server.Server){with}, options...)...), t}
}

// as sends a request of a user's, or without a credential if that's "". A body is JSON, and of a PATCH an applied
// configuration.
func (s *ruled) as(user, method, path, body string) (int, metav1.Status, string) {
	s.t.Helper()
	media := "application/json"
	if method == "PATCH" {
		media = "application/apply-patch+yaml"
	}
	headers := []string{"Content-Type", media}
	if user != "" {
		headers = append(headers, "Authorization", "Bearer "+user)
	}
	res, text := s.Do(method, path, body, headers...)
	var status metav1.Status
	json.Unmarshal([]byte(text), &status) // what isn't one has no message
	return res.StatusCode, status, text
}

// expect is as with a wanted code, and for errors a wanted message.
func (s *ruled) expect(user string, r string, body string, code int, message string) string {
	s.t.Helper()
	method, path, _ := strings.Cut(r, " ")
	got, status, text := s.as(user, method, path, body)
	if got != code || message != "" && status.Message != message {
		s.t.Errorf("%s, as %q: %d %q, want %d %q", r, user, got, status.Message, code, message)
	}
	return text
}

const (
	rbacPath   = "/apis/rbac.authorization.k8s.io/v1"
	inDefault  = "/api/v1/namespaces/default"
	rulesInNS  = rbacPath + "/namespaces/default"
	createRole = "POST " + rulesInNS + "/roles"
)

// role makes a Role in default and binds it to a user; rules are JSON.
func (s *ruled) role(name, user, rules string) {
	s.t.Helper()
	s.expect("root", createRole, fmt.Sprintf(`{"metadata":{"name":%q},"rules":%s}`, name, rules), 201, "")
	s.expect("root", "POST "+rulesInNS+"/rolebindings", bindingTo("Role", name, user), 201, "")
}

func bindingTo(kind, role, user string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":%q,"name":%q},"subjects":[{"kind":"User","name":%q}]}`, role, kind, role, user)
}

func aRule(groups, resources, verbs string, more ...string) string {
	list := func(s string) string { b, _ := json.Marshal(strings.Split(s, " ")); return string(b) }
	return fmt.Sprintf(`{"apiGroups":%s,"resources":%s,"verbs":%s%s}`, list(groups), list(resources), list(verbs), strings.Join(more, ""))
}

// TestForbidden: a refusal says what Kubernetes says.
func TestForbidden(t *testing.T) {
	s := newRuled(t)
	s.role("configs", "ann", "["+aRule("", "configmaps", "get create")+","+aRule("", "configmaps", "list watch", `,"resourceNames":["mine"]`)+"]")
	s.expect("root", "POST "+inDefault+"/configmaps", `{"metadata":{"name":"mine"}}`, 201, "")
	for _, tc := range []struct {
		user, request string
		code          int
		message       string
	}{
		{"bob", "GET " + inDefault + "/configmaps", 403, `configmaps is forbidden: User "bob" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"bob", "GET " + inDefault + "/configmaps/x", 403, `configmaps "x" is forbidden: User "bob" cannot get resource "configmaps" in API group "" in the namespace "default"`},
		{"bob", "GET /api/v1/configmaps?watch=true", 403, `configmaps is forbidden: User "bob" cannot watch resource "configmaps" in API group "" at the cluster scope`},
		{"bob", "GET /api/v1/watch/configmaps", 403, `configmaps is forbidden: User "bob" cannot watch resource "configmaps" in API group "" at the cluster scope`},
		{"bob", "DELETE " + inDefault + "/configmaps", 403, `configmaps is forbidden: User "bob" cannot deletecollection resource "configmaps" in API group "" in the namespace "default"`},
		{"bob", "PUT /api/v1/namespaces/default/finalize", 403, `namespaces "default" is forbidden: User "bob" cannot update resource "namespaces/finalize" in API group "" in the namespace "default"`},
		{"bob", "GET /apis/example.com/v1/nothings", 403, `nothings.example.com is forbidden: User "bob" cannot list resource "nothings" in API group "example.com" at the cluster scope`},
		{"bob", "GET /nowhere/%3Cb%3E", 403, `forbidden: User "bob" cannot get path "/nowhere/&lt;b&gt;"`},
		{"bob", "POST /debug/reset", 403, `forbidden: User "bob" cannot post path "/debug/reset"`},
		{"", "GET /api", 403, `forbidden: User "system:anonymous" cannot get path "/api"`},
		{"", "GET /readyz", 200, ""},
		{"", "GET /readyz/etcd", 403, `forbidden: User "system:anonymous" cannot get path "/readyz/etcd"`},
		{"nobody", "GET /readyz", 401, "Unauthorized"},
		{"bob", "GET /api", 200, ""},
		{"root", "GET /apis/example.com/v1/nothings", 404, ""},
		{"ann", "GET " + inDefault + "/configmaps/mine", 200, ""},
		{"ann", "GET " + inDefault + "/configmaps", 403, ""},
		{"ann", "GET " + inDefault + "/configmaps?fieldSelector=metadata.name%3Dmine", 200, ""},
		{"ann", "GET " + inDefault + "/configmaps?fieldSelector=metadata.name%3Dother", 403, `configmaps "other" is forbidden: User "ann" cannot list resource "configmaps" in API group "" in the namespace "default"`},
		{"ann", "GET " + inDefault + "/configmaps?fieldSelector=metadata.name!%3Dmine", 403, ""},
		{"ann", "GET " + inDefault + "/configmaps?watch=1&timeoutSeconds=1&fieldSelector=metadata.name%3Dmine", 200, ""},
		{"ann", "GET " + inDefault + "/configmaps/mine?watch=1&timeoutSeconds=1", 200, ""},
		{"ann", "GET " + inDefault + "/configmaps/other?watch=1&timeoutSeconds=1", 403, ""}, // another server would get it instead
		{"ann", "GET /api/v1/configmaps?fieldSelector=metadata.name%3Dmine", 403, ""},
		{"ann", "GET /api/v1/namespaces/kube-system/configmaps/mine", 403, ""},
	} {
		s.expect(tc.user, tc.request, "", tc.code, tc.message)
	}
	if _, status, _ := s.as("bob", "GET", inDefault+"/configmaps/x", ""); status.Reason != metav1.StatusReasonForbidden || status.Details == nil || status.Details.Kind != "configmaps" || status.Details.Name != "x" {
		t.Errorf("a refusal has the reason %q and the details %+v", status.Reason, status.Details)
	}
}

// TestCreateByUpdate: a PUT or an applied configuration that makes an object needs the right to create it.
func TestCreateByUpdate(t *testing.T) {
	s := newRuled(t)
	s.role("updates", "ann", "["+aRule("coordination.k8s.io", "leases", "update patch")+","+aRule("", "configmaps", "patch")+"]")
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	lease := func(name string) string {
		return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q},"spec":{"holderIdentity":"x"}}`, name)
	}
	config := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	const noLease = `leases.coordination.k8s.io "a" is forbidden: User "ann" cannot create resource "leases" in API group "coordination.k8s.io" in the namespace "default"`
	const noConfig = `configmaps "a" is forbidden: User "ann" cannot create resource "configmaps" in API group "" in the namespace "default"`
	s.expect("ann", "PUT "+leases+"/a", lease("a"), 403, noLease)
	s.expect("ann", "PUT "+leases+"/a?dryRun=All", lease("a"), 403, noLease)
	s.expect("ann", "PATCH "+leases+"/a?fieldManager=m", lease("a"), 403, noLease)
	s.expect("ann", "PATCH "+inDefault+"/configmaps/a?fieldManager=m", config, 403, noConfig)
	s.expect("root", "POST "+leases, lease("b"), 201, "")
	s.expect("ann", "PATCH "+leases+"/b?fieldManager=m&force=true", lease("b"), 200, "")
	s.role("creates", "ann", "["+aRule("coordination.k8s.io", "leases", "create")+","+aRule("", "configmaps", "create")+"]")
	s.expect("ann", "PUT "+leases+"/a", lease("a"), 201, "")
	s.expect("ann", "PATCH "+inDefault+"/configmaps/a?fieldManager=m", config, 201, "")
}

// TestEscalation: nobody gives what they don't have, except who may by the verbs escalate and bind.
func TestEscalation(t *testing.T) {
	s := newRuled(t)
	s.role("author", "ann", "["+aRule("rbac.authorization.k8s.io", "roles rolebindings", "create update patch get")+","+aRule("", "pods", "get list")+"]")
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"chief"},"rules":[`+aRule("rbac.authorization.k8s.io", "clusterroles clusterrolebindings", "create update")+`]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "chief", "ann"), 201, "")
	role := func(name, rules string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q},"rules":[%s]}`, name, rules)
	}
	roles, bindings := rulesInNS+"/roles", rulesInNS+"/rolebindings"
	const secretsMissing = `roles.rbac.authorization.k8s.io "more" is forbidden: user "ann" (groups=["team" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list"]}`
	s.expect("root", "POST "+roles, role("secrets", aRule("", "secrets", "get")), 201, "")
	s.expect("root", "POST "+roles, role("pods", aRule("", "pods", "get")), 201, "")
	for _, tc := range []struct {
		name, request, body string
		code                int
		message             string
	}{
		{"a role with what she has", "POST " + roles, role("same", aRule("", "pods", "get")), 201, ""},
		{"a role with more", "POST " + roles, role("more", aRule("", "pods secrets", "get list")), 403, secretsMissing},
		{"more by an update", "PUT " + roles + "/same", role("same", aRule("", "*", "get")), 403, ""},
		{"more by a PUT that creates", "PUT " + roles + "/put", role("put", aRule("", "*", "get")), 403, ""},
		{"more by an applied configuration", "PATCH " + roles + "/same?fieldManager=m&force=true", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"Role",` + role("same", aRule("", "*", "get"))[1:], 403, ""},
		{"an owner of a role that has more", "PUT " + roles + "/secrets", role("secrets", aRule("", "secrets", "get")), 200, ""},
		{"another label of a role that has more", "PUT " + roles + "/secrets", `{"metadata":{"name":"secrets","labels":{"a":"b"}},"rules":[` + aRule("", "secrets", "get") + `]}`, 403, ""},
		{"in the cluster what she has in a namespace", "POST " + rbacPath + "/clusterroles", role("everywhere", aRule("", "pods", "get")), 403, ""},
		{"a ClusterRole with what she has", "POST " + rbacPath + "/clusterroles", role("everywhere", aRule("rbac.authorization.k8s.io", "clusterroles", "update")), 201, ""},
		{"aggregation", "POST " + rbacPath + "/clusterroles", `{"metadata":{"name":"all"},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"a":"b"}}]}}`, 403,
			`clusterroles.rbac.authorization.k8s.io "all" is forbidden: must have cluster-admin privileges to use the aggregationRule`},
		{"a binding to a role with what she has", "POST " + bindings, bindingTo("Role", "pods", "bob"), 201, ""},
		{"a binding to a role with more", "POST " + bindings, bindingTo("Role", "secrets", "ann"), 403, `rolebindings.rbac.authorization.k8s.io "secrets" is forbidden: user "ann" (groups=["team" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:
{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}`},
		{"a binding to cluster-admin", "POST " + bindings, bindingTo("ClusterRole", "cluster-admin", "ann"), 403, ""},
		{"a cluster binding to cluster-admin", "POST " + rbacPath + "/clusterrolebindings", bindingTo("ClusterRole", "cluster-admin", "ann"), 403, ""},
		{"a binding to a role that isn't there", "POST " + bindings, bindingTo("Role", "absent", "ann"), 404, `role.rbac.authorization.k8s.io "absent" not found`},
		{"a dry run", "POST " + roles + "?dryRun=All", role("dry", aRule("", "secrets", "get")), 403, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			(&ruled{s.Server, t}).expect("ann", tc.request, tc.body, tc.code, tc.message)
		})
	}
	s.role("escalator", "ann", "["+aRule("rbac.authorization.k8s.io", "roles", "escalate bind")+"]")
	s.expect("ann", "POST "+roles, role("more", aRule("", "pods secrets", "get list")), 201, "")
	s.expect("ann", "POST "+bindings, bindingTo("Role", "secrets", "ann"), 201, "")
	s.expect("ann", "POST "+bindings, bindingTo("Role", "absent", "ann"), 201, "")
	s.expect("ann", "POST "+bindings, bindingTo("ClusterRole", "cluster-admin", "ann"), 403, "")
}

// TestRulesCountAtOnce: what was answered counts for the next request.
func TestRulesCountAtOnce(t *testing.T) {
	s := newRuled(t)
	for i := range 50 {
		name := fmt.Sprint("r", i)
		s.expect("eve", "GET "+inDefault+"/secrets", "", 403, "")
		s.role(name, "eve", "["+aRule("", "secrets", "list")+"]")
		s.expect("eve", "GET "+inDefault+"/secrets", "", 200, "")
		gone := []string{"/rolebindings/", "/roles/"}[i%2]
		s.expect("root", "DELETE "+rulesInNS+gone+name, "", 200, "")
		if i%2 == 1 {
			s.expect("eve", "GET "+inDefault+"/secrets", "", 403, `secrets is forbidden: User "eve" cannot list resource "secrets" in API group "" in the namespace "default": rbac: RBAC: role.rbac.authorization.k8s.io "`+name+`" not found`)
			s.expect("root", "DELETE "+rulesInNS+"/rolebindings/"+name, "", 200, "")
		}
	}
}

// TestAccessReviews: reviews answer what the authorizer decides.
func TestAccessReviews(t *testing.T) {
	s := newRuled(t)
	s.role("configs", "ann", "["+aRule("", "configmaps", "get", `,"resourceNames":["mine"]`)+"]")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "system:auth-delegator", "admin"), 201, "")
	const reviews = "/apis/authorization.k8s.io/v1"
	type review struct {
		Status struct {
			Allowed, Denied bool
			Reason          string
			ResourceRules   []struct{ Verbs, APIGroups, Resources, ResourceNames []string }
		}
	}
	mine := `"resourceAttributes":{"namespace":"default","verb":"get","resource":"configmaps","name":"mine"}`
	for _, tc := range []struct {
		name, user, path, body string
		want                   bool
		reason                 string
	}{
		{"herself", "ann", reviews + "/selfsubjectaccessreviews", `{"spec":{` + mine + `}}`, true, `RBAC: allowed by RoleBinding "configs/default" of Role "configs" to User "ann"`},
		{"herself, something else", "ann", reviews + "/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"namespace":"default","verb":"get","resource":"secrets"}}}`, false, ""},
		{"herself, a path", "ann", reviews + "/selfsubjectaccessreviews", `{"spec":{"nonResourceAttributes":{"path":"/api","verb":"get"}}}`, true, `RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" to Group "system:authenticated"`},
		{"another one", "admin", reviews + "/subjectaccessreviews", `{"spec":{"user":"ann",` + mine + `}}`, true, ""},
		{"another one who may not", "admin", reviews + "/subjectaccessreviews", `{"spec":{"user":"bob",` + mine + `}}`, false, ""},
		{"a group", "admin", reviews + "/subjectaccessreviews", `{"spec":{"groups":["system:masters"],` + mine + `}}`, true, ""},
		{"in a namespace", "root", reviews + "/namespaces/default/localsubjectaccessreviews", `{"metadata":{"namespace":"default"},"spec":{"user":"ann",` + mine + `}}`, true, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r review
			json.Unmarshal([]byte((&ruled{s.Server, t}).expect(tc.user, "POST "+tc.path, tc.body, 201, "")), &r)
			if r.Status.Allowed != tc.want || r.Status.Denied || tc.reason != "" && r.Status.Reason != tc.reason {
				t.Errorf("the answer is %+v", r.Status)
			}
		})
	}
	s.expect("ann", "POST "+reviews+"/subjectaccessreviews", `{"spec":{"user":"bob",`+mine+`}}`, 403, "")
	s.expect("", "POST "+reviews+"/selfsubjectaccessreviews", `{"spec":{`+mine+`}}`, 403, "")
	var r review
	json.Unmarshal([]byte(s.expect("ann", "POST "+reviews+"/selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, 201, "")), &r)
	if text := fmt.Sprint(r.Status.ResourceRules); !strings.Contains(text, "{[get] [] [configmaps] [mine]}") || !strings.Contains(text, "selfsubjectaccessreviews") {
		t.Errorf("ann has the rules %s", text)
	}
}

// TestSlashAtTheEnd: rules are about the path as it was sent, with the slash at its end, and so is the audit.
func TestSlashAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	file, policy := filepath.Join(dir, "audit.log"), filepath.Join(dir, "policy.yaml")
	const none = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: None, nonResourceURLs: [/metrics]}, {level: Metadata, nonResourceURLs: [/metrics/]}]\n"
	if err := os.WriteFile(policy, []byte(none), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newRuled(t, func(s *server.Server) { s.Audit.Path, s.Audit.PolicyFile = file, policy })
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"paths"},"rules":[{"nonResourceURLs":["/metrics","/debug/watchers/*"],"verbs":["get"]}]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", bindingTo("ClusterRole", "paths", "ann"), 201, "")
	s.expect("ann", "GET /metrics", "", 200, "")
	s.expect("ann", "GET /metrics/", "", 403, `forbidden: User "ann" cannot get path "/metrics/"`)
	s.expect("ann", "GET /debug/watchers/", "", 404, "") // it may, and there is nothing
	s.expect("ann", "GET /debug/watchers", "", 403, `forbidden: User "ann" cannot get path "/debug/watchers"`)
	s.role("configs", "ann", "["+aRule("", "configmaps", "list", "")+"]")
	s.expect("ann", "GET "+inDefault+"/configmaps/", "", 200, "")
	s.Close()
	log, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(log), `"requestURI":"/metrics/"`); n != 2 || strings.Contains(string(log), `"requestURI":"/metrics"`) { // received and answered
		t.Errorf("the audit is\n%s", log)
	}
}

// TestBootstrapObjects: Kubernetes' own rules are objects, put together by the controller, made again at a start and after
// a reset, and spared if somebody wants that.
func TestBootstrapObjects(t *testing.T) {
	dir := t.TempDir()
	start := func() *ruled {
		return newRuled(t, func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir })
	}
	s := start()
	awaitRule := func(role, resource string) {
		t.Helper()
		await.Right(t, func() string {
			if _, _, text := s.as("root", "GET", rbacPath+"/clusterroles/"+role, ""); !strings.Contains(text, resource) {
				return "the ClusterRole " + role + " has nothing about " + resource + ": " + text
			}
			return ""
		})
	}
	awaitRule("view", "poddisruptionbudgets") // from its part
	awaitRule("edit", "limitranges")          // from view's
	awaitRule("admin", "rolebindings")
	awaitRule("admin", "endpointslices")
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"widgets","labels":{"rbac.authorization.k8s.io/aggregate-to-view":"true"}},"rules":[`+aRule("example.com", "widgets", "get")+`]}`, 201, "")
	awaitRule("admin", "example.com")
	// Whatever is still to come into edit would be written after its version was read.
	awaitRule("edit", "impersonate") // from its own part
	awaitRule("edit", "example.com") // from view, which has it from widgets

	s.untilWritten()
	untouched := []string{"/clusterroles/system:node", "/clusterroles/edit", "/clusterrolebindings/system:kube-dns", "/namespaces/kube-system/roles/extension-apiserver-authentication-reader"}
	version := func(path string) string {
		var o metav1.PartialObjectMetadata
		json.Unmarshal([]byte(s.expect("root", "GET "+rbacPath+path, "", 200, "")), &o)
		return o.ResourceVersion
	}
	var before []string
	for _, path := range untouched {
		before = append(before, version(path))
	}
	s.expect("root", "PATCH "+rbacPath+"/clusterroles/system:basic-user?fieldManager=m&force=true",
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"system:basic-user","annotations":{"rbac.authorization.kubernetes.io/autoupdate":"false"}},"rules":[]}`, 200, "")
	s.expect("bob", "GET /api", "", 403, "")
	const review = "POST /apis/authentication.k8s.io/v1/selfsubjectreviews"
	s.expect("bob", review, "{}", 403, "")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = start()
	s.expect("bob", "GET /api", "", 200, "")
	s.expect("bob", review, "{}", 403, "")
	await.Right(t, func() string {
		_, _, text := s.as("root", "GET", rbacPath+"/clusterrolebindings/system:discovery", "")
		if !strings.Contains(text, "roleRef") {
			return text
		}
		return ""
	})
	for i, path := range untouched {
		if now := version(path); now != before[i] {
			t.Errorf("the start has written %s, which lacked nothing: resourceVersion %s, before it %s", path, now, before[i])
		}
	}
}

// TestResetKeepsRules: a reset brings Kubernetes' own rules back.
func TestResetKeepsRules(t *testing.T) {
	s := newRuled(t)
	for range 3 {
		s.dropBindings()
		s.expect("root", "POST /debug/reset", "", 200, "")
		s.expect("bob", "GET /api", "", 200, "")
	}
}

// TestResetToKeepsWhatWasRemoved: a state that has a name has Kubernetes' own rules as they were, also without those that
// somebody had removed.
func TestResetToKeepsWhatWasRemoved(t *testing.T) {
	s := newRuled(t)
	s.expect("root", "POST /debug/snapshot?name=whole", "", 200, "") // waits until the start has written them
	const path = rbacPath + "/clusterrolebindings/system:discovery"
	s.expect("root", "DELETE "+path, "", 200, "")
	s.expect("root", "POST /debug/snapshot?name=without", "", 200, "")
	s.expect("root", "POST /debug/reset?to=whole", "", 200, "")
	s.expect("root", "GET "+path, "", 200, "")
	s.expect("root", "POST /debug/reset?to=without", "", 200, "")
	s.expect("root", "GET "+path, "", 404, "")
	s.expect("bob", "GET /api", "", 403, "")
}

// TestAggregationEnds: roles that select each other, or themselves, come to rest with the rules of the others.
func TestAggregationEnds(t *testing.T) {
	s := servertest.New(t)
	role := func(name, selects, rules string) string {
		return fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"is":%q}},"aggregationRule":{"clusterRoleSelectors":[{"matchLabels":{"is":%q}}]},"rules":[%s]}`, name, name, selects, rules)
	}
	post := func(body string) { s.PostYAML(rbacPath+"/clusterroles", body) }
	post(role("a", "b", aRule("", "as", "get")))
	post(role("b", "c", aRule("", "bs", "get")))
	post(role("c", "a", ""))
	post(`{"metadata":{"name":"leaf","labels":{"is":"c"}},"rules":[` + aRule("", "leaves", "get") + `]}`)
	s.Quiescent()
	for _, name := range []string{"a", "b", "c"} {
		if text := s.Get(rbacPath + "/clusterroles/" + name); !strings.Contains(text, `"leaves"`) || strings.Contains(text, `"as"`) || strings.Contains(text, `"bs"`) {
			t.Errorf("%s is %s", name, text)
		}
	}
	s.Do("DELETE", rbacPath+"/clusterroles/leaf", "")
	s.Quiescent()
	if text := s.Get(rbacPath + "/clusterroles/a"); strings.Contains(text, `"leaves"`) {
		t.Errorf("a still is %s", text)
	}
}

// TestRevokedWatches: a watch whose user loses the right ends cleanly, over every protocol, and can't be resumed.
func TestRevokedWatches(t *testing.T) {
	s := newRuled(t, server.RecheckSoon)
	both := &http.Protocols{}
	both.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: both}}
	defer http2.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const watch = inDefault + "/configmaps?watch=true&resourceVersion=0"
	// follow opens a watch and returns a function that reads it to its end.
	overHTTP := func(c *http.Client, path string) func() error {
		r, err := http.NewRequestWithContext(ctx, "GET", s.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer ann")
		res, err := c.Do(r)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(res, err)
		}
		lines := bufio.NewReader(res.Body)
		if line, err := lines.ReadString('\n'); !strings.Contains(line, `"ADDED"`) {
			t.Fatal(line, err)
		}
		return func() error {
			defer res.Body.Close()
			rest, err := io.ReadAll(lines)
			if len(rest) > 0 {
				return fmt.Errorf("there is more: %s", rest)
			}
			return err
		}
	}
	overSocket := func() error {
		c, _, err := websocket.Dial(ctx, s.URL+watch, &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer ann"}}})
		if err != nil {
			return err
		}
		defer c.CloseNow()
		for {
			if _, _, err = c.Read(ctx); err != nil {
				break
			}
		}
		if websocket.CloseStatus(err) == websocket.StatusNormalClosure {
			return nil
		}
		return err
	}
	s.role("watcher", "ann", "["+aRule("", "configmaps", "get list watch")+"]")
	s.role("other", "bob", "["+aRule("", "configmaps", "get list watch")+"]")
	s.expect("root", "POST "+inDefault+"/configmaps", `{"metadata":{"name":"a"}}`, 201, "")
	ends := []func() error{overHTTP(s.Client, watch), overHTTP(http2, watch), overHTTP(s.Client, "/api/v1/watch/namespaces/default/configmaps?resourceVersion=0")}
	ended := make(chan error, len(ends)+1)
	for _, end := range ends {
		go func() { ended <- end() }()
	}
	go func() { ended <- overSocket() }()
	s.expect("root", "DELETE "+rulesInNS+"/rolebindings/other", "", 200, "") // somebody else's
	await.Right(t, func() string {
		if n := strings.Count(s.expect("root", "GET /debug/watchers", "", 200, ""), `"lagEvents"`); n != len(ends)+1 {
			return fmt.Sprintf("there are %d watches", n)
		}
		return ""
	})
	s.expect("root", "DELETE "+rulesInNS+"/rolebindings/watcher", "", 200, "")
	for range len(ends) + 1 {
		if err := <-ended; err != nil {
			t.Errorf("a watch ended with: %v", err)
		}
	}
	s.expect("ann", "GET "+watch, "", 403, `configmaps is forbidden: User "ann" cannot watch resource "configmaps" in API group "" in the namespace "default"`)
	if ctx.Err() != nil {
		t.Error(errors.New("the watches weren't ended"))
	}
}

// untilWritten waits until the start has written all of Kubernetes' own rules, and takes the binding system:discovery away.
// Until then a rule counts whether it's stored or not, so that the right to discovery can't be taken.
func (s *ruled) untilWritten() {
	s.t.Helper()
	await.Right(s.t, func() string {
		s.as("root", "DELETE", rbacPath+"/clusterrolebindings/system:discovery", "")
		if code, _, text := s.as("bob", "GET", "/api", ""); code != 403 {
			return text
		}
		return ""
	})
}

// dropBindings takes all rights from all but system:masters.
func (s *ruled) dropBindings() {
	s.t.Helper()
	s.untilWritten()
	s.expect("root", "DELETE "+rbacPath+"/clusterrolebindings", "", 200, "")
}

// TestNoWayAround: whatever route, form of a path, method or protocol a request takes, it passes authentication and
// authorization before anything is answered about it.
func TestNoWayAround(t *testing.T) {
	s := newRuled(t)
	s.dropBindings()
	protocols := &http.Protocols{}
	protocols.SetUnencryptedHTTP2(true)
	http2 := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	defer http2.CloseIdleConnections()
	fill := strings.NewReplacer("{version}", "v1", "{group}", "rbac.authorization.k8s.io", "{resource}", "configmaps", "{namespace}", "default",
		"{name}", "kube-root-ca.crt", "{subresource}", "status", "{check}", "ping", "*", "api/v1")
	patterns := server.Routes(s.Server.Server)
	if len(patterns) < 40 {
		t.Fatalf("there are only the routes %q", patterns)
	}
	patterns = append(patterns, "/nowhere", "/api/v1/namespaces/default/pods/a/no/such/path", "/healthz/no/such", "/apis/a/b/c/d/e/f/g/h")
	headers := [][]string{
		nil,
		{"X-HTTP-Method-Override", "GET"}, {"X-HTTP-Method", "GET"}, {"X-Original-URL", "/healthz"}, {"X-Rewrite-URL", "/healthz"}, {"X-Forwarded-Uri", "/healthz"},
		{"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="},
		{"Upgrade", "h2c", "Connection", "Upgrade, HTTP2-Settings", "HTTP2-Settings", ""},
	}
	tried := 0
	try := func(c *http.Client, user, method, url string, header []string) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+url, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		if user != "" {
			r.Header.Set("Authorization", "Bearer "+user)
		}
		res, err := c.Do(r)
		if err != nil {
			t.Fatalf("%s %s: %v", method, url, err)
		}
		res.Body.Close()
		tried++
		want := http.StatusForbidden
		if user == "nobody" {
			want = http.StatusUnauthorized
		}
		if res.StatusCode != want && res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s %s %s, as %q with %q: %s, want %d", res.Proto, method, url, user, header, res.Status, want)
		}
	}
	for _, pattern := range patterns {
		path := fill.Replace(pattern)
		for _, user := range []string{"", "bob", "nobody"} {
			for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
				try(s.Client, user, method, path, nil)
				try(http2, user, method, path, nil)
			}
			for _, form := range []string{path + "/", path + "//", "/" + path, path + "?watch=true", path + "?_method=GET", path + ";a=b", path + "%2F", path + "/.", path + "/../healthz", strings.ToUpper(path), "/." + path, "/%61pi/v1/configmaps"} {
				try(s.Client, user, "GET", form, nil)
			}
			for _, h := range headers {
				try(s.Client, user, "GET", path+"?watch=true", h)
				try(s.Client, user, "POST", path, h)
			}
		}
	}
	t.Logf("%d requests to %d routes", tried, len(patterns))
	for _, path := range []string{"/api", "/healthz", inDefault + "/configmaps", "/metrics", "/debug/watchers"} {
		s.expect("root", "GET "+path, "", 200, "")
	}
}

// TestOddNames: a definition whose name means something else in a path is served only where the path means the
// definition.
func TestOddNames(t *testing.T) {
	s := newRuled(t)
	for _, plural := range []string{"status", "watch", "proxy", "finalize"} {
		s.expect("root", "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", fmt.Sprintf(`{"metadata":{"name":"%s.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":%q,"kind":"Odd%s"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, plural, plural, plural), 201, "")
	}
	s.role("namespaces", "ann", "["+aRule("example.com", "namespaces namespaces/status namespaces/finalize", "*")+"]")
	for _, path := range []string{"/apis/example.com/v1/namespaces/default/status/x", "/apis/example.com/v1/namespaces/default/finalize/x", "/apis/example.com/v1/namespaces/default/status"} {
		s.expect("ann", "GET "+path, "", 404, "")
	}
	for _, path := range []string{"/apis/example.com/v1/namespaces/default/watch", "/apis/example.com/v1/namespaces/default/proxy/x", "/apis/example.com/v1/watch", "/apis/example.com/v1/proxy"} {
		s.expect("ann", "GET "+path, "", 403, "")
	}
	s.expect("root", "GET /apis/example.com/v1/namespaces/default/watch", "", 200, "")
	s.expect("root", "GET /apis/example.com/v1/namespaces/default/status", "", 404, "")
}
