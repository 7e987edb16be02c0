package webhook_test

import (
	"strings"
	"testing"
)

// TestInvalidConfigurations: what Kubernetes refuses is refused when it's written.
func TestInvalidConfigurations(t *testing.T) {
	h, s := newHook(t), start(t)
	for _, test := range []struct{ name, member, want string }{
		{"condition", `matchConditions=[{"name":"c","expression":"request.nothing"}]`, "webhooks[0].matchConditions[0].expression"},
		{"timeout", `timeoutSeconds=31`, "webhooks[0].timeoutSeconds"},
		{"side effects", `sideEffects="Some"`, "webhooks[0].sideEffects"},
		{"versions", `admissionReviewVersions=["v9"]`, "must include at least one of v1, v1beta1"},
		{"http", `clientConfig={"url":"http://example.com"}`, "webhooks[0].clientConfig.url"},
		{"neither", `clientConfig={}`, "exactly one of url or service is required"},
		{"name", `name="short"`, "webhooks[0].name"},
		{"policy", `failurePolicy="Maybe"`, "webhooks[0].failurePolicy"},
		{"operations", `rules=[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*","CREATE"],"resources":["pods"]}]`, "if '*' is present, must not specify other operations"},
		{"resources", `rules=[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["pods/*","pods/status"]}]`, "if 'pods/*' is present"},
		{"selector", `objectSelector={"matchLabels":{"a b":"c"}}`, "webhooks[0].objectSelector"},
	} {
		for _, kind := range []string{"Mutating", "Validating"} {
			res, body := s.Do("POST", configurations+strings.ToLower(kind)+"webhookconfigurations", h.configuration(kind, "bad", "/bad", test.member))
			if res.StatusCode != 422 || !strings.Contains(body, test.want) {
				t.Errorf("%s, %s: %s %s; want %q", test.name, kind, res.Status, body, test.want)
			}
		}
	}
}

// TestService: a service leads to the addresses that its EndpointSlice has, by its name in the cluster.
func TestService(t *testing.T) {
	h, s := newHook(t), start(t)
	port := h.URL[strings.LastIndexByte(h.URL, ':')+1:]
	must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "service", "/see",
		`clientConfig={"service":{"namespace":"default","name":"hook","path":"/see"},"caBundle":"`+h.bundle()+`"}`))
	denied := func(want string) {
		t.Helper()
		if res, body := s.Do("POST", configMaps, anyConfigMapBody); res.StatusCode != 500 || !strings.Contains(body, "service.example.com") || !strings.Contains(body, want) {
			t.Errorf("%s %s; want %q", res.Status, body, want)
		}
	}
	denied("not found")
	must(t, s, 201, "POST", "/api/v1/namespaces/default/services", `{"metadata":{"name":"hook"},"spec":{"clusterIP":"None","ports":[{"name":"https","port":443}]}}`)
	denied("has no endpoints that are ready")
	must(t, s, 201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
		`{"metadata":{"name":"hook-1","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"]}],"ports":[{"name":"https","port":`+port+`}]}`)
	denied("not hook.default.svc") // it was reached: httptest's certificate is for another name
}

// TestServiceAnswers: a webhook behind a Service is called over TLS by the name of the Service, at an address that EndpointSlices
// have, or else Endpoints.
func TestServiceAnswers(t *testing.T) {
	h := newHook(t, "hook.default.svc")
	h.on("/add", patch(`[{"op":"add","path":"/data/size","value":"1"}]`))
	port := h.URL[strings.LastIndexByte(h.URL, ':')+1:]
	const namespace, slices = "/api/v1/namespaces/default/", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	slice := func(name, ready, port string) string {
		return `{"metadata":{"name":"` + name + `","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"],"conditions":{"ready":` + ready + `}}],"ports":[{"name":"https","port":` + port + `}]}`
	}
	for name, objects := range map[string][][2]string{ // paths and bodies
		"EndpointSlices": {{slices, slice("unready", "false", "1")}, {slices, slice("ready", "true", port)}},
		"Endpoints":      {{namespace + "endpoints", `{"metadata":{"name":"hook"},"subsets":[{"addresses":[{"ip":"127.0.0.1"}],"ports":[{"name":"https","port":` + port + `}]}]}`}},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t)
			must(t, s, 201, "POST", namespace+"services", `{"metadata":{"name":"hook"},"spec":{"clusterIP":"None","ports":[{"name":"https","port":8443}]}}`)
			for _, o := range objects {
				must(t, s, 201, "POST", o[0], o[1])
			}
			must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "service", "/add",
				`clientConfig={"service":{"namespace":"default","name":"hook","path":"/add","port":8443},"caBundle":"`+h.bundle()+`"}`))
			if got := must(t, s, 201, "POST", configMaps, anyConfigMapBody)["data"].(map[string]any); got["size"] != "1" {
				t.Errorf("data is %v", got)
			}
			if got := h.requests("/add"); len(got) != 1 || got[0].Name != "a" {
				t.Errorf("it was asked %+v", got)
			}
		})
	}
}

// TestBundle: as in Kubernetes a caBundle without a certificate can be stored, because tools put it in later. A call fails then,
// as failurePolicy says.
func TestBundle(t *testing.T) {
	h, s := newHook(t), start(t)
	for _, test := range []struct{ name, bundle, want string }{
		{"no PEM", "bm9uZQ==", "clientConfig.caBundle has no certificate in PEM"},
		{"of another authority", (&hook{Server: newHook(t, "other").Server}).bundle(), "certificate signed by unknown authority"},
		{"the system's", "", "certificate signed by unknown authority"},
	} {
		t.Run(test.name, func(t *testing.T) {
			client := `clientConfig={"url":"` + h.URL + `/see","caBundle":"` + test.bundle + `"}`
			must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "bundle", "/see", client))
			res, body := s.Do("POST", configMaps, anyConfigMapBody)
			if res.StatusCode != 500 || !strings.Contains(body, `failed calling webhook \"bundle.example.com\"`) || !strings.Contains(body, test.want) {
				t.Errorf("%s %s; want %q", res.Status, body, test.want)
			}
			must(t, s, 200, "DELETE", validatingPath+"/bundle", "")
			if n := len(h.requests("/see")); n > 0 {
				t.Errorf("it was asked %d times by whom can't trust it", n)
			}
		})
	}
}

// TestEquivalent: a rule for one version is about the same objects in another one, and shows them in its version.
func TestEquivalent(t *testing.T) {
	h, s := newHook(t), start(t)
	version := func(name string, stored string) string {
		return `{"name":"` + name + `","served":true,"storage":` + stored + `,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
	}
	must(t, s, 201, "POST", definitionsPath, `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},"versions":[`+version("v1", "true")+","+version("v2", "false")+`]}}`)
	rules := `rules=[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["widgets"]}]`
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "equivalent", "/equivalent", rules))
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "exact", "/exact", rules, `matchPolicy="Exact"`))
	h.on("/equivalent", patch(`[{"op":"add","path":"/size","value":1}]`))
	if got := must(t, s, 201, "POST", widgetsV2, `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a"}}`); got["size"] != 1.0 || got["apiVersion"] != "example.com/v2" {
		t.Errorf("it was stored as %v", got)
	}
	got := h.requests("/equivalent")
	if len(got) != 1 || got[0].Kind.Version != "v1" || got[0].RequestKind.Version != "v2" || !strings.Contains(string(got[0].Object.Raw), `"example.com/v1"`) {
		t.Errorf("it was shown %+v", got)
	}
	if n := len(h.requests("/exact")); n != 0 {
		t.Errorf("the exact one was asked %d times", n)
	}
}
