package builtin_test

import (
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const podTemplate = `{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`

// TestDefaults creates objects that leave out what they may. The values are kube-apiserver's.
func TestDefaults(t *testing.T) {
	s := servertest.New(t, all)
	for _, test := range []struct {
		name, path, body string
		want             map[string]any // by paths; nil for what must be absent
	}{
		{"pod", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"a"},"spec":{"serviceAccountName":"x","volumes":[{"name":"v"},{"name":"s","secret":{"secretName":"x"}}],
			"containers":[{"name":"c","image":"reg.io:5000/i","ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}},"livenessProbe":{"httpGet":{"port":80}}}]}}`,
			map[string]any{
				"spec.restartPolicy": "Always", "spec.dnsPolicy": "ClusterFirst", "spec.schedulerName": "default-scheduler",
				"spec.terminationGracePeriodSeconds": 30.0, "spec.enableServiceLinks": true, "spec.serviceAccount": "x",
				"spec.containers.0.terminationMessagePath": "/dev/termination-log", "spec.containers.0.terminationMessagePolicy": "File",
				"spec.containers.0.imagePullPolicy": "Always", "spec.containers.0.ports.0.protocol": "TCP",
				"spec.containers.0.resources.requests.cpu": "1", "spec.containers.0.livenessProbe.httpGet.path": "/",
				"spec.containers.0.livenessProbe.periodSeconds": 10.0, "spec.containers.0.livenessProbe.failureThreshold": 3.0,
				"spec.volumes.0.emptyDir": map[string]any{}, "spec.volumes.1.secret.defaultMode": 420.0,
				"status.phase": "Pending", "status.qosClass": "Burstable",
			}},
		{"images", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"images"},"spec":{"containers":[{"name":"a","image":"reg.io:5000/n/i"},{"name":"b","image":"i:1"},{"name":"c","image":"i@sha256:` + strings.Repeat("a", 64) + `"},{"name":"d","image":"i:latest@sha256:` + strings.Repeat("a", 64) + `"}],
			"volumes":[{"name":"v","image":{"reference":"i:latest"}},{"name":"w","image":{"reference":"i:1"}}]}}`,
			map[string]any{
				"spec.containers.0.imagePullPolicy": "Always", "spec.containers.1.imagePullPolicy": "IfNotPresent", "spec.containers.2.imagePullPolicy": "IfNotPresent", "spec.containers.3.imagePullPolicy": "Always",
				"spec.volumes.0.image.pullPolicy": "Always", "spec.volumes.1.image.pullPolicy": "IfNotPresent",
			}},
		{"pod that says nothing of all containers", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"whole-0"},"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1"}}}]}}`,
			map[string]any{"spec.resources": nil}},
		{"pod that is limited, and whose containers request", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"whole-1"},"spec":{"resources":{"limits":{"cpu":"4","memory":"2Gi"}},
			"initContainers":[{"name":"s","image":"i","restartPolicy":"Always","resources":{"requests":{"cpu":"1"}}},{"name":"i","image":"i","resources":{"requests":{"cpu":"2"}}}],
			"containers":[{"name":"a","image":"i","resources":{"requests":{"cpu":"500m","example.com/gpu":"1"},"limits":{"example.com/gpu":"1"}}},{"name":"b","image":"i","resources":{"limits":{"cpu":"700m"}}}]}}`,
			map[string]any{ // the second init container beside the first: more than what runs later
				"spec.resources": map[string]any{"limits": map[string]any{"cpu": "4", "memory": "2Gi"}, "requests": map[string]any{"cpu": "3", "memory": "2Gi"}}, "status.qosClass": "Burstable",
			}},
		{"pod that is limited alone", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"whole-2"},"spec":{"resources":{"limits":{"cpu":"1","memory":"1Gi"}},"containers":[{"name":"a","image":"i"}]}}`,
			map[string]any{"spec.resources.requests": map[string]any{"cpu": "1", "memory": "1Gi"}, "spec.containers.0.resources": map[string]any{}, "status.qosClass": "Guaranteed"}},
		{"pod that requests", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"whole-3"},"spec":{"resources":{"requests":{"cpu":"1"}},"containers":[{"name":"a","image":"i","resources":{"limits":{"cpu":"500m","hugepages-2Mi":"4Mi","memory":"1Gi"}}}]}}`,
			map[string]any{"spec.resources": map[string]any{"requests": map[string]any{"cpu": "1", "hugepages-2Mi": "4Mi", "memory": "1Gi"}, "limits": map[string]any{"cpu": "1", "hugepages-2Mi": "4Mi", "memory": "1Gi"}}}},
		{"deployment", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`,
			map[string]any{
				"spec.replicas": 1.0, "spec.revisionHistoryLimit": 10.0, "spec.progressDeadlineSeconds": 600.0, "spec.strategy.type": "RollingUpdate",
				"spec.strategy.rollingUpdate.maxSurge": "25%", "spec.strategy.rollingUpdate.maxUnavailable": "25%",
				"spec.template.spec.containers.0.imagePullPolicy": "IfNotPresent", "spec.template.spec.enableServiceLinks": nil,
			}},
		{"daemonset", "/apis/apps/v1/namespaces/default/daemonsets", `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`,
			map[string]any{"spec.updateStrategy.rollingUpdate.maxUnavailable": 1.0, "spec.updateStrategy.rollingUpdate.maxSurge": 0.0}},
		{"statefulset", "/apis/apps/v1/namespaces/default/statefulsets", `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`,
			map[string]any{"spec.podManagementPolicy": "OrderedReady", "spec.updateStrategy.rollingUpdate.partition": 0.0, "spec.persistentVolumeClaimRetentionPolicy.whenDeleted": "Retain"}},
		{"statefulset with a strategy", "/apis/apps/v1/namespaces/default/statefulsets", `{"metadata":{"name":"b"},"spec":{"updateStrategy":{"type":"RollingUpdate"},"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`,
			map[string]any{"spec.updateStrategy": map[string]any{"type": "RollingUpdate"}}},
		{"job", "/apis/batch/v1/namespaces/default/jobs", `{"metadata":{"name":"a"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`,
			map[string]any{
				"spec.completions": 1.0, "spec.parallelism": 1.0, "spec.backoffLimit": 6.0, "spec.completionMode": "NonIndexed", "spec.suspend": false,
				"spec.podReplacementPolicy": "TerminatingOrFailed", "spec.manualSelector": false, "spec.template.metadata.labels.job-name": "a",
			}},
		{"cronjob", "/apis/batch/v1/namespaces/default/cronjobs", `{"metadata":{"name":"a"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}}`,
			map[string]any{"spec.concurrencyPolicy": "Allow", "spec.suspend": false, "spec.successfulJobsHistoryLimit": 3.0, "spec.failedJobsHistoryLimit": 1.0}},
		{"service", "/api/v1/namespaces/default/services", `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}]}}`,
			map[string]any{"spec.type": "ClusterIP", "spec.sessionAffinity": "None", "spec.ports.0.protocol": "TCP", "spec.ports.0.targetPort": 80.0, "spec.internalTrafficPolicy": "Cluster", "spec.ipFamilies.0": "IPv4"}},
		{"headless service", "/api/v1/namespaces/default/services", `{"metadata":{"name":"b"},"spec":{"clusterIP":"None"}}`,
			map[string]any{"spec.clusterIP": "None", "spec.clusterIPs.0": "None"}},
		{"external name", "/api/v1/namespaces/default/services", `{"metadata":{"name":"e"},"spec":{"type":"ExternalName","externalName":"example.com"}}`,
			map[string]any{"spec.clusterIP": nil, "spec.internalTrafficPolicy": nil}},
		{"external name with what it doesn't have", "/api/v1/namespaces/default/services", `{"metadata":{"name":"e2"},"spec":{"type":"ExternalName","externalName":"example.com","internalTrafficPolicy":"Local"}}`,
			map[string]any{"spec.internalTrafficPolicy": nil}},
		{"storage class", "/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"a"},"provisioner":"example.com/p"}`,
			map[string]any{"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"}},
		{"claim", "/api/v1/namespaces/default/persistentvolumeclaims", `{"metadata":{"name":"a"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
			map[string]any{"spec.volumeMode": "Filesystem", "status.phase": "Pending"}},
		{"claim of a copy", "/api/v1/namespaces/default/persistentvolumeclaims", `{"metadata":{"name":"b"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}},"dataSourceRef":{"kind":"PersistentVolumeClaim","name":"a"}}}`,
			map[string]any{"spec.dataSource.name": "a", "spec.dataSource.kind": "PersistentVolumeClaim"}},
		{"attachment", "/apis/storage.k8s.io/v1/volumeattachments", `{"metadata":{"name":"a"},"spec":{"attacher":"example.com","nodeName":"n","source":{"inlineVolumeSpec":{"accessModes":["ReadWriteOnce"],"csi":{"driver":"example.com","volumeHandle":"h"}}}}}`,
			map[string]any{"spec.source.inlineVolumeSpec.csi.volumeHandle": "h", "spec.source.inlineVolumeSpec.persistentVolumeReclaimPolicy": nil, "spec.source.inlineVolumeSpec.volumeMode": nil}},
		{"autoscaler", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"a"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"a"}}}`,
			map[string]any{"spec.minReplicas": 1.0, "spec.metrics.0.resource.target.averageUtilization": 80.0}},
		{"network policy", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", `{"metadata":{"name":"a"},"spec":{"podSelector":{},"egress":[{"ports":[{"port":80}]}]}}`,
			map[string]any{"spec.policyTypes.1": "Egress", "spec.egress.0.ports.0.protocol": "TCP"}},
		{"webhooks", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"a"},"webhooks":[{"name":"a.b.c","sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"service":{"name":"s","namespace":"n"}}}]}`,
			map[string]any{"webhooks.0.failurePolicy": "Fail", "webhooks.0.timeoutSeconds": 10.0, "webhooks.0.clientConfig.service.port": 443.0}},
		{"autoscaler", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `{"metadata":{"name":"behaves"},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"behavior":{"scaleUp":{"policies":[{"type":"Pods","value":9,"periodSeconds":60}]}}}}`,
			map[string]any{
				"spec.minReplicas": 1.0, "spec.metrics.0.resource.target.averageUtilization": 80.0, "spec.behavior.scaleUp.policies.0.value": 9.0, "spec.behavior.scaleUp.stabilizationWindowSeconds": 0.0,
				"spec.behavior.scaleDown.policies.0.type": "Percent", "spec.behavior.scaleDown.selectPolicy": "Max", "spec.behavior.scaleDown.stabilizationWindowSeconds": nil,
			}},
		{"priority level", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"a"},"spec":{"type":"Limited","limited":{"limitResponse":{"type":"Queue","queuing":{}}}}}`,
			map[string]any{"spec.limited.nominalConcurrencyShares": 30.0, "spec.limited.lendablePercent": 0.0, "spec.limited.limitResponse.queuing.queues": 64.0, "spec.limited.limitResponse.queuing.handSize": 8.0}},
		{"exempt level", "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations", `{"metadata":{"name":"exempt"},"spec":{"type":"Exempt","exempt":{}}}`,
			map[string]any{"spec.exempt.nominalConcurrencyShares": 0.0, "spec.exempt.lendablePercent": 0.0}},
		{"flow schema", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"metadata":{"name":"a"},"spec":{"priorityLevelConfiguration":{"name":"a"}}}`, map[string]any{"spec.matchingPrecedence": 1000.0}},
		{"priority class", "/apis/scheduling.k8s.io/v1/priorityclasses", `{"metadata":{"name":"a"},"value":5}`, map[string]any{"preemptionPolicy": "PreemptLowerPriority", "globalDefault": nil}},
		{"runtime class", "/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"a"},"handler":"h"}`, map[string]any{"overhead": nil, "scheduling": nil}},
		{"budget", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", `{"metadata":{"name":"a"},"spec":{"minAvailable":1}}`, map[string]any{"spec": map[string]any{"minAvailable": 1.0}}},
		{"quota", "/api/v1/namespaces/default/resourcequotas", `{"metadata":{"name":"a"},"spec":{"hard":{"requests.cpu":"1500u"}}}`, map[string]any{"spec.hard": map[string]any{"requests.cpu": "2m"}}},
		{"limits", "/api/v1/namespaces/default/limitranges", `{"metadata":{"name":"a"},"spec":{"limits":[{"type":"Container","max":{"cpu":"2"},"min":{"cpu":"1","memory":"1Mi"}},{"type":"PersistentVolumeClaim","max":{"storage":"2Gi"}}]}}`,
			map[string]any{"spec.limits.0.default": map[string]any{"cpu": "2"}, "spec.limits.0.defaultRequest": map[string]any{"cpu": "2", "memory": "1Mi"}, "spec.limits.1.default": nil}},
		{"pod's certificate", "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests", `{"metadata":{"name":"a"},"spec":{"signerName":"example.com/s","podName":"p","podUID":"u","serviceAccountName":"s","serviceAccountUID":"u","nodeName":"n","nodeUID":"u","stubPKCS10Request":"` + base64.StdEncoding.EncodeToString(stubRequest()) + `"}}`, map[string]any{"spec.maxExpirationSeconds": 86400.0}},
		{"claim of devices", "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{"metadata":{"name":"a"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c","tolerations":[{"key":"k"}]}},{"name":"s","firstAvailable":[{"name":"t","deviceClassName":"c"},{"name":"u","deviceClassName":"c","allocationMode":"All"}]}]}}}`,
			map[string]any{
				"spec.devices.requests.0.exactly.allocationMode": "ExactCount", "spec.devices.requests.0.exactly.count": 1.0, "spec.devices.requests.0.exactly.tolerations.0.operator": "Equal",
				"spec.devices.requests.1.firstAvailable.0.count": 1.0, "spec.devices.requests.1.firstAvailable.1.count": nil,
			}},
		{"CSI driver", "/apis/storage.k8s.io/v1/csidrivers", `{"metadata":{"name":"a"},"spec":{}}`, map[string]any{
			"spec.attachRequired": true, "spec.podInfoOnMount": false, "spec.storageCapacity": false, "spec.fsGroupPolicy": "ReadWriteOnceWithFSType", "spec.volumeLifecycleModes.0": "Persistent", "spec.requiresRepublish": false, "spec.seLinuxMount": false}},
		{"ingress class", "/apis/networking.k8s.io/v1/ingressclasses", `{"metadata":{"name":"a"},"spec":{"controller":"example.com/c","parameters":{"kind":"K","name":"n"}}}`, map[string]any{"spec.parameters.scope": "Cluster"}},
		{"mutating policy", "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies", `{"metadata":{"name":"a"},"spec":{"reinvocationPolicy":"Never","matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]},"mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{}"}}]}}`,
			map[string]any{"spec.failurePolicy": "Fail", "spec.matchConstraints.matchPolicy": "Equivalent", "spec.matchConstraints.namespaceSelector": map[string]any{}, "spec.matchConstraints.resourceRules.0.scope": "*"}},
		{"binding of a policy", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"metadata":{"name":"a"},"spec":{"policyName":"a","validationActions":["Deny"],"matchResources":{"excludeResourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["pods"]}]}}}`,
			map[string]any{"spec.matchResources.matchPolicy": "Equivalent", "spec.matchResources.excludeResourceRules.0.scope": "*"}},
		{"secret", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"},"data":{"x":"eA=="},"stringData":{"x":"y"}}`,
			map[string]any{"type": "Opaque", "data.x": "eQ==", "stringData": nil}},
		{"role binding", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{"metadata":{"name":"system:a"},"roleRef":{"kind":"Role","name":"r"},"subjects":[{"kind":"User","name":"u"},{"kind":"ServiceAccount","name":"s"}]}`,
			map[string]any{"roleRef.apiGroup": "rbac.authorization.k8s.io", "subjects.0.apiGroup": "rbac.authorization.k8s.io", "subjects.1.apiGroup": nil}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := parse(t, must(t, s, http.MethodPost, test.path, test.body, http.StatusCreated))
			for path, want := range test.want {
				if have := in(got, path); !equalJSON(have, want) {
					t.Errorf("%s is %v, want %v", path, have, want)
				}
			}
		})
	}
}

// in is at, for paths that go through lists.
func in(v any, path string) any {
	for _, name := range strings.Split(path, ".") {
		switch part := v.(type) {
		case map[string]any:
			v = part[name]
		case []any:
			if name[0]-'0' >= byte(len(part)) {
				return nil
			}
			v = part[name[0]-'0']
		default:
			return nil
		}
	}
	return v
}

func equalJSON(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}

// TestRefusals writes objects that break a rule. All fields that are wrong are in the answer.
func TestRefusals(t *testing.T) {
	s := servertest.New(t, all)
	for _, test := range []struct {
		name, path, first, body string // first is created before; then body is a merge patch of it
		fields                  []string
	}{
		{"a pod without containers", "/api/v1/namespaces/default/pods", "", `{"metadata":{"name":"a"},"spec":{"containers":[]}}`, []string{"spec.containers"}},
		{"containers", "/api/v1/namespaces/default/pods", "", `{"metadata":{"name":"a"},"spec":{"containers":[{"name":"C","ports":[{"containerPort":70000}],"resources":{"requests":{"cpu":"-1"}}},{"name":"c","image":"i"},{"name":"c","image":"i"}]}}`,
			[]string{"spec.containers[0].name", "spec.containers[0].image", "spec.containers[0].ports[0].containerPort", "spec.containers[0].resources.requests[cpu]", "spec.containers[2].name"}},
		{"resources of the whole pod", "/api/v1/namespaces/default/pods", "", `{"metadata":{"name":"a"},"spec":{"overhead":{"cpu":"-1"},"resources":{"limits":{"cpu":"1"},"requests":{"cpu":"2"}},"containers":[{"name":"c","image":"i"}]}}`,
			[]string{"spec.resources.requests", "spec.overhead.limits[cpu]"}},
		{"a selector that selects other pods", "/apis/apps/v1/namespaces/default/deployments", "", `{"metadata":{"name":"a"},"spec":{"selector":{"matchLabels":{"a":"c"}},"template":` + podTemplate + `}}`, []string{"spec.template.metadata.labels"}},
		{"no selector", "/apis/apps/v1/namespaces/default/replicasets", "", `{"metadata":{"name":"a"},"spec":{"template":` + podTemplate + `}}`, []string{"spec.selector", "spec.template.metadata.labels"}},
		{"another selector", "/apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`,
			`{"spec":{"selector":{"matchLabels":{"c":"d"}},"template":{"metadata":{"labels":{"c":"d"}}}}}`, []string{"spec.selector"}},
		{"negative replicas", "/apis/apps/v1/namespaces/default/statefulsets", "", `{"metadata":{"name":"a"},"spec":{"replicas":-1,"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}}`, []string{"spec.replicas"}},
		{"a job that restarts for ever", "/apis/batch/v1/namespaces/default/jobs", "", `{"metadata":{"name":"a"},"spec":{"template":` + podTemplate + `}}`, []string{"spec.template.spec.restartPolicy"}},
		{"a service without ports", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"}}`, []string{"spec.ports"}},
		{"a service's name", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a.b"},"spec":{"ports":[{"port":80}]}}`, []string{"metadata.name"}},
		{"an address outside of the range", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.9.9.9","ports":[{"port":80}]}}`, []string{"spec.clusterIPs"}},
		{"an address that is taken", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.1","ports":[{"port":80}]}}`, []string{"spec.clusterIPs"}},
		{"the address of the network itself", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.0","ports":[{"port":80}]}}`, []string{"spec.clusterIPs"}},
		{"the address that reaches all", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.255","ports":[{"port":80}]}}`, []string{"spec.clusterIPs"}},
		{"another address alone", "/api/v1/namespaces/default/services", `{"metadata":{"name":"alone"},"spec":{"clusterIP":"10.0.0.6","ports":[{"port":80}]}}`, `{"spec":{"clusterIP":"10.0.0.8"}}`, []string{"spec.clusterIPs[0]"}},
		{"one family of two that are required", "/api/v1/namespaces/default/services", `{"metadata":{"name":"both"},"spec":{"clusterIP":"None"}}`, `{"spec":{"ipFamilies":["IPv4"]}}`, []string{"spec.ipFamilyPolicy"}},
		{"an address of a family that the server doesn't have", "/api/v1/namespaces/default/services", "", `{"metadata":{"name":"a"},"spec":{"clusterIP":"fd00::1","ports":[{"port":80}]}}`, []string{"spec.clusterIPs[0]"}},
		{"another address", "/api/v1/namespaces/default/services", `{"metadata":{"name":"s"},"spec":{"clusterIP":"10.0.0.9","ports":[{"port":80}]}}`, `{"spec":{"clusterIP":"10.0.0.8","clusterIPs":["10.0.0.8"]}}`, []string{"spec.clusterIPs[0]"}},
		{"an immutable ConfigMap", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"c"},"immutable":true,"data":{"a":"b"}}`, `{"immutable":false,"data":{"a":"c"}}`, []string{"immutable", "data"}},
		{"an immutable Secret", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"},"immutable":true,"stringData":{"a":"b"}}`, `{"data":{"a":"Yw=="}}`, []string{"data"}},
		{"a secret's type", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"t"}}`, `{"type":"example.com/other"}`, []string{"type"}},
		{"a TLS secret without a key", "/api/v1/namespaces/default/secrets", "", `{"metadata":{"name":"u"},"type":"kubernetes.io/tls","stringData":{"tls.crt":"x"}}`, []string{"data[tls.key]"}},
		{"another role", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"}}`, `{"roleRef":{"name":"q"}}`, []string{"roleRef"}},
		{"a storage class", "/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"s"},"provisioner":"example.com/p"}`, `{"provisioner":"example.com/q","reclaimPolicy":"Retain"}`, []string{"provisioner", "reclaimPolicy"}},
		{"a lease", "/apis/coordination.k8s.io/v1/namespaces/default/leases", "", `{"metadata":{"name":"l"},"spec":{"leaseDurationSeconds":0}}`, []string{"spec.leaseDurationSeconds"}},
		{"an event of another namespace", "/api/v1/namespaces/default/events", "", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"shop"}}`, []string{"involvedObject.namespace"}},
		{"an event of kube-system about nothing there", "/api/v1/namespaces/kube-system/events", "", `{"metadata":{"name":"e"}}`, []string{"involvedObject.namespace"}},
		{"an event without its reporter", "/api/v1/namespaces/default/events", "", `{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","reportingInstance":"i","action":"a","reason":"r"}`, []string{"reportingComponent", "reportingComponent", "reportingComponent"}},
		{"a new event with old fields", "/apis/events.k8s.io/v1/namespaces/default/events", "", `{"metadata":{"name":"e"},"eventTime":"2026-01-01T00:00:00.000000Z","type":"Normal","reportingController":"c","reportingInstance":"i","action":"a","reason":"r",
			"deprecatedCount":1,"deprecatedFirstTimestamp":"2026-01-01T00:00:00Z","deprecatedSource":{"host":"h"}}`, []string{"firstTimestamp", "count", "source"}},
		{"a name that no path names", "/apis/rbac.authorization.k8s.io/v1/clusterroles", "", `{"metadata":{"name":"a;b"}}`, []string{"metadata.name"}},
		{"a name with a control character", "/apis/certificates.k8s.io/v1/certificatesigningrequests", "", `{"metadata":{"name":"a\u001b[31mb"},"spec":{"request":"` + requestText() + `","signerName":"example.com/s","usages":["client auth"]}}`, []string{"metadata.name"}},
		{"a config map's key", "/api/v1/namespaces/default/configmaps", "", `{"metadata":{"name":"k"},"data":{"a/b":"c"}}`, []string{"data[a/b]"}},
		{"two attributes", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "", `{"spec":{"resourceAttributes":{},"nonResourceAttributes":{}}}`, []string{"spec"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			method, path, headers := http.MethodPost, test.path, []string{"Content-Type", "application/json"}
			if test.first != "" {
				name := str(at(parse(t, must(t, s, http.MethodPost, path, test.first, http.StatusCreated)), "metadata.name"))
				method, path, headers = http.MethodPatch, path+"/"+name, []string{"Content-Type", "application/merge-patch+json"}
			}
			status := parse(t, must(t, s, method, path, test.body, http.StatusUnprocessableEntity, headers...))
			var fields []string
			causes, _ := at(status, "details.causes").([]any)
			for _, c := range causes {
				fields = append(fields, str(at(c, "field")))
			}
			if strings.Join(fields, " ") != strings.Join(test.fields, " ") {
				t.Errorf("refused for %q, want %q: %v", fields, test.fields, status["message"])
			}
		})
	}
}

// TestParts uses the subresources of data-only kinds, and those that there are none of.
func TestParts(t *testing.T) {
	s := servertest.New(t, all)
	const pods, budgets = "/api/v1/namespaces/default/pods", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	patch := []string{"Content-Type", "application/merge-patch+json"}
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	must(t, s, http.MethodPost, pods+"/p/binding", `{"metadata":{"name":"p"},"target":{"name":"n1"}}`, http.StatusCreated)
	must(t, s, http.MethodPost, pods+"/p/binding", `{"metadata":{"name":"p"},"target":{"name":"n2"}}`, http.StatusConflict)
	list := parse(t, must(t, s, http.MethodGet, pods+"?fieldSelector=spec.nodeName%3Dn1,spec.hostNetwork%3Dfalse,status.phase!%3DRunning", "", http.StatusOK))
	if items, _ := list["items"].([]any); len(items) != 1 {
		t.Errorf("%d pods are on the node", len(items))
	}
	must(t, s, http.MethodPatch, pods+"/p/ephemeralcontainers", `{"spec":{"nodeName":"x","ephemeralContainers":[{"name":"e","image":"i"}]}}`, http.StatusOK, patch...)
	must(t, s, http.MethodPatch, pods+"/p/status", `{"spec":{"nodeName":"x"},"status":{"phase":"Running"}}`, http.StatusOK, patch...)
	pod := parse(t, must(t, s, http.MethodGet, pods+"/p", "", http.StatusOK))
	if at(pod, "spec.nodeName") != "n1" || in(pod, "spec.ephemeralContainers.0.name") != "e" || at(pod, "status.phase") != "Running" {
		t.Errorf("the pod is %v", pod)
	}

	must(t, s, http.MethodPost, budgets, `{"metadata":{"name":"b"},"spec":{"selector":{"matchLabels":{"a":"b"}}}}`, http.StatusCreated)
	must(t, s, http.MethodPost, pods+"/p/eviction", `{"metadata":{"name":"p"}}`, http.StatusTooManyRequests)
	must(t, s, http.MethodPatch, budgets+"/b/status", `{"status":{"disruptionsAllowed":1,"observedGeneration":1}}`, http.StatusOK, patch...)
	must(t, s, http.MethodPost, pods+"/p/eviction", `{"metadata":{"name":"p"},"deleteOptions":{"gracePeriodSeconds":0}}`, http.StatusCreated)
	must(t, s, http.MethodGet, pods+"/p", "", http.StatusNotFound)
	if b := parse(t, must(t, s, http.MethodGet, budgets+"/b", "", http.StatusOK)); at(b, "status.disruptionsAllowed") != 0.0 || at(b, "status.disruptedPods.p") == nil {
		t.Errorf("the budget is %v", b)
	}

	const deployments = "/apis/apps/v1/namespaces/default/deployments"
	must(t, s, http.MethodPost, deployments, `{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":`+podTemplate+`}}`, http.StatusCreated)
	must(t, s, http.MethodPatch, deployments+"/d/scale", `{"spec":{"replicas":5}}`, http.StatusOK, patch...)
	if scale := parse(t, must(t, s, http.MethodGet, deployments+"/d/scale", "", http.StatusOK)); at(scale, "spec.replicas") != 5.0 || at(scale, "status.selector") != "a=b" {
		t.Errorf("the scale is %v", scale)
	}
	status := parse(t, must(t, s, http.MethodPatch, deployments+"/d/status", `{"metadata":{"annotations":{"x":"y"},"labels":{"l":"v"}},"status":{"replicas":2}}`, http.StatusOK, patch...))
	if at(status, "metadata.annotations.x") != "y" || at(status, "metadata.labels.l") != nil || at(status, "status.replicas") != 2.0 {
		t.Errorf("after a write of the status: %v", status)
	}

	const requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	must(t, s, http.MethodPost, requests, `{"metadata":{"name":"r"},"spec":{"request":"`+requestText()+`","signerName":"example.com/s","usages":["client auth"]}}`, http.StatusCreated)
	const approval = `{"status":{"conditions":[{"type":"Approved","status":"True"}]}}`
	if text := must(t, s, http.MethodPatch, requests+"/r/status", approval, http.StatusUnprocessableEntity, patch...); !strings.Contains(text, `may not add a condition of type \"Approved\"`) {
		t.Errorf("approved by the wrong path: %s", text)
	}
	if r := parse(t, must(t, s, http.MethodPatch, requests+"/r/approval", approval, http.StatusOK, patch...)); in(r, "status.conditions.0.type") != "Approved" ||
		in(r, "status.conditions.0.lastUpdateTime") == nil || in(r, "status.conditions.0.lastTransitionTime") == nil {
		t.Errorf("not approved: %v", r)
	}
	const noted = `{"metadata":{"annotations":{"by":"hand"}},"spec":{"signerName":"example.com/other"}}` // of this, the metadata counts
	if r := parse(t, must(t, s, http.MethodPatch, requests+"/r/approval", noted, http.StatusOK, patch...)); at(r, "metadata.annotations.by") != "hand" || at(r, "spec.signerName") != "example.com/s" {
		t.Errorf("noted with the approval: %v", r)
	}
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"runs"},"spec":{"nodeName":"n","containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	must(t, s, http.MethodPost, "/api/v1/nodes", `{"metadata":{"name":"n"}}`, http.StatusCreated)
	if text := must(t, s, http.MethodGet, pods+"/none/log", "", http.StatusNotFound); !strings.Contains(text, `pods \"none\" not found`) {
		t.Errorf("the log of no pod: %s", text)
	}
	for _, path := range []string{pods + "/runs/log", pods + "/runs/exec", pods + "/runs/attach", pods + "/runs/portforward", pods + "/runs/proxy", "/api/v1/nodes/n/proxy"} {
		if text := must(t, s, http.MethodGet, path, "", http.StatusNotFound); !strings.Contains(text, "there is no kubelet") {
			t.Errorf("%s: %s", path, text)
		}
	}
}

// TestEvictionsOfUnready: a pod that isn't ready goes without a disruption where its budget lets it, or enough others are
// healthy.
func TestEvictionsOfUnready(t *testing.T) {
	s := servertest.New(t, all)
	const pods, budgets = "/api/v1/namespaces/default/pods", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	patch := []string{"Content-Type", "application/merge-patch+json"}
	for _, tc := range []struct {
		name, ready, policy, status string
		code                        int
	}{
		{"ready", "True", `"AlwaysAllow"`, `{"currentHealthy":3,"desiredHealthy":2}`, http.StatusTooManyRequests},
		{"always", "False", `"AlwaysAllow"`, `{"currentHealthy":0,"desiredHealthy":2}`, http.StatusCreated},
		{"healthy", "False", `null`, `{"currentHealthy":2,"desiredHealthy":2}`, http.StatusCreated},
		{"unhealthy", "False", `"IfHealthyBudget"`, `{"currentHealthy":1,"desiredHealthy":2}`, http.StatusTooManyRequests},
		{"nothing-desired", "False", `null`, `{"currentHealthy":0,"desiredHealthy":0}`, http.StatusTooManyRequests},
	} {
		must(t, s, http.MethodPost, pods, `{"metadata":{"name":"`+tc.name+`","labels":{"n":"`+tc.name+`"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
		must(t, s, http.MethodPatch, pods+"/"+tc.name+"/status", `{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"`+tc.ready+`"}]}}`, http.StatusOK, patch...)
		must(t, s, http.MethodPost, budgets, `{"metadata":{"name":"`+tc.name+`"},"spec":{"selector":{"matchLabels":{"n":"`+tc.name+`"}},"unhealthyPodEvictionPolicy":`+tc.policy+`}}`, http.StatusCreated)
		must(t, s, http.MethodPatch, budgets+"/"+tc.name+"/status", `{"status":`+tc.status+`}`, http.StatusOK, patch...)
		must(t, s, http.MethodPatch, budgets+"/"+tc.name+"/status", `{"status":{"observedGeneration":1}}`, http.StatusOK, patch...)
		if code, text := do(s, http.MethodPost, pods+"/"+tc.name+"/eviction", `{"metadata":{"name":"`+tc.name+`"}}`); code != tc.code {
			t.Errorf("%s: %d %s, want %d", tc.name, code, text, tc.code)
		}
	}
}

// TestEvictionWithTwoBudgets: kube-apiserver has no reason for that refusal.
func TestEvictionWithTwoBudgets(t *testing.T) {
	s := servertest.New(t, all)
	const pods, budgets = "/api/v1/namespaces/default/pods", "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	must(t, s, http.MethodPatch, pods+"/p/status", `{"status":{"phase":"Running"}}`, http.StatusOK, "Content-Type", "application/merge-patch+json")
	for _, name := range []string{"one", "two"} {
		must(t, s, http.MethodPost, budgets, `{"metadata":{"name":"`+name+`"},"spec":{"selector":{"matchLabels":{"a":"b"}}}}`, http.StatusCreated)
	}
	const want = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.","code":500}`
	if text := must(t, s, http.MethodPost, pods+"/p/eviction", `{"metadata":{"name":"p"}}`, http.StatusInternalServerError); strings.TrimSpace(text) != want {
		t.Errorf("the answer is %s, want %s", text, want)
	}
}

// TestGatedPod: a pod with gates says that it waits for them, and can't be bound; a binding may name the pod's version.
func TestGatedPod(t *testing.T) {
	s := servertest.New(t, all)
	const pods = "/api/v1/namespaces/default/pods"
	gated := parse(t, must(t, s, http.MethodPost, pods, `{"metadata":{"name":"g"},"spec":{"schedulingGates":[{"name":"example.com/g"}],"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated))
	if in(gated, "status.conditions.0.reason") != "SchedulingGated" || in(gated, "status.conditions.0.status") != "False" {
		t.Errorf("a gated pod's status is %v", gated["status"])
	}
	free := parse(t, must(t, s, http.MethodPost, pods, `{"metadata":{"name":"f"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated))
	must(t, s, http.MethodPost, pods+"/f/binding", `{"metadata":{"name":"f","resourceVersion":"1"},"target":{"name":"n"}}`, http.StatusConflict)
	must(t, s, http.MethodPost, pods+"/f/binding", `{"metadata":{"name":"f","resourceVersion":"`+str(at(free, "metadata.resourceVersion"))+`"},"target":{"name":"n"}}`, http.StatusCreated)
}

// TestNewPods: what a new pod's selectors and resources are completed with.
func TestNewPods(t *testing.T) {
	s := servertest.New(t, all)
	pod := parse(t, must(t, s, http.MethodPost, "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p","labels":{"a":"b"}},"spec":{
		"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"2","memory":"1Gi"}}}],"resources":{"requests":{"cpu":"3"}},
		"affinity":{"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"topologyKey":"z","labelSelector":{},"matchLabelKeys":["a","c"]}]},
			"podAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"z","labelSelector":{},"mismatchLabelKeys":["a"]}}]}},
		"topologySpreadConstraints":[{"topologyKey":"z","maxSkew":1,"whenUnsatisfiable":"DoNotSchedule","labelSelector":{"matchLabels":{"x":"y"}},"matchLabelKeys":["a"]}]}}`, http.StatusCreated))
	for path, want := range map[string]string{
		"spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution": `[{"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"matchLabelKeys":["a","c"],"topologyKey":"z"}]`,
		"spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution":    `[{"podAffinityTerm":{"labelSelector":{"matchExpressions":[{"key":"a","operator":"NotIn","values":["b"]}]},"mismatchLabelKeys":["a"],"topologyKey":"z"},"weight":1}]`,
		"spec.topologySpreadConstraints":                                               `[{"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchLabels":{"x":"y"}},"matchLabelKeys":["a"],"maxSkew":1,"topologyKey":"z","whenUnsatisfiable":"DoNotSchedule"}]`,
		"spec.resources":                                                               `{"limits":{"cpu":"3","memory":"1Gi"},"requests":{"cpu":"3","memory":"1Gi"}}`,
	} {
		if got, _ := json.Marshal(at(pod, path)); string(got) != want {
			t.Errorf("%s is %s, not %s", path, got, want)
		}
	}
}

// TestAutoscalerAnnotations: what version 1 of an autoscaler has no fields for is in annotations, in that version's own types.
func TestAutoscalerAnnotations(t *testing.T) {
	s := servertest.New(t, all)
	const v1, v2 = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
	const metrics = `[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":70}},{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}},` +
		`{"type":"Object","object":{"target":{"kind":"Service","name":"s"},"metricName":"o","targetValue":"7"}},{"type":"External","external":{"metricName":"e","metricSelector":{"matchLabels":{"a":"b"}},"targetAverageValue":"9"}},` +
		`{"type":"ContainerResource","containerResource":{"name":"cpu","container":"c","targetAverageValue":"3"}}]`
	must(t, s, http.MethodPost, v1, `{"metadata":{"name":"h","annotations":{"autoscaling.alpha.kubernetes.io/metrics":`+strconv.Quote(metrics)+`}},"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"}}}`, http.StatusCreated)
	h := parse(t, must(t, s, http.MethodGet, v2+"/h", "", http.StatusOK))
	for i, want := range []string{
		`{"resource":{"name":"memory","target":{"averageUtilization":70,"type":"Utilization"}},"type":"Resource"}`,
		`{"pods":{"metric":{"name":"m"},"target":{"averageValue":"5","type":"AverageValue"}},"type":"Pods"}`,
		`{"object":{"describedObject":{"kind":"Service","name":"s"},"metric":{"name":"o"},"target":{"type":"Value","value":"7"}},"type":"Object"}`,
		`{"external":{"metric":{"name":"e","selector":{"matchLabels":{"a":"b"}}},"target":{"averageValue":"9","type":"AverageValue"}},"type":"External"}`,
		`{"containerResource":{"container":"c","name":"cpu","target":{"averageValue":"3","type":"AverageValue"}},"type":"ContainerResource"}`,
	} {
		if got := encode(t, in(h, "spec.metrics."+strconv.Itoa(i))); got != want {
			t.Errorf("in version 2 metric %d is %s, want %s", i, got, want)
		}
	}
	again := parse(t, must(t, s, http.MethodGet, v1+"/h", "", http.StatusOK))
	annotations, _ := at(again, "metadata.annotations").(map[string]any)
	if got := str(annotations["autoscaling.alpha.kubernetes.io/metrics"]); !equalJSON(parseAny(t, got), parseAny(t, metrics)) {
		t.Errorf("in version 1 the metrics are %s", got)
	}
}

func parseAny(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// TestAccountSecrets: of the Secrets that a ServiceAccount lists their names are kept.
func TestAccountSecrets(t *testing.T) {
	s := servertest.New(t)
	a := parse(t, must(t, s, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"a"},"secrets":[{"name":"s","namespace":"n","kind":"Secret"}]}`, http.StatusCreated))
	compare(t, "created", []any{map[string]any{"name": "s"}}, a["secrets"])
}

// TestNamespaceStatus: the phase of a namespace follows from its deletion, and another one is refused.
func TestNamespaceStatus(t *testing.T) {
	s := servertest.New(t)
	patch := []string{"Content-Type", "application/merge-patch+json"}
	const path = "/api/v1/namespaces/default/status"
	must(t, s, http.MethodPatch, path, `{"status":{"phase":"Terminating"}}`, http.StatusUnprocessableEntity, patch...)
	ns := parse(t, must(t, s, http.MethodPatch, path, `{"metadata":{"annotations":{"a":"b"}},"status":{"conditions":[{"type":"T","status":"True","reason":"R","message":"m"}]}}`, http.StatusOK, patch...))
	if at(ns, "metadata.annotations.a") != "b" || in(ns, "status.conditions.0.type") != "T" {
		t.Errorf("the namespace is %v", ns)
	}
	if gone := parse(t, must(t, s, http.MethodDelete, "/api/v1/namespaces/kube-node-lease", "", http.StatusOK)); gone["kind"] != "Namespace" {
		t.Errorf("a DELETE answers with %v", gone)
	}
}

// TestAppliedStatus: what is applied through a status, metadata too, is owned by who applied it, and goes when it's withdrawn.
func TestAppliedStatus(t *testing.T) {
	s := servertest.New(t, all)
	const pods = "/api/v1/namespaces/default/pods"
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	apply := func(manager, meta string, code int) map[string]any {
		t.Helper()
		return parse(t, must(t, s, http.MethodPatch, pods+"/p/status?fieldManager="+manager, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"`+meta+`}}`, code, "Content-Type", "application/apply-patch+yaml"))
	}
	apply("one", `,"annotations":{"a":"b","apiserver-lite/ttl":"0s"},"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]`, http.StatusOK)
	apply("two", `,"annotations":{"a":"c"}`, http.StatusConflict)
	p := apply("one", "", http.StatusOK)
	if at(p, "metadata.annotations.a") != nil || strings.Contains(encode(t, at(p, "metadata.managedFields")), "ownerReferences") || strings.Contains(encode(t, p), "apiserver-lite/ttl") {
		t.Errorf("when the annotation is withdrawn the metadata is %v", p["metadata"])
	}
}

// TestBindings posts a Binding to where schedulers of old do, and to where they do now, as JSON and as protobuf. The answers
// to actions are protobuf for those who ask.
func TestBindings(t *testing.T) {
	s := servertest.New(t, all)
	const bindings, pods = "/api/v1/namespaces/default/bindings", "/api/v1/namespaces/default/pods"
	for _, name := range []string{"a", "b", "c"} {
		must(t, s, http.MethodPost, pods, `{"metadata":{"name":"`+name+`"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	}
	must(t, s, http.MethodPost, bindings+"?dryRun=All", `{"metadata":{"name":"a"},"target":{"name":"n0"}}`, http.StatusCreated)
	if done := parse(t, must(t, s, http.MethodPost, bindings, `{"metadata":{"name":"a"},"target":{"kind":"Node","name":"n1"}}`, http.StatusCreated)); done["kind"] != "Status" || done["status"] != "Success" {
		t.Errorf("answered %v", done)
	}
	must(t, s, http.MethodPost, bindings, `{"metadata":{"name":"a"},"target":{"name":"n2"}}`, http.StatusConflict)
	must(t, s, http.MethodPost, bindings, `{"metadata":{"name":"none"},"target":{"name":"n2"}}`, http.StatusNotFound)
	must(t, s, http.MethodPost, bindings, `{"target":{"name":"n2"}}`, http.StatusBadRequest)
	must(t, s, http.MethodGet, bindings, "", http.StatusMethodNotAllowed)
	for name, path := range map[string]string{"b": bindings, "c": pods + "/c/binding"} {
		raw, err := (&corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Name: "n1"}}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		body := string(kubeproto.TypeOf("v1", "Binding").Append(nil, raw))
		checkStatus(t, must(t, s, http.MethodPost, path, body, http.StatusCreated, "Content-Type", protobufType, "Accept", protobufType))
	}
	list := parse(t, must(t, s, http.MethodGet, pods+"?fieldSelector=spec.nodeName%3Dn1", "", http.StatusOK))
	if items, _ := list["items"].([]any); len(items) != 3 {
		t.Errorf("%d pods are on the node", len(items))
	}
	checkStatus(t, must(t, s, http.MethodPost, pods+"/a/eviction", `{"metadata":{"name":"a"}}`, http.StatusCreated, "Content-Type", "application/json", "Accept", protobufType))
	token := must(t, s, http.MethodPost, "/api/v1/namespaces/default/serviceaccounts/default/token", `{}`, http.StatusCreated, "Content-Type", "application/json", "Accept", protobufType)
	if e, err := kubeproto.Open([]byte(token)); err != nil || e.Kind != "TokenRequest" {
		t.Errorf("a token is answered as %s, %v", e.Kind, err)
	}
}

// checkStatus wants the Status of a success as protobuf.
func checkStatus(t *testing.T, text string) {
	t.Helper()
	e, err := kubeproto.Open([]byte(text))
	if err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	var done metav1.Status
	if err := done.Unmarshal(e.Message); err != nil || e.Kind != "Status" || done.Status != metav1.StatusSuccess {
		t.Errorf("answered %s %v, %v", e.Kind, done, err)
	}
}

// TestComponents: the one component there is is healthy, and nobody can write of others.
func TestComponents(t *testing.T) {
	s := servertest.New(t, all)
	const components = "/api/v1/componentstatuses"
	res, text := s.Do(http.MethodGet, components, "")
	list := parse(t, text)
	if in(list, "items.0.metadata.name") != "etcd-0" || in(list, "items.0.conditions.0.status") != "True" || !strings.Contains(res.Header.Get("Warning"), "deprecated") {
		t.Errorf("answered %s with %q", text, res.Header.Get("Warning"))
	}
	if cells := cellsOf(t, must(t, s, http.MethodGet, components+"/etcd-0", "", http.StatusOK, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"), "etcd-0"); cells != "Healthy ok " {
		t.Errorf("shown as %q", cells)
	}
	must(t, s, http.MethodPost, components, `{"metadata":{"name":"x"}}`, http.StatusMethodNotAllowed)
	must(t, s, http.MethodDelete, components+"/etcd-0", "", http.StatusMethodNotAllowed)
	must(t, s, http.MethodPatch, components+"/etcd-0", `{}`, http.StatusMethodNotAllowed, "Content-Type", "application/merge-patch+json")
}

// TestDataOnlyKindsNameTheFlag: without --builtin=all their paths say how to get them.
func TestDataOnlyKindsNameTheFlag(t *testing.T) {
	s := servertest.New(t)
	for _, line := range builtin.Lines() {
		if code, text := do(s, http.MethodPost, collection(line), `{}`); code == http.StatusNotFound && !strings.Contains(text, "--builtin=all") {
			t.Errorf("%s: %s", collection(line), text)
		}
	}
	text := must(t, s, http.MethodPost, "/apis/apps/v1/namespaces/default/deployments", `{}`, http.StatusNotFound)
	if !strings.Contains(text, "deployments.apps") {
		t.Errorf("answered %s", text)
	}
}

// TestOwnService: default/kubernetes leads to the server.
func TestOwnService(t *testing.T) {
	s := servertest.New(t, all)
	service := parse(t, must(t, s, http.MethodGet, "/api/v1/namespaces/default/services/kubernetes", "", http.StatusOK))
	slice := parse(t, must(t, s, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", "", http.StatusOK))
	if at(service, "spec.clusterIP") != "10.0.0.1" || in(slice, "endpoints.0.addresses.0") != "127.0.0.1" {
		t.Errorf("the service is %v, the slice %v", service, slice)
	}
}

// TestCreatedStatus: of a Node that is created the status is kept, as a kubelet registers by it; of other kinds it isn't.
func TestCreatedStatus(t *testing.T) {
	s := servertest.New(t, all)
	node := parse(t, must(t, s, http.MethodPost, "/api/v1/nodes", `{"metadata":{"name":"n"},"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.1"}]}}`, http.StatusCreated))
	if in(node, "status.addresses.0.address") != "192.0.2.1" {
		t.Errorf("the node is %v", node)
	}
	volume := parse(t, must(t, s, http.MethodPost, "/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"}},"status":{"message":"m"}}`, http.StatusCreated))
	if at(volume, "status.message") != nil {
		t.Errorf("the volume is %v", volume)
	}
}

// TestEventsBySource: a core Event without a source is found by who reports it.
func TestEventsBySource(t *testing.T) {
	s := servertest.New(t, all)
	const core, events = "/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/namespaces/default/events"
	must(t, s, http.MethodPost, events, `{"metadata":{"name":"reported"},"regarding":{"namespace":"default"},"reportingController":"a","reportingInstance":"i","action":"x","reason":"r","type":"Normal","eventTime":"2026-01-01T00:00:00.000000Z"}`, http.StatusCreated)
	must(t, s, http.MethodPost, core, `{"metadata":{"name":"from"},"involvedObject":{"namespace":"default"},"source":{"component":"b"},"reportingComponent":"a","reportingInstance":"i"}`, http.StatusCreated)
	for source, want := range map[string]string{"a": "reported", "b": "from"} {
		list := parse(t, must(t, s, http.MethodGet, core+"?fieldSelector=source="+source, "", http.StatusOK))
		if found, _ := list["items"].([]any); len(found) != 1 || in(list, "items.0.metadata.name") != want {
			t.Errorf("by the source %s: %v", source, list)
		}
	}
}

// TestEventsExpire: both groups' events are one store, and that forgets what nobody wrote for an hour.
func TestEventsExpire(t *testing.T) {
	lives := map[string]time.Duration{}
	for _, line := range builtin.Lines() {
		if line.TTL > 0 {
			lives[line.Group+"/"+line.Kind] = line.TTL
		}
	}
	if len(lives) != 1 || lives["/Event"] != time.Hour {
		t.Errorf("these kinds expire: %v", lives)
	}
}

// TestTokens: a ServiceAccount's token is one to TokenReview, for whom it was made and as long as the account is there.
func TestTokens(t *testing.T) {
	s := servertest.New(t)
	const accounts, reviews = "/api/v1/namespaces/default/serviceaccounts", "/apis/authentication.k8s.io/v1/tokenreviews"
	must(t, s, http.MethodPost, accounts, `{"metadata":{"name":"a"}}`, http.StatusCreated)
	answer := parse(t, must(t, s, http.MethodPost, accounts+"/a/token", `{"spec":{"audiences":["x"]}}`, http.StatusCreated))
	token := str(at(answer, "status.token"))
	if strings.Count(token, ".") != 2 || at(answer, "status.expirationTimestamp") == nil {
		t.Fatalf("answered %v", answer)
	}
	review := func(token, audiences string) map[string]any {
		return parse(t, must(t, s, http.MethodPost, reviews, `{"spec":{"token":"`+token+`","audiences":[`+audiences+`]}}`, http.StatusCreated))
	}
	if r := review(token, `"x"`); at(r, "status.authenticated") != true || at(r, "status.user.username") != "system:serviceaccount:default:a" {
		t.Errorf("reviewed as %v", r["status"])
	}
	for name, r := range map[string]map[string]any{
		"of other audiences": review(token, `"y"`), "spoiled": review(token[:len(token)-4]+"AAAA", `"x"`), "of nobody": review("nonsense", `"x"`),
	} {
		if at(r, "status.authenticated") == true {
			t.Errorf("a token %s is taken: %v", name, r["status"])
		}
	}
	must(t, s, http.MethodPost, accounts+"/b/token", `{}`, http.StatusNotFound)
	must(t, s, http.MethodPost, accounts+"/a/token", `{"spec":{"expirationSeconds":5}}`, http.StatusUnprocessableEntity)
	must(t, s, http.MethodDelete, accounts+"/a", "", http.StatusOK)
	if r := review(token, `"x"`); at(r, "status.authenticated") == true {
		t.Error("the token of a deleted account is taken")
	}
}
