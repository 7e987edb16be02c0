package server_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// proxy is one that HTTP's CONNECT is sent to, over a unix socket.
type proxy struct {
	socket string

	mu    sync.Mutex // guards asked
	asked map[string]bool
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{socket: filepath.Join(t.TempDir(), "p.sock"), asked: map[string]bool{}}
	l, err := net.Listen("unix", p.socket)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: p}
	var serving sync.WaitGroup
	serving.Go(func() { s.Serve(l) })
	t.Cleanup(func() { s.Close(); serving.Wait() })
	return p
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.Host] = true
	p.asked[r.URL.Host] = true
	p.mu.Unlock()
	to, err := net.Dial("tcp", r.URL.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer to.Close()
	from, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer from.Close()
	fmt.Fprint(from, "HTTP/1.1 200 OK\r\n\r\n")
	go func() { defer from.Close(); io.Copy(from, to) }()
	io.Copy(to, from)
}

// led tells whether a connection to a URL's host went through the proxy.
func (p *proxy) led(url string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[strings.TrimPrefix(url, "https://")]
}

// TestEgress: what the server asks and tells goes through the proxy of --egress-selector-config-file, also to addresses that --webhook-addresses
// doesn't name.
func TestEgress(t *testing.T) {
	p := newProxy(t)
	file := filepath.Join(t.TempDir(), "egress.yaml")
	writeFile(t, file, fmt.Sprintf("apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n- {name: controlplane, connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: %q}}}}\n", p.socket))
	allows := newAsked(t, func(map[string]any) (map[string]any, int) { return map[string]any{"allowed": true}, http.StatusOK })
	knows := newAsked(t, func(map[string]any) (map[string]any, int) {
		return map[string]any{"authenticated": true, "user": map[string]any{"username": "hugo"}}, http.StatusOK
	})
	notes := newAsked(t, taken)
	judges := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			APIVersion, Kind string
			Request          struct{ UID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		fmt.Fprintf(w, `{"apiVersion":%q,"kind":%q,"response":{"uid":%q,"allowed":false,"status":{"message":"judged"}}}`, review.APIVersion, review.Kind, review.Request.UID)
	}))
	defer judges.Close()
	issuer := credentials.NewIssuer(t)
	issuers, policy := filepath.Join(t.TempDir(), "authentication.yaml"), filepath.Join(t.TempDir(), "policy.yaml")
	writeFile(t, issuers, strings.Replace(issuer.Configuration(), "    audiences:", "    egressSelectorType: controlplane\n    audiences:", 1))
	writeFile(t, policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\n"+everythingAtMetadata)
	traces := newCollector(t)
	d := newDoors(t, tracedTo(t, traces.at, 1_000_000), func(s *server.Server) {
		s.API.Egress.ConfigFile, s.API.WebhookAddresses = file, nil
		s.Access.AuthorizationMode, s.Access.AuthorizationWebhook.ConfigFile = "Webhook", allows.kubeconfig()
		s.Access.AuthenticationWebhook = access.AuthenticationWebhook{ConfigFile: knows.kubeconfig()}
		s.Access.AuthenticationConfigFile = issuers
		s.Audit = audit.Options{PolicyFile: policy, Webhook: audit.Webhook{ConfigFile: notes.kubeconfig(), Mode: audit.ModeBlocking}}
	})
	bundle := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: judges.Certificate().Raw}))
	d.ask(nil, true, "POST", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", fmt.Sprintf(`{"metadata":{"name":"judge"},"webhooks":[{"name":"judge.example.com","clientConfig":{"url":%q,"caBundle":%q},
"rules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}],"sideEffects":"None","admissionReviewVersions":["v1"]}]}`, judges.URL, bundle), "Authorization", "Bearer root-token")
	_, text := d.ask(nil, true, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`, "Authorization", "Bearer of-hook")
	if !strings.Contains(text, "judged") {
		t.Errorf("the write is answered %s", text)
	}
	for what, url := range map[string]string{"authorization": allows.URL, "tokens": knows.URL, "audit": notes.URL, "admission": judges.URL} {
		if !p.led(url) {
			t.Errorf("the webhook of %s wasn't called through the proxy", what)
		}
	}
	await.Until(t, "the issuer is asked through the proxy", func() bool { return p.led(issuer.URL) })
	await.Until(t, "traces are sent through the proxy", func() bool { return p.led(traces.at) })
}
