package dropin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// start starts a server as kube-apiserver's flags want it, without users.
func start(t *testing.T, args ...string) *servertest.Server {
	t.Helper()
	a, err := ParseAPIServer(append([]string{"--bind-address=127.0.0.1"}, args...), none)
	if err != nil {
		t.Fatal(err)
	}
	wanted := &a.Server
	return servertest.New(t, func(s *server.Server) {
		s.API.Builtin, s.API.Unserved, s.API.NoInitialEvents, s.API.NodePorts, s.Plugins = wanted.API.Builtin, wanted.API.Unserved, wanted.API.NoInitialEvents, wanted.API.NodePorts, wanted.Plugins
	})
}

// TestRuntimeConfigServes: what is switched off isn't served, isn't listed, and its objects are still those of the versions that are on.
func TestRuntimeConfigServes(t *testing.T) {
	t.Parallel()
	s := start(t, "--runtime-config=autoscaling/v2=false,batch/v1/jobs=false,authorization.k8s.io/v1=false,storage.k8s.io/v1beta1=true", "--feature-gates=kube:ClusterTrustBundle=false")
	const scalers = "/namespaces/default/horizontalpodautoscalers"
	for path, want := range map[string]int{
		"/apis/autoscaling/v2" + scalers:                      http.StatusNotFound,
		"/apis/autoscaling/v2":                                http.StatusNotFound,
		"/apis/autoscaling/v1" + scalers:                      http.StatusOK,
		"/openapi/v3/apis/autoscaling/v2":                     http.StatusNotFound,
		"/apis/batch/v1/namespaces/default/jobs":              http.StatusNotFound,
		"/apis/batch/v1/namespaces/default/jobs/a/status":     http.StatusNotFound,
		"/apis/batch/v1/watch/jobs":                           http.StatusNotFound,
		"/apis/batch/v1/namespaces/default/cronjobs":          http.StatusOK,
		"/apis/authorization.k8s.io":                          http.StatusNotFound,
		"/apis/certificates.k8s.io/v1/clustertrustbundles":    http.StatusNotFound,
		"/apis/certificates.k8s.io/v1/podcertificaterequests": http.StatusOK,
		"/api/v1/pods": http.StatusOK,
	} {
		if res, body := s.Do(http.MethodGet, path, ""); res.StatusCode != want {
			t.Errorf("GET %s is answered %d, want %d: %.200s", path, res.StatusCode, want, body)
		}
	}
	const review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
	if res, _ := s.Do(http.MethodPost, review, `{"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`); res.StatusCode != http.StatusNotFound {
		t.Errorf("a review is answered %d", res.StatusCode)
	}
	if list := s.Get("/apis/batch/v1"); strings.Contains(list, `"jobs"`) || !strings.Contains(list, `"cronjobs"`) {
		t.Errorf("discovery has %s", list)
	}
	if group := s.Get("/apis/autoscaling"); strings.Contains(group, "autoscaling/v2") {
		t.Errorf("the group is %s", group)
	}
	// Objects are kept in autoscaling/v2 all the same.
	s.PostYAML("/apis/autoscaling/v1"+scalers, "{metadata: {name: a}, spec: {maxReplicas: 3, targetCPUUtilizationPercentage: 50, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: a}}}")
	if got := s.Get("/apis/autoscaling/v1" + scalers + "/a"); !strings.Contains(got, `"targetCPUUtilizationPercentage":50`) {
		t.Errorf("the autoscaler is %s", got)
	}
}

// TestFeatureGateWatchList: without it a watch can't ask for initial events, and begins with the state as it did before.
func TestFeatureGateWatchList(t *testing.T) {
	t.Parallel()
	const watch = "/api/v1/namespaces?watch=true&timeoutSeconds=1&resourceVersionMatch=NotOlderThan&sendInitialEvents=true&allowWatchBookmarks=true"
	for _, gates := range []string{"WatchList=false", "AllBeta=false"} {
		s := start(t, "--feature-gates="+gates)
		res, body := s.Do(http.MethodGet, watch, "")
		if res.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled") {
			t.Errorf("%s: %d %s", gates, res.StatusCode, body)
		}
		if gates == "AllBeta=false" {
			continue
		}
		if events := s.Get("/api/v1/namespaces?watch=true&timeoutSeconds=1"); !strings.Contains(events, `"name":"default"`) {
			t.Errorf("a watch without a version begins with %s", events)
		}
	}
	s := start(t, "--feature-gates=AllBeta=false,WatchList=true")
	if events := s.Get(watch); !strings.Contains(events, "k8s.io/initial-events-end") {
		t.Errorf("with the gate by its name: %s", events)
	}
}

// TestServiceNodePortRange: Services get ports of the range, and no others.
func TestServiceNodePortRange(t *testing.T) {
	t.Parallel()
	s := start(t, "--service-node-port-range=31000-31001")
	post := func(name, port string) (int, string) {
		res, body := s.Do(http.MethodPost, "/api/v1/namespaces/default/services", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"type":"NodePort","ports":[{"port":80%s}]}}`, name, port), "Content-Type", "application/json")
		return res.StatusCode, body
	}
	if code, body := post("outside", `,"nodePort":30000`); code != http.StatusUnprocessableEntity || !strings.Contains(body, "The range of valid ports is 31000-31001") {
		t.Errorf("%d %s", code, body)
	}
	for _, name := range []string{"a", "b"} {
		if code, body := post(name, ""); code != http.StatusCreated || !strings.Contains(body, `"nodePort":3100`) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, body := post("c", ""); code < http.StatusBadRequest {
		t.Errorf("a third service got a port of two: %d %s", code, body)
	}
}

// TestRuntimeConfig: what is more special counts, whatever the order.
func TestRuntimeConfig(t *testing.T) {
	for config, want := range map[string]string{ // of apps/v1/deployments, apps/v1/daemonsets, v1/pods
		"apps/v1=true":                           "on on on",
		"apps/v1":                                "on on on",
		"apps/v1=false":                          "off off on",
		"apps/v1=0,apps/v1/deployments=true":     "on off on",
		"apps/v1/deployments=false":              "off on on",
		"api/all=false,/v1=true":                 "off off on",
		"/v1=true,api/all=false":                 "off off on",
		"api/all=false,api/ga=true":              "on on on",
		"api/ga=false,api/all=true":              "off off off",
		"api/beta=false,api/alpha=false":         "on on on",
		"api/ga=false,apps/v1/daemonsets=true":   "off on off",
		"apps/v1/deployments=true,apps/v1=false": "on off on",
	} {
		c, _, err := parseRuntimeConfig(strings.Split(config, ","))
		if err != nil {
			t.Errorf("%s: %v", config, err)
			continue
		}
		var got []string
		for _, path := range []schema.GroupVersionResource{
			{Group: "apps", Version: "v1", Resource: "deployments"}, {Group: "apps", Version: "v1", Resource: "daemonsets"}, {Version: "v1", Resource: "pods"},
		} {
			got = append(got, map[bool]string{true: "on", false: "off"}[c.serves(path)])
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%s: %s, want %s", config, s, want)
		}
	}
}

// TestAPIFlagsWithoutEffect: the log names what asks for something that isn't here, and nothing else.
func TestAPIFlagsWithoutEffect(t *testing.T) {
	for flag, want := range map[string][]string{
		"--runtime-config=api/all=true":                              {"--runtime-config=api/all=true"},
		"--runtime-config=api/beta=true,api/ga=true":                 {"--runtime-config=api/beta=true"},
		"--runtime-config=api/alpha=false,apps/v1=true":              nil,
		"--runtime-config=resource.k8s.io/v1beta1":                   {"--runtime-config=resource.k8s.io/v1beta1"},
		"--runtime-config=batch/v1beta1/jobs=true":                   {"--runtime-config=batch/v1beta1/jobs=true"},
		"--feature-gates=WatchList=false":                            nil,
		"--feature-gates=WatchList=true,CBORServingAndStorage=false": nil,
		"--feature-gates=CBORServingAndStorage=true":                 {"--feature-gates=CBORServingAndStorage=true"},
		"--feature-gates=NativeHistograms=false":                     {"--feature-gates=NativeHistograms=false"},
		"--feature-gates=AllAlpha=true":                              {"--feature-gates=AllAlpha=true"},
		"--feature-gates=AllAlpha=false":                             nil,
		"--feature-gates=AllBeta=false":                              {"--feature-gates=AllBeta=false"},
		"--feature-gates=CustomResourceFieldSelectors=true":          nil,
	} {
		a, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", flag}, none)
		if err != nil || !slices.Equal(a.Unused, want) {
			t.Errorf("%s: %q, %v", flag, a.Unused, err)
		}
	}
}

// TestFeatureGateMutatingAdmissionPolicy: the gate turns the plug-in off, also one that is turned on.
func TestFeatureGateMutatingAdmissionPolicy(t *testing.T) {
	a, err := ParseAPIServer([]string{"--bind-address=127.0.0.1", "--feature-gates=MutatingAdmissionPolicy=false", "--enable-admission-plugins=MutatingAdmissionPolicy,OwnerReferencesPermissionEnforcement"}, none)
	if err != nil {
		t.Fatal(err)
	}
	if p := a.Server.Plugins; !slices.Equal(p.Disable, []string{mutatingPolicyGate}) || !slices.Equal(p.Enable, []string{"OwnerReferencesPermissionEnforcement"}) {
		t.Errorf("%+v", p)
	}
}

// TestKnownGates: the table has each gate once, in a form that is understood, and the gates that have an effect.
func TestKnownGates(t *testing.T) {
	names := map[string]bool{}
	for line := range strings.Lines(upstreamGates) {
		var name, on, stage, lock string
		fmt.Sscan(line, &name, &on, &stage, &lock)
		if names[name] || !slices.Contains([]string{"on", "off"}, on) || !slices.Contains([]string{"Alpha", "Beta", "GA", "Deprecated"}, stage) || !slices.Contains([]string{"", "locked"}, lock) {
			t.Errorf("a line of the table is %q", line)
		}
		names[name] = true
	}
	for _, name := range []string{watchListGate, mutatingPolicyGate} {
		if !names[name] || !knownGates()[name].on {
			t.Errorf("%s isn't on", name)
		}
	}
	for name, path := range gatedKinds {
		if !knownGates()[name].on {
			t.Errorf("%s isn't on, and %v is served", name, path)
		}
	}
}
