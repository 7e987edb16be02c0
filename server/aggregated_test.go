package server_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
	flundersPath    = "/apis/wardle.example.com/v1alpha1/flunders"
	wardleName      = "v1alpha1.wardle.example.com"
)

// wardle is an aggregated API server: it serves flunders of wardle.example.com/v1alpha1, and believes whoever shows a
// certificate of the front proxy's authority.
type wardle struct {
	*httptest.Server
	authority *credentials.Authority // of its certificate
	proxies   *credentials.Authority
	// serve, if set, answers instead.
	serve atomic.Pointer[http.HandlerFunc]
}

const (
	flunders  = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"wardle.example.com/v1alpha1","resources":[{"name":"flunders","singularName":"flunder","namespaced":false,"kind":"Flunder","verbs":["get","list","watch"]}]}`
	wardleAPI = `{"swagger":"2.0","info":{"title":"wardle","version":"1"},"paths":{
		"/apis/wardle.example.com/v1alpha1/flunders":{"get":{"operationId":"listFlunders","parameters":[{"$ref":"#/parameters/limit-x"}],"responses":{"200":{"description":"OK","schema":{"$ref":"#/definitions/com.example.Flunder"}}}}},
		"/apis/apps/v1/deployments":{"get":{"operationId":"stolen","responses":{"200":{"description":"OK"}}}}},
		"definitions":{"com.example.Flunder":{"type":"object","properties":{"metadata":{"$ref":"#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}}},
			"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta":{"description":"Another one.","type":"object"}},
		"parameters":{"limit-x":{"name":"limit","in":"query","type":"integer"}}}`
)

func newWardle(t *testing.T) *wardle {
	t.Helper()
	w := &wardle{authority: credentials.NewAuthority(t, "wardle"), proxies: credentials.NewAuthority(t, "front-proxy")}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if f := w.serve.Load(); f != nil {
			(*f)(rw, r)
			return
		}
		w.answer(rw, r)
	}))
	certificate := w.authority.Issue(t, "wardle", nil, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{"api.default.svc"}, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	})
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(w.proxies.PEM())
	w.TLS = &tls.Config{Certificates: []tls.Certificate{*certificate}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
	w.EnableHTTP2 = true
	w.Config.ErrorLog = log.New(io.Discard, "", 0)
	w.StartTLS()
	t.Cleanup(w.Close)
	return w
}

func (w *wardle) answer(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "application/json")
	switch r.URL.Path {
	case "/apis/wardle.example.com/v1alpha1":
		io.WriteString(rw, flunders)
	case "/openapi/v2":
		io.WriteString(rw, wardleAPI)
	case flundersPath:
		io.WriteString(rw, `{"kind":"FlunderList","apiVersion":"wardle.example.com/v1alpha1","metadata":{"resourceVersion":"1"},"items":[]}`)
	default:
		http.NotFound(rw, r)
	}
}

func (w *wardle) port() string {
	_, port, _ := net.SplitHostPort(w.Listener.Addr().String())
	return port
}

// aggregating makes a server call w, with users if w asks who they are.
func (w *wardle) aggregating(t *testing.T) func(*server.Server) {
	certFile, keyFile := credentials.Files(t, w.proxies.Issue(t, "front-proxy-client", nil, nil))
	return func(s *server.Server) {
		s.API.Builtin = builtin.All
		s.Aggregation.ProxyClientCertFile, s.Aggregation.ProxyClientKeyFile = certFile, keyFile
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}
}

// externalService leads to this machine.
const externalService = `{"metadata":{"name":"api"},"spec":{"type":"ExternalName","externalName":"localhost"}}`

// apiService names the service api in default.
func (w *wardle) apiService(port string) string {
	ca, _ := json.Marshal(w.authority.PEM())
	return fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"group":"wardle.example.com","version":"v1alpha1","groupPriorityMinimum":2000,"versionPriority":15,
		"caBundle":%s,"service":{"namespace":"default","name":"api","port":%s}}}`, wardleName, ca, port)
}

// newAggregating returns a server that has flunders, behind a Service of type ExternalName.
func newAggregating(t *testing.T, w *wardle, options ...func(*server.Server)) *servertest.Server {
	t.Helper()
	s := servertest.New(t, append([]func(*server.Server){w.aggregating(t)}, options...)...)
	s.PostYAML("/api/v1/namespaces/default/services", externalService)
	s.PostYAML(apiServicesPath, w.apiService(w.port()))
	awaitCondition(t, s, wardleName, "True", "Passed", "all checks passed")
	return s
}

// awaitCondition waits until an APIService has a condition; the message is the beginning of its.
func awaitCondition(t *testing.T, s *servertest.Server, name, status, reason, message string) {
	t.Helper()
	await.Right(t, func() string {
		got := decode[apiregistrationv1.APIService](t, s.Get(apiServicesPath+"/"+name)).Status.Conditions
		if len(got) == 1 && string(got[0].Status) == status && got[0].Reason == reason && strings.HasPrefix(got[0].Message, message) {
			return ""
		}
		return fmt.Sprintf("the condition is %+v, want %s %s %q", got, status, reason, message)
	})
}

// TestAggregated: what an APIService names is served, and is in discovery in its place.
func TestAggregated(t *testing.T) {
	t.Parallel()
	s := newAggregating(t, newWardle(t))
	if got := s.Get(flundersPath); !strings.Contains(got, "FlunderList") {
		t.Errorf("flunders are %s", got)
	}
	if got := s.Get("/apis/wardle.example.com/v1alpha1"); got != flunders {
		t.Errorf("the resources are %s", got)
	}
	group := decode[metav1.APIGroup](t, s.Get("/apis/wardle.example.com"))
	if group.PreferredVersion.GroupVersion != "wardle.example.com/v1alpha1" || len(group.Versions) != 1 {
		t.Errorf("the group is %+v", group)
	}
	s.PostYAML(definitionsPath, widgets)
	var names []string
	for _, g := range decode[metav1.APIGroupList](t, s.Get("/apis")).Groups {
		names = append(names, g.Name)
	}
	at, widget := slices.Index(names, "wardle.example.com"), slices.Index(names, "example.com")
	if at < 0 || widget < at || names[0] != "apiregistration.k8s.io" {
		t.Errorf("the groups are %q", names)
	}
	until(t, "aggregated discovery has flunders", func() bool {
		_, body := s.Do("GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		for _, g := range decode[apidiscovery.APIGroupDiscoveryList](t, body).Items {
			if g.Name == "wardle.example.com" {
				v := g.Versions[0]
				return v.Freshness == "Current" && len(v.Resources) == 1 && v.Resources[0].Resource == "flunders" && v.Resources[0].Scope == "Cluster"
			}
		}
		return false
	})
	if res, _ := s.Do("DELETE", apiServicesPath+"/"+wardleName, ""); res.StatusCode != http.StatusOK {
		t.Fatal(res.Status)
	}
	until(t, "flunders are gone", func() bool {
		res, _ := s.Do("GET", flundersPath, "")
		_, groups := s.Do("GET", "/apis", "")
		return res.StatusCode == http.StatusNotFound && !strings.Contains(groups, "wardle")
	})
}

// TestAggregatedOpenAPI: the documents of a server are merged with this one's.
func TestAggregatedOpenAPI(t *testing.T) { // not in parallel: under the race detector a whole document takes so long that others' work would have it reach its deadline
	s := newAggregating(t, newWardle(t))
	until(t, "version 3 has the server's document", func() bool { return openAPIURLs(t, s)["apis/wardle.example.com/v1alpha1"] != "" })
	if body := s.Get(openAPIURLs(t, s)["apis/wardle.example.com/v1alpha1"]); !strings.Contains(body, `"/apis/wardle.example.com/v1alpha1/flunders"`) {
		t.Errorf("the document of version 3 is %s", body)
	}
	var two struct {
		Paths, Parameters map[string]any
		Definitions       map[string]struct{ Description string }
	}
	if err := json.Unmarshal([]byte(s.Get("/openapi/v2")), &two); err != nil {
		t.Fatal(err)
	}
	const meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
	if two.Paths[flundersPath] == nil || two.Parameters["limit-x"] == nil || fmt.Sprint(two.Paths["/apis/apps/v1/deployments"]) == "" || strings.Contains(fmt.Sprint(two.Paths), "stolen") {
		t.Errorf("the paths are %v, the parameters %v", slices.Sorted(maps.Keys(two.Paths)), two.Parameters)
	}
	if two.Definitions[meta+"_v2"].Description != "Another one." || strings.Contains(two.Definitions[meta].Description, "Another") {
		t.Errorf("the definitions are %q and %q", two.Definitions[meta].Description, two.Definitions[meta+"_v2"].Description)
	}
	if res, body := s.Do("GET", "/openapi/v2", "", "Accept", "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"); res.StatusCode != 200 || !strings.Contains(body, "com.example.Flunder") {
		t.Errorf("protobuf: %s without flunders", res.Status)
	}
}

// TestAggregatedHeaders: a server is told who asks, by this server alone.
func TestAggregatedHeaders(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	ruled := newRuled(t, w.aggregating(t))
	s := ruled.Server
	admin := []string{"Authorization", "Bearer root", "Content-Type", "application/json"}
	for path, body := range map[string]string{"/api/v1/namespaces/default/services": externalService, apiServicesPath: w.apiService(w.port())} {
		if res, text := s.Do("POST", path, body, admin...); res.StatusCode != http.StatusCreated {
			t.Fatal(res.Status, text)
		}
	}
	var got atomic.Pointer[http.Request]
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == flundersPath {
			got.Store(r)
		}
		rw.Header().Set("Access-Control-Allow-Origin", "*")
		w.answer(rw, r)
	})
	w.serve.Store(&serve)
	until(t, "flunders are served", func() bool {
		res, _ := s.Do("GET", flundersPath, "", admin...)
		return res.StatusCode == http.StatusOK
	})
	got.Store(nil)
	// Without a right to flunders the request never gets there.
	ruled.expect("ann", "GET "+flundersPath, "", 403, `flunders.wardle.example.com is forbidden: User "ann" cannot list resource "flunders" in API group "wardle.example.com" at the cluster scope`)
	if got.Load() != nil {
		t.Error("a request that isn't allowed came to the server")
	}
	for path, body := range map[string]string{
		rbacPath + "/clusterroles":        `{"metadata":{"name":"flunders"},"rules":[{"apiGroups":["wardle.example.com"],"resources":["*"],"verbs":["list"]}]}`,
		rbacPath + "/clusterrolebindings": `{"metadata":{"name":"flunders"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"flunders"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"ann"}]}`,
	} {
		if res, text := s.Do("POST", path, body, admin...); res.StatusCode != http.StatusCreated {
			t.Fatal(res.Status, text)
		}
	}
	res, _ := s.Do("GET", flundersPath+"?limit=5&continue=a%20b", "", "Authorization", "Bearer ann", "Audit-Id", "my-id", "X-Forwarded-For", "192.0.2.9")
	r := got.Load()
	if res.StatusCode != http.StatusOK || r == nil {
		t.Fatal(res.Status)
	}
	want := map[string]string{
		"X-Remote-User": "ann", "X-Remote-Group": "team system:authenticated", "X-Remote-Uid": "2", "Audit-Id": "my-id", "Authorization": "",
		"X-Forwarded-For": "192.0.2.9, 127.0.0.1",
	}
	for name, value := range want {
		if have := strings.Join(r.Header.Values(name), " "); have != value {
			t.Errorf("%s is %q, want %q", name, have, value)
		}
	}
	if r.URL.RawQuery != "continue=a+b&limit=5" || r.ProtoMajor != 2 || res.Header.Get("Access-Control-Allow-Origin") != "" {
		t.Errorf("the query is %q, over HTTP/%d, with %v", r.URL.RawQuery, r.ProtoMajor, res.Header)
	}
	// Whoever may be somebody else is.
	s.Do("GET", flundersPath, "", "Authorization", "Bearer root", "Impersonate-User", "ann", "Impersonate-Extra-My%2Fkey", "b", "Impersonate-Uid", "x")
	r = got.Load()
	if r.Header.Get("X-Remote-User") != "ann" || r.Header.Get("X-Remote-Extra-My%2fkey") != "b" || r.Header.Get("X-Remote-Uid") != "x" || r.Header.Get("Impersonate-User") != "" {
		t.Errorf("the headers of somebody else are %v", r.Header)
	}
}

// TestAggregatedUnavailable: why a server can't be reached is in its APIService, its group is 503, and nothing else is.
func TestAggregatedUnavailable(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	withPort := func(spec string) string {
		return `{"metadata":{"name":"api"},"spec":{` + spec + `"ports":[{"name":"https","port":` + w.port() + `}]}}`
	}
	slice := func(change string) string {
		return `{"metadata":{"name":"api","labels":{"kubernetes.io/service-name":"api"}},"addressType":"IPv4","ports":[{"name":"https","port":1}],"endpoints":[{"addresses":["192.0.2.1"]` + change + `}]}`
	}
	for _, tc := range []struct {
		name            string
		service, slice  string
		port            string
		serve           http.HandlerFunc
		reason, message string
	}{
		{name: "no service", reason: "ServiceNotFound", message: `service/api in "default" is not present`},
		{name: "another port", service: withPort(""), port: "1", reason: "ServicePortError", message: `service/api in "default" is not listening on port 1`},
		{name: "no endpoints", service: withPort(""), reason: "EndpointsNotFound", message: `cannot find endpointslices for service/api in "default"`},
		{name: "none that is ready", service: withPort(""), slice: slice(`,"conditions":{"ready":false}`), reason: "MissingEndpoints", message: `endpointslices for service/api in "default" have no addresses with port name "https"`},
		{name: "nobody listens", service: externalService, port: "1", reason: "FailedDiscoveryCheck", message: `failing or missing response from https://localhost:1/apis/wardle.example.com/v1alpha1: Get "https://localhost:1/apis/wardle.example.com/v1alpha1": dial tcp `},
		{name: "500", service: externalService, serve: func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "broken", 500) }, reason: "FailedDiscoveryCheck",
			message: "failing or missing response from https://localhost:" + w.port() + "/apis/wardle.example.com/v1alpha1: bad status from https://localhost:" + w.port() + "/apis/wardle.example.com/v1alpha1: 500"},
		{name: "a redirect", service: externalService, serve: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://localhost/", http.StatusFound)
		}, reason: "FailedDiscoveryCheck",
			message: "failing or missing response from https://localhost:" + w.port() + "/apis/wardle.example.com/v1alpha1: bad status from https://localhost:" + w.port() + "/apis/wardle.example.com/v1alpha1: 302"},
		{name: "an address that isn't allowed", service: strings.Replace(externalService, "localhost", "169.254.169.254", 1), port: "80", reason: "FailedDiscoveryCheck",
			message: `failing or missing response from https://169.254.169.254:80/apis/wardle.example.com/v1alpha1: Get "https://169.254.169.254:80/apis/wardle.example.com/v1alpha1": its address isn't allowed`},
		{name: "another certificate", service: strings.Replace(externalService, `"name":"api"`, `"name":"other"`, 1), reason: "FailedDiscoveryCheck",
			message: "failing or missing response from https://localhost:" + w.port() + `/apis/wardle.example.com/v1alpha1: Get "https://localhost:` + w.port() + `/apis/wardle.example.com/v1alpha1": tls: failed to verify certificate: x509: certificate is valid for api.default.svc, not other.default.svc`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := w
			if tc.serve != nil {
				w.serve.Store(&tc.serve)
				defer w.serve.Store(nil)
			}
			s := servertest.New(t, w.aggregating(t))
			if tc.service != "" {
				s.PostYAML("/api/v1/namespaces/default/services", tc.service)
			}
			if tc.slice != "" {
				s.PostYAML(slicesPath, tc.slice)
			}
			port := tc.port
			if port == "" {
				port = w.port()
			}
			body := w.apiService(port)
			if strings.Contains(tc.service, `"other"`) {
				body = strings.Replace(body, `"name":"api"`, `"name":"other"`, 1)
			}
			s.PostYAML(apiServicesPath, body)
			awaitCondition(t, s, wardleName, "False", tc.reason, tc.message)
			for _, path := range []string{flundersPath, "/apis/wardle.example.com/v1alpha1", flundersPath + "/a/b/c/d"} {
				res, text := s.Do("GET", path, "")
				if res.StatusCode != http.StatusServiceUnavailable || text != "service unavailable\n" {
					t.Errorf("GET %s: %s %q", path, res.Status, text)
				}
			}
			if _, body := s.Do("GET", "/apis", ""); !strings.Contains(body, `"wardle.example.com"`) || !strings.Contains(body, `"apps"`) {
				t.Errorf("the groups are %s", body)
			}
			_, all := s.Do("GET", "/apis", "", "Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			for _, g := range decode[apidiscovery.APIGroupDiscoveryList](t, all).Items {
				if stale := g.Versions[0].Freshness == "Stale"; stale != (g.Name == "wardle.example.com") {
					t.Errorf("%s is %s", g.Name, g.Versions[0].Freshness)
				}
			}
			if metrics := s.Get("/metrics"); !strings.Contains(metrics, `aggregator_unavailable_apiservice{name="`+wardleName+`"} 1`) {
				t.Error("no metric says that it's unavailable")
			}
		})
	}
}

// TestAggregatedComesBack: a server that is gone is noticed, and noticed again when it's back.
func TestAggregatedComesBack(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := newAggregating(t, w)
	res, text := s.Do("PATCH", "/api/v1/namespaces/default/services/api", `{"spec":{"externalName":"gone.invalid"}}`, "Content-Type", "application/merge-patch+json")
	if res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, text)
	}
	awaitCondition(t, s, wardleName, "False", "FailedDiscoveryCheck", "failing or missing response from https://gone.invalid:")
	s.Do("PATCH", "/api/v1/namespaces/default/services/api", `{"spec":{"externalName":"localhost"}}`, "Content-Type", "application/merge-patch+json")
	awaitCondition(t, s, wardleName, "True", "Passed", "all checks passed")
	s.Get(flundersPath)
}

// TestAggregatedEndpoints: with --enable-aggregator-routing the endpoints of a Service are called.
func TestAggregatedEndpoints(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := servertest.New(t, w.aggregating(t), func(s *server.Server) { s.Aggregation.EndpointRouting = true })
	s.PostYAML("/api/v1/namespaces/default/services", `{"metadata":{"name":"api"},"spec":{"ports":[{"name":"https","port":443}]}}`)
	s.PostYAML(apiServicesPath, w.apiService("443"))
	awaitCondition(t, s, wardleName, "False", "EndpointsNotFound", "")
	s.PostYAML(slicesPath, `{"metadata":{"name":"api","labels":{"kubernetes.io/service-name":"api"}},"addressType":"IPv4","ports":[{"name":"https","port":`+w.port()+`}],
		"endpoints":[{"addresses":["127.0.0.2"],"conditions":{"ready":false}},{"addresses":["127.0.0.1"]}]}`)
	awaitCondition(t, s, wardleName, "True", "Passed", "")
	for range 5 {
		s.Get(flundersPath)
	}
}

// TestAggregatedStreams: watches come event by event, over HTTP/1.1 and HTTP/2, end when either side leaves, and don't hold up
// the server's end.
func TestAggregatedStreams(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	left := make(chan string, 4)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			w.answer(rw, r)
			return
		}
		for i := range 3 {
			fmt.Fprintf(rw, `{"type":"ADDED","object":{"n":%d}}`+"\n", i)
			http.NewResponseController(rw).Flush()
		}
		<-r.Context().Done()
		left <- r.URL.Query().Get("who")
	})
	w.serve.Store(&serve)
	s := newAggregating(t, w)
	var both http.Protocols
	both.SetUnencryptedHTTP2(true)
	h2 := &http.Transport{Protocols: &both}
	defer h2.CloseIdleConnections()
	for who, client := range map[string]*http.Client{"one": s.Client, "two": {Transport: h2}} {
		ctx, leave := context.WithCancel(t.Context())
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+flundersPath+"?watch=true&who="+who, nil)
		res, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(res.Body)
		for i := range 3 {
			if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprint(i)) {
				t.Fatalf("%s: %q, %v", who, line, err)
			}
		}
		if metrics := s.Get("/metrics"); !strings.Contains(metrics, `apiserver_longrunning_requests{group="wardle.example.com",resource="",verb="WATCH",version="v1alpha1"} 1`) {
			t.Errorf("%s: the watch isn't counted", who)
		}
		leave()
		res.Body.Close()
		if got := <-left; got != who {
			t.Errorf("%q left, want %q", got, who)
		}
	}
	watch := s.Watch(flundersPath + "?watch=true&who=last")
	watch.Next()
	if err := s.Server.Close(); err != nil {
		t.Error(err)
	}
	if got := <-left; got != "last" {
		t.Errorf("%q left at the end", got)
	}
}

// TestAggregatedUpgrade: a connection becomes what client and server agree on.
func TestAggregatedUpgrade(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			w.answer(rw, r)
			return
		}
		conn, buffered, err := http.NewResponseController(rw).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nX-Protocols: %s\r\n\r\n", r.Header.Get("Upgrade"), r.Header.Get("Sec-Websocket-Protocol"))
		line, _ := buffered.ReadString('\n')
		io.WriteString(conn, "echo "+line)
		buffered.ReadString('\n') // until the client is gone
	})
	w.serve.Store(&serve)
	s := newAggregating(t, w)
	to, _ := url.Parse(s.URL)
	for _, protocol := range []string{"websocket", "SPDY/3.1"} {
		conn, err := net.Dial("tcp", to.Host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST %s/a/exec HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: %s\r\nSec-WebSocket-Protocol: a, base64url.bearer.authorization.k8s.io.dG9rZW4, b\r\n\r\n", flundersPath, to.Host, protocol)
		in := bufio.NewReader(conn)
		res, err := http.ReadResponse(in, nil)
		if err != nil || res.StatusCode != http.StatusSwitchingProtocols || res.Header.Get("Upgrade") != protocol {
			t.Fatalf("%s: %v, %v", protocol, res, err)
		}
		if got := res.Header.Get("X-Protocols"); got != "a,b" {
			t.Errorf("%s: the server was told %q", protocol, got)
		}
		fmt.Fprintln(conn, protocol)
		if line, err := in.ReadString('\n'); line != "echo "+protocol+"\n" {
			t.Errorf("%s: %q, %v", protocol, line, err)
		}
		if protocol == "websocket" {
			conn.Close()
			continue
		}
		if err := s.Server.Close(); err != nil { // it ends what's open
			t.Error(err)
		}
		if _, err := in.ReadByte(); err == nil {
			t.Error("the connection is open after the end")
		}
		conn.Close()
	}
}

// TestAggregatedSlow: a server that doesn't answer costs its own requests their time, and others nothing.
func TestAggregatedSlow(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := newAggregating(t, w, func(s *server.Server) { s.Bounds.MaxReads = 4 })
	came, left := make(chan struct{}, 100), make(chan struct{}, 100)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != flundersPath {
			w.answer(rw, r)
			return
		}
		came <- struct{}{}
		<-r.Context().Done()
		left <- struct{}{}
	})
	w.serve.Store(&serve)
	ctx, leave := context.WithCancel(t.Context())
	done := make(chan error, 10)
	for range 10 { // more than there are seats
		go func() {
			r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+flundersPath, nil)
			_, err := s.Client.Do(r)
			done <- err
		}()
	}
	for range 10 {
		<-came
	}
	s.Get("/api/v1/namespaces")
	s.Get("/apis")
	leave()
	for range 10 {
		<-left
		if err := <-done; err == nil {
			t.Error("there was an answer")
		}
	}
	res, text := s.Do("GET", flundersPath+"?timeout=50ms", "")
	if status := decode[metav1.Status](t, text); res.StatusCode != http.StatusGatewayTimeout || status.Reason != metav1.StatusReasonTimeout {
		t.Errorf("beyond its time: %s %s", res.Status, text)
	}
	<-left
}

// TestAggregatedBodies: bodies of any size go through, and an answer that breaks off isn't taken for whole.
func TestAggregatedBodies(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Query().Get("break") != "":
			rw.Header().Set("Content-Length", "10")
			io.WriteString(rw, "five")
			http.NewResponseController(rw).Flush()
			panic(http.ErrAbortHandler)
		case r.Method == http.MethodPost:
			io.Copy(rw, r.Body)
		default:
			w.answer(rw, r)
		}
	})
	w.serve.Store(&serve)
	s := newAggregating(t, w)
	large := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than any body of this server's own may have
	if res, got := s.Do("POST", flundersPath, string(large)); res.StatusCode != http.StatusOK || got != string(large) {
		t.Errorf("%s with %d bytes of %d", res.Status, len(got), len(large))
	}
	res, err := s.Client.Get(s.URL + flundersPath + "?break=1")
	if err != nil {
		return // nothing of it came
	}
	defer res.Body.Close()
	if got, err := io.ReadAll(res.Body); err == nil {
		t.Errorf("%q is taken for whole", got)
	}
}

// TestAggregatedRedirect: a redirect doesn't lead clients past this server.
func TestAggregatedRedirect(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := newAggregating(t, w)
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == flundersPath {
			http.Redirect(rw, r, "https://elsewhere.example/", http.StatusFound)
			return
		}
		w.answer(rw, r)
	})
	w.serve.Store(&serve)
	if res, text := s.Do("GET", flundersPath, ""); res.StatusCode != http.StatusBadGateway || text != "the backend attempted to redirect this request, which is not permitted" || res.Header.Get("Location") != "" {
		t.Errorf("%s %q %v", res.Status, text, res.Header)
	}
}

// TestAggregatedDiscoverySlow: a server that doesn't say what it serves keeps no discovery waiting.
func TestAggregatedDiscoverySlow(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	end := make(chan struct{})
	serve := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-end:
		case <-r.Context().Done():
		}
	})
	w.serve.Store(&serve)
	defer close(end)
	s := servertest.New(t, w.aggregating(t))
	s.PostYAML("/api/v1/namespaces/default/services", externalService)
	s.PostYAML(apiServicesPath, w.apiService(w.port()))
	ctx, cancel := context.WithTimeout(t.Context(), await.Patience)
	defer cancel()
	for _, accept := range []string{"application/json", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"} {
		r, _ := http.NewRequestWithContext(ctx, "GET", s.URL+"/apis", nil)
		r.Header.Set("Accept", accept)
		res, err := s.Client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || !bytes.Contains(body, []byte("wardle.example.com")) {
			t.Errorf("%s: %v, %s", accept, err, body)
		}
	}
}

// TestAggregatedOptions: what can't work is told at the start.
func TestAggregatedOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]func(*server.Server){
		"--proxy-client-cert-file and --proxy-client-key-file need each other": func(s *server.Server) { s.Aggregation.ProxyClientCertFile = "a" },
		"--proxy-client-key-file:": func(s *server.Server) {
			s.Aggregation.ProxyClientCertFile, s.Aggregation.ProxyClientKeyFile = "/nowhere/a", "/nowhere/b"
		},
	} {
		s := &server.Server{Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, Serving: server.Serving{Listen: loopback.Address(t)}}
		o(s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := s.Start(ctx); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("the start says %v, want %q", err, name)
			s.Close()
		}
		cancel()
	}
}

// TestLocalAPIService: an APIService without a service is available at once, and one with a service when that has answered.
func TestLocalAPIService(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin = builtin.All })
	made := decode[apiregistrationv1.APIService](t, s.PostYAML(apiServicesPath, `{"metadata":{"name":"v1.example.com"},"spec":{"group":"example.com","version":"v1","groupPriorityMinimum":1000,"versionPriority":15}}`))
	if c := made.Status.Conditions; len(c) != 1 || c[0].Status != "True" || c[0].Reason != "Local" || c[0].Message != "Local APIServices are always available" {
		t.Errorf("the conditions are %+v", c)
	}
	made = decode[apiregistrationv1.APIService](t, s.PostYAML(apiServicesPath, `{"metadata":{"name":"v1.example.org"},"spec":{"group":"example.org","version":"v1","groupPriorityMinimum":1000,"versionPriority":15,"service":{"namespace":"default","name":"api"}}}`))
	if p := made.Spec.Service.Port; p == nil || *p != 443 || len(made.Status.Conditions) != 0 {
		t.Errorf("the port is %v, the conditions are %+v", p, made.Status.Conditions)
	}
}
