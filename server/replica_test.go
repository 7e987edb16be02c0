package server_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// newReplicas starts servers over one etcd.
func newReplicas(t *testing.T, n int, options ...func(*server.Server)) (all []*servertest.Server) {
	t.Helper()
	shared := overOneEtcd(t)
	for range n {
		all = append(all, servertest.New(t, append([]func(*server.Server){shared}, options...)...))
	}
	return all
}

// overOneEtcd returns an option that makes a server one of several over an etcd.
func overOneEtcd(t *testing.T) func(*server.Server) {
	t.Helper()
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return func(s *server.Server) {
		s.Data.Ephemeral = false
		server.Share(s, e)
	}
}

// leader returns which of the replicas acts.
func leader(t *testing.T, all []*servertest.Server) (at int) {
	t.Helper()
	until(t, "one of the replicas leads", func() bool {
		for i, s := range all {
			if server.Leads(s.Server) {
				at = i
				return true
			}
		}
		return false
	})
	return at
}

// pair is two replicas, the second of which hears late of what is written. If they have users, by RBAC, the
// users' tokens are their names.
type pair struct {
	t     *testing.T
	here  *ruled // where things are written first
	there *ruled // where they're asked for
}

// lag is how long the slow replica takes for each change, and more than what a request takes without waiting for it.
const lag = 20 * time.Millisecond

func newPair(t *testing.T, users bool) *pair {
	file := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(file, []byte("root,root,1,system:masters\nann,ann,2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	all := newReplicas(t, 2, func(s *server.Server) {
		if users {
			s.Access.TokenAuthFile, s.Access.AuthorizationMode = file, "RBAC"
		}
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		if n++; n == 2 {
			server.Lag(s, lag)
		}
	})
	p := &pair{t, &ruled{all[0], t}, &ruled{all[1], t}}
	if !users {
		return p
	}
	// The slow one takes seconds for all of Kubernetes' own rules, which are written at the start.
	until(t, "Kubernetes' own rules are at the slow replica", func() bool {
		code, _, _ := p.there.as("root", "GET", rbacPath+"/namespaces/kube-system/rolebindings/system:controller:token-cleaner", "")
		return code == http.StatusOK
	})
	return p
}

// TestArrivalHasADeadline: a request's time is over also while it isn't known yet who makes it: the replica doesn't hear of
// what another one has acknowledged.
func TestArrivalHasADeadline(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.csv")
	if err := os.WriteFile(file, []byte("root,root,1,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var hold, release func()
	n := 0
	all := newReplicas(t, 2, func(s *server.Server) {
		s.Access.TokenAuthFile, s.Access.AuthorizationMode = file, "RBAC"
		if n++; n == 2 {
			hold, release = server.Hold(s)
		}
	})
	here, there := &ruled{all[0], t}, &ruled{all[1], t}
	here.expect("root", "GET /debug/quiescent", "", 200, "")
	hold()
	defer release()
	here.expect("root", "POST "+inDefault+"/configmaps", `{"metadata":{"name":"a"}}`, 201, "")
	there.expect("root", "GET "+inDefault+"/configmaps/a?timeout=40ms", "", 504, "it could not be found out in time who makes the request and whether he may; nothing was done")
	release()
	there.expect("root", "GET "+inDefault+"/configmaps/a?timeout=40s", "", 200, "")
}

const adminPolicies = "/apis/admissionregistration.k8s.io/v1"

// TestReplicasAgree: what one replica has answered holds at the next one that is asked, from the first request on, although
// that one hears of it late.
func TestReplicasAgree(t *testing.T) {
	t.Run("users", func(t *testing.T) {
		p := newPair(t, true)
		p.agree(t)
		p.agreeOnUsers(t)
	})
	t.Run("no users", func(t *testing.T) { newPair(t, false).agree(t) }) // so writes may presume
}

func (p *pair) agree(t *testing.T) {
	here, there := p.here, p.there

	t.Run("definition", func(t *testing.T) {
		definition := func(schema string) string {
			return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},
				"spec":{"group":"example.com","scope":"Namespaced","names":{"kind":"Thing","plural":"things"},
				"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":` + schema + `}}]}}`
		}
		things := "/apis/example.com/v1/namespaces/default/things"
		here.expect("root", "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(`{"type":"object"}`), 201, "")
		there.expect("root", "GET "+things, "", 200, "")
		there.expect("root", "POST "+things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"one"}}`, 201, "")
		here.expect("root", "GET "+things+"/one", "", 200, "")
		here.expect("root", "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.example.com?fieldManager=test&force=true",
			definition(`{"type":"object","required":["spec"],"properties":{"spec":{"type":"object"}}}`), 200, "")
		there.expect("root", "POST "+things, `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"two"}}`, 422, "")

		cluster := func(status string) string {
			return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"wholes.example.com"},
				"spec":{"group":"example.com","scope":"Cluster","names":{"kind":"Whole","plural":"wholes"},"versions":[{"name":"v1","served":true,
				"storage":true` + status + `,"schema":{"openAPIV3Schema":{"type":"object","properties":{"status":{"type":"object"}}}}}]}}`
		}
		wholes, one := "/apis/example.com/v1/wholes", `{"apiVersion":"example.com/v1","kind":"Whole","metadata":{"name":"one"}}`
		here.expect("root", "POST /apis/apiextensions.k8s.io/v1/customresourcedefinitions", cluster(""), 201, "")
		there.expect("root", "POST "+wholes, one, 201, "")
		there.expect("root", "PATCH "+wholes+"/one/status?fieldManager=test", one, 404, "")
		here.expect("root", "PATCH /apis/apiextensions.k8s.io/v1/customresourcedefinitions/wholes.example.com?fieldManager=test&force=true",
			cluster(`,"subresources":{"status":{}}`), 200, "")
		there.expect("root", "PATCH "+wholes+"/one/status?fieldManager=test", one, 200, "")
	})
	t.Run("namespace", func(t *testing.T) {
		here.expect("root", "POST /api/v1/namespaces", `{"metadata":{"name":"shop"}}`, 201, "")
		there.expect("root", "POST /api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"one","finalizers":["example.com/held"]}}`, 201, "")
		here.expect("root", "DELETE /api/v1/namespaces/shop", "", 200, "")
		there.expect("root", "POST /api/v1/namespaces/shop/configmaps", `{"metadata":{"name":"two"}}`, 403, "")
		there.expect("root", "PATCH /api/v1/namespaces/shop/configmaps/one?fieldManager=x&force=true",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","finalizers":[]}}`, 200, "")
	})
	t.Run("policy", func(t *testing.T) {
		here.expect("root", "POST "+adminPolicies+"/validatingadmissionpolicies", `{"metadata":{"name":"none"},"spec":{
			"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
			"validations":[{"expression":"object.metadata.name != 'bad'"}]}}`, 201, "")
		here.expect("root", "POST "+adminPolicies+"/validatingadmissionpolicybindings",
			`{"metadata":{"name":"none"},"spec":{"policyName":"none","validationActions":["Deny"]}}`, 201, "")
		there.expect("root", "POST "+mapsPath, `{"metadata":{"name":"bad"}}`, 422, "")
	})
	t.Run("webhook", func(t *testing.T) {
		for _, kind := range []string{"validating", "mutating"} {
			hook := newRefusingWebhook(t)
			name := kind + ".example.com"
			refused := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"judged-by":%q}}}`, kind, kind)
			there.expect("root", "POST "+mapsPath+"?dryRun=All", refused, 201, "")
			here.expect("root", "POST "+adminPolicies+"/"+kind+"webhookconfigurations", fmt.Sprintf(`{"metadata":{"name":%q},"webhooks":[{"name":%q,
				"sideEffects":"None","admissionReviewVersions":["v1"],"clientConfig":{"url":%q,"caBundle":%q},
				"objectSelector":{"matchLabels":{"judged-by":%q}},
				"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]}]}`, kind, name, hook.URL, hook.caBundle(), kind), 201, "")
			there.expect("root", "POST "+mapsPath, refused, 403, `admission webhook "`+name+`" denied the request: not that one`)
			here.expect("root", "DELETE "+adminPolicies+"/"+kind+"webhookconfigurations/"+kind, "", 200, "")
			there.expect("root", "POST "+mapsPath, refused, 201, "")
		}
	})
	t.Run("version", func(t *testing.T) {
		created := here.expect("root", "POST "+mapsPath, `{"metadata":{"name":"versioned"}}`, 201, "")
		at := value(created, "metadata.resourceVersion")
		there.expect("root", "GET "+mapsPath+"/versioned?resourceVersion="+at, "", 200, "")
		code, status, _ := there.as("root", "GET", configMaps+"/versioned?resourceVersion=9"+at, "")
		if code != http.StatusGatewayTimeout || !strings.Contains(status.Message, "Too large resource version") {
			t.Errorf("a version that isn't there yet: %d %q", code, status.Message)
		}
	})
}

func (p *pair) agreeOnUsers(t *testing.T) {
	here, there := p.here, p.there
	t.Run("rights", func(t *testing.T) {
		there.expect("ann", "GET "+mapsPath, "", 403, "")
		here.role("reader", "ann", `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get","list","watch"]}]`)
		there.expect("ann", "GET "+mapsPath, "", 200, "")
		here.expect("root", "DELETE "+rulesInNS+"/rolebindings/reader", "", 200, "")
		for _, query := range []string{"", "?resourceVersion=0", "?watch=true", "?watch=true&resourceVersion=0"} {
			there.expect("ann", "GET "+mapsPath+query, "", 403, "")
			here.role("reader"+fmt.Sprint(len(query)), "ann", `[{"apiGroups":[""],"resources":["configmaps"],"verbs":["list","watch"]}]`)
			here.expect("root", "DELETE "+rulesInNS+"/rolebindings/reader"+fmt.Sprint(len(query)), "", 200, "")
			there.expect("ann", "GET "+mapsPath+query, "", 403, "")
		}
	})
	t.Run("token", func(t *testing.T) {
		here.expect("root", "POST /api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, "")
		issued := here.expect("root", "POST /api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{}}`, 201, "")
		there.expect(value(issued, "status.token"), "GET /api/v1/namespaces/default/configmaps", "", 403,
			`configmaps is forbidden: User "system:serviceaccount:default:robot" cannot list resource "configmaps" in API group "" in the namespace "default"`)
	})
}

// TestPresumed: a replica writes without waiting for what others have written, unless it's judged by that.
func TestPresumed(t *testing.T) {
	var hold, release func()
	n := 0
	all := newReplicas(t, 2, func(s *server.Server) {
		if n++; n == 2 {
			hold, release = server.Hold(s)
		}
	})
	here, there := &ruled{all[0], t}, &ruled{all[1], t}
	object := func(name string) string { return fmt.Sprintf(`{"metadata":{"name":%q}}`, name) }
	until(t, "writes presume", func() bool {
		there.expect("", "POST "+mapsPath, `{"metadata":{"generateName":"first-"}}`, 201, "")
		return server.Presumes(there.Server.Server)
	})
	hold()
	defer release()
	here.expect("", "POST "+mapsPath, object("unheard"), 201, "")
	there.expect("", "POST "+mapsPath, object("second"), 201, "")
	policies := adminPolicies + "/validatingadmissionpolic"
	here.expect("", "POST "+policies+"ies", `{"metadata":{"name":"none"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"object.metadata.name != 'bad'"}]}}`, 201, "")
	here.expect("", "POST "+policies+"ybindings", `{"metadata":{"name":"none"},"spec":{"policyName":"none","validationActions":["Deny"]}}`, 201, "")
	for _, name := range []string{"bad", "good", "unheard"} { // the answer to each depends on what it hasn't heard
		there.expect("", "POST "+mapsPath+"?timeout=100ms", object(name), http.StatusGatewayTimeout, "")
	}
	for _, name := range []string{"bad", "good"} {
		here.expect("", "GET "+mapsPath+"/"+name, "", 404, "")
	}

	release()
	there.expect("", "POST "+mapsPath, object("bad"), 422, "")
	there.expect("", "POST "+mapsPath, object("good"), 201, "")
	there.expect("", "POST "+mapsPath, object("unheard"), 409, "")
	here.expect("", "DELETE "+policies+"ybindings/none", "", 200, "")
	there.expect("", "POST "+mapsPath, object("bad"), 201, "")
	there.expect("", "DELETE "+mapsPath+"/bad", "", 200, "")
	there.expect("", "DELETE "+mapsPath+"/bad", "", 404, "")
	there.expect("", "DELETE "+mapsPath, "", 200, "") // the collection
	here.expect("", "GET "+mapsPath+"/good", "", 404, "")
}

// TestPresumedWithNamespace: a write that has its namespace made, and concerns a policy, begins again before either.
func TestPresumedWithNamespace(t *testing.T) {
	all := newReplicas(t, 2, func(s *server.Server) { s.API.AutoCreateNamespaces = true })
	here, there := &ruled{all[0], t}, &ruled{all[1], t}
	policies := adminPolicies + "/validatingadmissionpolic"
	here.expect("", "POST "+policies+"ies", `{"metadata":{"name":"none"},"spec":{
		"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"object.metadata.name != 'bad'"}]}}`, 201, "")
	for i := range 3 { // the first one reads where the rules are
		there.expect("", fmt.Sprintf("POST /api/v1/namespaces/unjudged-%d/configmaps", i), `{"metadata":{"name":"bad"}}`, 201, "")
	}
	here.expect("", "POST "+policies+"ybindings", `{"metadata":{"name":"none"},"spec":{"policyName":"none","validationActions":["Deny"]}}`, 201, "")
	until(t, "writes presume again", func() bool {
		there.expect("", "POST /api/v1/namespaces/default/configmaps", `{"metadata":{"generateName":"x-"}}`, 201, "")
		return server.Presumes(there.Server.Server)
	})
	there.expect("", "POST /api/v1/namespaces/judged/configmaps", `{"metadata":{"name":"bad"}}`, 422, "")
	there.expect("", "POST /api/v1/namespaces/judged/configmaps", `{"metadata":{"name":"good"}}`, 201, "")
}

// newRefusingWebhook refuses whatever it's asked about.
func newRefusingWebhook(t *testing.T) *webhook {
	h := &webhook{Server: httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct{ Request struct{ UID string } }
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":%q,"allowed":false,"status":{"code":403,"message":"not that one"}}}`, review.Request.UID)
	}))}
	t.Cleanup(h.Close)
	return h
}

// TestHandOver: when the replica that acts ends, another one acts, and goes on where the first one was.
func TestHandOver(t *testing.T) {
	all := newReplicas(t, 3)
	for len(all) > 1 {
		at := leader(t, all)
		other := all[(at+1)%len(all)]
		namespace := fmt.Sprint("space", len(all))
		other.PostYAML("/api/v1/namespaces", "metadata: {name: "+namespace+"}")
		for i := range 20 {
			all[i%len(all)].PostYAML("/api/v1/namespaces/"+namespace+"/configmaps", fmt.Sprintf("metadata: {name: c%d}", i))
		}
		other.Do(http.MethodDelete, "/api/v1/namespaces/"+namespace, "")
		if err := all[at].Close(); err != nil {
			t.Error(err)
		}
		all = append(all[:at:at], all[at+1:]...)
		until(t, "the namespace goes", func() bool {
			res, _ := other.Do(http.MethodGet, "/api/v1/namespaces/"+namespace, "")
			return res.StatusCode == http.StatusNotFound
		})
	}
}

// TestTrafficNamesReplicas: whichever replica is asked, its page has all of them, and which one acts.
func TestTrafficNamesReplicas(t *testing.T) {
	all := newReplicas(t, 2)
	acts := strings.TrimPrefix(all[leader(t, all)].URL, "http://")
	for _, s := range all {
		until(t, "the page has both", func() bool {
			var page struct {
				Replicas []struct {
					Name string
					Acts bool
				}
			}
			if err := json.Unmarshal([]byte(s.Get("/apiserver-lite/v1/traffic")), &page); err != nil {
				t.Fatal(err)
			}
			return len(page.Replicas) == 2 && page.Replicas[0].Acts && page.Replicas[0].Name == acts && !page.Replicas[1].Acts
		})
	}
}

// TestUnreadyBeforeHandOver: a replica that ends isn't ready any more when it hands over, however long that takes.
func TestUnreadyBeforeHandOver(t *testing.T) {
	var url string
	handed := false
	all := newReplicas(t, 1, func(s *server.Server) {
		server.OnResign(s, func() {
			handed = true
			res, err := http.Get(url + "/readyz/serving")
			if err != nil {
				t.Error(err)
				return
			}
			res.Body.Close()
			if res.StatusCode != http.StatusInternalServerError {
				t.Errorf("while it hands over it says that it serves: %s", res.Status)
			}
		})
	})
	url = all[0].URL
	leader(t, all)
	if err := all[0].Close(); err != nil {
		t.Error(err)
	}
	if !handed {
		t.Error("it didn't hand over")
	}
}

// TestQuiescentOverAll: each replica waits until the one that acts has nothing left to do, and says what's left otherwise.
func TestQuiescentOverAll(t *testing.T) {
	all := newReplicas(t, 2)
	at := leader(t, all)
	for i, s := range all {
		s.PostYAML(mapsPath, fmt.Sprintf("metadata: {name: owner%d}", i))
		owner := value(s.Get(mapsPath+fmt.Sprintf("/owner%d", i)), "metadata.uid")
		for n := range 10 {
			s.PostYAML(mapsPath, fmt.Sprintf(`{"metadata":{"name":"dependent%d-%d","finalizers":["example.com/held"],
				"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner%d","uid":%q}]}}`, i, n, i, owner))
		}
		s.Do(http.MethodDelete, mapsPath+fmt.Sprintf("/owner%d", i), "")
		if held := s.Quiescent(); len(held) != 10*(i+1) {
			t.Errorf("replica %d, while %d leads: %d objects are held, want %d", i, at, len(held), 10*(i+1))
		}
		list := s.Get(mapsPath)
		if deleting := strings.Count(list, "deletionTimestamp"); deleting != 10*(i+1) {
			t.Errorf("replica %d: %d objects are being deleted, want %d", i, deleting, 10*(i+1))
		}
	}
	if err := all[at].Close(); err != nil {
		t.Error(err)
	}
	all[1-at].Quiescent()
}

// TestAddressesOfReplicas: no two Services get the same address or the same port of nodes, whichever replicas make them.
func TestAddressesOfReplicas(t *testing.T) {
	all := newReplicas(t, 2, func(s *server.Server) {
		s.API.Builtin = builtin.All
		s.API.ServiceIPs = netip.MustParsePrefix("10.0.0.0/27")
	})
	const services = 24 // of 30 addresses: without turns some would be given twice
	var making sync.WaitGroup
	for i := range services {
		making.Go(func() {
			s := all[i%len(all)]
			body := fmt.Sprintf(`{"metadata":{"name":"s%d"},"spec":{"type":"NodePort","ports":[{"port":80}]}}`, i)
			if res, text := s.Do(http.MethodPost, "/api/v1/namespaces/default/services", body, "Content-Type", "application/json"); res.StatusCode != http.StatusCreated {
				t.Errorf("service %d: %s %s", i, res.Status, text)
			}
		})
	}
	making.Wait()
	seen := map[string]string{}
	for i := range services {
		text := all[0].Get(fmt.Sprintf("/api/v1/namespaces/default/services/s%d", i))
		service := decode[corev1.Service](t, text)
		for _, has := range []string{service.Spec.ClusterIP, fmt.Sprint(service.Spec.Ports[0].NodePort)} {
			if other := seen[has]; other != "" {
				t.Errorf("%s and %s both have %s", other, service.Name, has)
			}
			seen[has] = service.Name
		}
	}
}
