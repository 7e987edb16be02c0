package server_test

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// issuer is an OIDC issuer that serves its key.
type issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{key: newKey(t)}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		point, err := i.key.PublicKey.Bytes()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(w, `{"keys":[{"kty":"EC","use":"sig","alg":"ES256","kid":"k","crv":"P-256","x":%q,"y":%q}]}`, encode64(point[1:33]), encode64(point[33:]))
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// sign makes a token with the issuer's key.
func (i *issuer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := encode64([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + encode64(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode64(signature)
}

// configuration is a file that believes the issuer.
func (i *issuer) configuration(t *testing.T) string {
	t.Helper()
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw})
	indented := strings.ReplaceAll(strings.TrimSpace(string(authority)), "\n", "\n      ")
	text := `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: ` + i.URL + `
    audiences: [lite]
    certificateAuthority: |
      ` + indented + `
  claimValidationRules:
  - expression: claims.hd == "example.com"
    message: wrong domain
  claimMappings:
    username: {expression: '"oidc:" + claims.sub'}
    groups: {expression: claims.roles}
    uid: {claim: sub}
    extra:
    - key: example.com/tenant
      valueExpression: claims.tenant
  userValidationRules:
  - expression: "!user.groups.exists(g, g == 'oidc:banned')"
    message: banned
`
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestOIDC: tokens of an issuer let in, as its configuration says.
func TestOIDC(t *testing.T) {
	i := newIssuer(t)
	d := newDoors(t, func(s *server.Server) { s.Access.AuthenticationConfigFile = i.configuration(t) })
	claims := func(change func(c map[string]any)) map[string]any {
		c := map[string]any{
			"iss": i.URL, "aud": "lite", "sub": "ann", "exp": time.Now().Add(time.Hour).Unix(), "iat": time.Now().Unix(),
			"hd": "example.com", "roles": []string{"oidc:dev", "oidc:ops"}, "tenant": "acme",
		}
		if change != nil {
			change(c)
		}
		return c
	}
	good := i.sign(t, claims(nil))
	until(t, "the issuer's keys", func() bool { return d.whoHas(good) != "401" })
	if got, want := d.whoHas(good), "oidc:ann/ann oidc:dev,oidc:ops,system:authenticated"; got != want {
		t.Errorf("it's %s, want %s", got, want)
	}
	if _, text := d.Do(http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+good, "Content-Type", "application/json"); !strings.Contains(text, `"extra":{"example.com/tenant":["acme"]}`) {
		t.Errorf("the user is %s", text)
	}
	other := &issuer{Server: i.Server, key: newKey(t)}
	parts := strings.Split(good, ".")
	for name, tc := range map[string]struct{ token, log string }{
		"another audience": {i.sign(t, claims(func(c map[string]any) { c["aud"] = "else" })), "audience"},
		"expired":          {i.sign(t, claims(func(c map[string]any) { c["exp"] = time.Now().Add(-time.Hour).Unix() })), "expired"},
		"another issuer":   {i.sign(t, claims(func(c map[string]any) { c["iss"] = "https://else.example" })), "nobody's"},
		"another key":      {other.sign(t, claims(nil)), "verify"},
		"another domain":   {i.sign(t, claims(func(c map[string]any) { c["hd"] = "else.example" })), "wrong domain"},
		"banned":           {i.sign(t, claims(func(c map[string]any) { c["roles"] = []string{"oidc:banned"} })), "banned"},
		"algorithm none":   {encode64([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", "verify"},
		"cut signature":    {parts[0] + "." + parts[1] + "." + parts[2][:40], "verify"},
	} {
		d.log.take()
		r, text := d.Do(http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+tc.token)
		if line := d.log.take(); r.StatusCode != http.StatusUnauthorized || strings.TrimSpace(text) != unauthorized || !strings.Contains(line, tc.log) {
			t.Errorf("%s: %s %s, log %q", name, r.Status, text, line)
		}
	}
}

// TestAuthenticationConfiguration: what a file of --authentication-config is refused with.
func TestAuthenticationConfiguration(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	const jwt = "jwt:\n- issuer: {url: 'https://i.example', audiences: [a]}\n  claimMappings:\n    username: "
	for name, tc := range map[string]struct{ text, want string }{
		"empty":                    {"", "empty"},
		"another kind":             {"apiVersion: v1\nkind: Pod\n", "no kind"},
		"unknown field":            {head + "jwtt: []\n", "unknown field"},
		"our own issuer":           {head + "jwt:\n- issuer: {url: 'https://kubernetes.default.svc', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "kubernetes.default.svc"},
		"plain HTTP":               {head + "jwt:\n- issuer: {url: 'http://i.example', audiences: [a]}\n  claimMappings: {username: {claim: sub, prefix: ''}}\n", "https"},
		"CEL that doesn't compile": {head + jwt + "{expression: 'claims.'}\n", "expression"},
		"claim and expression":     {head + jwt + "{expression: 'claims.sub', claim: sub}\n", "claim and expression can't both be set"},
	} {
		file := filepath.Join(t.TempDir(), "config.yaml")
		if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &server.Server{Listen: "127.0.0.1:0", Ephemeral: true, DataDir: t.TempDir(), Access: access.Options{AuthenticationConfigFile: file}}
		err := s.Start(t.Context())
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "--authentication-config") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestAnonymous: who shows nothing is let in only where the configuration says it and rules hold. Without rules never.
func TestAnonymous(t *testing.T) {
	d := newDoors(t)
	if r, _ := d.Do(http.MethodGet, "/healthz", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without rules /healthz is %s", r.Status)
	}
	yes := true
	open := newDoors(t, func(s *server.Server) { s.Access.AnonymousAuth = &yes })
	if r, _ := open.Do(http.MethodGet, "/api", ""); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("without rules /api is %s though --anonymous-auth=true", r.Status)
	}
}
