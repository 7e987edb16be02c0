package e2e

import (
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"
)

// TestMetricsDocumented compares the list in docs/operations.md with what is served.
func TestMetricsDocumented(t *testing.T) {
	t.Parallel()
	p := start(t, "--ephemeral")
	p.define()
	s := p.watch(widgets + "?watch=true")
	p.do(http.StatusCreated, "POST", widgets, widget("a", 1))
	s.expect("ADDED", "a")
	// The metrics of policies and webhooks come with what they count.
	for resource, object := range policies {
		p.do(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/"+resource, object)
	}
	p.do(http.StatusCreated, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`)
	p.do(http.StatusCreated, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", webhooksInAllWays)
	p.do(http.StatusInternalServerError, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)

	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := names(regexp.MustCompile("(?m)^\\| `((?:apiserver|etcd_request|workqueue)_[a-z_]+)` \\|"), string(page))
	served := names(regexp.MustCompile(`(?m)^# TYPE ((?:apiserver|etcd_request|workqueue)_[a-z_]+) `), p.do(http.StatusOK, "GET", "/metrics", "").body)
	compareMetrics(t, documented, served)
	p.stop()
}

// compareMetrics tells which metrics docs/operations.md and the server don't both have.
func compareMetrics(t *testing.T, documented, served []string) {
	t.Helper()
	for _, name := range documented {
		if !slices.Contains(served, name) {
			t.Errorf("docs/operations.md has %s, which isn't served", name)
		}
	}
	for _, name := range served {
		if !slices.Contains(documented, name) {
			t.Errorf("%s is served, and docs/operations.md lacks it", name)
		}
	}
}

// TestReplicaMetricsDocumented compares what docs/operations.md says of a replica's own metrics with what is served.
func TestReplicaMetricsDocumented(t *testing.T) {
	t.Parallel()
	p := startMember(t, nil)
	page, err := os.ReadFile("../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := slices.Compact(names(regexp.MustCompile("`(apiserver_lite_replica_[a-z_]+)`"), string(page)))
	served := names(regexp.MustCompile(`(?m)^# TYPE (apiserver_lite_replica_[a-z_]+) `), p.do(http.StatusOK, "GET", "/metrics", "").body)
	if len(served) == 0 {
		t.Error("a replica serves none of its own")
	}
	compareMetrics(t, documented, served)
	p.stop()
}

// names returns what the pattern's group finds, sorted.
func names(pattern *regexp.Regexp, text string) (all []string) {
	for _, m := range pattern.FindAllStringSubmatch(text, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return all
}

// policies are about Secrets: one changes them, one warns of them.
var policies = map[string]string{
	"validatingadmissionpolicies": `{"metadata":{"name":"all"},"spec":{` + ofSecrets + `,"validations":[{"expression":"false"}]}}`,
	"mutatingadmissionpolicies": `{"metadata":{"name":"all"},"spec":{` + ofSecrets + `,"reinvocationPolicy":"Never",
		"mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"}}]}}`,
	"validatingadmissionpolicybindings": `{"metadata":{"name":"all"},"spec":{"policyName":"all","validationActions":["Warn"]}}`,
	"mutatingadmissionpolicybindings":   `{"metadata":{"name":"all"},"spec":{"policyName":"all"}}`,
}

const ofSecrets = `"matchConstraints":{"resourceRules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["secrets"]}]}`

// webhooksInAllWays are webhooks that nobody serves. Of those that concern a ConfigMap, one may fail, one isn't asked, one has a condition that fails, and
// one must not fail.
const webhooksInAllWays = `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingWebhookConfiguration","metadata":{"name":"all"},"webhooks":[
	{"name":"may.fail.example","failurePolicy":"Ignore",` + ofConfigMaps + `},
	{"name":"not.asked.example","matchConditions":[{"name":"never","expression":"false"}],` + ofConfigMaps + `},
	{"name":"condition.fails.example","failurePolicy":"Ignore","matchConditions":[{"name":"absent","expression":"object.data.absent == 'a'"}],` + ofConfigMaps + `},
	{"name":"must.not.fail.example","failurePolicy":"Fail",` + ofConfigMaps + `}]}`

const ofConfigMaps = `"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":5,"clientConfig":{"url":"https://127.0.0.1:1/"},
	"rules":[{"operations":["CREATE"],"apiGroups":[""],"apiVersions":["v1"],"resources":["configmaps"]}]`
