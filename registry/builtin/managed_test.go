package builtin_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	applied = "application/apply-patch+yaml"
	merged  = "application/merge-patch+json"
)

// managedSteps are requests, one after the other, and what kube-apiserver 1.37.2 answered to them: the message of a refusal, or
// who owns what of the object.
var managedSteps = []struct {
	name, method, path, media string
	body                      string
	code                      int
	want                      string
}{
	{"Deployment: what defaults set is owned", "POST", "/apis/apps/v1/namespaces/default/deployments?fieldManager=probe", "",
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i","ports":[{"containerPort":80}]}]}}}}`, 201,
		`probe Update apps/v1 {"f:spec":{"f:progressDeadlineSeconds":{},"f:replicas":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}`},
	{"Deployment: and in the way of an apply", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=other", applied,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"replicas":3}}`, 409,
		`Apply failed with 1 conflict: conflict with "probe" using apps/v1: .spec.replicas`},
	{"Deployment: scale", "PUT", "/apis/apps/v1/namespaces/default/deployments/d/scale?fieldManager=scaler", "",
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"default"},"spec":{"replicas":5}}`, 200,
		""},
	{"Deployment: scaled", "GET", "/apis/apps/v1/namespaces/default/deployments/d", "",
		"", 200,
		`probe Update apps/v1 {"f:spec":{"f:progressDeadlineSeconds":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}
scaler Update apps/v1 scale without a time {"f:spec":{"f:replicas":{}}}`},
	{"Deployment: scale applied", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale?fieldManager=applier", applied,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"default"},"spec":{"replicas":7}}`, 409,
		`Apply failed with 1 conflict: conflict with "scaler" with subresource "scale" using autoscaling/v1: .spec.replicas`},
	{"Deployment: scale forced", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale?fieldManager=applier&force=true", applied,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"default"},"spec":{"replicas":7}}`, 200,
		""},
	{"Deployment: scale was forced", "GET", "/apis/apps/v1/namespaces/default/deployments/d", "",
		"", 200,
		`applier Apply apps/v1 scale without a time {"f:spec":{"f:replicas":{}}}
probe Update apps/v1 {"f:spec":{"f:progressDeadlineSeconds":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}`},
	{"Deployment: scale applied with an unknown field", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale?fieldManager=applier", applied,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"default"},"spec":{"replicas":7,"size":"L"}}`, 500,
		`failed to create typed patch object (default/d; autoscaling/v1, Kind=Scale): .spec.size: field not declared in schema`},
	{"Deployment: scale given up", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d/scale?fieldManager=applier", applied,
		`{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"d","namespace":"default"},"spec":{}}`, 200,
		""},
	{"Deployment: scale was given up", "GET", "/apis/apps/v1/namespaces/default/deployments/d", "",
		"", 200,
		`applier Apply apps/v1 scale without a time {"f:spec":{"f:replicas":{}}}
probe Update apps/v1 {"f:spec":{"f:progressDeadlineSeconds":{},"f:revisionHistoryLimit":{},"f:selector":{},"f:strategy":{"f:rollingUpdate":{".":{},"f:maxSurge":{},"f:maxUnavailable":{}},"f:type":{}},"f:template":{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:ports":{".":{},"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{},"f:protocol":{}}},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}}}`},
	{"Deployment: unknown field", "PATCH", "/apis/apps/v1/namespaces/default/deployments/d?fieldManager=applier", applied,
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"size":"L"}}`, 500,
		`failed to create typed patch object (/d; apps/v1, Kind=Deployment): .spec.size: field not declared in schema`},
	{"Secret: stringData becomes data", "POST", "/api/v1/namespaces/default/secrets?fieldManager=probe", "",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"a":"x"}}`, 201,
		`probe Update v1 {"f:data":{".":{},"f:a":{}},"f:type":{}}`},
	{"Secret: which is in the way", "PATCH", "/api/v1/namespaces/default/secrets/s?fieldManager=other", applied,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"data":{"a":"Mg=="}}`, 409,
		`Apply failed with 1 conflict: conflict with "probe" using v1: .data.a`},
	{"Service: defaults", "POST", "/api/v1/namespaces/default/services?fieldManager=probe", "",
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"ports":[{"port":80}],"selector":{"a":"b"}}}`, 201,
		`probe Update v1 {"f:spec":{"f:internalTrafficPolicy":{},"f:ports":{".":{},"k:{\"port\":80,\"protocol\":\"TCP\"}":{".":{},"f:port":{},"f:protocol":{},"f:targetPort":{}}},"f:selector":{},"f:sessionAffinity":{},"f:type":{}}}`},
	{"Service: in the way", "PATCH", "/api/v1/namespaces/default/services/s?fieldManager=other", applied,
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"s"},"spec":{"sessionAffinity":"ClientIP","ports":[{"port":80,"targetPort":81}]}}`, 409,
		`Apply failed with 2 conflicts: conflicts with "probe" using v1:
- .spec.sessionAffinity
- .spec.ports[port=80,protocol="TCP"].targetPort`},
	{"Namespace: its label", "POST", "/api/v1/namespaces?fieldManager=probe", "",
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n"}}`, 201,
		`probe Update v1 {"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`},
	{"Namespace: in the way", "PATCH", "/api/v1/namespaces/n?fieldManager=other", applied,
		`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"n","labels":{"kubernetes.io/metadata.name":"x"}}}`, 409,
		`Apply failed with 1 conflict: conflict with "probe" using v1: .metadata.labels.kubernetes.io/metadata.name`},
	{"ConfigMap: created", "POST", "/api/v1/namespaces/default/configmaps?fieldManager=probe", "",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m","generateName":"g"},"data":{"a":"1","b":"1","c":"1"}}`, 201,
		`probe Update v1 {"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{}},"f:metadata":{"f:generateName":{}}}`},
	{"ConfigMap: put", "PUT", "/api/v1/namespaces/default/configmaps/m?fieldManager=putter", "",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"2","b":"1","c":"1"}}`, 200,
		`probe Update v1 {"f:data":{".":{},"f:b":{},"f:c":{}}}
putter Update v1 {"f:data":{"f:a":{}}}`},
	{"ConfigMap: merge patch", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=merger", merged,
		`{"data":{"b":"2"}}`, 200,
		`merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{".":{},"f:c":{}}}
putter Update v1 {"f:data":{"f:a":{}}}`},
	{"ConfigMap: JSON patch", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=jsoner", "application/json-patch+json",
		`[{"op":"replace","path":"/data/c","value":"2"}]`, 200,
		`jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
putter Update v1 {"f:data":{"f:a":{}}}`},
	{"ConfigMap: strategic merge patch", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=strategist", "application/strategic-merge-patch+json",
		`{"metadata":{"labels":{"l":"1"}}}`, 200,
		`jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
putter Update v1 {"f:data":{"f:a":{}}}
strategist Update v1 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: nothing changed", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=nobody", merged,
		`{"data":{"b":"2"}}`, 200,
		`jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
putter Update v1 {"f:data":{"f:a":{}}}
strategist Update v1 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: dry run", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=dry&dryRun=All", merged,
		`{"data":{"d":"2"}}`, 200,
		`dry Update v1 {"f:data":{"f:d":{}}}
jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
putter Update v1 {"f:data":{"f:a":{}}}
strategist Update v1 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: conflict", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=applier", applied,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"3"}}`, 409,
		`Apply failed with 1 conflict: conflict with "putter" using v1: .data.a`},
	{"ConfigMap: applied", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=applier&force=true", applied,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"3","d":"1"}}`, 200,
		`applier Apply v1 {"f:data":{"f:a":{},"f:d":{}}}
jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
strategist Update v1 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: given up", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=applier", applied,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"3"}}`, 200,
		`applier Apply v1 {"f:data":{"f:a":{}}}
jsoner Update v1 {"f:data":{"f:c":{}}}
merger Update v1 {"f:data":{"f:b":{}}}
probe Update v1 {"f:data":{}}
strategist Update v1 {"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: an empty list resets", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=resetter", merged,
		`{"metadata":{"managedFields":[]}}`, 200,
		""},
	{"ConfigMap: conflict after the reset", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=applier", applied,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"a":"4"}}`, 409,
		`Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a`},
	{"ConfigMap: applied after the reset", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=applier", applied,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"m"},"data":{"e":"4"}}`, 200,
		`applier Apply v1 {"f:data":{"f:e":{}}}
before-first-apply Update v1 {"f:data":{".":{},"f:a":{},"f:b":{},"f:c":{}},"f:metadata":{"f:labels":{".":{},"f:l":{}}}}`},
	{"ConfigMap: an empty entry resets", "PATCH", "/api/v1/namespaces/default/configmaps/m?fieldManager=resetter", merged,
		`{"metadata":{"managedFields":[{}]}}`, 200,
		""},
	{"Pod: created", "POST", "/api/v1/namespaces/default/pods?fieldManager=probe", "",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201,
		`probe Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`},
	{"Pod: applied status", "PATCH", "/api/v1/namespaces/default/pods/p/status?fieldManager=first", applied,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"a":"1"}}}`, 200,
		`first Apply v1 status {"f:metadata":{"f:annotations":{"f:a":{}}}}
probe Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`},
	{"Pod: applied status by another", "PATCH", "/api/v1/namespaces/default/pods/p/status?fieldManager=second", applied,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p","annotations":{"a":"2"}}}`, 409,
		`Apply failed with 1 conflict: conflict with "first" with subresource "status": .metadata.annotations.a`},
	{"Pod: status given up", "PATCH", "/api/v1/namespaces/default/pods/p/status?fieldManager=first", applied,
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"}}`, 200,
		`probe Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`},
	{"Pod: bound", "POST", "/api/v1/namespaces/default/pods/p/binding?fieldManager=binder", "",
		`{"apiVersion":"v1","kind":"Binding","metadata":{"name":"p"},"target":{"kind":"Node","name":"n"}}`, 201,
		""},
	{"Pod: bound by nobody", "GET", "/api/v1/namespaces/default/pods/p", "",
		"", 200,
		`probe Update v1 {"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:image":{},"f:imagePullPolicy":{},"f:name":{},"f:resources":{},"f:terminationMessagePath":{},"f:terminationMessagePolicy":{}}},"f:dnsPolicy":{},"f:enableServiceLinks":{},"f:restartPolicy":{},"f:schedulerName":{},"f:securityContext":{},"f:terminationGracePeriodSeconds":{}}}`},
	{"CertificateSigningRequest: its spec is nobody's", "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests?fieldManager=probe", "",
		`{"apiVersion":"certificates.k8s.io/v1","kind":"CertificateSigningRequest","metadata":{"name":"c","labels":{"a":"b"}},"spec":{"signerName":"example.com/signer","usages":["client auth"],"request":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIR01HNENBUUF3RERFS01BZ0dBMVVFQXd3QllUQlpNQk1HQnlxR1NNNDlBZ0VHQ0NxR1NNNDlBd0VIQTBJQQpCQ3BRSEVSbjJWdEJlZHNaVUNsWmswZGVBRWMyOGNYekdwZldIUWpaQnNwT3EybVJKa1RnbzMyN3NCK3NNUW1iCkRPakJDWEU0MWZSUVRNbk4rSjFacDcyZ0FEQUtCZ2dxaGtqT1BRUURBZ05JQURCRkFpQnRHR1JobDdMcWczNTAKVzE0WDQ1V044dFM2cjhyUzJuOUZmYXJUZ2dZZG5nSWhBUFd2UGsrZWhKcTlFcDNwMWRWT0swM0VEMDFjRS9GTQpjTDAzNmpya0FyNGwKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg=="}}`, 201,
		`probe Update certificates.k8s.io/v1 {"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`},
	{"HorizontalPodAutoscaler: v2", "POST", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers?fieldManager=probe", "",
		`{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}}`, 201,
		`probe Update autoscaling/v2 {"f:spec":{"f:maxReplicas":{},"f:metrics":{},"f:minReplicas":{},"f:scaleTargetRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}}}}`},
	{"HorizontalPodAutoscaler: v1", "PATCH", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h?fieldManager=other", applied,
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":4}}`, 409,
		`Apply failed with 1 conflict: conflict with "probe" using autoscaling/v2: .spec.maxReplicas`},
	{"HorizontalPodAutoscaler: v1 forced", "PATCH", "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers/h?fieldManager=other&force=true", applied,
		`{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":4,"targetCPUUtilizationPercentage":50}}`, 200,
		`other Apply autoscaling/v1 {"f:spec":{"f:maxReplicas":{},"f:targetCPUUtilizationPercentage":{}}}
probe Update autoscaling/v2 {"f:spec":{"f:minReplicas":{},"f:scaleTargetRef":{"f:apiVersion":{},"f:kind":{},"f:name":{}}}}`},
}

// TestManagedFields: who owns which fields of built-in kinds, and whom a second manager meets, is as in kube-apiserver.
func TestManagedFields(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.ManagedFieldsAlways, s.API.Controllers = true, "none" })
	for _, step := range managedSteps {
		t.Run(step.name, func(t *testing.T) {
			var headers []string
			if step.media != "" {
				headers = []string{"Content-Type", step.media}
			}
			code, text := do(s, step.method, step.path, step.body, headers...)
			answer := parse(t, text)
			got, _ := answer["message"].(string)
			if code < http.StatusBadRequest {
				got = ownersOf(t, answer)
			}
			if code != step.code || got != step.want {
				t.Errorf("%d\n%s\nwant %d\n%s", code, got, step.code, step.want)
			}
		})
	}
}

// ownersOf returns an object's managedFields, a line for each entry.
func ownersOf(t *testing.T, obj map[string]any) string {
	entries, _ := at(obj, "metadata.managedFields").([]any)
	var lines []string
	for _, e := range entries {
		e := e.(map[string]any)
		line := []string{str(e["manager"]), str(e["operation"]), str(e["apiVersion"])}
		if e["subresource"] != nil {
			line = append(line, str(e["subresource"]))
		}
		if e["time"] == nil {
			line = append(line, "without a time")
		}
		fields, err := json.Marshal(e["fieldsV1"])
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Join(append(line, string(fields)), " "))
	}
	slices.Sort(lines) // those of one second come in another order than those of two
	return strings.Join(lines, "\n")
}
