package webhook_test

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
)

// TestDryRun: a webhook with side effects isn't called about a dry run. Such a webhook can't be written any more, so a dry run is
// allowed by both of those that can.
func TestDryRun(t *testing.T) {
	h, s := newHook(t), start(t)
	for _, kind := range []string{"Mutating", "Validating"} {
		path := configurations + strings.ToLower(kind) + "webhookconfigurations"
		for _, effects := range []string{"None", "NoneOnDryRun"} {
			must(t, s, 201, "POST", path, h.configuration(kind, "dry", "/see", `sideEffects="`+effects+`"`))
			must(t, s, 201, "POST", configMaps+"?dryRun=All", anyConfigMapBody)
			if got := h.requests("/see"); len(got) != 1 || got[0].DryRun == nil || !*got[0].DryRun {
				t.Errorf("%s, %s: it was asked %+v", kind, effects, got)
			}
			must(t, s, 200, "DELETE", path+"/dry", "")
		}
		for _, effects := range []string{"Unknown", "Some"} {
			res, body := s.Do("POST", path, h.configuration(kind, "dry", "/see", `sideEffects="`+effects+`"`))
			if res.StatusCode != 422 || !strings.Contains(body, "webhooks[0].sideEffects") {
				t.Errorf("%s, %s: %s %s", kind, effects, res.Status, body)
			}
		}
	}
}

// TestV1beta1: a webhook is asked in the first version that it names and that is known. One of v1beta1 needn't repeat the uid or
// say what its patch is.
func TestV1beta1(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/old", raw(`{"response":{"allowed":true,"patch":"W3sib3AiOiJhZGQiLCJwYXRoIjoiL2RhdGEvc2l6ZSIsInZhbHVlIjoiMSJ9XQ=="}}`))
	for _, test := range []struct{ versions, want string }{
		{`["v1beta1"]`, "admission.k8s.io/v1beta1"},
		{`["v9","v1beta1","v1"]`, "admission.k8s.io/v1beta1"},
		{`["v1","v1beta1"]`, "admission.k8s.io/v1"},
	} {
		must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "old", "/old", "admissionReviewVersions="+test.versions))
		old := test.want == "admission.k8s.io/v1beta1"
		if res, body := s.Do("POST", configMaps+"?dryRun=All", anyConfigMapBody); (res.StatusCode == 201) != old || strings.Contains(body, `"size":"1"`) != old {
			t.Errorf("%s: %s %s", test.versions, res.Status, body)
		}
		h.mu.Lock()
		asked := h.asked["/old"]
		h.mu.Unlock()
		if len(asked) != 1 || asked[0].APIVersion != test.want || asked[0].Kind != "AdmissionReview" {
			t.Errorf("%s: it was asked %+v", test.versions, asked)
		}
		h.requests("/old")
		must(t, s, 200, "DELETE", mutatingPath+"/old", "")
	}
}

// TestTimeouts: a webhook is told how long it has, and a request whose own time is up isn't answered later, whatever the
// webhook's time and failurePolicy are.
func TestTimeouts(t *testing.T) {
	h, s := newHook(t), start(t)
	for _, test := range []struct{ member, query, want string }{
		{"timeoutSeconds=1", "", "timeout=1s"},
		{"timeoutSeconds=30", "", "timeout=30s"},
		{`sideEffects="None"`, "", "timeout=10s"},
		{"timeoutSeconds=30", "&timeout=20s", "timeout=20s"},
	} {
		must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "timed", "/timed", test.member))
		must(t, s, 201, "POST", configMaps+"?dryRun=All"+test.query, anyConfigMapBody)
		h.mu.Lock()
		got := h.queries["/timed"]
		delete(h.queries, "/timed")
		h.mu.Unlock()
		if !reflect.DeepEqual(got, []string{test.want}) {
			t.Errorf("%s, %q: it was told %q, want %q", test.member, test.query, got, test.want)
		}
		must(t, s, 200, "DELETE", validatingPath+"/timed", "")
	}
	h.on("/never", func(_ http.ResponseWriter, r *http.Request, _ *admissionv1.AdmissionReview) { <-r.Context().Done() })
	for _, kind := range []string{"Mutating", "Validating"} {
		path := configurations + strings.ToLower(kind) + "webhookconfigurations"
		must(t, s, 201, "POST", path, h.configuration(kind, "never", "/never", "timeoutSeconds=30", `failurePolicy="Ignore"`))
		if res, body := s.Do("POST", configMaps+"?timeout=1s", anyConfigMapBody); res.StatusCode != 504 {
			t.Errorf("%s: %s %s, want 504", kind, res.Status, body)
		}
		must(t, s, 200, "DELETE", path+"/never", "")
		must(t, s, 404, "GET", configMaps+"/a", "")
	}
}

// TestOrder: mutating webhooks are called by the names of their configurations, and in the order that a configuration has them in.
// Each sees what the one before made.
func TestOrder(t *testing.T) {
	h, s := newHook(t), start(t)
	appending := func(letter string) handler {
		return func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
			color := string(review.Request.Object.Raw)
			_, color, _ = strings.Cut(color, `"color":"`)
			color, _, _ = strings.Cut(color, `"`)
			patch(fmt.Sprintf(`[{"op":"replace","path":"/data/color","value":%q}]`, color+letter))(w, r, review)
		}
	}
	for _, letter := range []string{"1", "2", "3", "4"} {
		h.on("/"+letter, appending(letter))
	}
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "c", "/4"))
	must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "b", h.webhook("z.example.com", "/2"), h.webhook("a.example.com", "/3")))
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "a", "/1"))
	if got := must(t, s, 201, "POST", configMaps, anyConfigMapBody)["data"].(map[string]any)["color"]; got != "red1234" {
		t.Errorf("the color is %v, want red1234", got)
	}
}

// TestAtOnce: validating webhooks are called at once: each answers only when all have been asked. The refusal of the first one,
// in their order, is answered, with the warnings of all.
func TestAtOnce(t *testing.T) {
	h, s := newHook(t), start(t)
	var asked sync.WaitGroup
	asked.Add(3)
	meeting := func(response admissionv1.AdmissionResponse) handler {
		return func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
			asked.Done()
			asked.Wait()
			answer(response)(w, r, review)
		}
	}
	h.on("/1", meeting(admissionv1.AdmissionResponse{Allowed: true, Warnings: []string{"first"}}))
	h.on("/2", meeting(admissionv1.AdmissionResponse{Warnings: []string{"second"}}))
	h.on("/3", meeting(admissionv1.AdmissionResponse{Warnings: []string{"third"}}))
	for _, name := range []string{"3", "2", "1"} {
		must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "v"+name, "/"+name))
	}
	res, body := s.Do("POST", configMaps, anyConfigMapBody)
	if res.StatusCode != 400 || !strings.Contains(body, `admission webhook \"v2.example.com\" denied the request`) {
		t.Errorf("%s %s", res.Status, body)
	}
	if got := strings.Join(res.Header.Values("Warning"), " "); !strings.Contains(got, "first") || !strings.Contains(got, "second") || !strings.Contains(got, "third") {
		t.Errorf("the warnings are %s", got)
	}
}

// TestExempt: writes of what configures admission go to no webhook, so that one that refuses everything can be taken away.
func TestExempt(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/deny", answer(admissionv1.AdmissionResponse{}))
	everything := `rules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/*"]}]`
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "all", "/deny", everything))
	must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "all", "/deny", everything))
	must(t, s, 400, "POST", configMaps, anyConfigMapBody)
	h.requests("/deny")
	spec := `"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]}`
	for _, o := range [][2]string{
		{"validatingadmissionpolicies", `{"metadata":{"name":"p"},` + spec + `,"validations":[{"expression":"true"}]}}`},
		{"validatingadmissionpolicybindings", `{"metadata":{"name":"p"},"spec":{"policyName":"p","validationActions":["Deny"]}}`},
		{"mutatingadmissionpolicies", `{"metadata":{"name":"p"},` + spec + `,"reinvocationPolicy":"Never","mutations":[{"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'test', path: '/kind', value: 'x'}]"}}]}}`},
		{"mutatingadmissionpolicybindings", `{"metadata":{"name":"p"},"spec":{"policyName":"p"}}`},
	} {
		must(t, s, 201, "POST", configurations+o[0], o[1])
		must(t, s, 200, "PATCH", configurations+o[0]+"/p", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", "application/merge-patch+json")
		must(t, s, 200, "DELETE", configurations+o[0]+"/p", "")
	}
	must(t, s, 200, "DELETE", mutatingPath+"/all", "")
	must(t, s, 200, "DELETE", validatingPath+"/all", "")
	if n := len(h.requests("/deny")); n != 0 {
		t.Errorf("%d such writes went to a webhook", n)
	}
	must(t, s, 201, "POST", configMaps, anyConfigMapBody)
}

// TestMetrics: calls, refusals, failures and exclusions are counted under Kubernetes' names, and the series of a webhook go with it.
func TestMetrics(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/deny", answer(admissionv1.AdmissionResponse{}))
	h.on("/broken", raw("nonsense"))
	ignore := `failurePolicy="Ignore"`
	condition := func(text string) string { return `matchConditions=[{"name":"c","expression":"` + text + `"}]` }
	must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "m", h.webhook("fine.example.com", "/fine"), h.webhook("open.example.com", "/broken", ignore),
		h.webhook("excluded.example.com", "/fine", condition("false")), h.webhook("error.example.com", "/fine", ignore, condition("object.none == 1"))))
	must(t, s, 201, "POST", validatingPath, configurationOf("Validating", "v", h.webhook("deny.example.com", "/deny"), h.webhook("closed.example.com", "/broken")))
	must(t, s, 400, "POST", configMaps, anyConfigMapBody)

	const controllers = "apiserver_admission_controller_" // of plug-ins, which stay
	series := func() (all map[string]string) {
		all = map[string]string{}
		for _, line := range strings.Split(s.Get("/metrics"), "\n") {
			if name, value, ok := strings.Cut(line, "} "); ok && strings.HasPrefix(name, "apiserver_admission_") && !strings.HasPrefix(name, controllers) && !strings.Contains(name, "_bucket{") && !strings.Contains(name, "_sum{") {
				all[strings.TrimPrefix(name, "apiserver_admission_")+"}"] = value
			}
		}
		return all
	}
	want := map[string]string{}
	for _, line := range []string{
		`webhook_request_total{code="200",name="fine.example.com",operation="CREATE",rejected="false",type="admit"}`,
		`webhook_request_total{code="503",name="open.example.com",operation="CREATE",rejected="false",type="admit"}`,
		`webhook_request_total{code="400",name="deny.example.com",operation="CREATE",rejected="true",type="validating"}`,
		`webhook_request_total{code="503",name="closed.example.com",operation="CREATE",rejected="true",type="validating"}`,
		`webhook_admission_duration_seconds_count{name="fine.example.com",operation="CREATE",rejected="false",type="admit"}`,
		`webhook_admission_duration_seconds_count{name="open.example.com",operation="CREATE",rejected="false",type="admit"}`,
		`webhook_admission_duration_seconds_count{name="deny.example.com",operation="CREATE",rejected="true",type="validating"}`,
		`webhook_admission_duration_seconds_count{name="closed.example.com",operation="CREATE",rejected="true",type="validating"}`,
		`webhook_rejection_count{error_type="no_error",name="deny.example.com",operation="CREATE",rejection_code="400",type="validating"}`,
		`webhook_rejection_count{error_type="calling_webhook_error",name="closed.example.com",operation="CREATE",rejection_code="503",type="validating"}`,
		`webhook_fail_open_count{name="open.example.com",type="admit"}`,
		`match_condition_exclusions_total{kind="webhook",name="excluded.example.com",operation="CREATE",type="admit"}`,
		`match_condition_evaluation_errors_total{kind="webhook",name="error.example.com",operation="CREATE",type="admit"}`,
	} {
		want[line] = "1"
	}
	if got := series(); !reflect.DeepEqual(got, want) {
		t.Errorf("the series are\n%s\nwant\n%s", indented(got), indented(want))
	}

	for _, line := range []string{`{name="MutatingAdmissionWebhook",operation="CREATE",rejected="false",type="admit"} 1`, `{name="ValidatingAdmissionWebhook",operation="CREATE",rejected="true",type="validate"} 1`} {
		if !strings.Contains(s.Get("/metrics"), controllers+"admission_duration_seconds_count"+line+"\n") {
			t.Errorf("there is no %s", line)
		}
	}

	must(t, s, 200, "DELETE", mutatingPath+"/m", "")
	must(t, s, 200, "DELETE", validatingPath+"/v", "")
	must(t, s, 201, "POST", configMaps, anyConfigMapBody)
	for deadline := time.Now().Add(time.Minute); len(series()) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of webhooks that are gone there are\n%s", indented(series()))
		}
	}
}
