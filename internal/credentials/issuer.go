package credentials

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// Issuer is an OIDC issuer, which serves its key over TLS.
type Issuer struct {
	*httptest.Server
	key *ecdsa.PrivateKey
}

// NewIssuer starts an issuer. It ends with the test.
func NewIssuer(t testing.TB) *Issuer {
	t.Helper()
	i := &Issuer{key: newKey(t)}
	point, err := i.key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"issuer":%q,"jwks_uri":%q}`, i.URL, i.URL+"/keys")
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"EC","use":"sig","alg":"ES256","kid":"k","crv":"P-256","x":%q,"y":%q}]}`, Encode(point[1:33]), Encode(point[33:]))
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

// Impostor returns one that signs in the issuer's name, with another key.
func (i *Issuer) Impostor(t testing.TB) *Issuer {
	t.Helper()
	return &Issuer{Server: i.Server, key: newKey(t)}
}

// Token makes a token that Configuration lets in. changes, if there are any, are other claims, or other values of these.
func (i *Issuer) Token(t testing.TB, changes map[string]any) string {
	t.Helper()
	claims := map[string]any{
		"iss": i.URL, "aud": "lite", "sub": "ann", "exp": time.Now().Add(life).Unix(), "iat": time.Now().Unix(),
		"hd": "example.com", "roles": []string{"oidc:dev", "oidc:ops"}, "tenant": "acme",
	}
	maps.Copy(claims, changes)
	body, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	text := Encode([]byte(`{"alg":"ES256","kid":"k"}`)) + "." + Encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + Encode(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
}

// Encode returns bytes as they stand in a token.
func Encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// Configuration is an AuthenticationConfiguration that believes the issuer. Its user is "oidc:" and the claim sub, with the
// groups of the claim roles. The claim hd must be example.com, and no group oidc:banned.
func (i *Issuer) Configuration() string {
	authority := strings.TrimSpace(string(certificatePEM(i.Certificate().Raw)))
	return `apiVersion: apiserver.config.k8s.io/v1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: ` + i.URL + `
    audiences: [lite]
    certificateAuthority: |
      ` + strings.ReplaceAll(authority, "\n", "\n      ") + `
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
}
