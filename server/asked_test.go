package server_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// asked is a webhook: a server that is asked by reviews, and answers what a test wants.
type asked struct {
	*httptest.Server
	t *testing.T

	mu     sync.Mutex // guards the following
	answer func(review map[string]any) (status map[string]any, code int)
	seen   []map[string]any
}

func newAsked(t *testing.T, answer func(review map[string]any) (map[string]any, int)) *asked {
	t.Helper()
	a := &asked{t: t, answer: answer}
	a.Server = httptest.NewTLSServer(a)
	t.Cleanup(a.Close)
	return a
}

func (a *asked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review map[string]any
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		a.t.Error(err)
		return
	}
	a.mu.Lock()
	a.seen = append(a.seen, review)
	answer := a.answer
	a.mu.Unlock()
	status, code := answer(review)
	if code != http.StatusOK {
		http.Error(w, "broken", code)
		return
	}
	review = maps.Clone(review) // the test reads the other
	review["status"] = status
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(review); err != nil {
		a.t.Error(err)
	}
}

// set has the webhook answer otherwise from now on.
func (a *asked) set(answer func(review map[string]any) (map[string]any, int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.answer = answer
}

// reviews returns what it was asked since the last call.
func (a *asked) reviews() []map[string]any {
	a.mu.Lock()
	defer a.mu.Unlock()
	seen := a.seen
	a.seen = nil
	return seen
}

// kubeconfig writes one that names the webhook, and returns its name.
func (a *asked) kubeconfig() string {
	a.t.Helper()
	file := filepath.Join(a.t.TempDir(), "webhook.kubeconfig")
	a.writeKubeconfig(file)
	return file
}

func (a *asked) writeKubeconfig(file string) {
	a.t.Helper()
	authority := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.Certificate().Raw}))
	writeFile(a.t, file, fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}],
 clusters: [{name: c, cluster: {server: %q, certificate-authority-data: %s}}], users: [{name: u, user: {token: of-the-server}}]}`, a.URL, authority))
}

// broken fails each call in a way that isn't tried again.
func broken(map[string]any) (map[string]any, int) { return nil, http.StatusNotFound }

// attributes are what a SubjectAccessReview asks about.
func attributes(review map[string]any) (user, verb, resource string) {
	spec := review["spec"].(map[string]any)
	user, _ = spec["user"].(string)
	about, _ := spec["resourceAttributes"].(map[string]any)
	verb, _ = about["verb"].(string)
	resource, _ = about["resource"].(string)
	return user, verb, resource
}

// TestAuthorizationWebhook: --authorization-mode=RBAC,Webhook asks the rules first and then the webhook, whose answers are kept, and whose
// reason is in the refusal. A webhook that can't be asked makes an error, and allows nothing.
func TestAuthorizationWebhook(t *testing.T) {
	hook := newAsked(t, func(review map[string]any) (map[string]any, int) {
		user, verb, resource := attributes(review)
		if user == "alice" && verb == "list" && resource == "configmaps" {
			return map[string]any{"allowed": true, "reason": "alice may list"}, http.StatusOK
		}
		return map[string]any{"allowed": false, "reason": "only alice may"}, http.StatusOK
	})
	d := newDoors(t, func(s *server.Server) {
		s.Access.AuthorizationMode = "RBAC,Webhook"
		s.Access.AuthorizationWebhook = access.AuthorizationWebhook{ConfigFile: hook.kubeconfig(), Version: "v1"}
	})
	ask := func(token, path string) (int, string) {
		r, text := d.ask(nil, true, "GET", path, "", "Authorization", "Bearer "+token)
		return r.StatusCode, text
	}
	if code, text := ask("alice-token", "/api/v1/namespaces/default/configmaps?labelSelector=a%3Db&fieldSelector=metadata.name!%3Dx"); code != http.StatusOK {
		t.Fatalf("alice's list: %d %s", code, text)
	}
	seen := hook.reviews()
	if len(seen) != 1 || seen[0]["apiVersion"] != "authorization.k8s.io/v1" || seen[0]["kind"] != "SubjectAccessReview" {
		t.Fatalf("the webhook was asked %v", seen)
	}
	if got, want := fmt.Sprint(seen[0]["spec"]), "map[groups:[devs ops system:authenticated] resourceAttributes:map[fieldSelector:map[requirements:[map[key:metadata.name operator:NotIn values:[x]]]] labelSelector:map[requirements:[map[key:a operator:In values:[b]]]] namespace:default resource:configmaps verb:list version:v1] uid:u1 user:alice]"; got != want {
		t.Errorf("the webhook was asked\n%s, want\n%s", got, want)
	}
	code, text := ask("bob-token", "/api/v1/namespaces/default/configmaps")
	if want := `configmaps is forbidden: User \"bob\" cannot list resource \"configmaps\" in API group \"\" in the namespace \"default\": default: only alice may`; code != http.StatusForbidden || !strings.Contains(text, want) {
		t.Errorf("bob's list: %d %s, want 403 and %s", code, text, want)
	}
	if code, text := ask("root-token", "/api/v1/secrets"); code != http.StatusOK {
		t.Errorf("the administrator's list: %d %s", code, text)
	}
	if code, text := ask("bob-token", "/version"); code != http.StatusOK { // by Kubernetes' own rules
		t.Errorf("/version: %d %s", code, text)
	}
	hook.reviews()
	if ask("root-token", "/api/v1/secrets"); len(hook.reviews()) > 0 {
		t.Error("the webhook is asked about the administrator")
	}
	hook.set(broken)
	if code, text := ask("bob-token", "/api/v1/namespaces/default/secrets"); code != http.StatusInternalServerError {
		t.Errorf("with a webhook that can't be asked: %d %s, want 500", code, text)
	}
	r, text := d.ask(nil, true, "POST", "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", `{"spec":{"namespace":"default"}}`, "Authorization", "Bearer alice-token")
	if r.StatusCode != http.StatusCreated || !strings.Contains(text, `"incomplete":true`) || !strings.Contains(text, "webhook authorizer does not support user rule resolution") {
		t.Errorf("rules of alice: %d %s", r.StatusCode, text)
	}
}

// TestAuthorizationWebhookKeeps: answers are kept as long as the flags say, and what allows separately from what doesn't.
func TestAuthorizationWebhookKeeps(t *testing.T) {
	hook := newAsked(t, func(review map[string]any) (map[string]any, int) {
		user, _, _ := attributes(review)
		return map[string]any{"allowed": user == "alice"}, http.StatusOK
	})
	d := newDoors(t, func(s *server.Server) {
		s.Access.AuthorizationMode = "Webhook"
		s.Access.AuthorizationWebhook = access.AuthorizationWebhook{ConfigFile: hook.kubeconfig(), Version: "v1beta1", AuthorizedTTL: await.Patience}
	})
	for range 3 {
		d.ask(nil, true, "GET", "/api/v1/namespaces", "", "Authorization", "Bearer alice-token")
	}
	if seen := hook.reviews(); len(seen) != 1 || seen[0]["apiVersion"] != "authorization.k8s.io/v1beta1" {
		t.Errorf("three allowed requests asked %v, want one review of v1beta1", seen)
	}
	for range 3 {
		d.ask(nil, true, "GET", "/api/v1/namespaces", "", "Authorization", "Bearer bob-token")
	}
	if seen := hook.reviews(); len(seen) != 3 {
		t.Errorf("three refused requests asked %d times, want 3", len(seen))
	}
}

// chainOf is an AuthorizationConfiguration with authorizers.
func chainOf(authorizers ...string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n- " + strings.Join(authorizers, "\n- ")
}

const rbacInChain = `{type: RBAC, name: rbac}`

func hookInChain(name, kubeconfig, policy, condition string) string {
	return fmt.Sprintf(`{type: Webhook, name: %s, webhook: {timeout: 3s, subjectAccessReviewVersion: v1, matchConditionSubjectAccessReviewVersion: v1, failurePolicy: %s,
 authorizedTTL: 5m, unauthorizedTTL: 30s, connectionInfo: {type: KubeConfigFile, kubeConfigFile: %q}, matchConditions: [{expression: %q}]}}`, name, policy, kubeconfig, condition)
}

// TestAuthorizationConfig: the authorizers of a file are asked in its order, those with conditions only where they hold, and one that can't be
// asked denies or has no opinion, as its failurePolicy says. The file and the kubeconfigs that it names are read again.
func TestAuthorizationConfig(t *testing.T) {
	denies := newAsked(t, func(map[string]any) (map[string]any, int) {
		return map[string]any{"allowed": false, "denied": true, "reason": "secrets are nobody's"}, http.StatusOK
	})
	file, kubeconfig := filepath.Join(t.TempDir(), "authorization.yaml"), denies.kubeconfig()
	secrets := "has(request.resourceAttributes) && request.resourceAttributes.resource == 'secrets'"
	writeFile(t, file, chainOf(hookInChain("guard", kubeconfig, "Deny", secrets), rbacInChain))
	d := newDoors(t, func(s *server.Server) { s.Access.AuthorizationConfigFile = file })
	d.ask(nil, true, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"alice"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"alice"}]}`, "Authorization", "Bearer root-token")
	get := func(path string) (int, string) {
		r, text := d.ask(nil, true, "GET", path, "", "Authorization", "Bearer alice-token")
		return r.StatusCode, text
	}
	if code, text := get("/api/v1/configmaps"); code != http.StatusOK || len(denies.reviews()) != 0 {
		t.Errorf("what the webhook isn't asked about: %d %s", code, text)
	}
	if code, text := get("/api/v1/secrets"); code != http.StatusForbidden || !strings.Contains(text, ": secrets are nobody's") {
		t.Errorf("what the webhook denies: %d %s", code, text)
	}
	denies.set(broken)
	if code, _ := get("/api/v1/namespaces/a/secrets"); code != http.StatusInternalServerError {
		t.Errorf("failurePolicy Deny: %d, want 500", code)
	}

	writeFile(t, file, chainOf(rbacInChain, `{type: Node, name: node}`))
	await.Until(t, "a type that wasn't there at the start is refused", func() bool { return strings.Contains(d.log.String(), "authorizer type Node is not allowed") })
	writeFile(t, file, chainOf(hookInChain("guard", kubeconfig, "Deny", "true")))
	await.Until(t, "a file without RBAC is refused", func() bool { return strings.Contains(d.log.String(), "missing required types: [RBAC]") })
	writeFile(t, file, chainOf(hookInChain("guard", kubeconfig, "NoOpinion", secrets), rbacInChain))
	await.Until(t, "failurePolicy NoOpinion", func() bool { code, _ := get("/api/v1/namespaces/b/secrets"); return code == http.StatusOK })

	second := newAsked(t, func(map[string]any) (map[string]any, int) {
		return map[string]any{"denied": true, "reason": "by the second"}, http.StatusOK
	})
	second.writeKubeconfig(kubeconfig)
	await.Until(t, "the kubeconfig's new server is asked", func() bool {
		_, text := get("/api/v1/namespaces/c/secrets")
		return strings.Contains(text, "by the second")
	})
}

// TestAuthorizationEndsWatches: a watch, here of somebody without a credential, ends when the webhook doesn't allow it any more, and goes on while the webhook can't be asked.
func TestAuthorizationEndsWatches(t *testing.T) {
	allow := func(map[string]any) (map[string]any, int) { return map[string]any{"allowed": true}, http.StatusOK }
	hook := newAsked(t, allow)
	d := newDoors(t, server.RecheckSoon, func(s *server.Server) {
		s.Access.AuthorizationMode = "Webhook"
		s.Access.AuthorizationWebhook = access.AuthorizationWebhook{ConfigFile: hook.kubeconfig()}
	})
	watch := d.Watch("/api/v1/namespaces/default/configmaps?watch=true")
	defer watch.Close()
	hook.set(broken)
	hook.reviews()
	await.Until(t, "it's looked at twice while the webhook is broken", func() bool { hook.mu.Lock(); defer hook.mu.Unlock(); return len(hook.seen) > 1 })
	hook.set(allow)
	d.Do("POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	if event, err := watch.Next(); err != nil || !strings.Contains(event, `"ADDED"`) {
		t.Fatalf("after the webhook was broken: %s %v", event, err)
	}
	hook.set(func(map[string]any) (map[string]any, int) { return map[string]any{"allowed": false}, http.StatusOK })
	if event, err := watch.Next(); err == nil && !strings.Contains(event, `"code":403`) {
		t.Errorf("after the right was lost: %s", event)
	}
}

// TestAnonymousWhereAllIsAllowed: an authorizer that allows everything, in a file, lets nobody in who shows nothing.
func TestAnonymousWhereAllIsAllowed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "authorization.yaml")
	writeFile(t, file, chainOf(`{type: AlwaysAllow, name: alwaysallow}`))
	d := newDoors(t, func(s *server.Server) { s.Access.AuthorizationConfigFile = file })
	if r, text := d.ask(nil, true, "GET", "/api/v1/secrets", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without a credential: %d %s", r.StatusCode, text)
	}
	if r, text := d.ask(nil, true, "GET", "/api/v1/secrets", "", "Authorization", "Bearer alice-token"); r.StatusCode != http.StatusOK {
		t.Errorf("with a token: %d %s", r.StatusCode, text)
	}
}

// TestAnonymousWatchEnds: a watch of somebody without a credential ends when a credential is needed.
func TestAnonymousWatchEnds(t *testing.T) {
	hook := newAsked(t, func(map[string]any) (map[string]any, int) { return map[string]any{"allowed": true}, http.StatusOK })
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	configuration := func(anonymous string) string {
		return "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: " + anonymous
	}
	writeFile(t, file, configuration("{enabled: true}"))
	d := newDoors(t, server.RecheckSoon, func(s *server.Server) {
		s.Access.AuthorizationMode, s.Access.AuthorizationWebhook = "Webhook", access.AuthorizationWebhook{ConfigFile: hook.kubeconfig()}
		s.Access.AuthenticationConfigFile = file
	})
	watch := d.Watch("/api/v1/namespaces/default/configmaps?watch=true")
	defer watch.Close()
	writeFile(t, file, configuration("{enabled: true, conditions: [{path: /livez}]}"))
	if event, err := watch.Next(); err == nil && !strings.Contains(event, `"code":401`) && !strings.Contains(event, `"code":403`) {
		t.Errorf("the watch goes on: %s", event)
	}
}

// TestTokenWebhook: tokens that nobody here knows are asked about, answers are kept, and a webhook that can't be asked lets nobody in. The
// kubeconfig is read again.
func TestTokenWebhook(t *testing.T) {
	of := func(name string) func(review map[string]any) (map[string]any, int) {
		return func(review map[string]any) (map[string]any, int) {
			if token := review["spec"].(map[string]any)["token"]; token != "of-hook" {
				return map[string]any{"authenticated": false, "error": "who is that?"}, http.StatusOK
			}
			return map[string]any{"authenticated": true, "user": map[string]any{"username": name, "uid": "7", "groups": []string{"hooked"}}}, http.StatusOK
		}
	}
	hook := newAsked(t, of("hugo"))
	kubeconfig := hook.kubeconfig()
	d := newDoors(t, func(s *server.Server) {
		s.Access.AuthenticationWebhook = access.AuthenticationWebhook{ConfigFile: kubeconfig, Version: "v1", CacheTTL: await.Patience}
	})
	is := func(token string) string {
		r, text := d.ask(nil, true, "POST", selfReview, `{}`, "Authorization", "Bearer "+token)
		return who(t, r, text)
	}
	for range 2 {
		if got, want := is("of-hook"), "hugo/7 hooked,system:authenticated"; got != want {
			t.Errorf("the webhook's user is %q, want %q", got, want)
		}
	}
	if got, want := is("alice-token"), "alice/u1 devs,ops,system:authenticated"; got != want {
		t.Errorf("the file's user is %q, want %q", got, want)
	}
	seen := hook.reviews()
	if len(seen) != 1 || seen[0]["apiVersion"] != "authentication.k8s.io/v1" || fmt.Sprint(seen[0]["spec"]) != "map[audiences:[https://kubernetes.default.svc] token:of-hook]" {
		t.Errorf("the webhook was asked %v", seen)
	}
	if got := is("of-nobody"); got != "401" {
		t.Errorf("nobody's token is %q", got)
	}
	await.Until(t, "the log has the webhook's reason", func() bool { return strings.Contains(d.log.String(), "who is that?") })
	r, text := d.ask(nil, true, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"of-hook"}}`, "Authorization", "Bearer root-token")
	if r.StatusCode != http.StatusCreated || !strings.Contains(text, `"authenticated":true`) || !strings.Contains(text, `"username":"hugo"`) {
		t.Errorf("a TokenReview: %d %s", r.StatusCode, text)
	}
	hook.set(broken)
	if got := is("of-somebody"); got != "401" {
		t.Errorf("with a webhook that can't be asked: %q", got)
	}
	newAsked(t, of("hanna")).writeKubeconfig(kubeconfig)
	await.Until(t, "the kubeconfig's new server is asked", func() bool { return strings.HasPrefix(is("of-hook"), "hanna/7") })
}

// TestAskedRefusals: what can't be used of the files and flags about who is asked refuses the start, in one line.
func TestAskedRefusals(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "empty"), "")
	file := func(text string) string {
		name := filepath.Join(t.TempDir(), "file.yaml")
		writeFile(t, name, text)
		return name
	}
	hook := newAsked(t, broken).kubeconfig()
	tests := []struct {
		name    string
		options access.Options
		want    string
	}{
		{"mode twice", access.Options{AuthorizationMode: "RBAC,RBAC"}, `has mode specified more than once`},
		{"unknown mode", access.Options{AuthorizationMode: "Rbac"}, `--authorization-mode "Rbac" is not a valid mode`},
		{"ABAC", access.Options{AuthorizationMode: "ABAC"}, "there is no ABAC here"},
		{"webhook without a file", access.Options{AuthorizationMode: "Webhook"}, "--authorization-webhook-config-file isn't given"},
		{"a file without the mode", access.Options{AuthorizationMode: "RBAC", AuthorizationWebhook: access.AuthorizationWebhook{ConfigFile: hook}}, "without mode Webhook"},
		{"version of reviews", access.Options{AuthorizationMode: "Webhook", AuthorizationWebhook: access.AuthorizationWebhook{ConfigFile: hook, Version: "v2"}}, `unsupported webhook authorizer version "v2"`},
		{"no kubeconfig", access.Options{AuthorizationMode: "Webhook", AuthorizationWebhook: access.AuthorizationWebhook{ConfigFile: filepath.Join(dir, "absent")}}, "--authorization-webhook-config-file: stat"},
		{"both ways", access.Options{AuthorizationMode: "RBAC", AuthorizationConfigFile: file(chainOf(rbacInChain))}, "--authorization-config can not be specified when"},
		{"empty file", access.Options{AuthorizationConfigFile: filepath.Join(dir, "empty")}, "authorizers: Required value: at least one authorization mode must be defined"},
		{"unknown field", access.Options{AuthorizationConfigFile: file(chainOf(`{type: RBAC, name: rbac, more: 1}`))}, `unknown field "authorizers[0].more"`},
		{"other kind", access.Options{AuthorizationConfigFile: file("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: []")}, "expected AuthorizationConfiguration"},
		{"name of a type", access.Options{AuthorizationConfigFile: file(chainOf(`{type: RBAC, name: rules}`))}, "expected name rbac for authorizer RBAC instead of rules"},
		{"ABAC in a file", access.Options{AuthorizationConfigFile: file(chainOf(`{type: ABAC, name: abac}`))}, `Unsupported value: "ABAC"`},
		{"condition", access.Options{AuthorizationConfigFile: file(chainOf(hookInChain("w", hook, "Deny", "request.nothing == 1")))}, "undefined field 'nothing'"},
		{"token webhook", access.Options{AuthenticationWebhook: access.AuthenticationWebhook{ConfigFile: filepath.Join(dir, "empty")}}, "empty: invalid configuration"},
		{"empty authorities", access.Options{OIDC: access.OIDC{IssuerURL: "https://issuer.example", ClientID: "c", CAFile: filepath.Join(dir, "empty")}}, "--oidc-ca-file: " + filepath.Join(dir, "empty") + " is empty"},
		{"a pipe", access.Options{AuthenticationWebhook: access.AuthenticationWebhook{ConfigFile: os.DevNull}}, "is no regular file"},
		{"half of OIDC", access.Options{OIDC: access.OIDC{IssuerURL: "https://issuer.example"}}, "--oidc-issuer-url and --oidc-client-id must be specified together"},
		{"OIDC without https", access.Options{OIDC: access.OIDC{IssuerURL: "http://issuer.example", ClientID: "c"}}, "URL scheme must be https"},
		{"OIDC twice", access.Options{OIDC: access.OIDC{IssuerURL: "https://issuer.example", ClientID: "c"}, AuthenticationConfigFile: "x"}, "mutually exclusive"},
		{"OIDC's claim", access.Options{OIDC: access.OIDC{IssuerURL: "https://issuer.example", ClientID: "c", RequiredClaims: []string{"hd"}}}, `--oidc-required-claim "hd" is no claim=value`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := &server.Server{Access: test.options}
			s.Serving.Listen, s.TLS.On, s.Data.Dir = "127.0.0.1:0", true, filepath.Join(t.TempDir(), "data")
			err := s.Start(t.Context())
			if err == nil {
				s.Close()
				t.Fatal("it starts")
			}
			if text := err.Error(); !strings.Contains(text, test.want) || strings.Contains(text, "\n") {
				t.Errorf("the error is %q, want one line with %q", text, test.want)
			}
			if _, err := os.Stat(s.Data.Dir); err == nil {
				t.Error("it leaves a data directory")
			}
		})
	}
}
