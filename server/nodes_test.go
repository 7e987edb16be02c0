package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/admission"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// newNodes is a server with the Node authorizer and NodeRestriction, and two nodes: one has a pod that uses all sorts of things.
func newNodes(t *testing.T) *ruled {
	t.Helper()
	file := filepath.Join(t.TempDir(), "users.csv")
	users := "root,root,1,system:masters\none,system:node:one,2,system:nodes\ntwo,system:node:two,3,system:nodes\nnobody,system:node:,4,system:nodes\nplain,system:node:one,5\n"
	if err := os.WriteFile(file, []byte(users), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newRuled(t, func(s *server.Server) {
		s.API.Builtin, s.Plugins = builtin.All, admission.Options{Enable: []string{"NodeRestriction"}}
		s.Access.TokenAuthFile, s.Access.AuthorizationMode = file, "Node,RBAC"
	})
	for path, objects := range map[string][]string{
		"/api/v1/nodes":                       {`{"metadata":{"name":"one"}}`, `{"metadata":{"name":"two"}}`},
		inDefault + "/persistentvolumeclaims": {`{"metadata":{"name":"claim"},"spec":{"volumeName":"volume","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
		"/api/v1/persistentvolumes": {`{"metadata":{"name":"volume"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"claimRef":{"namespace":"default","name":"claim"},
			"csi":{"driver":"d.example.com","volumeHandle":"h","nodePublishSecretRef":{"namespace":"default","name":"published"},"controllerPublishSecretRef":{"namespace":"default","name":"controller"}}}}`},
		"/apis/storage.k8s.io/v1/volumeattachments": {`{"metadata":{"name":"attached"},"spec":{"attacher":"d.example.com","nodeName":"one","source":{"persistentVolumeName":"volume"}}}`},
		"/apis/storage.k8s.io/v1/csidrivers":        {`{"metadata":{"name":"d.example.com"},"spec":{"tokenRequests":[{"audience":"driver"}]}}`},
		inDefault + "/serviceaccounts":              {`{"metadata":{"name":"account"}}`, `{"metadata":{"name":"other"}}`},
		inDefault + "/secrets":                      {`{"metadata":{"name":"mounted"}}`, `{"metadata":{"name":"published"}}`, `{"metadata":{"name":"unused"}}`},
		inDefault + "/configmaps":                   {`{"metadata":{"name":"env"}}`},
		inDefault + "/pods": {`{"metadata":{"name":"pod"},"spec":{"nodeName":"one","serviceAccountName":"account","containers":[{"name":"c","image":"i","envFrom":[{"configMapRef":{"name":"env"}}]}],
			"volumes":[{"name":"s","secret":{"secretName":"mounted"}},{"name":"p","persistentVolumeClaim":{"claimName":"claim"}},{"name":"e","ephemeral":{"volumeClaimTemplate":{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}}},
				{"name":"t","projected":{"sources":[{"serviceAccountToken":{"path":"t","audience":"mine"}}]}}]}}`},
	} {
		for _, object := range objects {
			s.expect("root", "POST "+path, object, http.StatusCreated, "")
		}
	}
	return s
}

// TestNodeAuthorizer: a node sees what its pods use, and writes what kubelets write.
func TestNodeAuthorizer(t *testing.T) {
	t.Parallel()
	s := newNodes(t)
	const unrelated = "no relationship found between node 'two' and this object"
	for _, tc := range []struct{ request, reason string }{ // what one may, and why two mayn't; "-" for what both may
		{"GET " + inDefault + "/secrets/mounted", unrelated},
		{"GET " + inDefault + "/secrets/published", unrelated},
		{"GET " + inDefault + "/secrets?fieldSelector=metadata.name%3Dmounted", unrelated},
		{"GET " + inDefault + "/configmaps/env", unrelated},
		{"GET " + inDefault + "/persistentvolumeclaims/claim", unrelated},
		{"GET /api/v1/persistentvolumes/volume", unrelated},
		{"GET /apis/storage.k8s.io/v1/volumeattachments/attached", unrelated},
		{"GET " + inDefault + "/serviceaccounts/account", unrelated},
		{"GET " + inDefault + "/pods/pod", unrelated},
		{"GET /api/v1/pods?fieldSelector=spec.nodeName%3Done", "can only list/watch pods with spec.nodeName field selector"},
		{"GET /api/v1/nodes/one", "node 'two' cannot read 'one', only its own Node object"},
		{"GET /api/v1/services", "-"},
		{"GET /apis/storage.k8s.io/v1/csidrivers", "-"},
	} {
		s.expect("one", tc.request, "", http.StatusOK, "")
		code, status, _ := s.as("two", "GET", strings.TrimPrefix(tc.request, "GET "), "")
		if tc.reason == "-" && code != http.StatusOK || tc.reason != "-" && (code != http.StatusForbidden || !strings.HasSuffix(status.Message, ": node: "+tc.reason)) {
			t.Errorf("%s, as two: %d %s, want %s", tc.request, code, status.Message, tc.reason)
		}
		if code, _, _ := s.as("plain", "GET", strings.TrimPrefix(tc.request, "GET "), ""); code != http.StatusForbidden {
			t.Errorf("%s, as one who isn't among the nodes: %d", tc.request, code)
		}
	}
	cannot := func(what, reason string) string { return `User "system:node:one" cannot ` + what + ": node: " + reason }
	for _, tc := range []struct{ request, message string }{
		{"GET " + inDefault + "/secrets", `secrets is forbidden: ` + cannot(`list resource "secrets" in API group "" in the namespace "default"`, "No Object name found")},
		{"GET " + inDefault + "/secrets/unused", `secrets "unused" is forbidden: ` + cannot(`get resource "secrets" in API group "" in the namespace "default"`, "no relationship found between node 'one' and this object")},
		{"GET " + inDefault + "/secrets/controller", `secrets "controller" is forbidden: ` + cannot(`get resource "secrets" in API group "" in the namespace "default"`, "no relationship found between node 'one' and this object")},
		{"GET /api/v1/nodes", `nodes is forbidden: ` + cannot(`list resource "nodes" in API group "" at the cluster scope`, "node 'one' cannot read all nodes, only its own Node object")},
		{"GET /api/v1/pods", `pods is forbidden: ` + cannot(`list resource "pods" in API group "" at the cluster scope`, "can only list/watch pods with spec.nodeName field selector")},
		{"GET " + inDefault + "/persistentvolumeclaims", `persistentvolumeclaims is forbidden: ` + cannot(`list resource "persistentvolumeclaims" in API group "" in the namespace "default"`, "can only get individual resources of this type")},
		{"GET /apis/coordination.k8s.io/v1/namespaces/default/leases/one", `leases.coordination.k8s.io "one" is forbidden: ` + cannot(`get resource "leases" in API group "coordination.k8s.io" in the namespace "default"`, `can only access leases in the "kube-node-lease" system namespace`)},
		{"DELETE /apis/storage.k8s.io/v1/csinodes/two", `csinodes.storage.k8s.io "two" is forbidden: ` + cannot(`delete resource "csinodes" in API group "storage.k8s.io" at the cluster scope`, "can only access CSINode with the same name as the requesting node")},
	} {
		s.expect("one", tc.request, "", http.StatusForbidden, tc.message)
	}
	s.expect("nobody", "GET /api/v1/services", "", http.StatusForbidden, `services is forbidden: User "system:node:" cannot list resource "services" in API group "" at the cluster scope: node: unknown node for user "system:node:"`)
	// A review asks what the request would: with its field selector. What of that isn't understood is left out, and said.
	for selector, want := range map[string]string{
		`{"rawSelector":"spec.nodeName=one"}`:                                                                         `"status":{"allowed":true}`,
		`{"rawSelector":"spec.nodeName=two"}`:                                                                         `"allowed":false`,
		`{"requirements":[{"key":"spec.nodeName","operator":"In","values":["one"]}]}`:                                 `"status":{"allowed":true}`,
		`{"requirements":[{"key":"spec.nodeName","operator":"In","values":["one"]},{"key":"a","operator":"Exists"}]}`: `"status":{"allowed":true,"evaluationError":"spec.resourceAttributes.fieldSelector partially ignored due to parse error"}`,
		`{"requirements":[{"key":"spec.nodeName","operator":"In","values":["one","two"]}]}`:                           `fieldSelector ignored due to parse error`,
	} {
		review := `{"spec":{"resourceAttributes":{"verb":"list","resource":"pods","fieldSelector":` + selector + `}}}`
		if answer := s.expect("one", "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review, http.StatusCreated, ""); !strings.Contains(answer, want) {
			t.Errorf("%s: %s, want %s", selector, answer, want)
		}
	}
	// When the pod is gone, so is the right.
	s.expect("root", "DELETE "+inDefault+"/pods/pod?gracePeriodSeconds=0", "", http.StatusOK, "")
	s.expect("one", "GET "+inDefault+"/secrets/mounted", "", http.StatusForbidden, "")
}

// TestNodeRestriction: a node writes nothing by which it gets at others' pods.
func TestNodeRestriction(t *testing.T) {
	t.Parallel()
	s := newNodes(t)
	var node metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(s.expect("one", "GET /api/v1/nodes/one", "", http.StatusOK, "")), &node); err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := json.Unmarshal([]byte(s.expect("one", "GET "+inDefault+"/pods/pod", "", http.StatusOK, "")), &pod); err != nil {
		t.Fatal(err)
	}
	mirror := func(more, spec string) string {
		return `{"metadata":{"name":"mirror","annotations":{"kubernetes.io/config.mirror":"x"}` + more + `},"spec":{"nodeName":"one",` + spec + `"containers":[{"name":"c","image":"i"}]}}`
	}
	owned := `,"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"one","uid":"` + string(node.UID) + `","controller":true}]`
	token := func(audience, uid string) string {
		return `{"spec":{"audiences":["` + audience + `"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"pod","uid":"` + uid + `"}}}`
	}
	for _, tc := range []struct {
		request, body string
		code          int
		message       string
	}{
		{"POST /api/v1/nodes", `{"metadata":{"name":"three"}}`, 403, `nodes "three" is forbidden: node "one" is not allowed to modify node "three"`},
		{"PATCH /api/v1/nodes/one?fieldManager=t", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"one","labels":{"node-restriction.kubernetes.io/a":"b","k8s.io/c":"d","example.com/e":"f","kubernetes.io/os":"linux"}}}`, 403,
			`nodes "one" is forbidden: is not allowed to modify labels: k8s.io/c, node-restriction.kubernetes.io/a`},
		{"PATCH /api/v1/nodes/one?fieldManager=t", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"one","labels":{"example.com/e":"f","kubernetes.io/os":"linux","kubelet.kubernetes.io/a":"b"}}}`, 200, ""},
		{"PATCH /api/v1/nodes/one?fieldManager=u", `{"apiVersion":"v1","kind":"Node","metadata":{"name":"one"},"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`, 403, `nodes "one" is forbidden: node "one" is not allowed to modify taints`},
		{"POST " + inDefault + "/pods", `{"metadata":{"name":"mirror"},"spec":{"nodeName":"one","containers":[{"name":"c","image":"i"}]}}`, 403, `pods "mirror" is forbidden: pod does not have "kubernetes.io/config.mirror" annotation, node "one" can only create mirror pods`},
		{"POST " + inDefault + "/pods", mirror("", ""), 403, `pods "mirror" is forbidden: node "one" can only create pods with an owner reference set to itself`},
		{"POST " + inDefault + "/pods", mirror(strings.Replace(owned, string(node.UID), "x", 1), ""), 403, `pods "mirror" is forbidden: node one UID mismatch: expected x got ` + string(node.UID)},
		{"POST " + inDefault + "/pods", mirror(owned, `"volumes":[{"name":"s","projected":{"sources":[{"clusterTrustBundle":{"name":"b","path":"p"}}]}}],`), 403, `pods "mirror" is forbidden: node "one" can not create pods that reference clustertrustbundles`},
		{"POST " + inDefault + "/pods", mirror(owned, `"volumes":[{"name":"s","secret":{"secretName":"mounted"}}],`), 403, `pods "mirror" is forbidden: node "one" can not create pods that reference secrets`},
		{"POST " + inDefault + "/pods", mirror(owned, ""), 201, ""},
		{"DELETE " + inDefault + "/pods/mirror?gracePeriodSeconds=0", "", 200, ""},
		{"POST " + inDefault + "/serviceaccounts/account/token", `{"spec":{"audiences":["mine"]}}`, 403, `serviceaccounts "account" is forbidden: node requested token not bound to a pod`},
		{"POST " + inDefault + "/serviceaccounts/account/token", token("mine", "x"), 403, `serviceaccounts "account" is forbidden: the UID in the bound object reference (x) does not match the UID in record. The object might have been deleted and then recreated`},
		{"POST " + inDefault + "/serviceaccounts/account/token", token("theirs", string(pod.UID)), 403, `serviceaccounts "account" is forbidden: error validating audience "theirs": persistentvolumeclaim "pod-e" not found`},
		{"POST " + inDefault + "/serviceaccounts/account/token", token("mine", string(pod.UID)), 201, ""},
		{"POST " + inDefault + "/serviceaccounts/account/token", token("driver", string(pod.UID)), 201, ""},
		{"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", `{"metadata":{"name":"two"}}`, 403, `leases.coordination.k8s.io "two" is forbidden: can only access node lease with the same name as the requesting node`},
		{"POST /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases", `{"metadata":{"name":"one"}}`, 201, ""},
		{"POST /apis/storage.k8s.io/v1/csinodes", `{"metadata":{"name":"two"},"spec":{"drivers":[]}}`, 403, `csinodes.storage.k8s.io "two" is forbidden: can only access CSINode with the same name as the requesting node`},
		{"POST /apis/resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"s"},"spec":{"driver":"d.example.com","nodeName":"two","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`, 403, `resourceslices.resource.k8s.io "s" is forbidden: can only create ResourceSlice with the same NodeName as the requesting node`},
		{"POST " + inDefault + "/pods/pod/eviction", `{"metadata":{"name":"pod"}}`, 201, ""},
	} {
		s.expect("one", tc.request, tc.body, tc.code, tc.message)
	}
	s.expect("two", "POST "+inDefault+"/pods/missing/eviction", `{"metadata":{"name":"missing"}}`, 404, `pod "missing" not found`)
	s.expect("root", "POST "+inDefault+"/pods", `{"metadata":{"name":"other"},"spec":{"nodeName":"one","containers":[{"name":"c","image":"i"}]}}`, 201, "")
	s.expect("two", "DELETE "+inDefault+"/pods/other", "", 403, `pods "other" is forbidden: node "two" can only delete pods with spec.nodeName set to itself`)
	s.expect("two", "POST "+inDefault+"/pods/other/eviction", `{"metadata":{"name":"other"}}`, 403, `pods "other" is forbidden: node two can only evict pods with spec.nodeName set to itself`)
}

// TestNodeTokensOfMigratedVolumes: a volume of Kubernetes' own needs the tokens of the CSI driver that stands in for it, whether the pod
// has it itself or by a claim.
func TestNodeTokensOfMigratedVolumes(t *testing.T) {
	t.Parallel()
	s := newNodes(t)
	claim := func(name string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"volumeName":"` + name + `","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`
	}
	volume := func(name, source string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],` + source + `}}`
	}
	pod := func(name, volume string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{"nodeName":"one","serviceAccountName":"account","containers":[{"name":"c","image":"i"}],"volumes":[` + volume + `]}}`
	}
	for _, object := range []struct{ path, body string }{
		{"/apis/storage.k8s.io/v1/csidrivers", `{"metadata":{"name":"pd.csi.storage.gke.io"},"spec":{"tokenRequests":[{"audience":"disks"}]}}`},
		{inDefault + "/persistentvolumeclaims", claim("old")},
		{"/api/v1/persistentvolumes", volume("old", `"gcePersistentDisk":{"pdName":"d"}`)},
		{inDefault + "/persistentvolumeclaims", claim("local")},
		{"/api/v1/persistentvolumes", volume("local", `"hostPath":{"path":"/d"}`)},
	} {
		s.expect("root", "POST "+object.path, object.body, http.StatusCreated, "")
	}
	const unauthorized = `serviceaccounts "account" is forbidden: system:node:one is not authorized to request tokens for audience `
	for _, tt := range []struct{ name, volume, audience, refusal string }{
		{"inline", `{"name":"v","gcePersistentDisk":{"pdName":"d"}}`, "disks", ""},
		{"by-claim", `{"name":"v","persistentVolumeClaim":{"claimName":"old"}}`, "disks", ""},
		{"other-audience", `{"name":"v","gcePersistentDisk":{"pdName":"d"}}`, "others", unauthorized + `"others"`},
		{"other-by-claim", `{"name":"v","persistentVolumeClaim":{"claimName":"old"}}`, "others", unauthorized + `"others"`},
		{"no-driver", `{"name":"v","hostPath":{"path":"/d"}}`, "disks", unauthorized + `"disks"`},
		{"no-driver-by-claim", `{"name":"v","persistentVolumeClaim":{"claimName":"local"}}`, "disks", unauthorized + `"disks"`},
		{"drivers-that-are-not-there", `{"name":"v","awsElasticBlockStore":{"volumeID":"d"}},{"name":"w","cinder":{"volumeID":"d"}}`, "disks",
			`serviceaccounts "account" is forbidden: error validating audience "disks": [csidriver.storage.k8s.io "ebs.csi.aws.com" not found, csidriver.storage.k8s.io "cinder.csi.openstack.org" not found]`},
		{"one-that-is-there", `{"name":"v","awsElasticBlockStore":{"volumeID":"d"}},{"name":"w","gcePersistentDisk":{"pdName":"d"}}`, "disks", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var made corev1.Pod
			if err := json.Unmarshal([]byte(s.expect("root", "POST "+inDefault+"/pods", pod(tt.name, tt.volume), http.StatusCreated, "")), &made); err != nil {
				t.Fatal(err)
			}
			code := http.StatusCreated
			if tt.refusal != "" {
				code = http.StatusForbidden
			}
			s.expect("one", "POST "+inDefault+"/serviceaccounts/account/token",
				`{"spec":{"audiences":["`+tt.audience+`"],"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"`+tt.name+`","uid":"`+string(made.UID)+`"}}}`, code, tt.refusal)
		})
	}
}
