package policy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const definitions = `
kind: CustomResourceDefinition
metadata: {name: limits.example.com}
spec:
  group: example.com
  scope: Cluster
  names: {plural: limits, kind: Limit}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {max: {type: integer}}}}}
---
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              size: {type: integer, default: 1}
              color: {type: string}
              replicas: {type: integer}
              tags: {type: array, x-kubernetes-list-type: set, items: {type: string}}
              points: {type: array, x-kubernetes-list-type: atomic, items: {type: integer}}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, number: {type: integer, default: 80}}}
          status: {type: object, properties: {replicas: {type: integer}, phase: {type: string}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

const forbidden = `
validations:
- expression: "false"
`

func TestValidating(t *testing.T) {
	s := servertest.New(t)
	apply(t, s, definitions)
	s.Snapshot("base")
	widgets := paths["Widget"]
	tests := []struct {
		name    string
		objects string // policies, bindings and what they need
		request
	}{
		{"valid", validating("p", `validations: [{expression: "object.data.color == 'red'"}]`), request{}},
		{"refused", validating("p", `validations: [{expression: "object.data.color == 'blue'"}]`), request{code: 422,
			want: `configmaps "a" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: failed expression: object.data.color == 'blue'`}},
		{"message", validating("p", `validations: [{expression: "false", message: " only blue "}]`), request{code: 422, want: "denied request: only blue"}},
		{"message by expression", validating("p", `validations: [{expression: "false", message: "m", messageExpression: "'not ' + object.data.color"}]`), request{code: 422, want: "denied request: not red"}},
		{"message by an expression that fails", validating("p", `validations: [{expression: "false", message: "m", messageExpression: "string(object.data.none)"}]`), request{code: 422, want: "denied request: m"}},
		{"message of two lines", validating("p", `validations: [{expression: "false", message: "m", messageExpression: "'a\\nb'"}]`), request{code: 422, want: "denied request: m"}},
		{"reason Forbidden", validating("p", `validations: [{expression: "false", reason: Forbidden}]`), request{code: 403, want: "denied request"}},
		{"reason RequestEntityTooLarge", validating("p", `validations: [{expression: "false", reason: RequestEntityTooLarge}]`), request{code: 413, want: "denied request"}},
		{"expression that fails", validating("p", `validations: [{expression: "object.data.none == 'x'"}]`), request{code: 422,
			want: "denied request: expression 'object.data.none == 'x'' resulted in error: no such key: none"}},
		{"expression that fails, and is ignored", validating("p", "failurePolicy: Ignore\nvalidations: [{expression: \"object.data.none == 'x'\"}]"), request{}},
		{"without a binding", strings.Split(validating("p", forbidden), "\n---\n")[0], request{}},
		{"action Warn", validating("p", forbidden, "validationActions: [Warn]"), request{warning: "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p-binding': failed expression: false"}},
		{"action Audit", validating("p", forbidden, "validationActions: [Audit]"), request{}},
		{"the first of two", validating("b", `validations: [{expression: "false", message: second}]`) + "\n---\n" + validating("a", `validations: [{expression: "false", message: first}]`), request{code: 422, want: "ValidatingAdmissionPolicy 'a'"}},
		{"cost of one expression", validating("p", `validations: [{expression: "[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, true))))))"}]`),
			request{code: 422, want: "operation cancelled: actual cost limit exceeded"}},

		{"operation", validating("p", strings.Replace(configMapRules, "CREATE, UPDATE", "DELETE", 1)+forbidden), request{}},
		{"deletion", "kind: ConfigMap\nmetadata: {name: x}\n---\n" + validating("p", strings.Replace(configMapRules, "CREATE, UPDATE", "DELETE", 1)+`validations: [{expression: "object != null || oldObject.metadata.name != 'x'"}]`),
			request{method: http.MethodDelete, path: configMaps + "/x", code: 422, want: "denied request"}},
		{"update", "kind: ConfigMap\nmetadata: {name: x}\ndata: {color: red}\n---\n" + validating("p", `validations: [{expression: "request.operation != 'UPDATE' || object.data.color == oldObject.data.color"}]`),
			request{method: http.MethodPut, path: configMaps + "/x", body: `{"metadata":{"name":"x"},"data":{"color":"blue"}}`, code: 422, want: "denied request"}},
		{"patch", "kind: ConfigMap\nmetadata: {name: x}\ndata: {color: red}\n---\n" + validating("p", `validations: [{expression: "request.operation != 'UPDATE' || object.data.color == oldObject.data.color"}]`),
			request{method: http.MethodPatch, path: configMaps + "/x", body: `{"data":{"color":"blue"}}`, contentType: "application/merge-patch+json", code: 422, want: "denied request"}},
		{"dry run", validating("p", `validations: [{expression: "!request.dryRun"}]`), request{path: configMaps + "?dryRun=All", code: 422, want: "denied request"}},
		{"excluded", validating("p", configMapRules+"  excludeResourceRules:\n  - {apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: [configmaps], resourceNames: [a]}\n"+forbidden), request{}},
		{"resource names", validating("p", strings.Replace(configMapRules, "resources:", "resourceNames: [b], resources:", 1)+forbidden), request{}},
		{"object selector", validating("p", configMapRules+"  objectSelector: {matchLabels: {a: b}}\n"+forbidden), request{}},
		{"namespace selector", validating("p", configMapRules+"  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: default}}\n"+forbidden), request{code: 422, want: "denied"}},
		{"another namespace", validating("p", configMapRules+"  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}\n"+forbidden), request{}},
		{"the binding selects", validating("p", forbidden, "validationActions: [Deny]\nmatchResources: {objectSelector: {matchLabels: {a: b}}}"), request{}},
		{"the binding's rules", validating("p", forbidden, "validationActions: [Deny]\nmatchResources: {resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [UPDATE], resources: [configmaps]}]}"), request{}},
		{"match condition", validating("p", forbidden+`matchConditions: [{name: one, expression: "object.data.color != 'red'"}]`), request{}},
		{"match condition that fails", validating("p", forbidden+`matchConditions: [{name: one, expression: "object.data.none != 'red'"}]`), request{code: 422, want: "denied request: expression 'object.data.none != 'red'' resulted in error: no such key: none"}},
		{"a false condition decides", validating("p", forbidden+`matchConditions: [{name: one, expression: "object.data.none != 'red'"}, {name: two, expression: "false"}]`), request{}},
		{"another version", validating("p", `
matchConstraints:
  resourceRules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
validations: [{expression: "object.apiVersion == 'example.com/v1' && request.kind.version == 'v1' && request.requestKind.version == 'v2' && object.spec.size > 1"}]`),
			request{path: strings.Replace(widgets, "v1", "v2", 1), body: `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1}}`, code: 422, want: "denied"}},
		{"another version, exactly", validating("p", `
matchConstraints:
  matchPolicy: Exact
  resourceRules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [CREATE], resources: [widgets]}
`+forbidden), request{path: strings.Replace(widgets, "v1", "v2", 1), body: `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"w"}}`}},
		{"status", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n---\n" + validating("p", `
matchConstraints:
  resourceRules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [UPDATE], resources: [widgets/status]}
validations: [{expression: "request.subResource == 'status' && object.status.phase == 'Good'"}]`),
			request{method: http.MethodPatch, path: widgets + "/w/status", body: `{"status":{"phase":"Bad"}}`, contentType: "application/merge-patch+json", code: 422, want: "denied"}},
		{"scale", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\nspec: {replicas: 1}\n---\n" + validating("p", `
matchConstraints:
  resourceRules:
  - {apiGroups: [example.com], apiVersions: [v1], operations: [UPDATE], resources: [widgets/scale]}
validations: [{expression: "object.kind == 'Scale' && object.spec.replicas <= 3"}]`),
			request{method: http.MethodPatch, path: widgets + "/w/scale", body: `{"spec":{"replicas":4}}`, contentType: "application/merge-patch+json", code: 422, want: "denied"}},
		{"a Namespace", validating("p", `
matchConstraints:
  resourceRules:
  - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}
validations: [{expression: "namespaceObject != null"}]`), request{path: "/api/v1/namespaces", body: `{"metadata":{"name":"n"}}`, code: 422, want: "denied"}},
		{"everything but policies", validating("p", `
matchConstraints:
  resourceRules:
  - {apiGroups: ['*'], apiVersions: ['*'], operations: ['*'], resources: ['*']}
`+forbidden), request{method: http.MethodDelete, path: paths["ValidatingAdmissionPolicy"] + "/p"}},

		{"variables", validating("p", `
variables:
- {name: color, expression: object.data.color}
- {name: good, expression: "variables.color == 'blue'"}
validations: [{expression: variables.good, messageExpression: "'not ' + variables.color"}]`), request{code: 422, want: "denied request: not red"}},
		{"namespaceObject", validating("p", `validations: [{expression: "namespaceObject.metadata.name == 'default' && namespaceObject.status.phase == 'Gone'"}]`), request{code: 422, want: "denied request: failed expression"}},
		{"the user", validating("p", `validations: [{expression: "request.userInfo.username == 'system:admin' && 'system:masters' in request.userInfo.groups"}]`), request{}},
		{"options", validating("p", `validations: [{expression: "request.options.fieldManager == 'me'"}]`), request{path: configMaps + "?fieldManager=me"}},
		{"authorizer", validating("p", `validations: [{expression: "authorizer.requestResource.check('create').allowed() && authorizer.group('').resource('pods').check('get').allowed()"}]`), request{}},
		{"annotation that fails", validating("p", `auditAnnotations: [{key: k, valueExpression: string(object.data.none)}]`, "validationActions: [Audit]"), request{code: 422, want: "denied request: expression 'string(object.data.none)' resulted in error"}},

		{"params", "kind: Limit\napiVersion: example.com/v1\nmetadata: {name: l}\nmax: 2\n---\n" + validating("p", `
paramKind: {apiVersion: example.com/v1, kind: Limit}
validations: [{expression: "size(object.data.color) <= params.max", messageExpression: "'more than ' + string(params.max)"}]`,
			"validationActions: [Deny]\nparamRef: {name: l, parameterNotFoundAction: Deny}"), request{code: 422, want: "denied request: more than 2"}},
		{"params of the request's namespace", "kind: ConfigMap\napiVersion: v1\nmetadata: {name: l}\ndata: {color: blue}\n---\n" + validating("p", `
paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{expression: "object.data.color == params.data.color && params.kind == 'ConfigMap'"}]`,
			"validationActions: [Deny]\nparamRef: {name: l, parameterNotFoundAction: Deny}"), request{code: 422, want: "denied"}},
		{"params of another namespace", "kind: Namespace\nmetadata: {name: other}\n---\nkind: ConfigMap\nmetadata: {name: l, namespace: other}\ndata: {color: red}\n---\n" + validating("p", `
paramKind: {apiVersion: v1, kind: ConfigMap}
validations: [{expression: "object.data.color == params.data.color"}]`,
			"validationActions: [Deny]\nparamRef: {name: l, namespace: other, parameterNotFoundAction: Deny}"), request{}},
		{"params by selector", "kind: Limit\napiVersion: example.com/v1\nmetadata: {name: k, labels: {a: b}}\nmax: 9\n---\nkind: Limit\napiVersion: example.com/v1\nmetadata: {name: l, labels: {a: b}}\nmax: 2\n---\n" +
			"kind: Limit\napiVersion: example.com/v1\nmetadata: {name: m}\nmax: 1\n---\n" + validating("p", `
paramKind: {apiVersion: example.com/v1, kind: Limit}
validations: [{expression: "size(object.data.color) <= params.max", messageExpression: "'more than ' + string(params.max)"}]`,
			"validationActions: [Deny]\nparamRef: {selector: {matchLabels: {a: b}}, parameterNotFoundAction: Deny}"), request{code: 422, want: "denied request: more than 2"}},
		{"no params", validating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\nvalidations: [{expression: \"params.max > 1\"}]",
			"validationActions: [Deny]\nparamRef: {name: l, parameterNotFoundAction: Deny}"), request{code: 422,
			want: "'p' with binding 'p-binding' denied request: failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"}},
		{"no params, which is allowed", validating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\nvalidations: [{expression: \"params.max > 1\"}]",
			"validationActions: [Deny]\nparamRef: {name: l, parameterNotFoundAction: Allow}"), request{}},
		{"no reference to params", validating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\nvalidations: [{expression: \"params != null\"}]"), request{code: 422, want: "denied"}},
		{"unknown kind of params", validating("p", "paramKind: {apiVersion: example.com/v1, kind: Nothing}\nvalidations: [{expression: \"true\"}]",
			"validationActions: [Deny]\nparamRef: {name: l, parameterNotFoundAction: Allow}"), request{code: 422,
			want: "ValidatingAdmissionPolicy 'p' denied request: failed to configure policy: failed to find resource referenced by paramKind: 'example.com/v1, Kind=Nothing'"}},
		{"params in no namespace", validating("p", "paramKind: {apiVersion: example.com/v1, kind: Limit}\nvalidations: [{expression: \"true\"}]",
			"validationActions: [Deny]\nparamRef: {name: l, namespace: default, parameterNotFoundAction: Allow}"), request{code: 422, want: "paramRef.namespace must not be provided"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			s.ResetTo("base")
			apply(t, s, test.objects)
			answer := test.send(t, s)
			if test.want == "" {
				return
			}
			causes := answer["details"].(map[string]any)["causes"].([]any)
			if message := causes[0].(map[string]any)["message"].(string); !strings.Contains(answer["message"].(string), message) {
				t.Errorf("the cause is %q, and the message %q", message, answer["message"])
			}
		})
	}
}

// TestChanges: what a write of a policy or a binding changes is in effect when the write is answered.
func TestChanges(t *testing.T) {
	s := servertest.New(t)
	for range 3 {
		apply(t, s, validating("p", forbidden))
		request{code: 422, want: "denied"}.send(t, s)
		request{method: http.MethodPatch, path: paths["ValidatingAdmissionPolicy"] + "/p", contentType: "application/merge-patch+json",
			body: `{"spec":{"validations":[{"expression":"object.data.color == 'blue'","message":"only blue"}]}}`}.send(t, s)
		request{code: 422, want: "only blue"}.send(t, s)
		request{body: `{"metadata":{"name":"b"},"data":{"color":"blue"}}`}.send(t, s)
		request{method: http.MethodDelete, path: configMaps + "/b"}.send(t, s)
		request{method: http.MethodDelete, path: paths["ValidatingAdmissionPolicyBinding"] + "/p-binding"}.send(t, s)
		request{}.send(t, s)
		request{method: http.MethodDelete, path: configMaps + "/a"}.send(t, s)
		request{method: http.MethodDelete, path: paths["ValidatingAdmissionPolicy"] + "/p"}.send(t, s)
	}
}

// TestPoliciesChangeUnderWrites has policies written while objects are, by many at once. What was refused must be one of the
// policies' refusals, and in the end the last policy counts.
func TestPoliciesChangeUnderWrites(t *testing.T) {
	s := servertest.New(t)
	apply(t, s, validating("p", `validations: [{expression: "true"}]`)+"\n---\n"+mutating("m", applying("Object{data: {'more': 'yes'}}")))
	done := make(chan struct{})
	var writers sync.WaitGroup
	for n := range 4 {
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-done:
					return
				default:
				}
				res, text := s.Do(http.MethodPost, configMaps, fmt.Sprintf(`{"metadata":{"name":"w%d-%d"},"data":{"color":"red"}}`, n, i), "Content-Type", "application/json")
				if res.StatusCode != http.StatusCreated && !strings.Contains(text, "ValidatingAdmissionPolicy 'p' with binding 'p-binding' denied request: round ") {
					t.Errorf("%s\n%s", res.Status, text)
				}
				if res.StatusCode == http.StatusCreated && !strings.Contains(text, `"more":"yes"`) {
					t.Errorf("an object that the policy didn't change: %s", text)
				}
			}
		})
	}
	for round := range 20 {
		request{method: http.MethodPatch, path: paths["ValidatingAdmissionPolicy"] + "/p", contentType: "application/merge-patch+json",
			body: fmt.Sprintf(`{"spec":{"validations":[{"expression":"%d %% 2 == 0","message":"round %d"}]}}`, round, round)}.send(t, s)
	}
	request{code: 422, want: "round 19"}.send(t, s)
	close(done)
	writers.Wait()
}

// TestAudit reads what policies write into the audit log.
func TestAudit(t *testing.T) {
	dir := t.TempDir()
	rules, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(rules, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata, verbs: [create], resources: [{resources: [configmaps]}]}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t, func(s *server.Server) { s.Audit = audit.Options{PolicyFile: rules, Path: log} })
	apply(t, s, validating("p", `
validations: [{expression: "object.data.color == 'blue'", message: only blue}]
auditAnnotations:
- {key: color, valueExpression: "'is ' + string(object.data.color)"}
- {key: none, valueExpression: "null"}
`, "validationActions: [Audit, Warn]"))
	request{warning: "only blue"}.send(t, s)
	want := map[string]string{
		"p/color": "is red",
		"validation.policy.admission.k8s.io/validation_failure": `[{"message":"only blue","policy":"p","binding":"p-binding","expressionIndex":0,"validationActions":["Audit","Warn"]}]`,
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { // the event comes after the answer
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			var event struct {
				Stage       string
				Annotations map[string]string
			}
			if err := json.Unmarshal([]byte(line), &event); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			if event.Stage != "ResponseComplete" {
				continue
			}
			for key, value := range want {
				if event.Annotations[key] != value {
					t.Errorf("annotation %s is %q, want %q", key, event.Annotations[key], value)
				}
			}
			if _, ok := event.Annotations["p/none"]; ok {
				t.Error("an annotation whose value is null was written")
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there's no event of the answer: %s", text)
		}
	}
}

// TestAuthorizer asks RBAC what the user may do.
func TestAuthorizer(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("root-token,root,1,system:masters\nalice-token,alice,2,dev\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := servertest.New(t, func(s *server.Server) {
		s.Access.TokenAuthFile, s.Access.AuthorizationMode = tokens, "RBAC"
	})
	send := func(token, path, body string) (code int, answer string) {
		res, text := s.Do(http.MethodPost, path, body, "Content-Type", "application/yaml", "Authorization", "Bearer "+token)
		return res.StatusCode, text
	}
	for path, text := range map[string]string{
		"/apis/rbac.authorization.k8s.io/v1/clusterroles":        `{metadata: {name: maker}, rules: [{apiGroups: [""], resources: [configmaps], verbs: [create]}]}`,
		"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings": `{metadata: {name: maker}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: maker}, subjects: [{kind: Group, apiGroup: rbac.authorization.k8s.io, name: dev}]}`,
		paths["ValidatingAdmissionPolicy"]:                       strings.Split(validating("p", `validations: [{expression: "authorizer.requestResource.check('approve').allowed()", messageExpression: "request.userInfo.username + ' may not approve'", reason: Forbidden}]`), "\n---\n")[0],
		paths["ValidatingAdmissionPolicyBinding"]:                strings.Split(validating("p", ""), "\n---\n")[1],
	} {
		if code, answer := send("root-token", path, text); code != http.StatusCreated {
			t.Fatalf("POST %s: %d %s", path, code, answer)
		}
	}
	if code, answer := send("alice-token", configMaps, "{metadata: {name: a}}"); code != http.StatusForbidden || !strings.Contains(answer, "denied request: alice may not approve") {
		t.Errorf("alice gets %d %s", code, answer)
	}
	if code, answer := send("root-token", configMaps, "{metadata: {name: a}}"); code != http.StatusCreated {
		t.Errorf("root gets %d %s", code, answer)
	}
}
