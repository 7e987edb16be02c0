package builtin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestPodRules sends one mistake at a time. What is said of it is what kube-apiserver 1.37.2 said.
func TestPodRules(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	for _, test := range []struct{ spec, wrong string }{
		{`"containers":[{"name":"c","image":"i","volumeMounts":[{"name":"none","mountPath":"/m"}]}]`, `spec.containers[0].volumeMounts[0].name: Not found: "none"`},
		{`"volumes":[{"name":"v","emptyDir":{},"hostPath":{"path":"/h"}}]`, `spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type`},
		{`"volumes":[{"name":"v","configMap":{"name":"c","defaultMode":-1}}]`, `spec.volumes[0].configMap.defaultMode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive`},
		{`"volumes":[{"name":"v","secret":{"items":[{"key":"k","path":"../p"}]}}]`, `[spec.volumes[0].secret.secretName: Required value, spec.volumes[0].secret.items[0].path: Invalid value: "../p": must not contain '..']`},
		{`"ephemeralContainers":[{"name":"e","image":"i"}]`, `spec.ephemeralContainers: Forbidden: cannot be set on create`},
		{`"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}}}]`, `spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`},
		{`"containers":[{"name":"c","image":"i","resources":{"requests":{"gpu":"2"}}}]`, `[spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified, spec.containers[0].resources.requests[gpu]: Invalid value: "gpu": must be a standard resource for containers]`},
		{`"containers":[{"name":"c","image":"i","resources":{"requests":{"example.com/gpu":"2"}}}]`, `spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources`},
		{`"os":{"name":"windows"},"securityContext":{"runAsUser":1}`, `spec.securityContext.runAsUser: Forbidden: cannot be set for a windows pod`},
		{`"activeDeadlineSeconds":0`, `spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive`},
		{`"securityContext":{"runAsUser":-1}`, `spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive`},
		{`"securityContext":{"fsGroupChangePolicy":"x"}`, `spec.securityContext.fsGroupChangePolicy: Unsupported value: "x": supported values: "Always", "OnRootMismatch"`},
		{`"securityContext":{"seccompProfile":{"type":"x"}}`, `spec.securityContext.seccompProfile.type: Unsupported value: "x": supported values: "Localhost", "RuntimeDefault", "Unconfined"`},
		{`"securityContext":{"sysctls":[{"name":"a","value":"b"},{"name":"a","value":"b"}]}`, `spec.securityContext.sysctls[1].name: Duplicate value: "a"`},
		{`"tolerations":[{"key":"a","operator":"Be"}]`, `spec.tolerations[0].operator: Unsupported value: "Be": supported values: "Equal", "Exists"`},
		{`"tolerations":[{"key":"a","effect":"NoSchedule","tolerationSeconds":1}]`, `spec.tolerations[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when ` + "`tolerationSeconds`" + ` is set`},
		{`"topologySpreadConstraints":[{"maxSkew":0,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}]`, `spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero`},
		{`"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[]}}}`, `spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term`},
		{`"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":101,"podAffinityTerm":{"topologyKey":"z"}}]}}`, `spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100`},
		{`"dnsPolicy":"None"`, `spec.dnsConfig: Required value: must provide ` + "`dnsConfig` when `dnsPolicy`" + ` is None`},
		{`"hostAliases":[{"ip":"x"}]`, `spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`},
		{`"containers":[{"name":"c","image":"i","livenessProbe":{}}]`, `spec.containers[0].livenessProbe: Required value: must specify a handler type`},
		{`"containers":[{"name":"c","image":"i","livenessProbe":{"tcpSocket":{"port":1},"successThreshold":2}}]`, `spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1`},
		{`"containers":[{"name":"c","image":"i","env":[{"name":"E","valueFrom":{}}]}]`, `spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: ` + "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"},
		{`"initContainers":[{"name":"i","image":"i","readinessProbe":{"tcpSocket":{"port":1}}}]`, `spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always`},
		{`"containers":[{"name":"c","image":"i","ports":[{"containerPort":1,"hostPort":9}]},{"name":"d","image":"i","ports":[{"containerPort":2,"hostPort":9}]}]`, `spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//9"`},
		{`"nodeName":"n","schedulingGates":[{"name":"a"}]`, `spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared`},
		{`"securityContext":{"windowsOptions":{"gmsaCredentialSpecName":"A","gmsaCredentialSpec":""}}`, `[spec.securityContext.windowsOptions.gmsaCredentialSpecName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), spec.securityContext.windowsOptions.gmsaCredentialSpec: Invalid value: "": gmsaCredentialSpec cannot be an empty string]`},
		{`"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"runAsUserName":"a\\b\\c"}}}]`, `spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "a\\b\\c": runAsUserName cannot contain more than one backslash`},
		{`"containers":[{"name":"c","image":"i","securityContext":{"windowsOptions":{"runAsUserName":"..\\a*b"}}}]`, `[spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "..\\a*b": runAsUserName's Domain doesn't match the NetBios nor the DNS format, spec.containers[0].securityContext.windowsOptions.runAsUserName: Invalid value: "..\\a*b": runAsUserName's User cannot contain the following characters: "/\:;|=,+*?<>@[]]`},
		{`"containers":[{"name":"c","image":" i"}]`, `spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace`},
	} {
		spec := test.spec
		if !strings.Contains(spec, `"containers"`) {
			spec += `,"containers":[{"name":"c","image":"i"}]`
		}
		status := parse(t, must(t, s, http.MethodPost, "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{`+spec+`}}`, http.StatusUnprocessableEntity))
		if want := `Pod "p" is invalid: ` + test.wrong; status["message"] != want {
			t.Errorf("%s:\n%v, want\n%s", test.spec, status["message"], want)
		}
	}
}

// TestPodChanges changes what a pod's paths don't let change.
func TestPodChanges(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const merge = "application/merge-patch+json"
	const path = "/api/v1/namespaces/default/pods"
	must(t, s, http.MethodPost, path, `{"metadata":{"name":"p"},"spec":{"activeDeadlineSeconds":10,"tolerations":[{"key":"a","operator":"Exists"}],"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}`, http.StatusCreated)
	for _, test := range []struct{ path, patch, wrong string }{
		{"", `{"spec":{"restartPolicy":"Never"}}`, "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n" +
			"@@ -37,7 +37,7 @@\n   }\n  ],\n  \"EphemeralContainers\": null,\n- \"RestartPolicy\": \"Always\",\n+ \"RestartPolicy\": \"Never\",\n" +
			"  \"TerminationGracePeriodSeconds\": 30,\n  \"ActiveDeadlineSeconds\": 10,\n  \"DNSPolicy\": \"ClusterFirst\",\n"},
		{"", `{"spec":{"activeDeadlineSeconds":11}}`, "spec.activeDeadlineSeconds: Invalid value: 11: must be less than or equal to previous value"},
		{"", `{"spec":{"activeDeadlineSeconds":null}}`, "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"},
		{"", `{"spec":{"tolerations":[]}}`, "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"},
		{"", `{"spec":{"schedulingGates":[{"name":"g"}]}}`, "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"},
		{"", `{"spec":{"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}`, "spec.containers: Forbidden: pod updates may not add or remove containers"},
		{"/status", `{"status":{"qosClass":"Guaranteed"}}`, `status.qosClass: Invalid value: "Guaranteed": field is immutable`},
		{"/status", `{"status":{"hostIP":"10.1.1.1","hostIPs":[{"ip":"10.1.1.2"}]}}`, `status.hostIPs[0].ip: Invalid value: "10.1.1.2": must be equal to ` + "`hostIP`"},
		{"/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"none"}]}}`, `spec.ephemeralContainers[0].targetContainerName: Not found: "none"`},
		{"/ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","ports":[{"containerPort":1}]}]}}`, `spec.ephemeralContainers[0].ports: Forbidden: cannot be set for an Ephemeral Container`},
		{"/resize", `{"spec":{"containers":[{"name":"c","resources":{"limits":{"cpu":"1","memory":"1"},"requests":{"cpu":"1","memory":"1"}}}]}}`, `spec: Invalid value: "Burstable": Pod QOS Class may not change as a result of resizing`},
	} {
		status := parse(t, must(t, s, http.MethodPatch, path+"/p"+test.path, test.patch, http.StatusUnprocessableEntity, "Content-Type", merge))
		if message := str(status["message"]); message != `Pod "p" is invalid: `+test.wrong {
			t.Errorf("%s %s:\n%v, want\n%s", test.path, test.patch, message, test.wrong)
		}
	}
	for _, allowed := range []string{`{"spec":{"activeDeadlineSeconds":9}}`, `{"spec":{"containers":[{"name":"c","image":"j","imagePullPolicy":"Always","resources":{"requests":{"cpu":"1"}}}]}}`, `{"metadata":{"labels":{"a":"b"}}}`} {
		code, text := do(s, http.MethodPatch, path+"/p", allowed, "Content-Type", merge)
		if code != http.StatusOK && !strings.Contains(text, "terminationMessage") {
			t.Errorf("%s: %d %s", allowed, code, text)
		}
	}
}

// TestWorkloadRules sends one mistake at a time to what runs pods.
func TestWorkloadRules(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const selected = `"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate
	const once = `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}`
	for _, test := range []struct{ path, body, wrong string }{
		{"apps/v1 deployments", `"spec":{` + selected + `,"strategy":{"rollingUpdate":{"maxSurge":0,"maxUnavailable":0}}}`, "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0"},
		{"apps/v1 deployments", `"spec":{` + selected + `,"strategy":{"type":"Recreate","rollingUpdate":{"maxSurge":1}}}`, "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'"},
		{"apps/v1 deployments", `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"activeDeadlineSeconds":1,"containers":[{"name":"c","image":"i"}]}}}`, "spec.template.spec.activeDeadlineSeconds: Forbidden: activeDeadlineSeconds in ReplicaSet is not Supported"},
		{"apps/v1 daemonsets", `"spec":{` + selected + `,"updateStrategy":{"rollingUpdate":{"maxSurge":1,"maxUnavailable":1}}}`, "spec.updateStrategy.rollingUpdate.maxSurge: Invalid value: 1: may not be set when maxUnavailable is non-zero"},
		{"apps/v1 statefulsets", `"spec":{` + selected + `,"updateStrategy":{"rollingUpdate":{"maxUnavailable":"0%"},"type":"RollingUpdate"}}`, `spec.updateStrategy.rollingUpdate.maxUnavailable: Invalid value: "0%": cannot be 0`},
		{"apps/v1 controllerrevisions", `"revision":1`, "data: Required value: data is mandatory"},
		{"batch/v1 jobs", `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`, "`selector` not auto-generated"},
		{"batch/v1 jobs", `"spec":{"completionMode":"Be",` + once + `}`, `spec.completionMode: Unsupported value: "Be": supported values: "NonIndexed", "Indexed"`},
		{"batch/v1 jobs", `"spec":{"maxFailedIndexes":1,"backoffLimitPerIndex":1,` + once + `}`, "requires indexed completion mode"},
		{"batch/v1 jobs", `"spec":{"completionMode":"Indexed","completions":2,"successPolicy":{"rules":[{"succeededIndexes":"0-2"}]},` + once + `}`, `spec.successPolicy.rules[0].succeededIndexes: Invalid value: "0-2": error parsing succeededIndexes: too large index: "2"`},
		{"batch/v1 cronjobs", `"spec":{"schedule":"5 4 * * 1x","jobTemplate":{"spec":{` + once + `}}}`, `spec.schedule: Invalid value: "5 4 * * 1x": failed to parse int from 1x: strconv.Atoi: parsing "1x": invalid syntax`},
		{"batch/v1 cronjobs", `"spec":{"schedule":"61 * * * *","jobTemplate":{"spec":{` + once + `}}}`, `end of range (61) above maximum (59): 61`},
		{"batch/v1 cronjobs", `"spec":{"schedule":"TZ=UTC * * * * *","jobTemplate":{"spec":{` + once + `}}}`, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"},
		{"batch/v1 cronjobs", `"spec":{"schedule":"@daily","jobTemplate":{"spec":{"manualSelector":true,` + once + `}}}`, `spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"`},
	} {
		group, plural, _ := strings.Cut(test.path, " ")
		text := must(t, s, http.MethodPost, "/apis/"+group+"/namespaces/default/"+plural, `{"metadata":{"name":"w"},`+test.body+`}`, http.StatusUnprocessableEntity)
		if message := str(parse(t, text)["message"]); !strings.HasSuffix(strings.TrimSuffix(message, "]"), test.wrong) {
			t.Errorf("%s %s:\n%s, want\n%s", test.path, test.body, message, test.wrong)
		}
	}

	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	for _, test := range []struct {
		name, spec, patch string
		code              int
	}{
		{"runs", once, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"j"}]}}}}`, http.StatusUnprocessableEntity},
		{"waits", `"suspend":true,` + once, `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, http.StatusOK},
		{"counts", once, `{"spec":{"completions":2}}`, http.StatusUnprocessableEntity},
	} {
		must(t, s, http.MethodPost, jobs, `{"metadata":{"name":"`+test.name+`"},"spec":{`+test.spec+`}}`, http.StatusCreated)
		must(t, s, http.MethodPatch, jobs+"/"+test.name, test.patch, test.code, "Content-Type", "application/merge-patch+json")
	}
}
