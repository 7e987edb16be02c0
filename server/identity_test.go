package server_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// aggregated has flunders served by a stub, which keeps the last request to a path.
func aggregated(t *testing.T, w *wardle, s *servertest.Server, token, path, answer string) *atomic.Pointer[http.Request] {
	t.Helper()
	headers := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}
	for path, body := range map[string]string{"/api/v1/namespaces/default/services": externalService, apiServicesPath: w.apiService(w.port())} {
		if res, text := s.Do("POST", path, body, headers...); res.StatusCode != http.StatusCreated {
			t.Fatal(res.Status, text)
		}
	}
	got := new(atomic.Pointer[http.Request])
	serve := http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path {
			w.answer(rw, r)
			return
		}
		got.Store(r)
		io.WriteString(rw, answer)
	})
	w.serve.Store(&serve)
	until(t, "flunders are served", func() bool {
		res, _ := s.Do("GET", flundersPath, "", headers...)
		return res.StatusCode == http.StatusOK
	})
	return got
}

// everywhere gives a user rules in all namespaces and outside of them.
func everywhere(s *ruled, user, rules string) {
	s.t.Helper()
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"of-`+user+`"},"rules":[`+rules+`]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"of-`+user+`"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"of-`+user+`"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"`+user+`"}]}`, 201, "")
}

// TestNobodyPlaysProxy: headers by which proxies name users, whatever they're called here, come to no aggregated server from a client.
func TestNobodyPlaysProxy(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := newDoors(t, w.aggregating(t), func(s *server.Server) {
		s.Access.RequestHeader.UsernameHeaders, s.Access.RequestHeader.GroupHeaders = []string{"X-Corp-User", "X-Remote-User"}, []string{"X-Corp-Group"}
	})
	got := aggregated(t, w, s.Server, "root-token", flundersPath+"/a", "{}")
	s.Do("GET", flundersPath+"/a", "", "Authorization", "Bearer bob-token", "X-Corp-User", "eve", "X-Corp-Group", "system:masters")
	if r := got.Load(); r == nil || r.Header.Get("X-Corp-User") != "" || r.Header.Get("X-Corp-Group") != "" || r.Header.Get("X-Remote-User") != "bob" {
		t.Errorf("the aggregated server got %v", r)
	}
}

// TestAggregatedWatchOfOne: a GET of one object with ?watch is a get to another server, so that who may only watch may not send it.
func TestAggregatedWatchOfOne(t *testing.T) {
	t.Parallel()
	w := newWardle(t)
	s := newRuled(t, w.aggregating(t))
	aggregated(t, w, s.Server, "root", flundersPath+"/secret", `{"kind":"Flunder","metadata":{"name":"secret"}}`)
	everywhere(s, "ann", aRule("wardle.example.com", "flunders", "watch"))
	everywhere(s, "bob", aRule("wardle.example.com", "flunders", "get"))
	for user, want := range map[string]int{"ann": 403, "bob": 200} {
		for _, query := range []string{"", "?watch=1"} {
			if code, status, _ := s.as(user, "GET", flundersPath+"/secret"+query, ""); code != want {
				t.Errorf("%s's GET of one%s is %d %s", user, query, code, status.Message)
			}
		}
	}
}

// TestWatchEndsWithAnotherUser: a watch ends when its token is by now of somebody with other groups.
func TestWatchEndsWithAnotherUser(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "users.csv")
	users := func(anns string) {
		if err := os.WriteFile(file, []byte("root,root,1,system:masters\nann,ann,2"+anns+"\nbob,bob,3,team\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	users(",team")
	s := newRuled(t, server.RecheckSoon, func(s *server.Server) { s.Access.TokenAuthFile = file })
	s.expect("root", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"w"},"rules":[`+aRule("", "configmaps", "watch")+`]}`, 201, "")
	s.expect("root", "POST "+rbacPath+"/clusterrolebindings", `{"metadata":{"name":"w"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"w"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"team"}]}`, 201, "")
	ended := map[string]chan error{}
	for _, user := range []string{"ann", "bob"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+configMaps+"?watch=true", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+user)
		res, err := s.Client.Do(r)
		if err != nil || res.StatusCode != 200 {
			t.Fatal(err, res)
		}
		defer res.Body.Close()
		end := make(chan error, 1)
		ended[user] = end
		go func() { _, err := io.Copy(io.Discard, res.Body); end <- err }()
	}
	users("")
	until(t, "ann's watch has ended", func() bool {
		select {
		case err := <-ended["ann"]:
			return err == nil
		default:
			return false
		}
	})
	select {
	case err := <-ended["bob"]:
		t.Errorf("bob's watch ends with %v", err)
	default:
	}
}

// TestEscalateByName: who may escalate roles of a name changes such a role, and makes none.
func TestEscalateByName(t *testing.T) {
	t.Parallel()
	s := newRuled(t)
	everywhere(s, "ann", aRule("rbac.authorization.k8s.io", "clusterroles", "create")+`,{"apiGroups":["rbac.authorization.k8s.io"],"resources":["clusterroles"],"verbs":["escalate","update"],"resourceNames":["foo"]}`)
	const all = `{"metadata":{"name":"foo"},"rules":[{"apiGroups":["*"],"resources":["*"],"verbs":["*"]}]}`
	s.expect("ann", "POST "+rbacPath+"/clusterroles", all, 403, `clusterroles.rbac.authorization.k8s.io "foo" is forbidden: user "ann" (groups=["team" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:`+"\n"+`{APIGroups:["*"], Resources:["*"], Verbs:["*"]}`)
	s.expect("ann", "POST "+rbacPath+"/clusterroles", `{"metadata":{"name":"foo"}}`, 201, "")
	s.expect("ann", "PUT "+rbacPath+"/clusterroles/foo", all, 200, "")
}

// TestTokenLife: a token that is asked for longer than one may live says how long it lives, and the client is warned.
func TestTokenLife(t *testing.T) {
	t.Parallel()
	s := newRuled(t, func(s *server.Server) { s.Access.ServiceAccountMaxTokenExpiration = time.Hour })
	s.expect("root", "POST /api/v1/namespaces/default/serviceaccounts", `{"metadata":{"name":"robot"}}`, 201, "")
	res, text := s.Do("POST", "/api/v1/namespaces/default/serviceaccounts/robot/token", `{"spec":{"expirationSeconds":7200}}`, "Authorization", "Bearer root", "Content-Type", "application/json")
	if warned := res.Header.Get("Warning"); !strings.Contains(warned, "requested expiration of 7200 seconds shortened to 3600 seconds") || !strings.Contains(text, `"expirationSeconds":3600`) {
		t.Errorf("%s, warned %q: %s", res.Status, warned, text)
	}
}

// TestCertificateOfNobody: a certificate without a name is no credential, as with kube-apiserver. Over HTTP/2 a stranger's connection ends with the answer.
func TestCertificateOfNobody(t *testing.T) {
	t.Parallel()
	d := newDoors(t, withRules, func(s *server.Server) { s.Access.RequestHeader = access.RequestHeader{} })
	until(t, "strangers may ask for the version", func() bool { r, _ := d.Do("GET", "/version", ""); return r.StatusCode == 200 })
	for _, cert := range []*tls.Certificate{nil, d.clients.Issue(t, "", []string{"devs"}, nil)} {
		config, dialed := &tls.Config{InsecureSkipVerify: true}, 0
		if cert != nil {
			config.Certificates = []tls.Certificate{*cert}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			dialed++
			return new(net.Dialer).DialContext(ctx, network, address)
		}}}
		for range 3 {
			if res, text := d.send(client, "GET", "/version", ""); res.StatusCode != 200 || res.ProtoMajor != 2 {
				t.Errorf("%s over HTTP/%d: %s", res.Status, res.ProtoMajor, text)
			}
		}
		client.CloseIdleConnections()
		if dialed != 3 {
			t.Errorf("three requests had %d connections", dialed)
		}
	}
}
