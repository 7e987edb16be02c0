package conformance

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/conformance/pair"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
)

// askedRecord is where upstream's programs are that TestAsked records; "" compares with what was recorded.
var askedRecord = flag.String("record-asked", "", "the directory of upstream's programs, whose questions to webhooks TestAsked is to record")

const (
	askedFile  = "testdata/asked.json"
	askedAgent = "asked" // of what TestAsked sends
)

// askedNames are the users of TestAsked. Servers ask webhooks about users of their own, too.
var askedNames = []string{"alice", "bob", "hugo", "root", "system:anonymous"}

// asked is what a server answered, and what its webhooks were asked and told. Of questions and events each has its text once, in order of the text:
// when a kept answer is used differs from run to run.
type asked struct {
	Answers []answered `json:"answers"`
	Authz   []string   `json:"subjectAccessReviews"`
	Authn   []string   `json:"tokenReviews"`
	Audit   []string   `json:"events"`
}

type answered struct {
	Request string `json:"request"` // whose token, method, path, and the body if there is one
	Code    int    `json:"code"`
	Body    string `json:"body,omitempty"`
}

// askedRequests are sent to both, each as "token method path body".
func askedRequests() []string {
	review := func(group, version, kind, spec string) string {
		return fmt.Sprintf(`/apis/%s.k8s.io/%s/%ss {"apiVersion":"%[1]s.k8s.io/%s","kind":"%[4]s","spec":%s}`, group, version, strings.ToLower(kind), kind, spec)
	}
	authorization := func(kind, spec string) string { return review("authorization", "v1", kind, spec) }
	all := []string{
		"alice-token GET /api/v1/namespaces/kube-system",
		"alice-token GET /api/v1/namespaces/default/configmaps/a?labelSelector=a%3Db,c%20notin%20(d)&fieldSelector=metadata.name%3Dx",
		"alice-token DELETE /api/v1/namespaces/default/configmaps?labelSelector=z&fieldSelector=metadata.namespace!%3Ddefault",
		"alice-token GET /api/v1/namespaces/default/secrets",
		"root-token GET /api/v1/namespaces/default/secrets/a",
		"bob-token GET /api/v1/namespaces/default/configmaps",
		"bob-token GET /api/v1/namespaces/default/configmaps/a",
		"bob-token GET /api/v1/namespaces/default/brokens",
		"bob-token GET /metrics",
		"of-hook GET /api/v1/namespaces/default/configmaps",
		"aud GET /api", "broken GET /api", "nobody GET /api", "- GET /api/v1/pods",
		"alice-token POST " + authorization("SelfSubjectAccessReview", `{"resourceAttributes":{"resource":"secrets","verb":"list"}}`),
		"alice-token POST " + authorization("SelfSubjectAccessReview", `{"resourceAttributes":{"resource":"configmaps","verb":"list"}}`),
		"bob-token POST " + authorization("SelfSubjectAccessReview", `{"nonResourceAttributes":{"path":"/x","verb":"get"}}`),
		"root-token POST " + authorization("SubjectAccessReview", `{"user":"bob","groups":["g"],"extra":{"a":["b"]},"uid":"9","resourceAttributes":{"resource":"brokens","verb":"list"}}`),
		"alice-token POST " + authorization("SelfSubjectRulesReview", `{"namespace":"default"}`),
		"of-hook POST " + review("authentication", "v1", "SelfSubjectReview", "{}"),
		"root-token POST " + review("authentication", "v1", "TokenReview", `{"token":"aud","audiences":["else"]}`),
		`root-token POST /apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All {"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"x"},"rules":[]}`,
	}
	for _, token := range []string{"of-hook", "broken", "nobody", "alice-token"} {
		all = append(all, "root-token POST "+review("authentication", "v1", "TokenReview", `{"token":"`+token+`"}`))
	}
	return all
}

// askedHooks are the three webhooks.
type askedHooks struct {
	*httptest.Server
	t *testing.T

	mu   sync.Mutex // guards the following
	seen map[string][]json.RawMessage
}

func newAskedHooks(t *testing.T) *askedHooks {
	t.Helper()
	h := &askedHooks{t: t, seen: map[string][]json.RawMessage{}}
	h.Server = httptest.NewTLSServer(h)
	t.Cleanup(h.Close)
	return h
}

func (h *askedHooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		h.t.Error(err)
		return
	}
	h.mu.Lock()
	h.seen[r.URL.Path] = append(h.seen[r.URL.Path], body)
	h.mu.Unlock()
	var asks struct {
		Spec struct {
			User, Token        string
			ResourceAttributes struct{ Resource string }
		}
	}
	review := map[string]any{}
	if err := errors.Join(json.Unmarshal(body, &asks), json.Unmarshal(body, &review)); err != nil {
		h.t.Errorf("%v in %s", err, body)
		return
	}
	switch token, resource := asks.Spec.Token, asks.Spec.ResourceAttributes.Resource; {
	case resource == "brokens" || token == "broken":
		http.Error(w, "broken", http.StatusNotFound)
		return
	case resource == "secrets":
		review["status"] = map[string]any{"allowed": false, "denied": true, "reason": "secrets are denied"}
	case r.URL.Path == "/authz" && asks.Spec.User == "alice" && (resource == "configmaps" || resource == "namespaces"):
		review["status"] = map[string]any{"allowed": true, "reason": "alice may"}
	case r.URL.Path == "/authz":
		review["status"] = map[string]any{"allowed": false, "reason": "only alice may"}
	case token == "of-hook":
		review["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "hugo", "uid": "7", "groups": []string{"hooked"}, "extra": map[string]any{"a": []string{"b"}}}}
	case token == "aud":
		review["status"] = map[string]any{"authenticated": true, "user": map[string]any{"username": "aud"}, "audiences": []string{"else"}}
	default:
		review["status"] = map[string]any{"authenticated": false, "error": "who is that?"}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		h.t.Error(err)
	}
}

// start starts a server that asks the webhooks.
func (h *askedHooks) start(bin string) *pair.Server {
	h.t.Helper()
	dir := h.t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		return file
	}
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw}))
	kubeconfig := func(name string) string {
		return write(name+".kubeconfig", fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: "%s/%s", certificate-authority-data: %s}}]}`, h.URL, name, authority))
	}
	authorizers := `apiVersion: apiserver.config.k8s.io/v1
kind: AuthorizationConfiguration
authorizers:
- type: Webhook
  name: guard
  webhook:
    connectionInfo: {type: KubeConfigFile, kubeConfigFile: ` + kubeconfig("authz") + `}
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    matchConditions: [{expression: has(request.resourceAttributes)}]
    failurePolicy: Deny
    timeout: 3s
    authorizedTTL: 5m
    unauthorizedTTL: 30s
- {type: RBAC, name: rbac}
`
	s, err := pair.Start(h.t.Context(), pair.Options{Bin: bin, Dir: dir, Args: []string{
		"--authorization-config=" + write("authorization.yaml", authorizers),
		"--token-auth-file=" + write("users.csv", "alice-token,alice,u1,\"devs,ops\"\nbob-token,bob,u2\nroot-token,root,u3,system:masters\n"),
		"--authentication-token-webhook-config-file=" + kubeconfig("authn"), "--authentication-token-webhook-version=v1",
		"--audit-policy-file=" + write("policy.yaml", "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n"),
		"--audit-webhook-config-file=" + kubeconfig("audit"), "--audit-webhook-batch-max-wait=100ms",
	}})
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() {
		if err := s.Stop(); err != nil {
			h.t.Error(err)
		}
	})
	return s
}

// send sends the requests, and returns what became of them.
func (h *askedHooks) send(s *pair.Server) (all asked) {
	h.t.Helper()
	config := s.TLS.Clone()
	config.Certificates = nil // tokens say who asks
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: time.Minute}
	defer client.CloseIdleConnections()
	for _, line := range askedRequests() {
		parts := append(strings.SplitN(line, " ", 4), "")
		r, err := http.NewRequestWithContext(h.t.Context(), parts[1], s.URL+parts[2], strings.NewReader(parts[3]))
		if err != nil {
			h.t.Fatal(err)
		}
		r.Header.Set("User-Agent", askedAgent)
		r.Header.Set("Content-Type", "application/json")
		if parts[0] != "-" {
			r.Header.Set("Authorization", "Bearer "+parts[0])
		}
		res, err := client.Do(r)
		if err != nil {
			h.t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		if err = errors.Join(err, res.Body.Close()); err != nil {
			h.t.Fatal(err)
		}
		one := answered{Request: line, Code: res.StatusCode}
		if res.StatusCode != http.StatusInternalServerError { // ours is a Status where upstream's is text
			one.Body = steady(body)
		}
		all.Answers = append(all.Answers, one)
	}
	const last = "bob-token GET /version" // its event comes after those of the others
	r, err := http.NewRequestWithContext(h.t.Context(), http.MethodGet, s.URL+"/version", nil)
	if err != nil {
		h.t.Fatal(err)
	}
	r.Header.Set("User-Agent", "the last of "+askedAgent)
	r.Header.Set("Authorization", "Bearer bob-token")
	res, err := client.Do(r)
	if err != nil {
		h.t.Fatal(err)
	}
	res.Body.Close()
	await.Until(h.t, "the last event is told: "+last, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return slices.ContainsFunc(h.seen["/audit"], func(list json.RawMessage) bool { return bytes.Contains(list, []byte("the last of "+askedAgent)) })
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	all.Authz, all.Authn, all.Audit = h.questions("/authz"), h.questions("/authn"), h.events()
	return all
}

// steady is a document without what differs from run to run.
func steady(body []byte) string {
	var o map[string]any
	if json.Unmarshal(body, &o) != nil {
		return string(body)
	}
	if m, ok := o["metadata"].(map[string]any); ok {
		for _, name := range []string{"creationTimestamp", "uid", "resourceVersion", "managedFields"} {
			delete(m, name)
		}
	}
	return text(o)
}

func text(o any) string {
	text, _ := json.Marshal(o) // of maps: in the order of their keys
	return string(text)
}

// questions are the reviews about the users of the test.
func (h *askedHooks) questions(path string) []string {
	all := map[string]bool{}
	for _, body := range h.seen[path] {
		var o struct{ Spec struct{ User string } }
		if err := json.Unmarshal(body, &o); err != nil {
			h.t.Errorf("%v in %s", err, body)
		}
		if path == "/authn" || slices.Contains(askedNames, o.Spec.User) {
			all[steady(body)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// events are those of the requests of the test.
func (h *askedHooks) events() []string {
	all := map[string]bool{}
	for _, body := range h.seen["/audit"] {
		var list struct{ Items []map[string]any }
		if err := json.Unmarshal(body, &list); err != nil {
			h.t.Errorf("%v in %s", err, body)
		}
		for _, e := range list.Items {
			if e["userAgent"] != askedAgent {
				continue
			}
			for _, name := range []string{"auditID", "requestReceivedTimestamp", "stageTimestamp"} {
				delete(e, name)
			}
			if status, ok := e["responseStatus"].(map[string]any); ok && cmp.Or(status["code"], any(0.)) == 500. {
				e["responseStatus"] = "500"
			}
			all[text(e)] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// TestAsked: with the same webhooks of authorization, tokens and audit the server asks and tells them what kube-apiserver 1.37.2 does, and answers what
// it answers. What that did was recorded: go test . -run TestAsked -args -record-asked DIRECTORY.
func TestAsked(t *testing.T) {
	bin := *askedRecord
	if bin == "" {
		bin = t.TempDir()
		if err := pair.Ours(apiserverBinary, bin); err != nil {
			t.Fatal(err)
		}
	}
	hooks := newAskedHooks(t)
	got := hooks.send(hooks.start(bin))
	if *askedRecord != "" {
		recorded, err := json.MarshalIndent(got, "", " ")
		if err = errors.Join(err, os.WriteFile(askedFile, append(recorded, '\n'), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	recorded, err := os.ReadFile(askedFile)
	if err != nil {
		t.Fatal(err)
	}
	var want asked
	if err := json.Unmarshal(recorded, &want); err != nil {
		t.Fatal(err)
	}
	for i, a := range got.Answers {
		if i < len(want.Answers) && a != want.Answers[i] {
			t.Errorf("%s is answered\n%d %s\nwant\n%d %s", a.Request, a.Code, a.Body, want.Answers[i].Code, want.Answers[i].Body)
		}
	}
	if len(got.Answers) != len(want.Answers) {
		t.Errorf("%d requests were sent, %d recorded", len(got.Answers), len(want.Answers))
	}
	for what, sides := range map[string][2][]string{"SubjectAccessReviews": {got.Authz, want.Authz}, "TokenReviews": {got.Authn, want.Authn}, "events": {got.Audit, want.Audit}} {
		for _, one := range sides[0] {
			if !slices.Contains(sides[1], one) {
				t.Errorf("of the %s only this server's is\n%s", what, one)
			}
		}
		for _, one := range sides[1] {
			if !slices.Contains(sides[0], one) {
				t.Errorf("of the %s only kube-apiserver's is\n%s", what, one)
			}
		}
		if len(sides[1]) == 0 {
			t.Errorf("no %s were recorded", what)
		}
	}
}
