package server_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// asKubernetes makes a server what it is under the name kube-apiserver.
func asKubernetes(s *server.Server) {
	s.System.On, s.API.Builtin, s.API.ManagedFieldsAlways, s.API.Controllers, s.Plugins.Kubernetes = true, builtin.All, true, "none", true
}

// TestSystemObjects: a server called kube-apiserver makes what that makes for itself, under its name in managedFields.
func TestSystemObjects(t *testing.T) {
	s := servertest.New(t, asKubernetes)
	s.Quiescent()
	const flow, local = "/apis/flowcontrol.apiserver.k8s.io/v1/", `"reason":"Local","status":"True","type":"Available"`
	for path, want := range map[string][]string{
		"/api/v1/namespaces/kube-node-lease":                                                                        {`"kubernetes.io/metadata.name":"kube-node-lease"`},
		"/api/v1/namespaces/default/services/kubernetes":                                                            {`"component":"apiserver","provider":"kubernetes"`, `"clusterIP":"10.0.0.1"`},
		"/api/v1/namespaces/default/endpoints/kubernetes":                                                           {`"endpointslice.kubernetes.io/skip-mirror":"true"`, `"name":"https"`},
		"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes":                                    {`"kubernetes.io/service-name":"kubernetes"`},
		"/apis/networking.k8s.io/v1/servicecidrs/kubernetes":                                                        {`"cidrs":["10.0.0.0/24"]`, `"message":"Kubernetes default Service CIDR is ready"`, `"manager":"kubernetes-service-cidr-controller","operation":"Apply","subresource":"status"`},
		"/apis/networking.k8s.io/v1/ipaddresses/10.0.0.1":                                                           {`"ipaddress.kubernetes.io/managed-by":"ipallocator.k8s.io"`, `{"name":"kubernetes","namespace":"default","resource":"services"}`},
		"/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical":                                           {`"value":2000001000`, `"preemptionPolicy":"PreemptLowerPriority"`},
		"/apis/apiregistration.k8s.io/v1/apiservices/v1.":                                                           {`"kube-aggregator.kubernetes.io/automanaged":"onstart"`, `"groupPriorityMinimum":18000`, local},
		"/apis/apiregistration.k8s.io/v1/apiservices/v2.autoscaling":                                                {`"versionPriority":30`, local},
		flow + "flowschemas/probes":                                                                                 {`"apf.kubernetes.io/autoupdate-spec":"true"`, `"manager":"api-priority-and-fairness-config-producer-v1"`, `"reason":"Found","status":"False","type":"Dangling"`},
		flow + "prioritylevelconfigurations/node-high":                                                              {`"nominalConcurrencyShares":40`},
		"/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking":            {`"since":"20`},
		"/apis/coordination.k8s.io/v1/namespaces/kube-system/leases?labelSelector=apiserver.kubernetes.io/identity": {`"leaseDurationSeconds":3600`, `"kubernetes.io/hostname"`},
		"/apis/rbac.authorization.k8s.io/v1/clusterroles/cluster-admin":                                             {`"kubernetes.io/bootstrapping":"rbac-defaults"`},
	} {
		answer := ""
		awaitIt(t, func() bool { // nobody waits for the rules
			res, body := s.Do("GET", path, "")
			answer = body
			return res.StatusCode == 200
		})
		for _, w := range append(want, `"manager":"kube-apiserver"`) {
			if strings.HasPrefix(path, flow) && w == `"manager":"kube-apiserver"` {
				continue
			}
			if !strings.Contains(answer, w) {
				t.Errorf("%s lacks %s: %s", path, w, answer)
			}
		}
	}
	var services metav1.PartialObjectMetadataList
	if err := json.Unmarshal([]byte(s.Get("/apis/apiregistration.k8s.io/v1/apiservices")), &services); err != nil || len(services.Items) != 22 {
		t.Errorf("there are %d APIServices, %v", len(services.Items), err)
	}
}

// TestSystemObjectsKept: what is changed or deleted comes back where kube-apiserver acts on changes, and follows definitions and
// Services.
func TestSystemObjectsKept(t *testing.T) {
	s := servertest.New(t, asKubernetes)
	const services, addresses = "/apis/apiregistration.k8s.io/v1/apiservices", "/apis/networking.k8s.io/v1/ipaddresses"
	code := func(path string) int {
		s.Quiescent()
		res, _ := s.Do("GET", path, "")
		return res.StatusCode
	}
	definition := strings.NewReplacer("GROUP", "x.example.com").Replace(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: apples.GROUP}
spec: {group: GROUP, scope: Namespaced, names: {plural: apples, kind: Apple}, versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]}`)
	s.PostYAML("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	const apples = services + "/v1.x.example.com"
	if code(apples) != 200 || !strings.Contains(s.Get(apples), `"kube-aggregator.kubernetes.io/automanaged":"true"`) {
		t.Fatalf("the definition's APIService is %s", s.Get(apples))
	}
	s.Do("DELETE", apples, "")
	s.Do("DELETE", services+"/v1.apps", "")
	s.Do("PATCH", services+"/v1.batch", `{"spec":{"versionPriority":3}}`, "Content-Type", "application/merge-patch+json")
	if code(apples) != 200 || code(services+"/v1.apps") != 404 || !strings.Contains(s.Get(services+"/v1.batch"), `"versionPriority":3`) {
		t.Error("an APIService of a definition is kept, and one of a built-in group is made at the start alone")
	}
	s.Do("DELETE", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/apples.x.example.com", "")
	if got := code(apples); got != 404 {
		t.Errorf("after its definition was deleted, the APIService is answered %d", got)
	}

	s.PostYAML("/api/v1/namespaces/default/services", "metadata: {name: web}\nspec: {clusterIP: 10.0.0.9, ports: [{port: 80}]}")
	if code(addresses+"/10.0.0.9") != 200 {
		t.Error("a Service's address has no IPAddress")
	}
	s.Do("DELETE", addresses+"/10.0.0.9", "")
	if code(addresses+"/10.0.0.9") != 200 {
		t.Error("the IPAddress of a Service doesn't come back")
	}
	s.Do("DELETE", "/api/v1/namespaces/default/services/web", "")
	if got := code(addresses + "/10.0.0.9"); got != 404 {
		t.Errorf("the IPAddress of a Service that is gone is answered %d", got)
	}

	s.PostYAML("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", "metadata: {name: mine}\nspec: {matchingPrecedence: 500, priorityLevelConfiguration: {name: nowhere}}")
	if code("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/mine") != 200 || !strings.Contains(s.Get("/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/mine"), `"reason":"NotFound"`) {
		t.Error("a FlowSchema doesn't say that its level is missing")
	}
}

// TestSystemObjectsAfterRestart: a start mends what is mandatory or says that it may be mended, and leaves alone what says that it
// mayn't.
func TestSystemObjectsAfterRestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(do func(s *servertest.Server)) {
		t.Run("run", func(t *testing.T) {
			s := servertest.New(t, asKubernetes, func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir })
			s.Quiescent()
			do(s)
		})
	}
	const schemas = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/"
	patch := func(s *servertest.Server, name, text string) {
		if res, body := s.Do("PATCH", schemas+name, text, "Content-Type", "application/merge-patch+json"); res.StatusCode != 200 {
			t.Fatal(body)
		}
	}
	run(func(s *servertest.Server) {
		s.Do("DELETE", schemas+"catch-all", "") // of which nothing else may be changed
		patch(s, "probes", `{"spec":{"matchingPrecedence":7}}`)
		patch(s, "system-nodes", `{"spec":{"matchingPrecedence":8},"metadata":{"annotations":{"apf.kubernetes.io/autoupdate-spec":"false"}}}`)
		s.Do("DELETE", schemas+"service-accounts", "")
		s.Do("DELETE", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", "")
	})
	run(func(s *servertest.Server) {
		for name, want := range map[string]string{"catch-all": `"matchingPrecedence":10000`, "probes": `"matchingPrecedence":2`, "system-nodes": `"matchingPrecedence":8`, "service-accounts": `"matchingPrecedence":9000`} {
			if got := s.Get(schemas + name); !strings.Contains(got, want) {
				t.Errorf("%s lacks %s: %s", name, want, got)
			}
		}
		s.Get("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps")
	})
}

// TestSystemObjectsUnserved: nothing is made of a kind that isn't served.
func TestSystemObjectsUnserved(t *testing.T) {
	s := servertest.New(t)
	s.Quiescent()
	if res, _ := s.Do("GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical", ""); res.StatusCode != 404 {
		t.Errorf("under our own name there is a PriorityClass: %d", res.StatusCode)
	}
}
