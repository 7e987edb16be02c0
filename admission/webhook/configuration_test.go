package webhook_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
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
	denied("no endpoints available for service")
	must(t, s, 201, "POST", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices",
		`{"metadata":{"name":"hook-1","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"]}],"ports":[{"name":"https","port":`+port+`}]}`)
	denied("not hook.default.svc") // it was reached: httptest's certificate is for another name
}

// TestServiceAnswers: a webhook behind a Service is called over TLS by the name of the Service, at an address that EndpointSlices
// have, or else Endpoints, or else at its ClusterIP and its own port: somebody else may route that.
func TestServiceAnswers(t *testing.T) {
	h := newHook(t, "hook.default.svc")
	h.on("/add", patch(`[{"op":"add","path":"/data/size","value":"1"}]`))
	port := h.URL[strings.LastIndexByte(h.URL, ':')+1:]
	const namespace, slices = "/api/v1/namespaces/default/", "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
	slice := func(name, ready, port string) string {
		return `{"metadata":{"name":"` + name + `","labels":{"kubernetes.io/service-name":"hook"}},"addressType":"IPv4","endpoints":[{"addresses":["127.0.0.1"],"conditions":{"ready":` + ready + `}}],"ports":[{"name":"https","port":` + port + `}]}`
	}
	elsewhere := slice("of-another-port", "true", "1")
	elsewhere = strings.Replace(elsewhere, `"name":"https"`, `"name":"metrics"`, 1)
	for name, test := range map[string]struct {
		service string      // members of its spec besides ports
		port    string      // of the service
		objects [][2]string // paths and bodies
	}{
		"EndpointSlices":           {`"clusterIP":"None"`, "8443", [][2]string{{slices, slice("unready", "false", "1")}, {slices, slice("ready", "true", port)}}},
		"EndpointSlices, first":    {`"clusterIP":"127.0.0.2"`, "8443", [][2]string{{slices, slice("ready", "true", port)}}},
		"Endpoints":                {`"clusterIP":"None"`, "8443", [][2]string{{namespace + "endpoints", `{"metadata":{"name":"hook"},"subsets":[{"addresses":[{"ip":"127.0.0.1"}],"ports":[{"name":"https","port":` + port + `}]}]}`}}},
		"ClusterIP":                {`"clusterIP":"127.0.0.1"`, port, nil},
		"ClusterIP, none is ready": {`"clusterIP":"127.0.0.1"`, port, [][2]string{{slices, slice("unready", "false", "1")}, {slices, elsewhere}}},
		"ExternalName":             {`"type":"ExternalName","externalName":"localhost"`, port, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, func(s *server.Server) { s.API.ServiceIPs = netip.MustParsePrefix("126.0.0.0/7") })
			must(t, s, 201, "POST", namespace+"services", `{"metadata":{"name":"hook"},"spec":{`+test.service+`,"ports":[{"name":"https","port":`+test.port+`}]}}`)
			for _, o := range test.objects {
				must(t, s, 201, "POST", o[0], o[1])
			}
			must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "service", "/add",
				`clientConfig={"service":{"namespace":"default","name":"hook","path":"/add","port":`+test.port+`},"caBundle":"`+h.bundle()+`"}`))
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
			s := s.In(t)
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

// newConverter starts a conversion webhook of widgets: v1 has size, a string, and v2 length, a number. It can be broken.
func newConverter(t *testing.T) (h *hook, broken *atomic.Bool) {
	broken = &atomic.Bool{}
	h = &hook{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := struct {
			APIVersion string         `json:"apiVersion"`
			Kind       string         `json:"kind"`
			Response   map[string]any `json:"response"`
			Request    *struct {
				UID               string           `json:"uid"`
				DesiredAPIVersion string           `json:"desiredAPIVersion"`
				Objects           []map[string]any `json:"objects"`
			} `json:"request,omitempty"`
		}{}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil || broken.Load() {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		for _, o := range review.Request.Objects {
			size, hasSize := o["size"].(string)
			length, hasLength := o["length"].(float64)
			switch to := review.Request.DesiredAPIVersion; {
			case hasSize && to == "example.com/v2":
				delete(o, "size")
				o["length"] = len(size)
			case hasLength && to == "example.com/v1":
				delete(o, "length")
				o["size"] = strings.Repeat("x", int(length))
			}
			o["apiVersion"] = review.Request.DesiredAPIVersion
		}
		review.Response = map[string]any{"uid": review.Request.UID, "convertedObjects": review.Request.Objects, "result": map[string]any{"status": "Success"}}
		review.Request = nil
		json.NewEncoder(w).Encode(review)
	}))}
	t.Cleanup(h.Close)
	return h, broken
}

// TestEquivalentConverted: where versions differ, a webhook is shown what the conversion webhook makes of both objects, and its
// patch is converted back. A conversion that fails is the server's error: it isn't the webhook's, so its failurePolicy doesn't
// count.
func TestEquivalentConverted(t *testing.T) {
	h, s := newHook(t), start(t)
	converter, broken := newConverter(t)
	version := func(name, stored, properties string) string {
		return `{"name":"` + name + `","served":true,"storage":` + stored + `,"schema":{"openAPIV3Schema":{"type":"object","properties":` + properties + `}}}`
	}
	must(t, s, 201, "POST", definitionsPath, `{"metadata":{"name":"widgets.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"widgets","kind":"Widget"},`+
		`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"url":"`+converter.URL+`","caBundle":"`+converter.bundle()+`"}}},"versions":[`+
		version("v1", "true", `{"size":{"type":"string"}}`)+","+version("v2", "false", `{"length":{"type":"integer","maximum":8}}`)+`]}}`)
	about := func(version string) string {
		return `rules=[{"apiGroups":["example.com"],"apiVersions":["` + version + `"],"operations":["*"],"resources":["widgets"]}]`
	}
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "grow", "/grow", about("v1"), `failurePolicy="Ignore"`))
	must(t, s, 201, "POST", validatingPath, h.configuration("Validating", "see", "/see", about("v2"), `failurePolicy="Ignore"`))
	growing := func(size string) handler {
		return patch(`[{"op":"replace","path":"/size","value":"` + size + `"}]`)
	}
	widgetsV1 := strings.Replace(widgetsV2, "v2", "v1", 1)
	const in2 = `{"apiVersion":"example.com/v2","kind":"Widget","metadata":{"name":"a"},"length":2}`

	h.on("/grow", growing("xxxxx"))
	if got := must(t, s, 201, "POST", widgetsV2, in2); got["length"] != 5.0 || got["size"] != nil || got["apiVersion"] != "example.com/v2" {
		t.Errorf("it was stored as %v", got)
	}
	shown := func(path, version, object, old string) {
		t.Helper()
		got := h.requests(path)
		if len(got) != 1 || got[0].Kind.Version != version || got[0].Resource.Version != version || !strings.Contains(string(got[0].Object.Raw), object) || !strings.Contains(string(got[0].OldObject.Raw), old) {
			t.Errorf("%s was shown %+v, want %s with %s and before %s", path, got, version, object, old)
		}
	}
	shown("/grow", "v1", `"size":"xx"`, "")
	shown("/see", "v2", `"length":5`, "")

	h.on("/grow", growing("xxxxxxx"))
	if got := must(t, s, 200, "PATCH", widgetsV1+"/a", `{"size":"xxx"}`, "Content-Type", "application/merge-patch+json"); got["size"] != "xxxxxxx" {
		t.Errorf("it was stored as %v", got)
	}
	shown("/grow", "v1", `"size":"xxx"`, `"size":"xxxxx"`)
	shown("/see", "v2", `"length":7`, `"length":5`)

	h.on("/grow", growing("xxxxxxxxx")) // that isn't valid in the version of the request
	if res, body := s.Do("PATCH", widgetsV2+"/a", `{"length":1}`, "Content-Type", "application/merge-patch+json"); res.StatusCode != 422 || !strings.Contains(body, "length") {
		t.Errorf("%s %s", res.Status, body)
	}
	h.requests("/see")

	broken.Store(true)
	if res, body := s.Do("POST", widgetsV1, strings.NewReplacer("v2", "v1", `"length":2`, `"size":"xx"`, `"a"`, `"b"`).Replace(in2)); res.StatusCode != 500 || !strings.Contains(body, "conversion webhook for example.com/v1, Kind=Widget failed") {
		t.Errorf("%s %s", res.Status, body)
	}
	must(t, s, 404, "GET", widgetsV1+"/b", "")
	if n := len(h.requests("/see")); n != 0 {
		t.Errorf("it was asked %d times about what can't be converted", n)
	}
}
