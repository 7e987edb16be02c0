package server_test

import (
	"cmp"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// newKubernetes starts a server with the plug-ins that kube-apiserver has on, and the given ones, but without ServiceAccount.
func newKubernetes(t testing.TB, options admission.Options) *servertest.Server {
	t.Helper()
	return servertest.New(t, func(s *server.Server) {
		options.Kubernetes, options.Disable = true, append(options.Disable, "ServiceAccount")
		s.API.Builtin, s.Plugins = builtin.All, options
	})
}

// answered sends a request and compares the code, and the Status for a refusal: "" compares no message.
func answered(t *testing.T, s *servertest.Server, method, path, body string, code int, message string, headers ...string) (*http.Response, string) {
	t.Helper()
	if len(headers) == 0 {
		headers = []string{"Content-Type", "application/yaml"}
		if method == http.MethodPatch {
			headers[1] = "application/merge-patch+json"
		}
	}
	res, text := s.Do(method, path, body, headers...)
	var status metav1.Status
	if err := json.Unmarshal([]byte(text), &status); err != nil && res.StatusCode >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", method, path, res.StatusCode, text)
	}
	if res.StatusCode != code || message != "" && status.Message != message {
		t.Errorf("%s %s %s:\n%d %s\nwant\n%d %s", method, path, body, res.StatusCode, text, code, message)
	}
	return res, text
}

// TestTaintNodesByCondition: a new Node isn't ready, unless it says so itself.
func TestTaintNodesByCondition(t *testing.T) {
	t.Parallel()
	s := newKubernetes(t, admission.Options{})
	for name, tc := range map[string]struct {
		taints string
		want   []string
	}{
		"none":  {"", []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		"has":   {"[{key: node.kubernetes.io/not-ready, effect: NoSchedule, value: x}]", []string{"node.kubernetes.io/not-ready=x:NoSchedule"}},
		"other": {"[{key: node.kubernetes.io/not-ready, effect: NoExecute}]", []string{"node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/not-ready:NoSchedule"}},
	} {
		node := posted[corev1.Node](t, s, "/api/v1/nodes", "{metadata: {name: "+name+"}, spec: {taints: "+tc.taints+"}}")
		var got []string
		for _, taint := range node.Spec.Taints {
			got = append(got, taint.ToString())
		}
		if strings.Join(got, ",") != strings.Join(tc.want, ",") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestTolerationPlugins: pods stay on broken nodes for as long as the flags say, and get onto the nodes whose devices they request.
func TestTolerationPlugins(t *testing.T) {
	t.Parallel()
	ten := int64(10)
	s := newKubernetes(t, admission.Options{NotReadySeconds: &ten, Enable: []string{"ExtendedResourceToleration"}})
	const (
		notReady    = "node.kubernetes.io/not-ready Exists NoExecute 10"
		unreachable = "node.kubernetes.io/unreachable Exists NoExecute 300"
	)
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"none":        {"", []string{notReady, unreachable}},
		"own":         {"tolerations: [{key: node.kubernetes.io/not-ready, operator: Exists, tolerationSeconds: 1, effect: NoExecute}],", []string{"node.kubernetes.io/not-ready Exists NoExecute 1", unreachable}},
		"everything":  {"tolerations: [{operator: Exists}],", []string{" Exists "}},
		"not evicted": {"tolerations: [{operator: Exists, effect: NoSchedule}],", []string{" Exists NoSchedule", notReady, unreachable}},
		"devices": {"initContainers: [{name: i, image: i, resources: {limits: {example.com/a: 1}}}], tolerations: [{key: example.com/b, operator: Exists, effect: NoSchedule}],",
			[]string{"example.com/b Exists NoSchedule", notReady, unreachable, "example.com/a Exists NoSchedule"}},
	} {
		pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", "{metadata: {generateName: p-}, spec: {"+tc.spec+" containers: [{name: c, image: i, resources: {limits: {cpu: 1}}}]}}")
		if got := shownTolerations(pod.Spec.Tolerations); strings.Join(got, ",") != strings.Join(tc.want, ",") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

func shownTolerations(list []corev1.Toleration) (shown []string) {
	for _, t := range list {
		text := t.Key + " " + string(t.Operator) + " " + string(t.Effect)
		if t.TolerationSeconds != nil {
			seconds, _ := json.Marshal(t.TolerationSeconds)
			text += " " + string(seconds)
		}
		shown = append(shown, text)
	}
	return shown
}

// TestStorageObjectInUseProtection: what is in use can be held.
func TestStorageObjectInUseProtection(t *testing.T) {
	t.Parallel()
	s := newKubernetes(t, admission.Options{})
	for _, tc := range []struct{ path, object, finalizer string }{
		{namespaceDefault + "persistentvolumeclaims", "{metadata: {name: a}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "kubernetes.io/pvc-protection"},
		{namespaceDefault + "persistentvolumeclaims", "{metadata: {name: b, finalizers: [kubernetes.io/pvc-protection]}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}", "kubernetes.io/pvc-protection"},
		{"/api/v1/persistentvolumes", "{metadata: {name: a}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /a}}}", "kubernetes.io/pv-protection"},
		{"/apis/storage.k8s.io/v1/volumeattributesclasses", "{metadata: {name: a}, driverName: d.example.com, parameters: {a: b}}", "kubernetes.io/vac-protection"},
	} {
		if made := posted[metav1.PartialObjectMetadata](t, s, tc.path, tc.object); len(made.Finalizers) != 1 || made.Finalizers[0] != tc.finalizer {
			t.Errorf("%s: %q", tc.path, made.Finalizers)
		}
	}
}

// TestRuntimeClassPlugin: a pod is as its class says.
func TestRuntimeClassPlugin(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t) // it's on by default
	const classes = "/apis/node.k8s.io/v1/runtimeclasses"
	s.PostYAML(classes, "{metadata: {name: plain}, handler: h}")
	s.PostYAML(classes, `{metadata: {name: heavy}, handler: h, overhead: {podFixed: {cpu: 100m}}, scheduling: {nodeSelector: {a: b},
		tolerations: [{key: x, operator: Exists}, {key: z, operator: Equal, value: v}]}}`)
	pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", `{metadata: {name: a}, spec: {runtimeClassName: heavy, nodeSelector: {c: d},
		tolerations: [{key: x, operator: Equal, value: v}, {key: z, operator: Exists}], containers: [{name: c, image: i}]}}`)
	if pod.Spec.Overhead.Cpu().String() != "100m" || len(pod.Spec.NodeSelector) != 2 || pod.Spec.NodeSelector["a"] != "b" ||
		strings.Join(shownTolerations(pod.Spec.Tolerations), ",") != "z Exists ,x Exists " {
		t.Errorf("%+v", pod.Spec)
	}
	const mismatch = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"
	for _, tc := range []struct{ spec, message string }{
		{"runtimeClassName: plain", ""},
		{"runtimeClassName: heavy, overhead: {cpu: 0.1}", ""},
		{"runtimeClassName: none", `pod rejected: RuntimeClass "none" not found`},
		{"runtimeClassName: heavy, overhead: {cpu: 200m}", mismatch},
		{"runtimeClassName: plain, overhead: {cpu: 200m}", "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{"overhead: {cpu: 200m}", "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		{"runtimeClassName: heavy, nodeSelector: {a: c}", "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c"},
	} {
		code, message := http.StatusCreated, ""
		if tc.message != "" {
			code, message = http.StatusForbidden, `pods "x" is forbidden: `+tc.message
		}
		answered(t, s, "POST", namespaceDefault+"pods?dryRun=All", "{metadata: {name: x}, spec: {"+tc.spec+", containers: [{name: c, image: i}]}}", code, message)
	}
}

// TestDefaultIngressClass: an Ingress that names no class gets the default one.
func TestDefaultIngressClass(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t)
	const group = "/apis/networking.k8s.io/v1/"
	check := func(object, want string) {
		t.Helper()
		made := posted[networkingv1.Ingress](t, s, group+"namespaces/default/ingresses?dryRun=All", object)
		if got := made.Spec.IngressClassName; (got == nil) != (want == "") || got != nil && *got != want {
			t.Errorf("%s: the class isn't %q", object, want)
		}
	}
	const backend = "defaultBackend: {service: {name: s, port: {number: 1}}}"
	check("{metadata: {name: a}, spec: {"+backend+"}}", "")
	s.PostYAML(group+"ingressclasses", "{metadata: {name: other}, spec: {controller: example.com/a}}")
	check("{metadata: {name: a}, spec: {"+backend+"}}", "")
	s.PostYAML(group+"ingressclasses", "{metadata: {name: b, annotations: {ingressclass.kubernetes.io/is-default-class: 'true'}}, spec: {controller: example.com/a}}")
	check("{metadata: {name: a}, spec: {"+backend+"}}", "b")
	check("{metadata: {name: a}, spec: {ingressClassName: other, "+backend+"}}", "other")
	check("{metadata: {name: a, annotations: {kubernetes.io/ingress.class: other}}, spec: {"+backend+"}}", "")
}

// TestClaimResize: a bound claim grows if its class lets it. Of others the kind's own rules refuse it.
func TestClaimResize(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t)
	for _, class := range []string{"{metadata: {name: grows}, provisioner: p, allowVolumeExpansion: true}", "{metadata: {name: stays}, provisioner: p}"} {
		posted[storagev1.StorageClass](t, s, "/apis/storage.k8s.io/v1/storageclasses", class)
	}
	const (
		claims = namespaceDefault + "persistentvolumeclaims"
		static = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize"
	)
	for _, tc := range []struct{ name, class, phase, message string }{
		{"good", "grows", "Bound", ""},
		{"stays", "stays", "Bound", static},
		{"unknown", "none", "Bound", static},
		{"static", "", "Bound", static},
	} {
		s.PostYAML(claims, "{metadata: {name: "+tc.name+"}, spec: {storageClassName: '"+tc.class+"', volumeName: v, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
		answered(t, s, "PATCH", claims+"/"+tc.name+"/status", `{"status":{"phase":"`+tc.phase+`"}}`, http.StatusOK, "")
		code, message := http.StatusOK, ""
		if tc.message != "" {
			code, message = http.StatusForbidden, `persistentvolumeclaims "`+tc.name+`" is forbidden: `+tc.message
		}
		answered(t, s, "PATCH", claims+"/"+tc.name, `{"metadata":{"labels":{"a":"b"}}}`, http.StatusOK, "")
		answered(t, s, "PATCH", claims+"/"+tc.name, `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, code, message)
	}
	s.PostYAML(claims, "{metadata: {name: waits}, spec: {storageClassName: grows, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}")
	_, text := answered(t, s, "PATCH", claims+"/waits", `{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}`, http.StatusUnprocessableEntity, "")
	if want := "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"; !strings.Contains(text, want) {
		t.Errorf("a claim that isn't bound: %s, want %s", text, want)
	}
}

// TestPodTopologyLabels: a pod has the zone and the region of its node, however it gets there.
func TestPodTopologyLabels(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t)
	s.PostYAML("/api/v1/nodes", "{metadata: {name: node, labels: {topology.kubernetes.io/zone: z, topology.kubernetes.io/region: r, a: b}}}")
	s.PostYAML("/api/v1/nodes", "{metadata: {name: bare, labels: {a: b}}}")
	const spec = "containers: [{name: c, image: i}]"
	s.PostYAML(namespaceDefault+"pods", "{metadata: {name: direct, labels: {topology.kubernetes.io/zone: other}}, spec: {nodeName: node, "+spec+"}}")
	s.PostYAML(namespaceDefault+"pods", "{metadata: {name: bare}, spec: {nodeName: bare, "+spec+"}}")
	s.PostYAML(namespaceDefault+"pods", "{metadata: {name: nowhere}, spec: {nodeName: nowhere, "+spec+"}}")
	for _, name := range []string{"bound", "labelled"} {
		s.PostYAML(namespaceDefault+"pods", "{metadata: {name: "+name+"}, spec: {"+spec+"}}")
	}
	s.PostYAML(namespaceDefault+"pods/bound/binding", "{metadata: {name: bound}, target: {kind: Node, name: node}}")
	s.PostYAML(namespaceDefault+"pods/labelled/binding", "{metadata: {name: labelled, labels: {x: z}}, target: {kind: Node, name: bare}}")
	for name, want := range map[string]string{
		"direct": "topology.kubernetes.io/region=r,topology.kubernetes.io/zone=z", "bound": "topology.kubernetes.io/region=r,topology.kubernetes.io/zone=z",
		"bare": "", "nowhere": "", "labelled": "x=z",
	} {
		var pod corev1.Pod
		if err := json.Unmarshal([]byte(s.Get(namespaceDefault+"pods/"+name)), &pod); err != nil {
			t.Fatal(err)
		}
		if got := metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: pod.Labels}); got != cmp.Or(want, "<none>") {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

// TestPodResizePlugins: a pod isn't resized beyond its node, nor in ways that the node doesn't know.
func TestPodResizePlugins(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t)
	node := func(name, os, status string) {
		s.PostYAML("/api/v1/nodes", "{metadata: {name: "+name+", labels: {kubernetes.io/os: "+os+"}}}")
		answered(t, s, "PATCH", "/api/v1/nodes/"+name+"/status", `{"status":`+status+`}`, http.StatusOK, "")
	}
	node("small", "linux", `{"allocatable":{"cpu":"1","memory":"1Gi"}}`)
	node("knows", "linux", `{"allocatable":{"cpu":"1","memory":"1Gi"},"declaredFeatures":["InPlacePodVerticalScalingInitContainers"]}`)
	node("windows", "windows", `{"allocatable":{"cpu":"1","memory":"1Gi"}}`)
	const resize = `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"2","memory":"2Gi"}}}]}}`
	const init = `{"spec":{"initContainers":[{"name":"i","image":"i","resources":{"requests":{"cpu":"20m"}}}]}}`
	for _, tc := range []struct{ name, node, patch, message, cause string }{
		{"unbound", "", resize, "", ""},
		{"small", "small", resize, "node didn't have enough allocatable resources: cpu, requested: 2000, allocatable: 1000; memory, requested: 2147483648, allocatable: 1073741824", "NodeCapacity"},
		{"fits", "small", `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"20m"}}}]}}`, "", ""},
		{"nowhere", "nowhere", resize, `node "nowhere" not found`, ""},
		{"windows", "windows", resize, `pod resize is only supported on linux nodes, node "windows" is "windows"`, "UnsupportedPlatform"},
		{"init", "small", init, `pod update requires features InPlacePodVerticalScalingInitContainers which are not available on node "small"`, ""},
		{"known", "knows", init, "", ""},
	} {
		s.PostYAML(namespaceDefault+"pods", "{metadata: {name: "+tc.name+"}, spec: {nodeName: '"+tc.node+"', initContainers: [{name: i, image: i, resources: {requests: {cpu: 10m}}}], containers: [{name: c, image: i, resources: {requests: {cpu: 10m, memory: 1Mi}}}]}}")
		code, message := http.StatusOK, ""
		if tc.message != "" {
			code, message = http.StatusForbidden, `pods "`+tc.name+`" is forbidden: `+tc.message
		}
		_, text := answered(t, s, "PATCH", namespaceDefault+"pods/"+tc.name+"/resize", tc.patch, code, message, "Content-Type", "application/strategic-merge-patch+json")
		var status metav1.Status
		if err := json.Unmarshal([]byte(text), &status); code != http.StatusOK && (err != nil || (len(status.Details.Causes) == 1) != (tc.cause != "") || tc.cause != "" && string(status.Details.Causes[0].Type) != tc.cause) {
			t.Errorf("%s: the cause isn't %q: %s", tc.name, tc.cause, text)
		}
	}
}

// TestAlwaysPullImages: nothing is taken from what a node has.
func TestAlwaysPullImages(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t, "AlwaysPullImages")
	pod := posted[corev1.Pod](t, s, namespaceDefault+"pods", `{metadata: {name: a}, spec: {containers: [{name: c, image: i, imagePullPolicy: Never}], initContainers: [{name: d, image: i}],
		volumes: [{name: v, image: {reference: r, pullPolicy: IfNotPresent}}]}}`)
	if pod.Spec.Containers[0].ImagePullPolicy != corev1.PullAlways || pod.Spec.InitContainers[0].ImagePullPolicy != corev1.PullAlways || pod.Spec.Volumes[0].Image.PullPolicy != corev1.PullAlways {
		t.Errorf("%+v", pod.Spec)
	}
}

// admissionFile is a file of --admission-control-config-file but for the plug-ins.
const admissionFile = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins: "

// TestEventRateLimit: Events beyond the rates of the file are refused, and dry runs don't count.
func TestEventRateLimit(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(admissionFile+"[{name: EventRateLimit, path: limits.yaml}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(file), "limits.yaml"), []byte(`{apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [
		{type: Server, qps: 1, burst: 1000}, {type: Namespace, qps: 1, burst: 100}, {type: SourceAndObject, qps: 1, burst: 1}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newKubernetes(t, admission.Options{Enable: []string{"EventRateLimit"}, ConfigFile: file})
	event := func(name, of string) string {
		return "{metadata: {name: " + name + "}, involvedObject: {kind: Pod, namespace: default, name: " + of + "}, source: {component: me}, reason: r, message: m, type: Normal}"
	}
	const events = namespaceDefault + "events"
	answered(t, s, "POST", events+"?dryRun=All", event("a", "p"), http.StatusCreated, "")
	answered(t, s, "POST", events, event("a", "p"), http.StatusCreated, "")
	answered(t, s, "POST", events, event("b", "p"), http.StatusTooManyRequests, "Too many requests: limit reached on type SourceAndObject for key mePoddefaultp")
	answered(t, s, "POST", events, event("b", "q"), http.StatusCreated, "")
}

// TestAdmissionConfiguration: what is wrong with the file is said at the start.
func TestAdmissionConfiguration(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ plugins, want string }{
		"no limits":     {"[{name: EventRateLimit}]", "admission plug-in EventRateLimit: limits: Invalid value: null: must not be empty"},
		"not theirs":    {"[{name: EventRateLimit, configuration: {apiVersion: v1, kind: Pod}}]", `admission plug-in EventRateLimit: the configuration is "v1" "Pod"`},
		"no type":       {"[{name: EventRateLimit, configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Host, qps: 0, burst: 1}]}}]", `[limits[0].type: Unsupported value: "Host": supported values: "Namespace", "Server", "SourceAndObject", "User", limits[0].qps: Invalid value: 0: must be positive]`},
		"no level":      {"[{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration, defaults: {enforce: strict}}}]", "admission plug-in PodSecurity: enforce: must be one of privileged, baseline, restricted"},
		"missing":       {"[{name: PodSecurity, path: missing.yaml}]", "missing.yaml: no such file or directory"},
		"unread":        {"[{name: ResourceQuota, configuration: {}}]", "configures ResourceQuota, which this server doesn't read"},
		"unknown field": {"[]\nmore: 1", `unknown field "more"`},
	} {
		file := filepath.Join(t.TempDir(), "admission.yaml")
		if err := os.WriteFile(file, []byte(admissionFile+tc.plugins), 0o600); err != nil {
			t.Fatal(err)
		}
		s := server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, API: server.API{Builtin: builtin.All}, Plugins: admission.Options{Kubernetes: true, Enable: []string{"EventRateLimit"}, ConfigFile: file}}
		if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}

// violations is what the level restricted has against a pod that says nothing.
const violations = `allowPrivilegeEscalation != false (container "c" must set securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container "c" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true (pod or container "c" must set securityContext.runAsNonRoot=true), seccompProfile (pod or container "c" must set securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost")`

// TestPodSecurity: pods are held to the level of their namespace; what would make such pods, and a namespace that gets stricter than
// the pods in it, is warned about.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	s := newWithPlugins(t)
	for name, labels := range map[string]string{
		"open": "{}", "strict": "{pod-security.kubernetes.io/enforce: restricted}", "base": "{pod-security.kubernetes.io/enforce: baseline, pod-security.kubernetes.io/enforce-version: v1.20}",
		"warns": "{pod-security.kubernetes.io/warn: baseline}",
	} {
		s.PostYAML("/api/v1/namespaces", "{metadata: {name: "+name+", labels: "+labels+"}}")
	}
	const (
		plain      = "containers: [{name: c, image: i}]"
		privileged = "containers: [{name: c, image: i, securityContext: {privileged: true}}]"
		good       = `securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}, containers: [{name: c, image: i, securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}]`
		breaks     = `privileged (container "c" must not set securityContext.privileged=true)`
	)
	for _, tc := range []struct{ namespace, spec, message, warning string }{
		{"open", privileged, "", ""},
		{"strict", plain, `violates PodSecurity "restricted:latest": ` + violations, ""},
		{"strict", good, "", ""},
		{"base", plain, "", ""},
		{"base", privileged, `violates PodSecurity "baseline:v1.20": ` + breaks, ""},
		{"warns", privileged, "", `would violate PodSecurity "baseline:latest": ` + breaks},
	} {
		code, message := http.StatusCreated, ""
		if tc.message != "" {
			code, message = http.StatusForbidden, `pods "x" is forbidden: `+tc.message
		}
		res, _ := answered(t, s, "POST", "/api/v1/namespaces/"+tc.namespace+"/pods?dryRun=All", "{metadata: {name: x}, spec: {"+tc.spec+"}}", code, message)
		warned(t, res, tc.warning)
	}
	res, _ := answered(t, s, "POST", "/apis/apps/v1/namespaces/strict/deployments", "{metadata: {name: x}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {"+plain+"}}}}", http.StatusCreated, "")
	warned(t, res, `would violate PodSecurity "restricted:latest": `+violations)
	res, _ = answered(t, s, "POST", "/apis/batch/v1/namespaces/strict/cronjobs", "{metadata: {name: x}, spec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {restartPolicy: Never, "+plain+"}}}}}}", http.StatusCreated, "")
	warned(t, res, `would violate PodSecurity "restricted:latest": `+violations)
	res, _ = answered(t, s, "POST", "/api/v1/namespaces/strict/replicationcontrollers", "{metadata: {name: x}, spec: {selector: {a: b}, template: {metadata: {labels: {a: b}}, spec: {"+good+"}}}}", http.StatusCreated, "")
	warned(t, res)

	// An update that brings nothing isn't judged, one that brings an image is.
	s.PostYAML("/api/v1/namespaces/open/pods", "{metadata: {name: a}, spec: {"+plain+"}}")
	s.PostYAML("/api/v1/namespaces/open/pods", "{metadata: {name: b}, spec: {"+plain+"}}")
	const level = `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
	res, _ = answered(t, s, "PATCH", "/api/v1/namespaces/open", level, http.StatusOK, "")
	warned(t, res, `existing pods in namespace "open" violate the new PodSecurity enforce level "restricted:latest"`,
		"a (and 1 other pod): allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != true, seccompProfile")
	answered(t, s, "PATCH", "/api/v1/namespaces/open/pods/a", `{"metadata":{"labels":{"c":"d"}}}`, http.StatusOK, "")
	answered(t, s, "PATCH", "/api/v1/namespaces/open/pods/a", `{"spec":{"containers":[{"name":"c","image":"j"}]}}`, http.StatusForbidden,
		`pods "a" is forbidden: violates PodSecurity "restricted:latest": `+violations, "Content-Type", "application/strategic-merge-patch+json")

	const wrong = `metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": must be one of privileged, baseline, restricted`
	answered(t, s, "POST", "/api/v1/namespaces", "{metadata: {name: wrong, labels: {pod-security.kubernetes.io/enforce: strict}}}", http.StatusUnprocessableEntity, `Namespace "wrong" is invalid: `+wrong)
	answered(t, s, "PATCH", "/api/v1/namespaces/open", `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"strict"}}}`, http.StatusUnprocessableEntity, `Namespace "open" is invalid: `+wrong)
}

// warned compares the warnings of an answer.
func warned(t *testing.T, res *http.Response, want ...string) {
	t.Helper()
	got := strings.Join(res.Header.Values("Warning"), "\n")
	for _, text := range want {
		quoted, _ := json.Marshal(text)
		if text != "" && !strings.Contains(got, "299 - "+string(quoted)) {
			t.Errorf("%s %s warns\n%s, want\n%s", res.Request.Method, res.Request.URL, got, quoted)
		}
	}
	if len(want) == 0 && got != "" || len(want) == 1 && want[0] == "" && got != "" {
		t.Errorf("%s %s warns %s", res.Request.Method, res.Request.URL, got)
	}
}

// TestPodSecurityConfiguration: the file says what namespaces without labels are held to, and who isn't.
func TestPodSecurityConfiguration(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "admission.yaml")
	if err := os.WriteFile(file, []byte(admissionFile+`[{name: PodSecurity, configuration: {apiVersion: pod-security.admission.config.k8s.io/v1, kind: PodSecurityConfiguration,
  defaults: {enforce: baseline}, exemptions: {namespaces: [free], runtimeClasses: [vm]}}}]`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newKubernetes(t, admission.Options{ConfigFile: file})
	res, _ := answered(t, s, "POST", "/api/v1/namespaces", "{metadata: {name: free, labels: {pod-security.kubernetes.io/enforce: restricted}}}", http.StatusCreated, "")
	warned(t, res, `namespace "free" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored`)
	s.PostYAML("/apis/node.k8s.io/v1/runtimeclasses", "{metadata: {name: vm}, handler: h}")
	const pod = "{metadata: {name: x}, spec: {hostNetwork: true, containers: [{name: c, image: i}]}}"
	answered(t, s, "POST", namespaceDefault+"pods", pod, http.StatusForbidden, `pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostNetwork=true)`)
	answered(t, s, "POST", "/api/v1/namespaces/free/pods", pod, http.StatusCreated, "")
	answered(t, s, "POST", namespaceDefault+"pods", strings.Replace(pod, "spec: {", "spec: {runtimeClassName: vm, ", 1), http.StatusCreated, "")
	// A namespace that isn't there is what is wrong, and nothing else.
	answered(t, s, "POST", "/api/v1/namespaces/none/pods", pod, http.StatusNotFound, `namespaces "none" not found`)
}
