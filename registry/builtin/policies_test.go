package builtin_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	policies        = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
	policyBindings  = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
	mutations       = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
	mutationBinding = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"

	matchDeployments = `"matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["deployments"]}]}`
)

func TestPolicyRules(t *testing.T) {
	s := servertest.New(t)
	validations := func(list string) string { return matchDeployments + `,"validations":[` + list + `]` }
	for _, test := range []struct {
		name, path, spec string
		want             string // part of the message; "" if the policy is taken
	}{
		{"good", policies, validations(`{"expression":"object.spec.replicas <= 5","message":"too many","reason":"Forbidden"}`), ""},
		{"syntax", policies, validations(`{"expression":"object.spec."}`), `spec.validations[0].expression: Invalid value: "object.spec.": compilation failed: ERROR: <input>:1:13: Syntax error`},
		{"type", policies, validations(`{"expression":"'yes'"}`), "must evaluate to bool but got string"},
		{"params without a kind", policies, validations(`{"expression":"params.max > 1"}`), "undeclared reference to 'params'"},
		{"params", policies, `"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},` + validations(`{"expression":"params.data.max == '1'"}`), ""},
		{"kind of params", policies, `"paramKind":{"apiVersion":"a/b/c","kind":""},` + validations(`{"expression":"true"}`), "spec.paramKind.kind: Required value"},
		{"nothing to validate", policies, matchDeployments, "validations or auditAnnotations must contain at least one item"},
		{"nothing to match", policies, `"validations":[{"expression":"true"}]`, "spec.matchConstraints: Required value"},
		{"no rules", policies, `"matchConstraints":{},"validations":[{"expression":"true"}]`, "spec.matchConstraints.resourceRules: Required value"},
		{"rule", policies, `"matchConstraints":{"resourceRules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*","CREATE"],"resources":["*"]}]},"validations":[{"expression":"true"}]`,
			"if '*' is present, must not specify other operations"},
		{"message of lines", policies, validations(`{"expression":"true","message":"a\nb"}`), "must not contain line breaks"},
		{"message's type", policies, validations(`{"expression":"true","messageExpression":"1"}`), "must evaluate to string but got int"},
		{"message asks the authorizer", policies, validations(`{"expression":"true","messageExpression":"string(authorizer.path('/').check('get').allowed())"}`), "undeclared reference to 'authorizer'"},
		{"reason", policies, validations(`{"expression":"true","reason":"Gone"}`), `spec.validations[0].reason: Unsupported value: "Gone"`},
		{"variables", policies, `"variables":[{"name":"a","expression":"1"},{"name":"b","expression":"variables.a + 1"}],` + validations(`{"expression":"variables.b == 2"}`), ""},
		{"variable before it's defined", policies, `"variables":[{"name":"b","expression":"variables.a + 1"},{"name":"a","expression":"1"}],` + validations(`{"expression":"true"}`), "undefined field 'a'"},
		{"name of a variable", policies, `"variables":[{"name":"for","expression":"1"}],` + validations(`{"expression":"true"}`), "must be a valid CEL identifier"},
		{"match condition", policies, `"matchConditions":[{"name":"a","expression":"request.nothing"}],` + validations(`{"expression":"true"}`), "spec.matchConditions[0].expression: Invalid value"},
		{"match condition's name", policies, `"matchConditions":[{"name":"a b","expression":"true"}],` + validations(`{"expression":"true"}`), "spec.matchConditions[0].name: Invalid value"},
		{"match condition uses a variable", policies, `"variables":[{"name":"a","expression":"1"}],"matchConditions":[{"name":"a","expression":"variables.a == 1"}],` + validations(`{"expression":"true"}`), "undeclared reference to 'variables'"},
		{"annotation", policies, matchDeployments + `,"auditAnnotations":[{"key":"k","valueExpression":"object.metadata.name == 'a' ? 'x' : 'y'"}]`, ""},
		{"annotation's type", policies, matchDeployments + `,"auditAnnotations":[{"key":"k","valueExpression":"1"}]`, "must evaluate to one of [string null_type] but got int"},
		{"same annotation", policies, matchDeployments + `,"auditAnnotations":[{"key":"k","valueExpression":"'a'"},{"key":"k","valueExpression":"'b'"}]`, "Duplicate value"},
		{"failure policy", policies, `"failurePolicy":"Maybe",` + validations(`{"expression":"true"}`), `spec.failurePolicy: Unsupported value: "Maybe"`},

		{"configuration", mutations, matchDeployments + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{replicas: 2}}"}}]`, ""},
		{"patch", mutations, matchDeployments + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'x'}]"}}]`, ""},
		{"configuration's type", mutations, matchDeployments + `,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"{'spec': 1}"}}]`, "must evaluate to Object but got map(string, int)"},
		{"patch and configuration", mutations, matchDeployments + `,"mutations":[{"patchType":"JSONPatch","applyConfiguration":{"expression":"Object{}"}}]`, "spec.mutations[0].jsonPatch: Required value"},
		{"no mutations", mutations, matchDeployments, "mutations must contain at least one item"},
		{"mutation of deletions", mutations, strings.Replace(matchDeployments, `"UPDATE"`, `"DELETE"`, 1) + `,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]`, `Unsupported value: "DELETE"`},
		{"no word on reinvocation", mutations, matchDeployments + `,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]`, "spec.reinvocationPolicy: Required value"},
		{"reinvocation", mutations, `"reinvocationPolicy":"Always",` + matchDeployments + `,"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]`, `spec.reinvocationPolicy: Unsupported value: "Always"`},

		{"binding", policyBindings, `"policyName":"p","validationActions":["Deny","Audit"]`, ""},
		{"no action", policyBindings, `"policyName":"p"`, "spec.validationActions: Required value"},
		{"Deny and Warn", policyBindings, `"policyName":"p","validationActions":["Deny","Warn"]`, "must not contain both Deny and Warn"},
		{"no policy", policyBindings, `"validationActions":["Deny"]`, "spec.policyName: Required value"},
		{"params by name and selector", policyBindings, `"policyName":"p","validationActions":["Deny"],"paramRef":{"name":"a","selector":{},"parameterNotFoundAction":"Deny"}`, "name and selector are mutually exclusive"},
		{"params by nothing", mutationBinding, `"policyName":"p","paramRef":{"parameterNotFoundAction":"Deny"}`, "one of name or selector must be specified"},
		{"params not found", mutationBinding, `"policyName":"p","paramRef":{"name":"a"}`, "spec.paramRef.parameterNotFoundAction: Required value"},
		{"selector", mutationBinding, `"policyName":"p","matchResources":{"objectSelector":{"matchLabels":{"a b":"c"}}}`, "spec.matchResources.objectSelector.matchLabels"},
	} {
		t.Run(test.name, func(t *testing.T) {
			code := http.StatusCreated
			if test.want != "" {
				code = http.StatusUnprocessableEntity
			}
			body := must(t, s, http.MethodPost, test.path, fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{%s}}`, len(test.name), test.spec), code)
			if message, _ := in(parse(t, body), "message").(string); !strings.Contains(message, test.want) {
				t.Errorf("message %q, want one with %q", message, test.want)
			}
			if code == http.StatusCreated {
				must(t, s, http.MethodDelete, fmt.Sprintf("%s/p%d", test.path, len(test.name)), "", http.StatusOK)
			}
		})
	}
}

// TestTypeChecking reads what policies get wrong about their objects from the answer to their creation.
func TestTypeChecking(t *testing.T) {
	s := servertest.New(t, all)
	policy := func(expressions ...string) string {
		return fmt.Sprintf(`{"metadata":{"name":"p"},"spec":{%s,"paramKind":{"apiVersion":"v1","kind":"ConfigMap"},"variables":[{"name":"n","expression":"object.spec.replicas"}],"validations":[{"expression":%q}]}}`,
			matchDeployments, strings.Join(expressions, " && "))
	}
	for _, test := range []struct {
		name, expression string
		want             string // part of the warning; "" for none
	}{
		{"right", "object.spec.replicas > 1 && params.data['a'] == 'b' && object.spec.template.spec.containers.all(c, c.image != '')", ""},
		{"field", "object.spec.repicas > 1", "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'repicas'"},
		{"type", "object.spec.replicas == 'many'", "found no matching overload for '_==_' applied to '(int, string)'"},
		{"params", "params.dta == 'x'", "undefined field 'dta'"},
		{"variable", "variables.n == 'many'", "found no matching overload for '_==_' applied to '(int, string)'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			created := parse(t, must(t, s, http.MethodPost, policies, policy(test.expression), http.StatusCreated))
			defer must(t, s, http.MethodDelete, policies+"/p", "", http.StatusOK)
			warning, _ := in(created, "status.typeChecking.expressionWarnings.0.warning").(string)
			if (warning != "") != (test.want != "") || !strings.Contains(warning, test.want) {
				t.Errorf("warning %q, want one with %q", warning, test.want)
			}
			if test.want != "" && in(created, "status.typeChecking.expressionWarnings.0.fieldRef") != "spec.validations[0].expression" {
				t.Errorf("the warning is about %v", in(created, "status.typeChecking.expressionWarnings.0.fieldRef"))
			}
			if got := in(created, "status.observedGeneration"); got != 1.0 {
				t.Errorf("observedGeneration is %v, want 1", got)
			}
		})
	}
	t.Run("a changed policy", func(t *testing.T) {
		created := parse(t, must(t, s, http.MethodPost, policies, policy("true"), http.StatusCreated))
		next := fmt.Sprintf(`"name":"p","resourceVersion":%q`, in(created, "metadata.resourceVersion"))
		changed := parse(t, must(t, s, http.MethodPut, policies+"/p", strings.Replace(policy("object.spec.repicas > 1"), `"name":"p"`, next, 1), http.StatusOK))
		if got := in(changed, "status.observedGeneration"); got != 2.0 || in(changed, "metadata.generation") != 2.0 {
			t.Errorf("observedGeneration is %v, want 2", got)
		}
		if in(changed, "status.typeChecking.expressionWarnings.0.warning") == nil {
			t.Error("there's no warning")
		}
	})
}
