package webhook_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
)

type handler = func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview)

// allowed is an answer of v1 with more members of the response.
func allowed(more string) handler {
	return raw(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true` + more + `}}`)
}

// messageOf is the message of a Status.
func messageOf(answer string) string {
	var status struct{ Message string }
	_ = json.Unmarshal([]byte(answer), &status)
	return status.Message
}

// TestFailures: webhooks that misbehave fail requests, or don't, as failurePolicy says, and errors have their names.
func TestFailures(t *testing.T) {
	const secret = "s3cr3t"
	elsewhere := newHook(t)
	released := make(chan struct{})
	t.Cleanup(func() { close(released) })
	never := func(_ http.ResponseWriter, r *http.Request, _ *admissionv1.AdmissionReview) {
		select {
		case <-r.Context().Done():
		case <-released:
		}
		panic(http.ErrAbortHandler) // what returns answers, and may do so just before the deadline of who asks
	}
	tests := []struct {
		name    string
		handler handler
		want    string // part of the message
		kinds   string // of configurations; both if empty
	}{
		{"no JSON", raw("<html>" + secret), "failed to call webhook: couldn't get version/kind; json parse error: json: cannot unmarshal string", ""},
		{"no YAML", raw("&" + secret + ": [*" + secret + "]]"), "failed to call webhook: it's neither JSON nor YAML", ""},
		{"nothing", raw(""), "failed to call webhook: 0-length response with status code: 200 and content type: application/json", ""},
		{"no review", raw(`{}`), "received invalid webhook response: webhook response was absent", ""},
		{"another kind", raw(`{"apiVersion":"v1","kind":"Pod","response":{"uid":"UID","allowed":true}}`), `no kind "Pod" is registered for version "v1" in scheme`, ""},
		{"another version", raw(`{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","response":{"uid":"UID","allowed":true}}`), "converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): unknown conversion", ""},
		{"no kind", raw(`{"response":{"uid":"UID","allowed":true}}`), "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got /, Kind=", ""},
		{"another uid", raw(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"other","allowed":true}}`), `, got "other"`, ""},
		{"wrong type", raw(`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"UID","allowed":"` + secret + `"}}`), "cannot unmarshal string into Go struct field AdmissionResponse.response.allowed of type bool", ""},
		{"too much", func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) {
			io.WriteString(w, strings.Repeat(secret, 1<<20))
		}, "larger than", ""},
		{"too slow", never, `/hook?timeout=1s": context deadline exceeded`, ""},
		{"redirect", func(w http.ResponseWriter, r *http.Request, _ *admissionv1.AdmissionReview) {
			http.Redirect(w, r, elsewhere.URL+"/elsewhere", http.StatusTemporaryRedirect)
		}, "redirect", ""},
		{"500", func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) {
			http.Error(w, secret, 500)
		}, "an error on the server", ""},
		{"403", func(w http.ResponseWriter, _ *http.Request, _ *admissionv1.AdmissionReview) {
			http.Error(w, secret, http.StatusForbidden)
		}, "the server responded with the status code 403", ""},
		{"cut", func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) { panic(http.ErrAbortHandler) }, `/hook?timeout=30s": EOF`, ""},
		{"patch of a validating one", patch(`[{"op":"remove","path":"/data"}]`), "validating webhook may not return response.patch", "Validating"},
		{"patch without a type", allowed(`,"patch":"W10="`), "response.patch but not response.patchType", "Mutating"},
		{"type without a patch", allowed(`,"patchType":"JSONPatch"`), "response.patchType but not response.patch", "Mutating"},
		{"empty type", allowed(`,"patch":"W10=","patchType":""`), "invalid response.patchType of", "Mutating"},
		{"unknown type", patchAs("Merge", `[{"op":"remove","path":"/data"}]`), `unsupported patch type "Merge"`, "Mutating"},
		{"patch that is none", patch(`{"data":null}`), "received undecodable patch in webhook response", "Mutating"},
	}
	h, s := newHook(t), start(t)
	for i, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			h.on("/hook", test.handler)
			timeout := "timeoutSeconds=30"
			if test.name == "too slow" {
				timeout = "timeoutSeconds=1"
			}
			for _, kind := range []string{"Mutating", "Validating"} {
				if test.kinds != "" && test.kinds != kind {
					continue
				}
				path := configurations + strings.ToLower(kind) + "webhookconfigurations"
				for _, policy := range []string{"Fail", "Ignore"} {
					must(t, s, 201, "POST", path, h.configuration(kind, "misbehaves", "/hook", `failurePolicy="`+policy+`"`, timeout))
					body := fmt.Sprintf(`{"metadata":{"name":"%d-%s-%s"},"data":{"a":"b"}}`, i, strings.ToLower(kind), strings.ToLower(policy))
					res, answer := s.Do("POST", configMaps, body)
					must(t, s, 200, "DELETE", path+"/misbehaves", "")
					if policy == "Ignore" {
						if res.StatusCode != 201 || !strings.Contains(answer, `"a":"b"`) {
							t.Errorf("%s, Ignore: %s %s", kind, res.Status, answer)
						}
						continue
					}
					answer = messageOf(answer)
					if res.StatusCode != 500 || !strings.Contains(answer, `failed calling webhook "misbehaves.example.com"`) || !strings.Contains(answer, test.want) || strings.Contains(answer, secret) {
						t.Errorf("%s, Fail: %s %s; want %q", kind, res.Status, answer, test.want)
					}
				}
			}
		})
	}
	if n := len(elsewhere.requests("/elsewhere")); n > 0 {
		t.Errorf("%d redirects were followed", n)
	}
}

// TestBrokenPatches: what a patch makes of an object is the server's failure, whatever failurePolicy says.
func TestBrokenPatches(t *testing.T) {
	h, s := newHook(t), start(t)
	for _, test := range []struct{ name, patch, want string }{
		{"doesn't apply", `[{"op":"remove","path":"/nothing"}]`, "Unable to remove nonexistent key: nothing"},
		{"unknown operation", `[{"op":"grow","path":"/nothing"}]`, "Internal error occurred: JSON patch: operation 0: op must be"},
		{"another form", `[{"op":"replace","path":"/data","value":[1]}]`, "Internal error occurred: json: cannot unmarshal array into Go struct field ConfigMap.data"},
		{"unknown kind", `[{"op":"replace","path":"/kind","value":"Unknown"}]`, `no kind "Unknown" is registered for version "v1"`},
		{"another kind", `[{"op":"remove","path":"/data"},{"op":"replace","path":"/kind","value":"Secret"}]`, "converting (v1.Secret) to (core.ConfigMap): unknown conversion"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			h.on("/hook", patch(test.patch))
			for _, policy := range []string{"Fail", "Ignore"} {
				must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "breaks", "/hook", `failurePolicy="`+policy+`"`))
				res, answer := s.Do("POST", configMaps, `{"metadata":{"name":"broken"},"data":{"a":"b"}}`)
				must(t, s, 200, "DELETE", mutatingPath+"/breaks", "")
				if res.StatusCode != 500 || !strings.Contains(messageOf(answer), test.want) {
					t.Errorf("%s: %s %s; want %q", policy, res.Status, answer, test.want)
				}
			}
		})
	}
}

// TestSelection: rules, scopes, selectors and match conditions choose requests.
func TestSelection(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/deny", answer(admissionv1.AdmissionResponse{}))
	must(t, s, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"strict","labels":{"strict":"yes"}}}`)
	tests := []struct {
		name, member string
		denied       []string // of the requests below
	}{
		{"all", `timeoutSeconds=5`, []string{"default", "strict", "labelled"}},
		{"namespaces", `namespaceSelector={"matchLabels":{"strict":"yes"}}`, []string{"strict"}},
		{"objects", `objectSelector={"matchLabels":{"a":"b"}}`, []string{"labelled"}},
		{"condition", `matchConditions=[{"name":"c","expression":"object.metadata.name == 'strict' && request.userInfo.username == 'system:admin'"}]`, []string{"strict"}},
		{"authorizer", `matchConditions=[{"name":"c","expression":"!authorizer.group('').resource('configmaps').check('create').allowed()"}]`, nil},
		{"condition fails", `matchConditions=[{"name":"c","expression":"object.nothing == 'x'"}]`, []string{"default", "strict", "labelled"}},
		{"a false condition decides", `matchConditions=[{"name":"a","expression":"object.nothing == 'x'"},{"name":"b","expression":"object.metadata.name == 'strict'"}]`, []string{"strict"}},
		{"operation", `rules=[{"apiGroups":[""],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["*"]}]`, nil},
		{"scope", `rules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*"],"scope":"Cluster"}]`, nil},
		{"subresource", `rules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["*/status"]}]`, nil},
	}
	requests := map[string][2]string{
		"default":  {"default", `{"metadata":{"name":"default"}}`},
		"strict":   {"strict", `{"metadata":{"name":"strict"}}`},
		"labelled": {"default", `{"metadata":{"name":"labelled","labels":{"a":"b"}}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "deny", "/deny", test.member))
			for name, r := range requests {
				want := 201
				for _, d := range test.denied {
					if d == name {
						want = 400
					}
				}
				res, body := s.Do("POST", "/api/v1/namespaces/"+r[0]+"/configmaps?dryRun=All", r[1])
				if res.StatusCode != want && !(want == 400 && res.StatusCode == 403 && strings.Contains(test.member, "object.nothing")) {
					t.Errorf("%s: %s %s, want %d", name, res.Status, body, want)
				}
			}
			must(t, s, 200, "DELETE", validatingPath+"/deny", "")
		})
	}
}

// TestConditionsThatFail: what a client is told of match conditions that can't be evaluated, and that failurePolicy decides
// about them. Conditions that cost too much together are such, though each alone is cheap enough.
func TestConditionsThatFail(t *testing.T) {
	h, s := newHook(t), start(t)
	// By Kubernetes' rules contains costs a hundredth of the product of both lengths: this is 900,000 of at most 1,000,000 for a
	// condition, and of 2,500,000 for all.
	long := `{"metadata":{"name":"a"},"data":{"color":"` + strings.Repeat("a", 100_000) + `"}}`
	costly := "[1,2,3,4,5,6,7,8,9].all(x, !object.data.color.contains('" + strings.Repeat("b", 100) + "'))"
	var all []string
	for i := range 3 {
		all = append(all, fmt.Sprintf(`{"name":"c%d","expression":%q}`, i, costly))
	}
	const nothing = "expression 'object.nothing == 'x'' resulted in error: no such key: nothing"
	for _, test := range []struct{ name, conditions, want string }{
		{"one", `{"name":"c","expression":"object.nothing == 'x'"}`, "is forbidden: " + nothing},
		{"two", `{"name":"c","expression":"object.nothing == 'x'"},{"name":"d","expression":"oldObject.nothing == 'x'"}`, "is forbidden: [" + nothing + ", expression 'oldObject.nothing"},
		{"cheap enough", strings.Join(all[:2], ","), ""},
		{"over the budget", strings.Join(all, ","), "running out of cost budget"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			for _, policy := range []string{"Fail", "Ignore"} {
				must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "c", "/c", "matchConditions=["+test.conditions+"]", "failurePolicy="+strconv.Quote(policy)))
				res, body := s.Do("POST", configMaps+"?dryRun=All", long)
				if fails := policy == "Fail" && test.want != ""; fails != (res.StatusCode == 403) || !fails && res.StatusCode != 201 || fails && !strings.Contains(body, test.want) {
					t.Errorf("%s: %s %s", policy, res.Status, body)
				}
				if n := len(h.requests("/c")); (n == 1) != (test.want == "") {
					t.Errorf("%s: it was asked %d times", policy, n)
				}
				must(t, s, 200, "DELETE", validatingPath+"/c", "")
			}
		})
	}
}

// TestSubresources: what webhooks are shown at subresources.
func TestSubresources(t *testing.T) {
	h, s := newHook(t), start(t)
	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	must(t, s, 201, "POST", deployments, `{"metadata":{"name":"a"},"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	must(t, s, 201, "POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`)
	all := `rules=[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["deployments/scale","pods","pods/eviction"]}]`
	must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "see", "/see", all))
	h.on("/scale", patch(`[{"op":"replace","path":"/spec/replicas","value":7}]`))
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "scale", "/scale", `rules=[{"apiGroups":["apps"],"apiVersions":["v1"],"operations":["UPDATE"],"resources":["*/scale"]}]`))

	must(t, s, 200, "PATCH", deployments+"/a/scale", `{"spec":{"replicas":3}}`, "Content-Type", "application/merge-patch+json")
	got := h.requests("/see")
	if len(got) != 1 || got[0].Kind.Kind != "Scale" || got[0].SubResource != "scale" || !strings.Contains(string(got[0].Object.Raw), `"replicas":7`) || !strings.Contains(string(got[0].OldObject.Raw), `"kind":"Scale"`) {
		t.Errorf("of a scale it was shown %+v", got)
	}
	if spec := must(t, s, 200, "GET", deployments+"/a", "")["spec"].(map[string]any); spec["replicas"] != 7.0 {
		t.Errorf("replicas are %v", spec["replicas"])
	}
	h.requests("/scale")
	must(t, s, 200, "PUT", deployments+"/a/scale", `{"metadata":{"name":"a"},"spec":{"replicas":3},"status":{"replicas":9}}`)
	if got = h.requests("/scale"); len(got) != 1 || !strings.Contains(string(got[0].Object.Raw), `"status":{"replicas":9}`) || strings.Contains(string(got[0].Object.Raw), "resourceVersion") {
		t.Errorf("of a scale that was sent whoever changes it was shown %+v", got)
	}
	if got = h.requests("/see"); len(got) != 1 || !strings.Contains(string(got[0].Object.Raw), `"status":{"replicas":0`) || !strings.Contains(string(got[0].Object.Raw), "resourceVersion") {
		t.Errorf("of a scale that was sent whoever judges it was shown %+v", got)
	}
	must(t, s, 201, "POST", "/api/v1/namespaces/default/pods/p/eviction?dryRun=All", `{"metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":1}}`)
	if got = h.requests("/see"); len(got) != 1 || !strings.Contains(string(got[0].Object.Raw), `"dryRun":["All"]`) {
		t.Errorf("of the dry run of an eviction it was shown %+v", got)
	}
	must(t, s, 400, "POST", "/api/v1/namespaces/default/pods/p/eviction", `{"metadata":{"name":"other"}}`)
	if got = h.requests("/see"); len(got) != 0 {
		t.Errorf("of an eviction that is refused it was shown %+v", got)
	}
	must(t, s, 201, "POST", "/api/v1/namespaces/default/pods/p/eviction", `{"metadata":{"name":"p"}}`)
	got = h.requests("/see")
	if len(got) != 1 || got[0].Kind.Kind != "Eviction" || got[0].Operation != "CREATE" || got[0].SubResource != "eviction" || got[0].Name != "p" {
		t.Errorf("of an eviction it was shown %+v", got)
	}
}

// TestReinvocation: a webhook that others have changed the object after is asked again, once, and webhooks that undo each
// other end.
func TestReinvocation(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/a", patch(`[{"op":"add","path":"/data/color","value":"a"}]`))
	h.on("/b", patch(`[{"op":"add","path":"/data/color","value":"b"}]`))
	must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "both",
		h.webhook("a.example.com", "/a", `reinvocationPolicy="IfNeeded"`), h.webhook("b.example.com", "/b", `reinvocationPolicy="IfNeeded"`)))
	must(t, s, 201, "POST", configMaps, anyConfigMapBody)
	if a, b := len(h.requests("/a")), len(h.requests("/b")); a != 2 || b != 2 {
		t.Errorf("they were asked %d and %d times, want 2 and 2", a, b)
	}
	if got := must(t, s, 200, "GET", configMaps+"/a", "")["data"].(map[string]any)["color"]; got != "b" {
		t.Errorf("the color is %v", got)
	}
}

// TestReinvocationAcrossWrites: a webhook is asked again also if its configuration was written between the rounds.
func TestReinvocationAcrossWrites(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/a", patch(`[{"op":"add","path":"/data/color","value":"a"}]`))
	change := patch(`[{"op":"add","path":"/data/color","value":"b"}]`)
	h.on("/b", func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview) {
		must(t, s, 200, "PATCH", mutatingPath+"/both", `{"metadata":{"labels":{"written":"again"}}}`, "Content-Type", "application/merge-patch+json")
		change(w, r, review)
	})
	must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "both",
		h.webhook("a.example.com", "/a", `reinvocationPolicy="IfNeeded"`), h.webhook("b.example.com", "/b")))
	must(t, s, 201, "POST", configMaps, anyConfigMapBody)
	if a, b := len(h.requests("/a")), len(h.requests("/b")); a != 2 || b != 1 {
		t.Errorf("they were asked %d and %d times, want 2 and 1", a, b)
	}
}

// TestRepeatedOwners: an owner that a webhook adds twice is stored once, and the client is warned.
func TestRepeatedOwners(t *testing.T) {
	h, s := newHook(t), start(t)
	owner := `{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u1"}`
	h.on("/a", patch(`[{"op":"add","path":"/metadata/ownerReferences","value":[`+owner+`,`+owner+`]}]`))
	must(t, s, 201, "POST", mutatingPath, configurationOf("Mutating", "owners", h.webhook("a.example.com", "/a")))
	res, answer := s.Do("POST", configMaps, anyConfigMapBody, "Content-Type", "application/json")
	if res.StatusCode != http.StatusCreated || strings.Count(answer, `"uid":"u1"`) != 1 || !strings.Contains(res.Header.Get("Warning"), "ownerReferences") {
		t.Errorf("%s %q: %s", res.Status, res.Header.Get("Warning"), answer)
	}
}

// BenchmarkNoMatch: what 100 configurations cost a write that concerns none of them; compare with none.
func BenchmarkNoMatch(b *testing.B) {
	for _, n := range []int{0, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h, s := newHook(b), start(b)
			for i := range n {
				must(b, s, 201, "POST", validatingPath, h.configuration("Validating", fmt.Sprintf("no-%d", i), "/no", `rules=[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["*"],"resources":["nothing"]}]`))
			}
			must(b, s, 201, "POST", configMaps, anyConfigMapBody)
			for i := 0; b.Loop(); i++ {
				must(b, s, 200, "PATCH", configMaps+"/a?dryRun=All", fmt.Sprintf(`{"data":{"i":"%d"}}`, i), "Content-Type", "application/merge-patch+json")
			}
		})
	}
}
