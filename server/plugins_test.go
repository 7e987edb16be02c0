package server_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/registry/quota"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// newWithPlugins starts a server with all kinds and those plug-ins, and no others that change something by themselves.
func newWithPlugins(t testing.TB, names ...string) *servertest.Server {
	t.Helper()
	return servertest.New(t, func(s *server.Server) {
		s.API.Builtin, s.Plugins = builtin.All, admission.Options{Enable: names}
	})
}

// post creates an object and returns the answer.
func post(s *servertest.Server, path, object string) (code int, answer string) {
	res, answer := s.Do("POST", path, object, "Content-Type", "application/yaml")
	return res.StatusCode, answer
}

// posted is post of what must be created, read into a value of its type.
func posted[T any](t *testing.T, s *servertest.Server, path, object string) (made T) {
	t.Helper()
	code, answer := post(s, path, object)
	if code != http.StatusCreated {
		t.Fatalf("POST %s: %d: %s", path, code, answer)
	}
	if err := json.Unmarshal([]byte(answer), &made); err != nil {
		t.Fatal(err)
	}
	return made
}

// refused is post of what must be refused, with the code and part of the message.
func refused(t *testing.T, s *servertest.Server, path, object string, code int, message string) {
	t.Helper()
	got, answer := post(s, path, object)
	var status struct{ Message string }
	if json.Unmarshal([]byte(answer), &status); got != code || !strings.Contains(status.Message, message) {
		t.Errorf("POST %s %s: %d %s, want %d with %q", path, object, got, answer, code, message)
	}
}

const namespaceDefault = "/api/v1/namespaces/default/"

// TestServiceAccountPlugin: pods get their account and its token, as the account and the pod say.
func TestServiceAccountPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ServiceAccount")
	s.PostYAML(namespaceDefault+"serviceaccounts", "{metadata: {name: quiet}, automountServiceAccountToken: false, imagePullSecrets: [{name: pull}]}")
	s.PostYAML(namespaceDefault+"serviceaccounts", "{metadata: {name: strict, annotations: {kubernetes.io/enforce-mountable-secrets: 'true'}}, secrets: [{name: mine}]}")
	for _, tc := range []struct {
		name, pod string
		account   string
		mounts    int // of the token
		pulls     int // imagePullSecrets
	}{
		{"default", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}], initContainers: [{name: d, image: i}]}}", "default", 2, 0},
		{"automount off", "{metadata: {name: b}, spec: {serviceAccountName: quiet, containers: [{name: c, image: i}]}}", "quiet", 0, 1},
		{"the pod has the last word", "{metadata: {name: c}, spec: {serviceAccountName: quiet, automountServiceAccountToken: true, containers: [{name: c, image: i}]}}", "quiet", 1, 1},
		{"own pull secrets", "{metadata: {name: d}, spec: {serviceAccountName: quiet, imagePullSecrets: [{name: one}, {name: two}], containers: [{name: c, image: i}]}}", "quiet", 0, 2},
		{"own mount", "{metadata: {name: e}, spec: {containers: [{name: c, image: i, volumeMounts: [{name: v, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}], volumes: [{name: v, emptyDir: {}}]}}", "default", 0, 0},
		{"mirror", "{metadata: {name: f, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: node, containers: [{name: c, image: i}]}}", "", 0, 0},
	} {
		pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", tc.pod)
		mounts := 0
		for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
			for _, m := range c.VolumeMounts {
				if strings.HasPrefix(m.Name, "kube-api-access-") && m.ReadOnly && m.MountPath == "/var/run/secrets/kubernetes.io/serviceaccount" {
					mounts++
				}
			}
		}
		if pod.Spec.ServiceAccountName != tc.account || pod.Spec.DeprecatedServiceAccount != tc.account || mounts != tc.mounts || len(pod.Spec.ImagePullSecrets) != tc.pulls {
			t.Errorf("%s: account %q, %d mounts, pull secrets %v; want %q, %d, %d", tc.name, pod.Spec.ServiceAccountName, mounts, pod.Spec.ImagePullSecrets, tc.account, tc.mounts, tc.pulls)
		}
		volumes := slices.DeleteFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Projected == nil })
		if (len(volumes) == 1) != (mounts > 0) || mounts > 0 && (len(volumes[0].Projected.Sources) != 3 || *volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds != 3607) {
			t.Errorf("%s: the volumes are %+v", tc.name, volumes)
		}
	}
	const spec = "containers: [{name: c, image: i}]"
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {serviceAccountName: none, "+spec+"}}", 403, `pods "x" is forbidden: error looking up service account default/none: serviceaccount "none" not found`)
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: node, serviceAccountName: default, "+spec+"}}", 403, "a mirror pod may not reference service accounts")
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {serviceAccountName: strict, "+spec+", volumes: [{name: v, secret: {secretName: other}}]}}", 403, `volume with secret.secretName="other" is not allowed because service account strict does not reference that secret`)
	posted[corev1.Pod](t, s, namespaceDefault+"pods", "{metadata: {name: allowed}, spec: {serviceAccountName: strict, "+spec+", volumes: [{name: v, secret: {secretName: mine}}]}}")

	// A namespace gets its account a moment after it was made; its first pod waits for that.
	s.PostYAML("/api/v1/namespaces", "metadata: {name: new}")
	posted[corev1.Pod](t, s, "/api/v1/namespaces/new/pods", "{metadata: {name: a}, spec: {"+spec+"}}")
}

// TestPriorityPlugin: a pod has the priority of its class, or of the default one.
func TestPriorityPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "Priority")
	const classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
	check := func(class string, name string, priority int32, policy corev1.PreemptionPolicy) {
		t.Helper()
		pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", "{metadata: {generateName: p-}, spec: {priorityClassName: '"+class+"', containers: [{name: c, image: i}]}}")
		if pod.Spec.PriorityClassName != name || *pod.Spec.Priority != priority || *pod.Spec.PreemptionPolicy != policy {
			t.Errorf("class %q: the pod has %q, %d, %s; want %q, %d, %s", class, pod.Spec.PriorityClassName, *pod.Spec.Priority, *pod.Spec.PreemptionPolicy, name, priority, policy)
		}
	}
	check("", "", 0, corev1.PreemptLowerPriority)
	check("system-node-critical", "system-node-critical", 2_000_001_000, corev1.PreemptLowerPriority)
	s.PostYAML(classes, "{metadata: {name: high}, value: 7, preemptionPolicy: Never}")
	s.PostYAML(classes, "{metadata: {name: normal}, value: 3, globalDefault: true}")
	check("high", "high", 7, corev1.PreemptNever)
	check("", "normal", 3, corev1.PreemptLowerPriority)
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {priorityClassName: none, containers: [{name: c, image: i}]}}", 403, "no PriorityClass with name none was found")
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {priority: 9, containers: [{name: c, image: i}]}}", 403, "the integer value of priority (9) must not be provided in pod spec; priority admission controller computed 3")
	refused(t, s, classes, "{metadata: {name: other}, value: 1, globalDefault: true}", 403, "PriorityClass normal is already marked as default. Only one default can exist")
}

// TestStorageClassPlugin: a claim that names no class gets the newest default one.
func TestStorageClassPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "DefaultStorageClass")
	const classes = "/apis/storage.k8s.io/v1/storageclasses"
	check := func(spec, want string) {
		t.Helper()
		claim := posted[corev1.PersistentVolumeClaim](t, s, namespaceDefault+"persistentvolumeclaims", "{metadata: {generateName: c-}, spec: {"+spec+"accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
		if got := claim.Spec.StorageClassName; (got == nil) != (want == "none") || got != nil && *got != want {
			t.Errorf("%s: the class is %v, want %s", spec, got, want)
		}
	}
	check("", "none")
	s.PostYAML(classes, "{metadata: {name: plain}, provisioner: x}")
	check("", "none")
	s.PostYAML(classes, "{metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: 'true'}}, provisioner: x}")
	check("", "fast")
	check("storageClassName: plain, ", "plain")
	check("storageClassName: '', ", "")
}

// TestLimitRangerPlugin: containers get what LimitRanges have as defaults, and what is beyond the bounds is refused.
func TestLimitRangerPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "LimitRanger")
	s.PostYAML(namespaceDefault+"limitranges", `{metadata: {name: l}, spec: {limits: [
		{type: Container, default: {cpu: 500m}, defaultRequest: {cpu: 100m}, min: {cpu: 50m}, max: {cpu: '1'}, maxLimitRequestRatio: {cpu: '10'}},
		{type: Pod, max: {cpu: 1500m}},
		{type: PersistentVolumeClaim, min: {storage: 1Gi}, max: {storage: 2Gi}}]}}`)
	pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", "{metadata: {name: a}, spec: {containers: [{name: c, image: i}, {name: d, image: i, resources: {requests: {cpu: 200m}, limits: {cpu: 300m}}}]}}")
	if r := pod.Spec.Containers[0].Resources; r.Requests.Cpu().String() != "100m" || r.Limits.Cpu().String() != "500m" {
		t.Errorf("the first container has %+v", r)
	}
	if r := pod.Spec.Containers[1].Resources; r.Requests.Cpu().String() != "200m" || r.Limits.Cpu().String() != "300m" {
		t.Errorf("the second container has %+v", r)
	}
	if got := pod.Annotations["kubernetes.io/limit-ranger"]; got != "LimitRanger plugin set: cpu request for container c; cpu limit for container c" {
		t.Errorf("the annotation says %q", got)
	}
	for _, tc := range []struct{ containers, message string }{
		{"[{name: c, image: i, resources: {requests: {cpu: 10m}}}]", "minimum cpu usage per Container is 50m, but request is 10m"},
		{"[{name: c, image: i, resources: {limits: {cpu: '2'}}}]", "maximum cpu usage per Container is 1, but limit is 2"},
		{"[{name: c, image: i, resources: {requests: {cpu: 60m}, limits: {cpu: 900m}}}]", "cpu max limit to request ratio per Container is 10, but provided ratio is 15"},
		{"[{name: c, image: i, resources: {limits: {cpu: '1'}}}, {name: d, image: i, resources: {limits: {cpu: '1'}}}]", "maximum cpu usage per Pod is 1500m, but limit is 2"},
		{"[{name: c, image: i}], initContainers: [{name: s, image: i, restartPolicy: Always, resources: {limits: {cpu: 900m}}}, {name: d, image: i, resources: {limits: {cpu: 900m}}}]",
			"maximum cpu usage per Pod is 1500m, but limit is 1800m"},
		{"[{name: c, image: i}], resources: {limits: {cpu: '2'}}", "maximum cpu usage per Pod is 1500m, but limit is 2"},
	} {
		refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {containers: "+tc.containers+"}}", 403, tc.message)
	}
	// A resize may change what a pod requests; an update may not.
	const merge = "application/merge-patch+json"
	for _, tc := range []struct {
		path, body, message string
	}{
		{"a/resize", `{"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"20"}}},{"name":"d","image":"i"}]}}`, "maximum cpu usage per Container is 1, but limit is 20"},
		{"a", `{"metadata":{"labels":{"a":"b"}}}`, ""},
	} {
		code := http.StatusForbidden
		if tc.message == "" {
			code = http.StatusOK
		}
		if res, text := s.Do(http.MethodPatch, namespaceDefault+"pods/"+tc.path, tc.body, "Content-Type", merge); res.StatusCode != code || !strings.Contains(text, tc.message) {
			t.Errorf("PATCH %s %s: %d %s", tc.path, tc.body, res.StatusCode, text)
		}
	}
	for size, message := range map[string]string{"100Mi": "minimum storage usage per PersistentVolumeClaim is 1Gi, but request is 100Mi", "3Gi": "maximum storage usage per PersistentVolumeClaim is 2Gi, but request is 3Gi"} {
		refused(t, s, namespaceDefault+"persistentvolumeclaims", "{metadata: {name: x}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: "+size+"}}}}", 403, message)
	}
}

// usedOf returns what is used of a quota, once everything that follows from the writes before is done.
func usedOf(t testing.TB, s *servertest.Server, name string) map[corev1.ResourceName]string {
	t.Helper()
	s.Quiescent()
	var q corev1.ResourceQuota
	if err := json.Unmarshal([]byte(s.Get(namespaceDefault+"resourcequotas/"+name)), &q); err != nil {
		t.Fatal(err)
	}
	used := map[corev1.ResourceName]string{}
	for name, n := range q.Status.Used {
		used[name] = n.String()
	}
	return used
}

// TestResourceQuotaPlugin: objects are counted by each name that a quota may have, and those beyond it are refused.
func TestResourceQuotaPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{metadata: {name: things.example.com}, spec: {group: example.com, scope: Namespaced, names: {plural: things, kind: Thing},
		versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}}`)
	s.PostYAML(namespaceDefault+"secrets", "metadata: {name: before}")
	s.PostYAML(namespaceDefault+"resourcequotas", `{metadata: {name: q}, spec: {hard: {configmaps: '1', secrets: '2', count/things.example.com: '1', count/leases.coordination.k8s.io: '0',
		services: '3', services.nodeports: '2', services.loadbalancers: '1', pods: '1', count/pods: '2'}}}`)
	if used := usedOf(t, s, "q"); used["secrets"] != "1" || used["configmaps"] != "0" || len(used) != 9 {
		t.Fatalf("at first %v is used", used)
	}
	thing := "{apiVersion: example.com/v1, kind: Thing, metadata: {name: %s}}"
	const things = "/apis/example.com/v1/namespaces/default/things"
	s.PostYAML(namespaceDefault+"configmaps", "metadata: {name: a}")
	refused(t, s, namespaceDefault+"configmaps", "metadata: {name: b}", 403, `configmaps "b" is forbidden: exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1`)
	s.PostYAML(things, fmt.Sprintf(thing, "a"))
	refused(t, s, things, fmt.Sprintf(thing, "b"), 403, "exceeded quota: q, requested: count/things.example.com=1")
	refused(t, s, "/apis/coordination.k8s.io/v1/namespaces/default/leases", "metadata: {name: a}", 403, "count/leases.coordination.k8s.io=1")
	s.PostYAML("/api/v1/namespaces/kube-system/configmaps", "metadata: {name: elsewhere}")

	s.PostYAML(namespaceDefault+"services", "{metadata: {name: a}, spec: {ports: [{port: 80}]}}")
	refused(t, s, namespaceDefault+"services", "{metadata: {name: b}, spec: {type: NodePort, ports: [{name: a, port: 1}, {name: b, port: 2}, {name: c, port: 3}]}}", 403, "services.nodeports=3")
	if res, answer := s.Do("PATCH", namespaceDefault+"services/a", `{"spec":{"type":"LoadBalancer"}}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != 200 {
		t.Fatal(answer)
	}
	refused(t, s, namespaceDefault+"services", "{metadata: {name: b}, spec: {type: LoadBalancer, ports: [{port: 80}]}}", 403, "requested: services.loadbalancers=1, used: services.loadbalancers=1, limited: services.loadbalancers=1")

	const pod = "{metadata: {name: %s}, spec: {containers: [{name: c, image: i}]}}"
	s.PostYAML(namespaceDefault+"pods", fmt.Sprintf(pod, "a"))
	refused(t, s, namespaceDefault+"pods", fmt.Sprintf(pod, "b"), 403, "requested: pods=1, used: pods=1, limited: pods=1")
	if res, answer := s.Do("PATCH", namespaceDefault+"pods/a/status", `{"status":{"phase":"Succeeded"}}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != 200 {
		t.Fatal(answer)
	}
	if used := usedOf(t, s, "q"); used["pods"] != "0" || used["count/pods"] != "1" || used["services"] != "2" || used["services.nodeports"] != "1" || used["services.loadbalancers"] != "1" {
		t.Errorf("after the pod's end %v is used", used)
	}
	s.PostYAML(namespaceDefault+"pods", fmt.Sprintf(pod, "b"))

	// A refusal after the charge, a dry run, and a deletion leave room.
	s.Do("POST", namespaceDefault+"secrets?dryRun=All", `{"metadata":{"name":"dry"}}`, "Content-Type", "application/json")
	refused(t, s, namespaceDefault+"secrets", "metadata: {name: before}", 409, "already exists")
	s.Do("DELETE", namespaceDefault+"configmaps/a", "")
	if used := usedOf(t, s, "q"); used["secrets"] != "1" || used["configmaps"] != "0" {
		t.Errorf("after a deletion and a conflict %v is used", used)
	}
	s.PostYAML(namespaceDefault+"configmaps", "metadata: {name: b}")
	s.PostYAML(namespaceDefault+"secrets", "metadata: {name: second}")
}

// TestResourceQuotaCompute: what pods ask for and may take is counted and limited, when they're made, resized and gone; so is what
// claims ask for.
func TestResourceQuotaCompute(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	const merge = "application/merge-patch+json"
	s.PostYAML(namespaceDefault+"resourcequotas", `{metadata: {name: q}, spec: {hard: {cpu: '2', requests.memory: 1Gi, limits.cpu: '3', requests.ephemeral-storage: 1Gi, hugepages-2Mi: 8Mi,
		requests.example.com/gpu: '2', requests.storage: 10Gi, gold.storageclass.storage.k8s.io/requests.storage: 3Gi, gold.storageclass.storage.k8s.io/persistentvolumeclaims: '2',
		fast.deviceclass.resource.k8s.io/devices: '3', count/deployments.apps: '0'}}}`)
	if used := usedOf(t, s, "q"); used["cpu"] != "0" || used["requests.example.com/gpu"] != "0" || len(used) != 11 {
		t.Fatalf("at first %v is used", used)
	}
	pod := func(name, resources string) string {
		return "{metadata: {name: " + name + "}, spec: {containers: [{name: c, image: i, resources: {" + resources + "}}], initContainers: [{name: first, image: i, resources: {requests: {cpu: 100m, memory: 1Mi}, limits: {cpu: 1500m}}}]}}"
	}
	refused(t, s, namespaceDefault+"pods", "{metadata: {name: x}, spec: {containers: [{name: b, image: i}, {name: a, image: i, resources: {requests: {cpu: 1m}}}]}}", 403,
		`pods "x" is forbidden: failed quota: q: must specify cpu for: b; limits.cpu for: a,b; requests.memory for: a,b`)
	s.PostYAML(namespaceDefault+"pods", pod("a", "requests: {cpu: 500m, memory: 256Mi, ephemeral-storage: 1Mi, hugepages-2Mi: 4Mi, example.com/gpu: 1}, limits: {cpu: '1', hugepages-2Mi: 4Mi, example.com/gpu: 1}"))
	if used := usedOf(t, s, "q"); used["cpu"] != "500m" || used["requests.memory"] != "256Mi" || used["limits.cpu"] != "1500m" || used["hugepages-2Mi"] != "4Mi" || used["requests.example.com/gpu"] != "1" {
		t.Errorf("of a pod %v is used", used)
	}
	refused(t, s, namespaceDefault+"pods", pod("b", "requests: {cpu: 1600m, memory: 1Gi}, limits: {cpu: 1600m}"), 403,
		"exceeded quota: q, requested: cpu=1600m,limits.cpu=1600m,requests.memory=1Gi, used: cpu=500m,limits.cpu=1500m,requests.memory=256Mi, limited: cpu=2,limits.cpu=3,requests.memory=1Gi")
	if res, text := s.Do("PATCH", namespaceDefault+"pods/a/resize", `{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"2100m","memory":"256Mi","ephemeral-storage":"1Mi","hugepages-2Mi":"4Mi","example.com/gpu":"1"},"limits":{"cpu":"2500m","hugepages-2Mi":"4Mi","example.com/gpu":"1"}}}]}}`,
		"Content-Type", "application/strategic-merge-patch+json"); res.StatusCode != 403 || !strings.Contains(text, "exceeded quota: q, requested: cpu=1600m, used: cpu=500m, limited: cpu=2") {
		t.Errorf("a resize is answered %d %s", res.StatusCode, text)
	}
	s.Do("PATCH", namespaceDefault+"pods/a", `{"metadata":{"labels":{"a":"b"}}}`, "Content-Type", merge)
	s.Do("DELETE", namespaceDefault+"pods/a", "")
	if used := usedOf(t, s, "q"); used["cpu"] != "0" || used["limits.cpu"] != "0" {
		t.Errorf("after a deletion %v is used", used)
	}

	claim := "{metadata: {name: %s}, spec: {storageClassName: %s, accessModes: [ReadWriteOnce], resources: {requests: {storage: %s}}}}"
	s.PostYAML(namespaceDefault+"persistentvolumeclaims", fmt.Sprintf(claim, "a", "gold", "2Gi"))
	refused(t, s, namespaceDefault+"persistentvolumeclaims", fmt.Sprintf(claim, "b", "gold", "2Gi"), 403,
		"exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi, used: gold.storageclass.storage.k8s.io/requests.storage=2Gi, limited: gold.storageclass.storage.k8s.io/requests.storage=3Gi")
	s.PostYAML(namespaceDefault+"persistentvolumeclaims", fmt.Sprintf(claim, "b", "other", "5Gi"))
	if used := usedOf(t, s, "q"); used["requests.storage"] != "7Gi" || used["gold.storageclass.storage.k8s.io/persistentvolumeclaims"] != "1" {
		t.Errorf("of claims %v is used", used)
	}
	refused(t, s, "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", "{metadata: {name: a}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: fast, count: 4}}]}}}", 403,
		"requested: fast.deviceclass.resource.k8s.io/devices=4")
}

// TestResourceQuotaExtendedDevices: a claim's devices count as the extended resource that their class stands for, unless they are what
// its pod was charged for.
func TestResourceQuotaExtendedDevices(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	const (
		classes  = "/apis/resource.k8s.io/v1/deviceclasses"
		claims   = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
		gpu      = corev1.ResourceName("requests.example.com/gpu")
		implicit = corev1.ResourceName("requests.deviceclass.resource.kubernetes.io/fast")
	)
	is := func(when, ofGPU, ofImplicit string) {
		t.Helper()
		if used := usedOf(t, s, "q"); used[gpu] != ofGPU || used[implicit] != ofImplicit {
			t.Errorf("%s %v is used", when, used)
		}
	}
	claim := func(name, meta string, n int) string {
		return fmt.Sprintf("{metadata: {name: %s%s}, spec: {devices: {requests: [{name: r, exactly: {deviceClassName: fast, count: %d}}]}}}", name, meta, n)
	}
	s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: q}, spec: {hard: {requests.example.com/gpu: '3', requests.deviceclass.resource.kubernetes.io/fast: '4'}}}")
	s.PostYAML(claims, claim("a", "", 2))
	is("without the class", "0", "0")
	s.PostYAML(classes, "{metadata: {name: fast}, spec: {extendedResourceName: example.com/gpu}}")
	is("with it", "2", "2")
	refused(t, s, claims, claim("b", "", 2), 403, "exceeded quota: q, requested: requests.example.com/gpu=2, used: requests.example.com/gpu=2, limited: requests.example.com/gpu=3")

	made := posted[corev1.Pod](t, s, namespaceDefault+"pods", "{metadata: {name: p}, spec: {containers: [{name: c, image: i, resources: {limits: {example.com/gpu: 1}}}]}}")
	is("with a pod", "3", "2")
	owned := fmt.Sprintf(", annotations: {resource.kubernetes.io/extended-resource-claim: 'true'}, ownerReferences: [{apiVersion: v1, kind: Pod, name: p, uid: %s, controller: true}]", made.UID)
	s.PostYAML(claims, claim("of-p", owned, 1))
	is("with the pod's claim", "3", "3")
	refused(t, s, claims, claim("second-of-p", owned, 1), 403, "requested: requests.example.com/gpu=1, used: requests.example.com/gpu=3")
	s.Do("DELETE", claims+"/a", "")
	s.Do("PATCH", namespaceDefault+"pods/p/status", `{"status":{"extendedResourceClaimStatus":{"requestMappings":[{"containerName":"c","resourceName":"example.com/gpu","requestName":"r"}],"resourceClaimName":"other"}}}`,
		"Content-Type", "application/merge-patch+json")
	is("when the pod has another claim", "2", "1")
	s.Do("DELETE", classes+"/fast", "")
	is("without the class again", "1", "0")
}

// TestResourceQuotaRules: quotas that nobody can count by are refused.
func TestResourceQuotaRules(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	for spec, message := range map[string]string{
		"hard: {configmaps: '-1'}":               `spec.hard[configmaps]: Invalid value: "-1": must be greater than or equal to 0`,
		"hard: {configmaps: 1500m}":              "must be an integer",
		"hard: {frobs: '1'}":                     "must be a standard resource for quota",
		"hard: {'a b/c': '1'}":                   "spec.hard[a b/c]: Invalid value",
		"scopes: [Terminating, NotTerminating]":  "conflicting scopes",
		"hard: {cpu: '1'}, scopes: [BestEffort]": "unsupported scope applied to resource",
		"scopes: [Sometimes]":                    "unsupported scope",
		"scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In}]}": "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
	} {
		refused(t, s, namespaceDefault+"resourcequotas", "{metadata: {name: x}, spec: {"+spec+"}}", 422, message)
	}
	s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: q}, spec: {hard: {pods: '1', requests.example.com/gpu: '1'}}}")
	if res, text := s.Do("PATCH", namespaceDefault+"resourcequotas/q", `{"spec":{"scopes":["BestEffort"]}}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != 422 || !strings.Contains(text, "field is immutable") {
		t.Errorf("a change of scopes is answered %d %s", res.StatusCode, text)
	}
}

// TestResourceQuotaScopes: a quota with scopes counts only those pods that are in all of them.
func TestResourceQuotaScopes(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "ResourceQuota")
	quotas := map[string]string{
		"terminating": "scopes: [Terminating]", "lasting": "scopes: [NotTerminating]", "best": "scopes: [BestEffort]", "other": "scopes: [NotBestEffort]",
		"class": "scopeSelector: {matchExpressions: [{scopeName: PriorityClass, operator: In, values: [high]}]}",
	}
	for name, scope := range quotas {
		s.PostYAML(namespaceDefault+"resourcequotas", "{metadata: {name: "+name+"}, spec: {hard: {pods: '5'}, "+scope+"}}")
	}
	s.PostYAML(namespaceDefault+"pods", "{metadata: {name: a}, spec: {activeDeadlineSeconds: 5, containers: [{name: c, image: i}]}}")
	s.PostYAML(namespaceDefault+"pods", "{metadata: {name: b}, spec: {priorityClassName: high, containers: [{name: c, image: i, resources: {requests: {cpu: 1m}}}]}}")
	for name, want := range map[string]string{"terminating": "1", "lasting": "1", "best": "1", "other": "1", "class": "1"} {
		if used := usedOf(t, s, name); used["pods"] != want {
			t.Errorf("of %s %v is used, want %s", name, used, want)
		}
	}
}

// TestResourceQuotaConcurrent: creates that come together don't pass together, while others delete and the
// controller counts.
func TestResourceQuotaConcurrent(t *testing.T) {
	t.Parallel()
	const most, clients, each = 5, 8, 12
	s := newWithPlugins(t, "ResourceQuota")
	s.PostYAML(namespaceDefault+"resourcequotas", fmt.Sprintf("{metadata: {name: q}, spec: {hard: {configmaps: '%d'}}}", most))
	usedOf(t, s, "q")
	watch := s.Watch(fmt.Sprintf("%s?watch=true&resourceVersion=%d", configMaps, now(t, s, configMaps)))
	var done sync.WaitGroup
	var events, left atomic.Int64
	for c := range clients {
		done.Go(func() {
			for i := range each {
				name := fmt.Sprintf("c%d-%d", c, i)
				switch code, answer := post(s, configMaps, "metadata: {name: "+name+"}"); {
				case code == 201 && i%2 == 0:
					s.Do("DELETE", configMaps+"/"+name, "")
					events.Add(2)
				case code == 201:
					events.Add(1)
					left.Add(1)
				case code != 403:
					t.Errorf("%d: %s", code, answer)
				}
			}
		})
	}
	done.Wait()
	if used := usedOf(t, s, "q")["configmaps"]; used != fmt.Sprint(left.Load()) {
		t.Errorf("%s are used, and %d are there", used, left.Load())
	}
	for there := 0; events.Load() > 0; events.Add(-1) { // in the order of the writes
		line, err := watch.Next()
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(line, `"DELETED"`) {
			there--
		} else if there++; there > most {
			t.Fatalf("there were %d configmaps at once, with a quota of %d", there, most)
		}
	}
}

// TestPluginsByDefault: with all kinds, what somebody has written an object for is done, unless that is turned off. What
// would change every pod is done under Kubernetes' name only.
func TestPluginsByDefault(t *testing.T) {
	t.Parallel()
	const limits = "{metadata: {name: a}, spec: {limits: [{type: Container, default: {cpu: 100m}}]}}"
	const class = `{metadata: {name: fast, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}, provisioner: example.com/a}`
	const claim = "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}"
	const pod = "{metadata: {name: a}, spec: {containers: [{name: a, image: a}]}}"
	for _, tc := range []struct {
		name    string
		options admission.Options
		asked   bool // what objects ask for is done
		every   bool // what changes every pod is done
	}{
		{"ours", admission.Options{}, true, false},
		{"ours, off", admission.Options{Disable: []string{"LimitRanger", "DefaultStorageClass", "ResourceQuota"}}, false, false},
		{"Kubernetes", admission.Options{Kubernetes: true}, true, true},
		{"as envtest", admission.Options{Kubernetes: true, Disable: []string{"ServiceAccount", "Priority"}}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			s := servertest.New(t, func(s *server.Server) { s.API.Builtin, s.Plugins = builtin.All, tc.options })
			post(s, namespaceDefault+"limitranges", limits)
			post(s, "/apis/storage.k8s.io/v1/storageclasses", class)
			post(s, namespaceDefault+"resourcequotas", `{metadata: {name: a}, spec: {hard: {count/configmaps: "0"}}}`)
			s.Quiescent() // the controller counts
			spec := posted[corev1.Pod](t, s, namespaceDefault+"pods", pod).Spec
			if limited := !spec.Containers[0].Resources.Limits.Cpu().IsZero(); limited != tc.asked {
				t.Errorf("the pod's limits are %v", spec.Containers[0].Resources.Limits)
			}
			if changed := spec.ServiceAccountName != "" || spec.Priority != nil; changed != tc.every {
				t.Errorf("the pod has the account %q and the priority %v", spec.ServiceAccountName, spec.Priority)
			}
			if got := posted[corev1.PersistentVolumeClaim](t, s, namespaceDefault+"persistentvolumeclaims", claim).Spec.StorageClassName; (got != nil) != tc.asked {
				t.Errorf("the claim's class is %v", got)
			}
			if code, answer := post(s, namespaceDefault+"configmaps", "metadata: {name: a}"); (code == http.StatusForbidden) != tc.asked {
				t.Errorf("beyond the quota: %d %s", code, answer)
			}
		})
	}
}

// TestAdmissionPluginNames: names of plug-ins that kube-apiserver doesn't have stop the start, and those that aren't here
// have no effect or are refused, if somebody could rely on them.
func TestAdmissionPluginNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		options admission.Options
		want    string // part of the error; "" for none
	}{
		"unknown":                {admission.Options{Enable: []string{"Nonsense"}}, `--enable-admission-plugins "Nonsense"`},
		"unknown, off":           {admission.Options{Disable: []string{"Nonsense"}}, `--disable-admission-plugins "Nonsense"`},
		"without effect":         {admission.Options{Enable: []string{"PodGroupProtection", "NamespaceLifecycle"}}, ""},
		"not here, and protects": {admission.Options{Enable: []string{"ImagePolicyWebhook"}}, "ImagePolicyWebhook"},
		"not here, off":          {admission.Options{Disable: []string{"ImagePolicyWebhook", "ServiceAccount"}}, ""},
		"on and off":             {admission.Options{Enable: []string{"Priority"}, Disable: []string{"Priority"}}, `both name "Priority"`},
		"always on":              {admission.Options{Disable: []string{"NamespaceLifecycle"}}, "can't be turned off"},
	} {
		if err := tc.options.Validate(); (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// TestQuotaWhileCharged: what deletions free is given back also while requests are under way that were charged, and what
// those have taken isn't.
func TestQuotaWhileCharged(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	const path = "/api/v1/namespaces/default/"
	const limit = 3
	uid := value(s.PostYAML(path+"resourcequotas", `{metadata: {name: q}, spec: {hard: {count/secrets: "3"}}}`), "metadata.uid")
	used := func(want string) {
		t.Helper()
		await.Right(t, func() string {
			if got := value(s.Get(path+"resourcequotas/q"), "status.used.count/secrets"); got != want {
				return fmt.Sprintf("%q are used, want %q", got, want)
			}
			return ""
		})
	}
	used("0")
	open := server.Quotas(s.Server).Begin("default") // a request that takes long
	open.Take(types.UID(uid), quota.Usage{"count/secrets": resource.MustParse("1")})
	if res, answer := s.Do(http.MethodPatch, path+"resourcequotas/q/status", `{"status":{"used":{"count/secrets":"1"}}}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != http.StatusOK {
		t.Fatal(answer)
	}
	for round := range 3 {
		for i := range limit - 1 {
			s.PostYAML(path+"secrets", fmt.Sprintf("metadata: {name: s-%d-%d}", round, i))
		}
		used("3")
		res, answer := s.Do(http.MethodPost, path+"secrets", `{"metadata":{"name":"more"}}`, "Content-Type", "application/json")
		if res.StatusCode != http.StatusForbidden || !strings.Contains(answer, "exceeded quota: q, requested: count/secrets=1, used: count/secrets=3") {
			t.Errorf("one more than the limit is answered %s %s", res.Status, answer)
		}
		for i := range limit - 1 {
			if res, answer := s.Do(http.MethodDelete, fmt.Sprintf("%ssecrets/s-%d-%d", path, round, i), ""); res.StatusCode != http.StatusOK {
				t.Fatalf("%s %s", res.Status, answer)
			}
		}
		used("1")
	}
	if n := server.Quotas(s.Server).Open(); n != 1 {
		t.Errorf("%d charges are open, want the test's", n)
	}
	open.Close()
	used("0")
	s.Quiescent()
}

// TestQuotaCountsOnce: an object whose request is still under way counts once, so the next one isn't refused although there's
// room.
func TestQuotaCountsOnce(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	const path = "/api/v1/namespaces/default/"
	uid := value(s.PostYAML(path+"resourcequotas", `{metadata: {name: q}, spec: {hard: {count/secrets: "1"}}}`), "metadata.uid")
	until(t, "the quota counts", func() bool {
		return value(s.Get(path+"resourcequotas/q"), "status.used.count/secrets") == "0"
	})
	s.PostYAML(path+"secrets", "metadata: {name: s-1}")
	open := server.Quotas(s.Server).Begin("default") // as if its request hadn't ended yet
	open.Take(types.UID(uid), quota.Usage{"count/secrets": resource.MustParse("1")})
	s.Do(http.MethodPatch, path+"resourcequotas/q", `{"spec":{"hard":{"count/secrets":"2"}}}`, "Content-Type", "application/merge-patch+json")
	until(t, "the objects were counted again", func() bool {
		return value(s.Get(path+"resourcequotas/q"), "status.hard.count/secrets") == "2"
	})
	s.PostYAML(path+"secrets", "metadata: {name: s-2}")
	open.Close()
	s.Quiescent()
	if got := value(s.Get(path+"resourcequotas/q"), "status.used.count/secrets"); got != "2" {
		t.Errorf("in the end %q are used", got)
	}
}

// TestQuotaOfBusyNamespace: clients that create and delete all the time, and have few objects at any moment, all get on: what is
// used may climb to the limit where the controller gets little of the machine, and is given back.
func TestQuotaOfBusyNamespace(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	const path = "/api/v1/namespaces/default/"
	const clients, rounds, limit = 8, 60, 40 // five times as many as there ever are
	s.PostYAML(path+"resourcequotas", fmt.Sprintf(`{metadata: {name: q}, spec: {hard: {count/secrets: "%d"}}}`, limit))
	until(t, "the quota counts", func() bool {
		return value(s.Get(path+"resourcequotas/q"), "status.used.count/secrets") == "0"
	})
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			for i := range rounds {
				name := fmt.Sprintf("s-%d-%d", c, i)
				for deadline := time.Now().Add(await.Patience); ; { // a refusal keeps the pace
					res, answer := s.Do(http.MethodPost, path+"secrets", `{"metadata":{"name":"`+name+`"}}`, "Content-Type", "application/json")
					if res.StatusCode == http.StatusCreated {
						break
					}
					if !strings.Contains(answer, "exceeded quota") || time.Now().After(deadline) {
						t.Errorf("%s: %s %s", name, res.Status, answer)
						return
					}
				}
				if res, answer := s.Do(http.MethodDelete, path+"secrets/"+name, ""); res.StatusCode != http.StatusOK {
					t.Errorf("%s: %s %s", name, res.Status, answer)
				}
			}
		})
	}
	all.Wait()
	s.Quiescent()
	if got, open := value(s.Get(path+"resourcequotas/q"), "status.used.count/secrets"), server.Quotas(s.Server).Open(); got != "0" || open != 0 {
		t.Errorf("in the end %q are used, and %d charges are open", got, open)
	}
}
