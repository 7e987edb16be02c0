package policy_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// The paths of what tests write.
var paths = map[string]string{
	"ValidatingAdmissionPolicy":        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
	"ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
	"MutatingAdmissionPolicy":          "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies",
	"MutatingAdmissionPolicyBinding":   "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings",
	"CustomResourceDefinition":         "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	"Namespace":                        "/api/v1/namespaces",
	"ConfigMap":                        configMaps,
	"Limit":                            "/apis/example.com/v1/limits",
	"Widget":                           "/apis/example.com/v1/namespaces/default/widgets",
}

const configMaps = "/api/v1/namespaces/default/configmaps"

// apply creates objects, separated by lines with ---.
func apply(t testing.TB, s *servertest.Server, objects string) {
	t.Helper()
	for _, text := range strings.Split(objects, "\n---\n") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var o struct {
			Kind     string
			Metadata struct{ Namespace string }
		}
		if err := yaml.Unmarshal([]byte(text), &o); err != nil {
			t.Fatalf("%v in\n%s", err, text)
		}
		path, ok := paths[o.Kind]
		if !ok {
			t.Fatalf("kind %q has no path, in\n%s", o.Kind, text)
		}
		if ns := o.Metadata.Namespace; ns != "" {
			path = strings.Replace(path, "/default/", "/"+ns+"/", 1)
		}
		if res, answer := s.Do(http.MethodPost, path, text, "Content-Type", "application/yaml"); res.StatusCode != http.StatusCreated {
			t.Fatalf("POST %s: %s\n%s\nsent\n%s", path, res.Status, answer, text)
		}
	}
}

// validating is a policy about ConfigMaps, with a binding: the lines of its spec besides the rules, and those of the binding's.
func validating(name, spec string, binding ...string) string {
	if len(binding) == 0 {
		binding = []string{"validationActions: [Deny]"}
	}
	return policyAndBinding("Validating", name, spec, binding[0])
}

func mutating(name, spec string, binding ...string) string {
	if len(binding) == 0 {
		binding = []string{""}
	}
	if !strings.Contains(spec, "reinvocationPolicy:") {
		spec = "reinvocationPolicy: Never\n" + spec
	}
	return policyAndBinding("Mutating", name, spec, binding[0])
}

const configMapRules = `
matchConstraints:
  resourceRules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}
`

func policyAndBinding(kind, name, spec, binding string) string {
	if !strings.Contains(spec, "matchConstraints:") {
		spec = configMapRules + spec
	}
	return fmt.Sprintf(`
kind: %[1]sAdmissionPolicy
metadata: {name: %[2]s}
spec:
%[3]s
---
kind: %[1]sAdmissionPolicyBinding
metadata: {name: %[2]s-binding}
spec:
  policyName: %[2]s
%[4]s
`, kind, name, indent(spec), indent(binding))
}

func indent(lines string) string {
	var out []string
	for _, line := range strings.Split(lines, "\n") {
		if strings.TrimSpace(line) != "" {
			out = append(out, "  "+line)
		}
	}
	return strings.Join(out, "\n")
}

// request is what a test asks, and which answer it wants.
type request struct {
	method, path, body string // default: the creation of a ConfigMap
	contentType        string
	code               int    // default 201 for a POST, 200 for others
	want               string // part of the message of a refusal
	warning            string // part of a warning; "" for no warning
}

// send sends a request and checks its answer, which it returns.
func (q request) send(t *testing.T, s *servertest.Server) map[string]any {
	t.Helper()
	if q.method == "" {
		q.method = http.MethodPost
	}
	if q.path == "" {
		q.path = configMaps
	}
	if q.body == "" && q.method == http.MethodPost {
		q.body = `{"metadata":{"name":"a"},"data":{"color":"red"}}`
	}
	if q.code == 0 {
		q.code = http.StatusOK
		if q.method == http.MethodPost {
			q.code = http.StatusCreated
		}
	}
	if q.contentType == "" {
		q.contentType = "application/json"
	}
	res, text := s.Do(q.method, q.path, q.body, "Content-Type", q.contentType)
	if res.StatusCode != q.code {
		t.Fatalf("%s %s: %s, want %d\n%s", q.method, q.path, res.Status, q.code, text)
	}
	var answer map[string]any
	if err := json.Unmarshal([]byte(text), &answer); err != nil {
		t.Fatal(err)
	}
	if message, _ := answer["message"].(string); !strings.Contains(message, q.want) {
		t.Errorf("message %q, want one with %q", message, q.want)
	}
	warnings := strings.Join(res.Header.Values("Warning"), "\n")
	if (warnings != "") != (q.warning != "") || !strings.Contains(warnings, q.warning) {
		t.Errorf("warnings %q, want one with %q", warnings, q.warning)
	}
	return answer
}
