package builtin_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// strategies are what the strategies and the stores of Kubernetes 1.37.2 say of each kind: AllowUnconditionalUpdate (u),
// AllowCreateOnUpdate (c), ReturnDeletedObject (d), that PrepareForCreate begins a generation (g), and what a write of the
// status changes of metadata (L labels, A annotations, F finalizers, O owners). Read in pkg/registry, and for APIService in
// kube-aggregator.
var strategies = map[string]string{
	"/ConfigMap": "u", "/Secret": "u", "/ServiceAccount": "ud", "/Event": "uc", "events.k8s.io/Event": "uc", "coordination.k8s.io/Lease": "c",
	"rbac.authorization.k8s.io/Role": "uc", "rbac.authorization.k8s.io/RoleBinding": "uc",
	"rbac.authorization.k8s.io/ClusterRole": "uc", "rbac.authorization.k8s.io/ClusterRoleBinding": "uc",
	"admissionregistration.k8s.io/ValidatingWebhookConfiguration": "g", "admissionregistration.k8s.io/MutatingWebhookConfiguration": "g",
	"admissionregistration.k8s.io/ValidatingAdmissionPolicy": "g", "admissionregistration.k8s.io/ValidatingAdmissionPolicyBinding": "g",
	"admissionregistration.k8s.io/MutatingAdmissionPolicy": "g", "admissionregistration.k8s.io/MutatingAdmissionPolicyBinding": "g",

	"/Pod": "udg LAF", "/Service": "ucd LAFO", "/Endpoints": "uc", "discovery.k8s.io/EndpointSlice": "ug", "/Node": "u LAFO",
	"apps/Deployment": "ug AFO", "apps/StatefulSet": "ug LAFO", "apps/DaemonSet": "ug LAFO", "apps/ReplicaSet": "ug LAFO",
	"apps/ControllerRevision": "u", "/ReplicationController": "ug LAFO", "batch/Job": "ug LAFO", "batch/CronJob": "ug LAFO", "/PodTemplate": "udg",

	"/PersistentVolume": "ud LAFO", "/PersistentVolumeClaim": "ud LAFO", "storage.k8s.io/StorageClass": "ud", "storage.k8s.io/VolumeAttachment": "d",
	"storage.k8s.io/CSIDriver": "d", "storage.k8s.io/CSINode": "d", "storage.k8s.io/CSIStorageCapacity": "", "storage.k8s.io/VolumeAttributesClass": "ud",

	"networking.k8s.io/Ingress": "ug LAFO", "networking.k8s.io/IngressClass": "ug", "networking.k8s.io/NetworkPolicy": "ug",
	"networking.k8s.io/IPAddress": "u", "networking.k8s.io/ServiceCIDR": "u",

	"autoscaling/HorizontalPodAutoscaler": "ug LAFO", "policy/PodDisruptionBudget": "g LAFO", "/ResourceQuota": "ud LAFO", "/LimitRange": "uc",
	"scheduling.k8s.io/PriorityClass": "ug", "node.k8s.io/RuntimeClass": "c",

	"certificates.k8s.io/CertificateSigningRequest": "u LAFO", "certificates.k8s.io/ClusterTrustBundle": "", "certificates.k8s.io/PodCertificateRequest": "",
	"flowcontrol.apiserver.k8s.io/FlowSchema": "ug", "flowcontrol.apiserver.k8s.io/PriorityLevelConfiguration": "ug",
	"resource.k8s.io/ResourceClaim": "ud", "resource.k8s.io/ResourceClaimTemplate": "ud", "resource.k8s.io/ResourceSlice": "udg",
	"resource.k8s.io/DeviceClass": "udg", "resource.k8s.io/DeviceTaintRule": "g", "apiregistration.k8s.io/APIService": "",
	"storagemigration.k8s.io/StorageVersionMigration": "",
}

// TestStrategies: each kind takes and answers writes as Kubernetes' strategy of it says.
func TestStrategies(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const merge = "application/merge-patch+json"
	for _, line := range builtin.Lines() {
		if !stored(line) || line.Unstored.Answer != nil {
			continue
		}
		t.Run(strings.ReplaceAll(apiVersion(line)+" "+line.Kind, "/", "."), func(t *testing.T) {
			want, known := strategies[line.Group+"/"+line.Kind]
			if !known {
				t.Fatal("the table has no such kind: read its strategy")
			}
			flags, status, _ := strings.Cut(want, " ")
			says := func(what string, got bool, flag string) {
				t.Helper()
				if want := strings.Contains(flags, flag); got != want {
					t.Errorf("%s: %v, want %v", what, got, want)
				}
			}
			obj := parse(t, withType(t, line, filled(t, line)))
			meta := obj["metadata"].(map[string]any)
			delete(meta, "finalizers")
			created := parse(t, must(t, s, http.MethodPost, collection(line), encode(t, obj), http.StatusCreated))
			path := collection(line) + "/" + str(at(created, "metadata.name"))
			says("it has a generation", at(created, "metadata.generation") != nil, "g")

			code, text := do(s, http.MethodPut, path, encode(t, obj))
			if code != http.StatusOK && (code != http.StatusUnprocessableEntity || !strings.Contains(text, "metadata.resourceVersion")) {
				t.Errorf("a PUT without a resourceVersion: %d %s", code, text)
			}
			says("a PUT may leave resourceVersion out", code == http.StatusOK, "u")

			name := meta["name"]
			meta["name"] = "absent"
			code, _ = do(s, http.MethodPut, collection(line)+"/absent?dryRun=All", encode(t, obj))
			meta["name"] = name
			says("a PUT creates", code != http.StatusNotFound, "c")

			if line.Status {
				text := must(t, s, http.MethodPatch, path+"/status", `{"metadata":{"labels":{"s":"1"},"annotations":{"s":"1","apiserver-lite/ttl":"0s"},"finalizers":["example.com/s"],
					"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"o","uid":"u"}]}}`, http.StatusOK, "Content-Type", merge)
				after, took := parse(t, text), ""
				for _, part := range []struct{ letter, path string }{{"L", "metadata.labels.s"}, {"A", "metadata.annotations.s"}, {"F", "metadata.finalizers"}, {"O", "metadata.ownerReferences"}} {
					if at(after, part.path) != nil {
						took += part.letter
					}
				}
				if took != status {
					t.Errorf("a write of the status changes %q of metadata, want %q", took, status)
				}
				if strings.Contains(text, "apiserver-lite/ttl") {
					t.Error("a status has brought the annotation that deletes")
				}
			}

			must(t, s, http.MethodPatch, path, `{"metadata":{"finalizers":null}}`, http.StatusOK, "Content-Type", merge)
			gone := parse(t, must(t, s, http.MethodDelete, path+"?gracePeriodSeconds=0&propagationPolicy=Background", "", http.StatusOK))
			says("a DELETE answers with the object", gone["kind"] == line.Kind && at(gone, "metadata.uid") == at(created, "metadata.uid"), "d")
			if !strings.Contains(flags, "d") && gone["kind"] != "Status" {
				t.Errorf("a DELETE answers with a %v", gone["kind"])
			}
			must(t, s, http.MethodGet, path, "", http.StatusNotFound)
		})
	}
}

func encode(t *testing.T, obj any) string {
	t.Helper()
	b, err := json.Marshal(obj)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestJobLabels: a Job that is sent without labels has those of its template, also those that the server gives that; one with labels keeps its own.
func TestJobLabels(t *testing.T) {
	s := servertest.New(t, all)
	at := slices.IndexFunc(builtin.Lines(), func(l registry.Type) bool { return l.Kind == "Job" })
	job := builtin.Lines()[at]
	for _, test := range []struct {
		name, labels string
		want         bool // the label that the server gives
	}{
		{"none", ``, true},
		{"empty", `,"labels":{}`, true},
		{"equal", `,"labels":{"a":"b"}`, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			body := func(name string) string {
				return `{"metadata":{"name":"` + name + `"` + test.labels + `},"spec":{"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`
			}
			sent := job.New()
			if err := json.Unmarshal([]byte(body(test.name+"-message")), sent); err != nil {
				t.Fatal(err)
			}
			path := collection(job)
			for _, got := range []map[string]any{
				parse(t, must(t, s, http.MethodPost, path, body(test.name), http.StatusCreated)),
				answered(t, job, send(t, s, http.MethodPost, path, job, sent)),
			} {
				labels := in(got, "metadata.labels").(map[string]any)
				name := in(got, "metadata.name")
				if _, has := labels["job-name"]; labels["a"] != "b" || has != test.want || has && labels["job-name"] != name {
					t.Errorf("%s has the labels %v", name, labels)
				}
			}
		})
	}
}
