package server_test

import (
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
)

// TestOIDC: tokens of an issuer let in, as its configuration says.
func TestOIDC(t *testing.T) {
	i := credentials.NewIssuer(t)
	file := filepath.Join(t.TempDir(), "authentication.yaml")
	writeFile(t, file, i.Configuration())
	d := newDoors(t, func(s *server.Server) { s.Access.AuthenticationConfigFile = file })
	with := func(claim string, value any) string { return i.Token(t, map[string]any{claim: value}) }
	good := i.Token(t, nil)
	until(t, "the issuer's keys", func() bool { return d.whoHas(good) != "401" })
	if got, want := d.whoHas(good), "oidc:ann/ann oidc:dev,oidc:ops,system:authenticated"; got != want {
		t.Errorf("it's %s, want %s", got, want)
	}
	if _, text := d.Do(http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+good, "Content-Type", "application/json"); !strings.Contains(text, `"extra":{"example.com/tenant":["acme"]}`) {
		t.Errorf("the user is %s", text)
	}
	parts := strings.Split(good, ".")
	for name, tc := range map[string]struct{ token, log string }{
		"another audience": {with("aud", "else"), "audience"},
		"expired":          {with("exp", time.Now().Add(-time.Hour).Unix()), "expired"},
		"another issuer":   {with("iss", "https://else.example"), "nobody's"},
		"another key":      {i.Impostor(t).Token(t, nil), "verify"},
		"another domain":   {with("hd", "else.example"), "wrong domain"},
		"banned":           {with("roles", []string{"oidc:banned"}), "banned"},
		"algorithm none":   {credentials.Encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + ".", "verify"},
		"cut signature":    {parts[0] + "." + parts[1] + "." + parts[2][:40], "verify"},
	} {
		d.log.Take()
		r, text := d.Do(http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+tc.token)
		if line := d.log.Take(); r.StatusCode != http.StatusUnauthorized || strings.TrimSpace(text) != unauthorized || !strings.Contains(line, tc.log) {
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
		s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, Access: access.Options{AuthenticationConfigFile: file}}
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

// TestOIDCFlags: the flags --oidc-* mean what they mean for kube-apiserver, and the file of authorities is read again.
func TestOIDCFlags(t *testing.T) {
	i, other := credentials.NewIssuer(t), credentials.NewAuthority(t, "others")
	authorities := filepath.Join(t.TempDir(), "ca.crt")
	pemOf := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}))
	writeFile(t, authorities, pemOf)
	options := access.OIDC{IssuerURL: i.URL, ClientID: "lite", CAFile: authorities, GroupsClaim: "roles", GroupsPrefix: "of-", SigningAlgs: []string{"ES256"}, RequiredClaims: []string{"hd=example.com"}}
	d := newDoors(t, func(s *server.Server) { s.Access.OIDC = options })
	good := i.Token(t, nil)
	until(t, "the issuer's keys", func() bool { return d.whoHas(good) != "401" })
	if got, want := d.whoHas(good), i.URL+"#ann/ of-oidc:dev,of-oidc:ops,system:authenticated"; got != want {
		t.Errorf("it's %s, want %s", got, want)
	}
	if got := d.whoHas(i.Token(t, map[string]any{"hd": "else.example"})); got != "401" {
		t.Errorf("without the required claim it's %s", got)
	}
	otherText, err := os.ReadFile(other.File)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, authorities, pemOf+string(otherText))
	until(t, "the file is read again", func() bool { return strings.Contains(d.log.String(), "--oidc-ca-file has changed, and is in effect") })
	if got := d.whoHas(good); got == "401" {
		t.Error("the token isn't believed any more")
	}

	options.UsernameClaim, options.UsernamePrefix, options.SigningAlgs = "tenant", "-", nil
	d = newDoors(t, func(s *server.Server) { s.Access.OIDC = options })
	if got := d.whoHas(good); got != "401" {
		t.Errorf("with RS256 alone, the default, it's %s", got)
	}
	options.SigningAlgs = []string{"RS256", "ES256"}
	d = newDoors(t, func(s *server.Server) { s.Access.OIDC = options })
	until(t, "the issuer's keys", func() bool { return d.whoHas(good) != "401" })
	if got := d.whoHas(good); !strings.HasPrefix(got, "acme/") {
		t.Errorf("without a prefix it's %s", got)
	}
}
