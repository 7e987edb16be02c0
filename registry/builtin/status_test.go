package builtin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const statusOf = "application/merge-patch+json"

// TestWorkloadStatuses reports what can't be of what runs pods. What is said of it is what upstream's Validate…StatusUpdate say.
func TestWorkloadStatuses(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const selected = `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}`
	for _, test := range []struct {
		path, first, status, wrong string // first is a status before; "" for none
	}{
		{"apis/apps/v1 deployments", "", `"replicas":-1`, `[status.replicas: Invalid value: -1: must be greater than or equal to 0, status.updatedReplicas: Invalid value: 0: cannot be greater than status.replicas, status.readyReplicas: Invalid value: 0: cannot be greater than status.replicas, status.availableReplicas: Invalid value: 0: cannot be greater than status.replicas]`},
		{"apis/apps/v1 deployments", "", `"replicas":1,"readyReplicas":2`, `status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas`},
		{"apis/apps/v1 deployments", "", `"replicas":1,"availableReplicas":1`, `status.availableReplicas: Invalid value: 1: cannot be greater than readyReplicas`},
		{"apis/apps/v1 deployments", `"collisionCount":2`, `"collisionCount":1`, `status.collisionCount: Invalid value: 1: cannot be decremented`},
		{"apis/apps/v1 deployments", `"collisionCount":2`, `"collisionCount":null`, `status.collisionCount: Invalid value: 0: cannot be decremented`},
		{"apis/apps/v1 replicasets", "", `"replicas":1,"fullyLabeledReplicas":2`, `status.fullyLabeledReplicas: Invalid value: 2: cannot be greater than status.replicas`},
		{"apis/apps/v1 statefulsets", "", `"replicas":1,"availableReplicas":1`, `status.availableReplicas: Invalid value: 1: cannot be greater than status.readyReplicas`},
		{"apis/apps/v1 statefulsets", "", `"replicas":1,"currentReplicas":2`, `status.currentReplicas: Invalid value: 2: cannot be greater than status.replicas`},
		{"apis/apps/v1 daemonsets", "", `"numberReady":-1`, `status.numberReady: Invalid value: -1: must be greater than or equal to 0`},
		{"api/v1 replicationcontrollers", "", `"replicas":1,"readyReplicas":2`, `status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas`},
	} {
		t.Run(test.path+" "+test.status, func(t *testing.T) {
			version, plural, _ := strings.Cut(test.path, " ")
			path := "/" + version + "/namespaces/default/" + plural
			spec := selected
			if plural == "replicationcontrollers" {
				spec = strings.Replace(selected, `{"matchLabels":{"a":"b"}}`, `{"a":"b"}`, 1)
			}
			must(t, s, http.MethodPost, path, `{"metadata":{"name":"w"},`+spec+`}`, http.StatusCreated)
			if test.first != "" {
				must(t, s, http.MethodPatch, path+"/w/status", `{"status":{`+test.first+`}}`, http.StatusOK, "Content-Type", statusOf)
			}
			text := must(t, s, http.MethodPatch, path+"/w/status", `{"status":{`+test.status+`}}`, http.StatusUnprocessableEntity, "Content-Type", statusOf)
			if _, message, _ := strings.Cut(str(parse(t, text)["message"]), ` "w" is invalid: `); message != test.wrong {
				t.Errorf("%s, want\n%s", message, test.wrong)
			}
			must(t, s, http.MethodDelete, path+"/w?propagationPolicy=Background", "", http.StatusOK)
		})
	}
}

// TestJobStatuses reports statuses of Jobs one after another. What is refused is what upstream's ValidateJobUpdateStatus refuses.
func TestJobStatuses(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	const began, ended = `"startTime":"2026-01-01T00:00:00Z"`, `"completionTime":"2026-01-01T00:01:00Z"`
	conditions := func(types ...string) string {
		var all []string
		for _, name := range types {
			all = append(all, `{"type":"`+name+`","status":"True"}`)
		}
		return `"conditions":[` + strings.Join(all, ",") + `]`
	}
	complete := began + "," + ended + "," + conditions("SuccessCriteriaMet", "Complete")
	for _, test := range []struct{ name, spec, first, status, wrong string }{
		{"negative", "", "", `"active":-1`, `status.active: Invalid value: -1: must be greater than or equal to 0`},
		{"more ready than active", "", "", `"active":1,"ready":2`, `status.ready: Invalid value: 2: cannot set more ready pods than active`},
		{"a pod twice", "", "", `"uncountedTerminatedPods":{"succeeded":["a"],"failed":["a",""]}`, `[status.uncountedTerminatedPods.failed[0]: Duplicate value: "a", status.uncountedTerminatedPods.failed[1]: Invalid value: "": must not be empty]`},
		{"complete", "", "", complete, ""},
		{"complete without criteria", "", "", began + "," + ended + "," + conditions("Complete"), `status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true condition`},
		{"complete without times", "", "", conditions("SuccessCriteriaMet", "Complete"), `[status.completionTime: Required value: completionTime is required for Complete jobs, status.startTime: Required value: startTime is required for finished job]`},
		{"complete before it began", "", "", `"startTime":"2026-01-01T00:02:00Z",` + ended + "," + conditions("SuccessCriteriaMet", "Complete"), "status.completionTime: Invalid value: \"2026-01-01T00:01:00Z\": must be equal to or after `startTime`"},
		{"a time without an end", "", "", began + "," + ended, `status.completionTime: Invalid value: "2026-01-01T00:01:00Z": cannot set completionTime when there is no Complete=True condition`},
		{"complete and active", "", "", complete + `,"active":1`, `status.active: Invalid value: 1: active>0 is invalid for finished job`},
		{"complete and terminating", "", "", complete + `,"terminating":1`, `status.terminating: Invalid value: 1: terminating>0 is invalid for finished job`},
		{"failed", "", "", began + "," + conditions("FailureTarget", "Failed"), ""},
		{"failed without a target", "", "", began + "," + conditions("Failed"), `status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition`},
		{"both", "", "", began + "," + ended + "," + conditions("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"),
			`[status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions, status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions, ` +
				`status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions, status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions]`},
		{"again", "", complete, `"conditions":[],"completionTime":null`, `[status.conditions: Invalid value: cannot disable the terminal Complete=True condition, status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition]`},
		{"another end", "", complete, `"completionTime":"2026-01-01T00:03:00Z"`, `status.completionTime: Invalid value: "2026-01-01T00:03:00Z": field is immutable`},
		{"another start", "", began, `"startTime":"2026-01-02T00:00:00Z"`, `status.startTime: Invalid value: "2026-01-02T00:00:00Z": field is immutable for unsuspended job once set`},
		{"another start of one that waits", `"suspend":true,`, began, `"startTime":null`, ""},
		{"fewer", "", `"succeeded":2,"failed":2`, `"succeeded":1,"failed":1`, `[status.failed: Invalid value: 1: cannot decrease the failed counter, status.succeeded: Invalid value: 1: cannot decrease the succeeded counter]`},
		{"fewer of what scales", `"completionMode":"Indexed","completions":3,"parallelism":3,`, `"succeeded":2`, `"succeeded":1`, ""},
		{"indexes of one without", "", "", `"completedIndexes":"0"`, `status.completedIndexes: Invalid value: "0": cannot set non-empty completedIndexes when non-indexed completion mode`},
		{"an index too large", `"completionMode":"Indexed","completions":3,`, "", `"completedIndexes":"0,3"`, `status.completedIndexes: Invalid value: "0,3": error parsing completedIndexes: too large index: "3"`},
		{"an index that isn't counted", `"completionMode":"Indexed","completions":3,`, "", `"failedIndexes":"0"`, `status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null`},
		{"an index on both sides", `"completionMode":"Indexed","completions":9,"backoffLimitPerIndex":1,`, "", `"completedIndexes":"0,2-5","failedIndexes":"1,4-6"`, `status.failedIndexes: Invalid value: "1,4-6": failedIndexes and completedIndexes overlap at index: 4`},
	} {
		t.Run(test.name, func(t *testing.T) {
			must(t, s, http.MethodPost, jobs, `{"metadata":{"name":"j"},"spec":{`+test.spec+`"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`, http.StatusCreated)
			if test.first != "" {
				must(t, s, http.MethodPatch, jobs+"/j/status", `{"status":{`+test.first+`}}`, http.StatusOK, "Content-Type", statusOf)
			}
			code := http.StatusUnprocessableEntity
			if test.wrong == "" {
				code = http.StatusOK
			}
			text := must(t, s, http.MethodPatch, jobs+"/j/status", `{"status":{`+test.status+`}}`, code, "Content-Type", statusOf)
			if message := str(parse(t, text)["message"]); test.wrong != "" && message != `Job.batch "j" is invalid: `+test.wrong {
				t.Errorf("%s, want\n%s", message, test.wrong)
			}
			must(t, s, http.MethodDelete, jobs+"/j?propagationPolicy=Background", "", http.StatusOK)
		})
	}
}

// TestPodStatuses reports what can't be of pods. What is said of it is what upstream's ValidatePodStatusUpdate says.
func TestPodStatuses(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const pods = "/api/v1/namespaces/default/pods"
	terminated := func(list, name, code string) string {
		return `"` + list + `":[{"name":"` + name + `","state":{"terminated":{"exitCode":` + code + `}}}]`
	}
	for _, test := range []struct{ name, spec, first, status, wrong string }{
		{"conditions", "", "", `"conditions":[{"type":"a b","status":"True","observedGeneration":-1}]`, `[status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer, ` +
			`status.conditions[0].Type: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')]`},
		{"runs again", `"restartPolicy":"Never",`, terminated("containerStatuses", "c", "0"), `"containerStatuses":[{"name":"c","state":{"running":{}}}]`, `status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`},
		{"runs again after an error", `"restartPolicy":"OnFailure",`, terminated("containerStatuses", "c", "1"), `"containerStatuses":[{"name":"c","state":{"running":{}}}]`, ""},
		{"begins again", `"restartPolicy":"Never",`, terminated("initContainerStatuses", "i", "0"), `"initContainerStatuses":[{"name":"i","state":{"running":{}}}]`, `status.initContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`},
		{"is looked at again", "", terminated("ephemeralContainerStatuses", "e", "0"), `"ephemeralContainerStatuses":[{"name":"e","state":{"running":{}}}]`, `status.ephemeralContainerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state`},
		{"two addresses of one family", "", "", `"podIPs":[{"ip":"10.1.1.1"},{"ip":"10.1.1.2"}]`, `status.podIPs: Invalid value: [{"IP":"10.1.1.1"},{"IP":"10.1.1.2"}]: may specify no more than one IP for each IP family`},
		{"claims", "", "", `"resourceClaimStatuses":[{"name":"x","resourceClaimName":"a b"}]`, "[status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in `spec.resourceClaims`, " +
			`status.resourceClaimStatuses[0].resourceClaimName: Invalid value: "a b": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')]`},
		{"nothing mapped", "", "", `"extendedResourceClaimStatus":{"resourceClaimName":"a","requestMappings":[]}`, `status.extendedResourceClaimStatus.requestMappings: Required value: at least one request mapping is required`},
		{"user", "", "", `"containerStatuses":[{"name":"c","user":{"linux":{"uid":-1,"gid":1}}}]`, `status.containerStatuses[0].user.linux.uid: Invalid value: -1: must be between 0 and 4294967295, inclusive`},
		{"allocated", "", "", `"containerStatuses":[{"name":"c","allocatedResourcesStatus":[{"name":"example.com/x"}]}]`, `status.containerStatuses[0].allocatedResourcesStatus[0].name: Invalid value: "example.com/x": must match one of the container's resource requests`},
		{"health", "", "", `"containerStatuses":[{"name":"d","allocatedResourcesStatus":[{"name":"example.com/x","resources":[{"resourceID":"r","health":"Fine"}]}]}]`, `status.containerStatuses[0].allocatedResourcesStatus[0].resources[0].health: Unsupported value: "Fine": supported values: "Healthy", "Unhealthy", "Unknown"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p"},"spec":{`+test.spec+`"initContainers":[{"name":"i","image":"i"}],"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
			if test.first != "" {
				must(t, s, http.MethodPatch, pods+"/p/status", `{"status":{`+test.first+`}}`, http.StatusOK, "Content-Type", statusOf)
			}
			code := http.StatusUnprocessableEntity
			if test.wrong == "" {
				code = http.StatusOK
			}
			text := must(t, s, http.MethodPatch, pods+"/p/status", `{"status":{`+test.status+`}}`, code, "Content-Type", statusOf)
			if message := str(parse(t, text)["message"]); test.wrong != "" && message != `Pod "p" is invalid: `+test.wrong {
				t.Errorf("%s, want\n%s", message, test.wrong)
			}
			must(t, s, http.MethodDelete, pods+"/p", "", http.StatusOK)
		})
	}
}

// TestReportedIsKept: a client that doesn't know of a field doesn't take it away, and a pod's addresses are in both of their fields.
func TestReportedIsKept(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const pods = "/api/v1/namespaces/default/pods"
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p"},"spec":{"resourceClaims":[{"name":"r","resourceClaimName":"x"}],"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	for _, test := range []struct{ status, has string }{
		{`{"podIP":"10.1.1.1"}`, `"podIPs":[{"ip":"10.1.1.1"}]`},
		{`{"podIP":"10.1.1.2"}`, `"podIPs":[{"ip":"10.1.1.2"}]`},
		{`{"podIP":null,"podIPs":[{"ip":"10.1.1.3"}]}`, `"podIP":"10.1.1.3"`},
		{`{"resourceClaimStatuses":[{"name":"r","resourceClaimName":"x"}]}`, `"resourceClaimStatuses":[{`},
		{`{"resourceClaimStatuses":null,"volumeHealth":[{"name":"v"}]}`, `"resourceClaimStatuses":[{`},
	} {
		text := must(t, s, http.MethodPatch, pods+"/p/status", `{"status":`+test.status+`}`, http.StatusOK, "Content-Type", statusOf)
		if !strings.Contains(text, test.has) || strings.Contains(text, "volumeHealth") {
			t.Errorf("%s: %s, want %s, and nothing that a gate guards", test.status, text, test.has)
		}
	}
	must(t, s, http.MethodPatch, pods+"/p/status", `{"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"True","observedGeneration":1}]}}`, http.StatusOK, "Content-Type", statusOf)
	after := must(t, s, http.MethodPatch, pods+"/p/status", `{"status":{"observedGeneration":0,"conditions":[{"type":"Ready","status":"False"}]}}`, http.StatusOK, "Content-Type", statusOf)
	if strings.Count(after, `"observedGeneration":1`) != 2 {
		t.Errorf("generations are lost: %s", after)
	}
}

// TestBalancerStatus: a Service has the status of a load balancer as long as it is one, and no other one can be given it.
func TestBalancerStatus(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const services, given = "/api/v1/namespaces/default/services", `{"status":{"loadBalancer":{"ingress":[{"ip":"1.2.3.4"}]}}}`
	must(t, s, http.MethodPost, services, `{"metadata":{"name":"a"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`, http.StatusCreated)
	must(t, s, http.MethodPatch, services+"/a/status", given, http.StatusOK, "Content-Type", statusOf)
	if text := must(t, s, http.MethodPatch, services+"/a", `{"spec":{"type":"NodePort"}}`, http.StatusOK, "Content-Type", statusOf); strings.Contains(text, "1.2.3.4") {
		t.Errorf("a Service that is no load balancer any more is %s", text)
	}
	const want = "status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"
	if text := must(t, s, http.MethodPatch, services+"/a/status", given, http.StatusUnprocessableEntity, "Content-Type", statusOf); !strings.Contains(text, want) {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestStatusWarnings reports addresses that are valid, and written in an unusual way.
func TestStatusWarnings(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const long = "2001:db8:0:0::1"
	for _, test := range []struct{ plural, spec, status, at string }{
		{"pods", `"containers":[{"name":"c","image":"i"}]`, `"podIP":"` + long + `"`, "status.podIPs[0].ip"},
		{"services", `"type":"LoadBalancer","ports":[{"port":80}]`, `"loadBalancer":{"ingress":[{"ip":"` + long + `"}]}`, "status.loadBalancer.ingress[0]"},
	} {
		path := "/api/v1/namespaces/default/" + test.plural
		must(t, s, http.MethodPost, path, `{"metadata":{"name":"a"},"spec":{`+test.spec+`}}`, http.StatusCreated)
		res, text := s.Do(http.MethodPatch, path+"/a/status", `{"status":{`+test.status+`}}`, "Content-Type", statusOf)
		if warning := res.Header.Get("Warning"); res.StatusCode != http.StatusOK || !strings.Contains(warning, test.at+`: IPv6 address \"`+long+`\" should be in RFC 5952 canonical format (\"2001:db8::1\")`) {
			t.Errorf("%d %s: warning %s", res.StatusCode, text, warning)
		}
	}
}
