package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
)

// unauthorized is all that kube-apiserver says to somebody whom it doesn't believe.
const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`

// who returns whom a request comes from, by a SelfSubjectReview: "name/uid groups extra", or the code and the answer if there's none.
func (k *kubeAPIServer) who(cert *tls.Certificate, headers ...string) string {
	k.t.Helper()
	res, answer := k.ask(cert, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", "{}", headers...)
	if res.StatusCode != http.StatusCreated {
		return fmt.Sprint(res.StatusCode, " ", strings.TrimSpace(answer))
	}
	var review struct {
		Status struct {
			UserInfo struct {
				Username, UID string
				Groups        []string
				Extra         map[string][]string
			}
		}
	}
	if err := json.Unmarshal([]byte(answer), &review); err != nil {
		k.t.Fatalf("%v in %s", err, answer)
	}
	u := review.Status.UserInfo
	return fmt.Sprintf("%s/%s %s %v", u.Username, u.UID, strings.Join(u.Groups, ","), u.Extra)
}

// TestKubeAPIServerFrontProxy: who has a certificate of the proxies' authority, and an allowed name, says in the headers of the flags
// who the user is. Nobody else does.
func TestKubeAPIServerFrontProxy(t *testing.T) {
	proxies, clients := credentials.NewAuthority(t, "proxies"), credentials.NewAuthority(t, "clients")
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+t.TempDir(), k.withUsers(), "--authorization-mode=RBAC", "--client-ca-file="+clients.File,
		"--requestheader-client-ca-file="+proxies.File, "--requestheader-allowed-names=front,side",
		"--requestheader-username-headers=X-Who,X-Remote-User", "--requestheader-uid-headers=X-Number,X-Remote-Uid", "--requestheader-group-headers=X-Team,X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-More-")
	front, side := proxies.Issue(t, "front", nil, nil), proxies.Issue(t, "side", nil, nil)
	client := clients.Issue(t, "front", []string{"devs"}, nil)
	const denied = "401 " + unauthorized
	for _, tc := range []struct {
		name    string
		cert    *tls.Certificate
		headers []string
		want    string
	}{
		{"all headers", front, []string{"X-Who", "dave", "X-Number", "7", "X-Team", "a", "X-Team", "b", "X-Remote-Group", "c", "X-More-Example.com%2fScope", "read"},
			"dave/7 a,b,c,system:authenticated map[example.com/scope:[read]]"},
		{"the second header of the name", front, []string{"X-Remote-User", "erin"}, "erin/ system:authenticated map[]"},
		{"both headers of the name", front, []string{"X-Remote-User", "erin", "X-Who", "dave"}, "dave/ system:authenticated map[]"},
		{"the other allowed name", side, []string{"X-Who", "dave"}, "dave/ system:authenticated map[]"},
		{"headers that no flag names", front, []string{"X-Who", "dave", "X-Remote-Extra-Scope", "all"}, "dave/ system:authenticated map[]"},
		{"no header of the name", front, []string{"X-Team", "system:masters"}, denied},
		{"no allowed name", proxies.Issue(t, "back", nil, nil), []string{"X-Who", "dave"}, denied},
		{"another authority of that name", credentials.NewAuthority(t, "proxies").Issue(t, "front", nil, nil), []string{"X-Who", "dave"}, denied},
		{"a client who plays proxy", client, []string{"X-Who", "dave", "X-Team", "system:masters"},
			fmt.Sprintf("front/ devs,system:authenticated map[authentication.kubernetes.io/credential-id:[X509SHA256=%x]]", sha256.Sum256(client.Certificate[0]))},
		{"a token and headers", nil, []string{"Authorization", "Bearer alice-token", "X-Who", "dave", "X-Team", "system:masters"}, "alice/2 system:authenticated map[]"},
	} {
		if got := k.who(tc.cert, tc.headers...); got != tc.want {
			t.Errorf("%s: it's %s, want %s", tc.name, got, tc.want)
		}
	}
	if got := k.who(nil, "X-Who", "dave"); !strings.HasPrefix(got, "403 ") || !strings.Contains(got, `User \"system:anonymous\" cannot create resource`) {
		t.Errorf("headers of somebody without a certificate: %s", got)
	}
	for group, want := range map[string]int{"devs": http.StatusForbidden, "system:masters": http.StatusOK} {
		if res, answer := k.ask(front, "GET", "/api/v1/secrets", "", "X-Who", "dave", "X-Team", group); res.StatusCode != want {
			t.Errorf("somebody of the group %s, whom a proxy has named: %s %s", group, res.Status, answer)
		}
	}
}

// TestKubeAPIServerOIDC: a token of an issuer that --authentication-config names lets in as the user that CEL makes of its claims. It's
// also what says which paths need no credential.
func TestKubeAPIServerOIDC(t *testing.T) {
	i := credentials.NewIssuer(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	config := i.Configuration() + "anonymous: {enabled: true, conditions: [{path: /livez}]}\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKubeAPIServer(t)
	k.start(nil, "--cert-dir="+t.TempDir(), k.withUsers(), "--authorization-mode=RBAC", "--authentication-config="+file)
	with := func(token string) []string { return []string{"Authorization", "Bearer " + token} }
	const denied = "401 " + unauthorized
	ann := with(i.Token(t, nil))
	eventually(t, "the issuer's keys are there", func() bool { return k.who(nil, ann...) != denied })
	if got, want := k.who(nil, ann...), "oidc:ann/ann oidc:dev,oidc:ops,system:authenticated map[example.com/tenant:[acme]]"; got != want {
		t.Errorf("it's %s, want %s", got, want)
	}
	if got := k.who(nil, with("alice-token")...); !strings.HasPrefix(got, "alice/2 ") {
		t.Errorf("with --token-auth-file beside it: %s", got)
	}
	for name, token := range map[string]string{
		"another audience": i.Token(t, map[string]any{"aud": "else"}),
		"another issuer":   i.Token(t, map[string]any{"iss": "https://else.example"}),
		"expired":          i.Token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}),
		"a rule on claims": i.Token(t, map[string]any{"hd": "else.example"}),
		"a rule on users":  i.Token(t, map[string]any{"roles": []string{"oidc:banned"}}),
		"another key":      i.Impostor(t).Token(t, nil),
	} {
		if got := k.who(nil, with(token)...); got != denied {
			t.Errorf("%s: %s", name, got)
		}
	}

	const secrets = "/api/v1/namespaces/default/secrets"
	if res, answer := k.ask(nil, "GET", secrets, "", ann...); res.StatusCode != http.StatusForbidden || !strings.Contains(answer, `User \"oidc:ann\" cannot list resource \"secrets\"`) {
		t.Errorf("without a rule: %s %s", res.Status, answer)
	}
	k.must("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `{metadata: {name: ops},
		roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "oidc:ops"}]}`)
	if res, answer := k.ask(nil, "GET", secrets, "", ann...); res.StatusCode != http.StatusOK {
		t.Errorf("with a rule for a group of the token: %s %s", res.Status, answer)
	}

	for path, want := range map[string]int{"/livez": http.StatusOK, "/livez/ping": http.StatusUnauthorized, "/readyz": http.StatusUnauthorized, "/version": http.StatusUnauthorized} {
		if res, answer := k.ask(nil, "GET", path, ""); res.StatusCode != want {
			t.Errorf("without a credential: GET %s: %s %s", path, res.Status, answer)
		}
	}
}

// TestKubeAPIServerAnonymousOff: with --anonymous-auth=false no path is left open, health included, as with kube-apiserver. The one
// question that needs no credential is a browser's, whether a page may ask at all.
func TestKubeAPIServerAnonymousOff(t *testing.T) {
	for _, mode := range []string{"RBAC", "AlwaysAllow"} {
		t.Run(mode, func(t *testing.T) {
			k := newKubeAPIServer(t)
			k.start(nil, "--cert-dir="+t.TempDir(), k.withUsers(), "--authorization-mode="+mode, "--anonymous-auth=false", "--cors-allowed-origins=^https://web[.]example$")
			for _, path := range []string{
				"/", "/healthz", "/livez", "/livez/ping", "/readyz", "/version", "/metrics", "/api", "/apis", "/openapi/v2", "/openapi/v3",
				"/.well-known/openid-configuration", "/openid/v1/jwks", "/api/v1/namespaces", "/api/v1/namespaces?watch=true", "/nothing",
			} {
				for _, method := range []string{"GET", "POST"} {
					if res, answer := k.ask(nil, method, path, ""); res.StatusCode != http.StatusUnauthorized || strings.TrimSpace(answer) != unauthorized {
						t.Errorf("%s %s: %s %s", method, path, res.Status, answer)
					}
				}
			}
			k.must("GET", "/readyz", "")
			if got := k.who(nil, "Authorization", "Bearer alice-token"); !strings.HasPrefix(got, "alice/2 ") {
				t.Errorf("with a credential: %s", got)
			}
			for origin, want := range map[string]int{"https://web.example": http.StatusNoContent, "https://else.example": http.StatusUnauthorized} {
				res, answer := k.ask(nil, "OPTIONS", "/api/v1/namespaces", "", "Origin", origin, "Access-Control-Request-Method", "GET")
				if res.StatusCode != want {
					t.Errorf("a browser asks for a page of %s: %s %s", origin, res.Status, answer)
				}
			}
		})
	}
}
