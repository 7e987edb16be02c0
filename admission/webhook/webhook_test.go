package webhook_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const (
	configMaps       = "/api/v1/namespaces/default/configmaps"
	configurations   = "/apis/admissionregistration.k8s.io/v1/"
	mutatingPath     = configurations + "mutatingwebhookconfigurations"
	validatingPath   = configurations + "validatingwebhookconfigurations"
	definitionsPath  = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	widgetsV2        = "/apis/example.com/v2/namespaces/default/widgets"
	aboutConfigMaps  = `[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["configmaps"]}]`
	anyConfigMapBody = `{"metadata":{"name":"a"},"data":{"color":"red"}}`
)

// hook is a webhook server. Each path has a behaviour of its own, and remembers what it was asked.
type hook struct {
	*httptest.Server
	mu       sync.Mutex // guards what follows
	asked    map[string][]*admissionv1.AdmissionReview
	queries  map[string][]string
	handlers map[string]func(w http.ResponseWriter, r *http.Request, review *admissionv1.AdmissionReview)
}

// newHook starts a webhook server, whose certificate is httptest's, or one of our own for a name.
func newHook(t testing.TB, name ...string) *hook {
	h := &hook{asked: map[string][]*admissionv1.AdmissionReview{}, queries: map[string][]string{}, handlers: map[string]func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview){}}
	h.Server = httptest.NewUnstartedServer(h)
	h.Config.ErrorLog = log.New(io.Discard, "", 0)
	if len(name) > 0 {
		h.TLS = &tls.Config{Certificates: []tls.Certificate{certificate(t, name[0])}}
	}
	h.StartTLS()
	t.Cleanup(h.Close)
	return h
}

// certificate is one that signs itself.
func certificate(t testing.TB, name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (h *hook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(body, review); err != nil || review.Request == nil {
		http.Error(w, "not a review", http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.asked[r.URL.Path] = append(h.asked[r.URL.Path], review)
	h.queries[r.URL.Path] = append(h.queries[r.URL.Path], r.URL.RawQuery)
	handler := h.handlers[r.URL.Path]
	h.mu.Unlock()
	if handler == nil {
		handler = answer(admissionv1.AdmissionResponse{Allowed: true})
	}
	handler(w, r, review)
}

func (h *hook) on(path string, handler func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handlers[path] = handler
}

// requests are what a path was asked so far; it forgets them.
func (h *hook) requests(path string) (all []*admissionv1.AdmissionRequest) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.asked[path] {
		all = append(all, r.Request)
	}
	delete(h.asked, path)
	return all
}

// bundle is the certificate that the webhook's clients trust, as caBundle.
func (h *hook) bundle() string {
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
}

// answer answers with a response, whose uid it fills in.
func answer(response admissionv1.AdmissionResponse) func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) {
	return func(w http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) {
		r := response
		r.UID = review.Request.UID
		json.NewEncoder(w).Encode(&admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &r})
	}
}

// patch allows a request and changes its object.
func patch(operations string) func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) {
	return patchAs(admissionv1.PatchTypeJSONPatch, operations)
}

func patchAs(kind admissionv1.PatchType, operations string) func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) {
	return answer(admissionv1.AdmissionResponse{Allowed: true, Patch: []byte(operations), PatchType: &kind})
}

// raw answers with a body.
func raw(body string) func(http.ResponseWriter, *http.Request, *admissionv1.AdmissionReview) {
	return func(w http.ResponseWriter, _ *http.Request, review *admissionv1.AdmissionReview) {
		io.WriteString(w, strings.ReplaceAll(body, "UID", string(review.Request.UID)))
	}
}

// configuration is one with a webhook. more are its members besides name, clientConfig and what has to be there.
func (h *hook) configuration(kind, name, path string, more ...string) string {
	return configurationOf(kind, name, h.webhook(name+".example.com", path, more...))
}

func configurationOf(kind, name string, webhooks ...string) string {
	return fmt.Sprintf(`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"%sWebhookConfiguration","metadata":{"name":%q},"webhooks":[%s]}`, kind, name, strings.Join(webhooks, ","))
}

func (h *hook) webhook(name, path string, more ...string) string {
	members := map[string]json.RawMessage{
		"name": json.RawMessage(fmt.Sprintf("%q", name)), "sideEffects": json.RawMessage(`"None"`), "admissionReviewVersions": json.RawMessage(`["v1"]`),
		"rules":        json.RawMessage(aboutConfigMaps),
		"clientConfig": json.RawMessage(fmt.Sprintf(`{"url":%q,"caBundle":%q}`, h.URL+path, h.bundle())),
	}
	for _, m := range more {
		key, value, _ := strings.Cut(m, "=")
		members[key] = json.RawMessage(value)
	}
	b, err := json.Marshal(members)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// start starts a server that may call webhooks on this machine.
func start(t testing.TB, configure ...func(*server.Server)) *servertest.Server {
	return servertest.New(t, append([]func(*server.Server){func(s *server.Server) {
		s.API.Builtin = builtin.All
		s.API.WebhookAddresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	}}, configure...)...)
}

// must sends a request, and returns the answer, which must have a code.
func must(t testing.TB, s *servertest.Server, code int, method, path, body string, header ...string) map[string]any {
	t.Helper()
	res, text := s.Do(method, path, body, header...)
	if res.StatusCode != code {
		t.Fatalf("%s %s: %s %s; want %d", method, path, res.Status, text, code)
	}
	var tree map[string]any
	if err := json.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return tree
}

func TestValidatingWebhook(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/deny", answer(admissionv1.AdmissionResponse{Warnings: []string{"beware"}}))
	must(t, s, 201, "POST", configMaps, anyConfigMapBody)
	res, body := s.Do("POST", validatingPath, h.configuration("Validating", "deny", "/deny"))
	if res.StatusCode != 201 || res.Header.Get("Warning") != "" {
		t.Fatalf("%s %s, warning %q", res.Status, body, res.Header.Get("Warning"))
	}
	res, body = s.Do("DELETE", configMaps+"/a", "")
	if res.StatusCode != 400 || !strings.Contains(body, `admission webhook \"deny.example.com\" denied the request without explanation`) {
		t.Errorf("%s %s", res.Status, body)
	}
	if w := res.Header.Get("Warning"); !strings.Contains(w, "beware") {
		t.Errorf("the warning is %q", w)
	}
	got := h.requests("/deny")
	if len(got) != 1 || got[0].Operation != "DELETE" || len(got[0].Object.Raw) != 0 && string(got[0].Object.Raw) != "null" || !strings.Contains(string(got[0].OldObject.Raw), `"color":"red"`) {
		t.Errorf("it was asked %+v", got)
	}
	must(t, s, 200, "DELETE", validatingPath+"/deny", "")
	must(t, s, 200, "DELETE", configMaps+"/a", "")
}

func TestMutatingWebhook(t *testing.T) {
	h, s := newHook(t), start(t)
	h.on("/add", patch(`[{"op":"add","path":"/data/size","value":"1"}]`))
	must(t, s, 201, "POST", mutatingPath, h.configuration("Mutating", "add", "/add"))
	if got := must(t, s, 201, "POST", configMaps, anyConfigMapBody)["data"]; fmt.Sprint(got) != "map[color:red size:1]" {
		t.Errorf("data is %v", got)
	}
}
