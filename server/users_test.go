package server_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// doors is a server that tells users apart in all ways, with what opens it.
type doors struct {
	*servertest.Server
	log            *await.Log
	clients, proxy *credentials.Authority
	asked          int // requests of ask
	t              *testing.T
}

const csvTokens = "alice-token,alice,u1,\"devs,ops\"\nbob-token,bob,u2\n"

func newDoors(t *testing.T, options ...func(*server.Server)) *doors {
	t.Helper()
	d := &doors{log: new(await.Log), clients: credentials.NewAuthority(t, "clients"), proxy: credentials.NewAuthority(t, "proxies"), t: t}
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(csvTokens), 0o600); err != nil {
		t.Fatal(err)
	}
	d.Server = servertest.New(t, append([]func(*server.Server){func(s *server.Server) {
		s.TLS.On, s.Token, s.Log = true, "root-token", slog.New(slog.NewTextHandler(d.log, nil))
		s.API.Builtin = "all"
		s.Access = access.Options{
			ClientCAFile: d.clients.File, TokenAuthFile: tokens,
			RequestHeader: access.RequestHeader{ClientCAFile: d.proxy.File, AllowedNames: []string{"front"}},
		}
	}}, options...)...)
	d.Client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	return d
}

// ask sends a request over a connection of its own, from an address of its own, with a certificate if there is one. One address
// that is refused many times has only a part of the log's lines.
func (d *doors) ask(cert *tls.Certificate, http2 bool, method, path, body string, headers ...string) (*http.Response, string) {
	d.t.Helper()
	config := &tls.Config{InsecureSkipVerify: true}
	if cert != nil {
		config.Certificates = []tls.Certificate{*cert}
	}
	d.asked++
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(d.asked))}}
	transport := &http.Transport{DialContext: dialer.DialContext, TLSClientConfig: config, ForceAttemptHTTP2: http2}
	defer transport.CloseIdleConnections()
	return d.send(&http.Client{Transport: transport}, method, path, body, headers...)
}

func (d *doors) send(c *http.Client, method, path, body string, headers ...string) (*http.Response, string) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), method, d.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	res, err := c.Do(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	return res, string(answer)
}

const selfReview = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

// who is what a SelfSubjectReview says, as "name/uid groups", or the code if it isn't answered.
func who(t *testing.T, r *http.Response, text string) string {
	t.Helper()
	if r.StatusCode != http.StatusCreated {
		return fmt.Sprint(r.StatusCode)
	}
	u := decode[authenticationv1.SelfSubjectReview](t, text).Status.UserInfo
	return fmt.Sprintf("%s/%s %s", u.Username, u.UID, strings.Join(u.Groups, ","))
}

// unauthorized is all that a client is told.
const unauthorized = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}`

// TestCredentials: who a request comes from, by all that it may show; what is wrong gets a 401 that tells nothing, and a
// line in the log.
func TestCredentials(t *testing.T) {
	d := newDoors(t)
	other := credentials.NewAuthority(t, "clients") // of the same name
	long := time.Now().Add(-24 * time.Hour)
	front := d.proxy.Issue(t, "front", nil, nil)
	for _, tc := range []struct {
		name    string
		cert    *tls.Certificate
		headers []string
		want    string
		log     string // part of the line; "" for none
	}{
		{"nothing", nil, nil, "401", ""},
		{"certificate", d.clients.Issue(t, "carol", []string{"ops", "devs"}, nil), nil, "carol/ ops,devs,system:authenticated", ""},
		{"certificate of an administrator", d.clients.Issue(t, "root", []string{"system:masters"}, nil), nil, "root/ system:masters,system:authenticated", ""},
		{"certificate of another authority", other.Issue(t, "carol", nil, nil), nil, "401", "unknown authority"},
		{"expired certificate", d.clients.Issue(t, "carol", nil, func(c *x509.Certificate) { c.NotBefore, c.NotAfter = long, long.Add(time.Hour) }), nil, "401", "expired"},
		{"certificate of the future", d.clients.Issue(t, "carol", nil, func(c *x509.Certificate) {
			c.NotBefore, c.NotAfter = time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)
		}), nil, "401", "not yet valid"},
		{"server's certificate", d.clients.Issue(t, "carol", nil, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }), nil, "401", "incompatible key usage"},
		{"certificate without a name", d.clients.Issue(t, "", []string{"system:masters"}, nil), nil, "401", "unknown authority"}, // the proxies'; it's no client's
		{"proxy's certificate", front, nil, "401", "unknown authority"},
		{"token", nil, []string{"Authorization", "Bearer alice-token"}, "alice/u1 devs,ops,system:authenticated", ""},
		{"token without groups", nil, []string{"Authorization", "bearer  bob-token "}, "bob/u2 system:authenticated", ""},
		{"administrator's token", nil, []string{"Authorization", "Bearer root-token"}, "system:admin/ system:masters,system:authenticated", ""},
		{"wrong token", nil, []string{"Authorization", "Bearer alice-toke"}, "401", "nobody's"},
		{"empty token", nil, []string{"Authorization", "Bearer "}, "401", ""},
		{"two tokens", nil, []string{"Authorization", "Bearer alice-token bob-token"}, "401", "nobody's"},
		{"another scheme", nil, []string{"Authorization", "Basic YWxpY2U6eA=="}, "401", ""},
		{"bad certificate and good token", other.Issue(t, "carol", nil, nil), []string{"Authorization", "Bearer alice-token"}, "alice/u1 devs,ops,system:authenticated", ""},
		{"good certificate and bad token", d.clients.Issue(t, "carol", nil, nil), []string{"Authorization", "Bearer x"}, "carol/ system:authenticated", ""},
		{"proxy", front, []string{"X-Remote-User", "dave", "X-Remote-Uid", "7", "X-Remote-Group", "a", "X-Remote-Group", "b"}, "dave/7 a,b,system:authenticated", ""},
		{"proxy for an anonymous", front, []string{"X-Remote-User", "system:anonymous", "X-Remote-Group", "system:unauthenticated"}, "system:anonymous/ system:unauthenticated", ""},
		{"proxy of another name", d.proxy.Issue(t, "back", nil, nil), []string{"X-Remote-User", "dave"}, "401", "allowed-names"},
		{"proxy of another authority", other.Issue(t, "front", nil, nil), []string{"X-Remote-User", "dave"}, "401", "unknown authority"},
		{"client that plays proxy", d.clients.Issue(t, "front", nil, nil), []string{"X-Remote-User", "dave", "X-Remote-Group", "system:masters"}, "front/ system:authenticated", ""},
		{"nobody who plays proxy", nil, []string{"X-Remote-User", "dave"}, "401", ""},
		{"impersonation", nil, []string{"Authorization", "Bearer root-token", "Impersonate-User", "erin", "Impersonate-Group", "x", "Impersonate-Uid", "9"}, "erin/9 x,system:authenticated", ""},
		{"impersonated account", nil, []string{"Authorization", "Bearer root-token", "Impersonate-User", "system:serviceaccount:shop:till"}, "system:serviceaccount:shop:till/ system:serviceaccounts,system:serviceaccounts:shop,system:authenticated", ""},
		{"impersonated anonymous", nil, []string{"Authorization", "Bearer root-token", "Impersonate-User", "system:anonymous"}, "system:anonymous/ system:unauthenticated", ""},
		{"impersonated group alone", nil, []string{"Authorization", "Bearer root-token", "Impersonate-Group", "system:masters"}, "400", ""},
		{"impersonation by nobody", nil, []string{"Impersonate-User", "system:admin"}, "401", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, http2 := range []bool{false, true} {
				d.log.Take()
				r, text := d.ask(tc.cert, http2, http.MethodPost, selfReview, "{}", tc.headers...)
				if got := who(t, r, text); got != tc.want {
					t.Errorf("HTTP %d: it's %s, want %s: %s", r.ProtoMajor, got, tc.want, text)
				}
				if tc.want == "401" && strings.TrimSpace(text) != unauthorized {
					t.Errorf("the answer is %s", text)
				}
				line := d.log.Take()
				if !strings.Contains(line, tc.log) || tc.log == "" && strings.Contains(line, "unauthorized") {
					t.Errorf("the log says %q, want %q", line, tc.log)
				}
				for i := 1; i < len(tc.headers); i += 2 {
					if _, secret, _ := strings.Cut(tc.headers[i], "Bearer "); len(secret) > 2 && strings.Contains(line, secret) {
						t.Errorf("the log has the token: %s", line)
					}
				}
			}
		})
	}
}

// TestClientCAIsReloaded: another authority in the file counts soon, also on connections that are open.
func TestClientCAIsReloaded(t *testing.T) {
	d := newDoors(t)
	next := credentials.NewAuthority(t, "next")
	client := func(cert *tls.Certificate) *http.Client {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{*cert}}}
		t.Cleanup(transport.CloseIdleConnections)
		return &http.Client{Transport: transport}
	}
	before, after := client(d.clients.Issue(t, "old", nil, nil)), client(next.Issue(t, "new", nil, nil))
	ask := func(c *http.Client) int {
		r, _ := d.send(c, http.MethodPost, selfReview, "{}")
		return r.StatusCode
	}
	if a, b := ask(before), ask(after); a != http.StatusCreated || b != http.StatusUnauthorized {
		t.Fatalf("at first %d and %d", a, b)
	}
	if err := os.WriteFile(d.clients.File, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "a line about the bad file", func() bool { ask(before); return strings.Contains(d.log.Take(), "those that were read before stay") })
	if code := ask(before); code != http.StatusCreated {
		t.Errorf("with a bad file %d", code)
	}
	if err := os.WriteFile(d.clients.File, next.PEM(), 0o600); err != nil {
		t.Fatal(err)
	}
	until(t, "the new authority", func() bool { return ask(after) == http.StatusCreated })
	if code := ask(before); code != http.StatusUnauthorized {
		t.Errorf("the old authority's certificate: %d", code)
	}
}

const tillSpace = "/api/v1/namespaces/default"

// issue asks for a token of the account default/till.
func (d *doors) issue(spec string) string {
	d.t.Helper()
	r, text := d.Do(http.MethodPost, tillSpace+"/serviceaccounts/till/token", `{"spec":`+spec+`}`, "Authorization", "Bearer root-token", "Content-Type", "application/json")
	if r.StatusCode != http.StatusCreated {
		d.t.Fatalf("a token of %s: %s", spec, text)
	}
	return decode[authenticationv1.TokenRequest](d.t, text).Status.Token
}

func (d *doors) make(path, object string) {
	d.t.Helper()
	if r, text := d.Do(http.MethodPost, path, object, "Authorization", "Bearer root-token", "Content-Type", "application/yaml"); r.StatusCode != http.StatusCreated {
		d.t.Fatalf("%s: %s", path, text)
	}
}

func (d *doors) whoHas(token string) string {
	d.t.Helper()
	r, text := d.Do(http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+token, "Content-Type", "application/json")
	return who(d.t, r, text)
}

// TestAccountTokens: tokens of ServiceAccounts let in, until they or what they're bound to end; spoiled ones don't.
func TestAccountTokens(t *testing.T) {
	d := newDoors(t)
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	d.make(tillSpace+"/secrets", "metadata: {name: drawer}")
	d.make(tillSpace+"/pods", "metadata: {name: cashier}\nspec: {serviceAccountName: till, containers: [{name: c, image: i}]}")
	d.make("/api/v1/nodes", "metadata: {name: desk}")
	const till = "system:serviceaccount:default:till/"
	in := func(token string) bool { return strings.HasPrefix(d.whoHas(token), till) }
	plain := d.issue("{}")
	if got := d.whoHas(plain); !strings.HasPrefix(got, till) || !strings.HasSuffix(got, " system:serviceaccounts,system:serviceaccounts:default,system:authenticated") {
		t.Fatalf("it's %s", got)
	}
	parts := strings.Split(plain, ".")
	spoil := func(i int, by string) string {
		spoiled := slices.Clone(parts)
		spoiled[i] = by
		return strings.Join(spoiled, ".")
	}
	claims, _ := base64.RawURLEncoding.DecodeString(parts[1])
	changed := base64.RawURLEncoding.EncodeToString(bytes.Replace(claims, []byte("default"), []byte("kube-system"), 1))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`))
	for name, tc := range map[string]struct{ token, log string }{
		"algorithm none":               {spoil(0, none), "no key"},
		"algorithm none, no signature": {none + "." + parts[1] + ".", "no key"},
		"algorithm HS256":              {spoil(0, base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256"}`))), "no key"},
		"cut signature":                {plain[:len(plain)-8], "unauthorized"},
		"no signature":                 {parts[0] + "." + parts[1] + ".", "no key"},
		"two parts":                    {parts[0] + "." + parts[1], "nobody's"},
		"changed claims":               {spoil(1, changed), "no key"},
		"another audience":             {d.issue(`{"audiences":["elsewhere"]}`), "audiences"},
		"too long":                     {plain + strings.Repeat("A", 100<<10), ""},
	} {
		d.log.Take()
		r, text := d.ask(nil, false, http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+tc.token)
		if name == "too long" && r.StatusCode == http.StatusRequestHeaderFieldsTooLarge {
			continue
		}
		if line := d.log.Take(); r.StatusCode != http.StatusUnauthorized || strings.TrimSpace(text) != unauthorized || !strings.Contains(line, tc.log) {
			t.Errorf("%s: %s %s, log %q", name, r.Status, text, line)
		}
	}
	ref := func(kind, name string) string {
		return fmt.Sprintf(`{"boundObjectRef":{"apiVersion":"v1","kind":%q,"name":%q}}`, kind, name)
	}
	for _, bound := range []struct{ kind, name, path string }{
		{"Secret", "drawer", tillSpace + "/secrets/drawer"}, {"Pod", "cashier", tillSpace + "/pods/cashier"}, {"Node", "desk", "/api/v1/nodes/desk"}, {"", "", tillSpace + "/serviceaccounts/till"},
	} {
		token := plain
		if bound.kind != "" {
			token = d.issue(ref(bound.kind, bound.name))
		}
		if !in(token) {
			t.Errorf("a token bound to %s lets nobody in", bound.path)
		}
		d.Do(http.MethodDelete, bound.path+"?gracePeriodSeconds=0", "", "Authorization", "Bearer root-token")
		if in(token) {
			t.Errorf("a token lets in after %s was deleted", bound.path)
		}
	}
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	if in(plain) {
		t.Error("a token of the account before lets in")
	}
}

// TestAccountTokenTimes: a token whose signature is right lets nobody in before its time or after it, also when
// it was seen before, nor if it contradicts itself.
func TestAccountTokenTimes(t *testing.T) {
	key, private, err := access.NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	if err := os.WriteFile(file, private, 0o600); err != nil {
		t.Fatal(err)
	}
	d := newDoors(t, func(s *server.Server) { s.Access.ServiceAccountSigningKeyFile = file })
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	parts := strings.Split(d.issue("{}"), ".")
	signed := func(changes map[string]any) string {
		t.Helper()
		decoded, err := base64.RawURLEncoding.DecodeString(parts[1])
		if err != nil {
			t.Fatal(err)
		}
		claims := decode[map[string]any](t, string(decoded))
		maps.Copy(claims, changes)
		text, err := json.Marshal(claims)
		if err != nil {
			t.Fatal(err)
		}
		body := parts[0] + "." + base64.RawURLEncoding.EncodeToString(text)
		hash := sha256.Sum256([]byte(body))
		r, s, err := ecdsa.Sign(rand.Reader, key.(*ecdsa.PrivateKey), hash[:])
		if err != nil {
			t.Fatal(err)
		}
		return body + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...))
	}
	at := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	for _, tc := range []struct {
		name    string
		changes map[string]any
		log     string // why it's refused; "" if it isn't
	}{
		{"signed again", nil, ""},
		{"expired", map[string]any{"exp": at(-time.Second)}, "has expired"},
		{"no end", map[string]any{"exp": nil}, "has expired"},
		{"not valid yet", map[string]any{"nbf": at(time.Hour)}, "not valid yet"},
		{"issued in the future", map[string]any{"iat": at(time.Hour)}, "not valid yet"},
		{"another's subject", map[string]any{"sub": "system:serviceaccount:kube-system:till"}, "subject"},
		{"another issuer", map[string]any{"iss": "https://elsewhere.example"}, "unauthorized"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			token := signed(tc.changes)
			for range 2 {
				d.log.Take()
				r, text := d.ask(nil, false, http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+token)
				if tc.log == "" {
					if got := who(t, r, text); !strings.HasPrefix(got, "system:serviceaccount:default:till/") {
						t.Errorf("it's %s: %s", got, text)
					}
					continue
				}
				if line := d.log.Take(); r.StatusCode != http.StatusUnauthorized || strings.TrimSpace(text) != unauthorized || !strings.Contains(line, tc.log) {
					t.Errorf("%s %s, log %q, want %q", r.Status, text, line, tc.log)
				}
			}
		})
	}
}

// TestTokenRequests: what a TokenRequest is refused with.
func TestTokenRequests(t *testing.T) {
	d := newDoors(t)
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	d.make(tillSpace+"/pods", "metadata: {name: other}\nspec: {serviceAccountName: somebody, containers: [{name: c, image: i}]}")
	for _, tc := range []struct {
		name, spec string
		code       int
		text       string
	}{
		{"short life", `{"expirationSeconds":599}`, 422, "10 minutes"},
		{"long life", `{"expirationSeconds":4294967297}`, 422, "2^32"},
		{"bound to another kind", `{"boundObjectRef":{"apiVersion":"v1","kind":"ConfigMap","name":"x"}}`, 400, "cannot bind token to object of type"},
		{"bound to what isn't there", `{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"x"}}`, 404, `pods \"x\" not found`},
		{"bound to another uid", `{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"other","uid":"1"}}`, 409, "does not match the UID in record"},
		{"bound to another's pod", `{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"other"}}`, 400, "different serviceaccount"},
	} {
		r, text := d.Do(http.MethodPost, tillSpace+"/serviceaccounts/till/token", `{"spec":`+tc.spec+`}`, "Authorization", "Bearer root-token", "Content-Type", "application/json")
		if r.StatusCode != tc.code || !strings.Contains(text, tc.text) {
			t.Errorf("%s: %s", tc.name, text)
		}
	}
}

// TestKeysOfAccounts: others can verify tokens by what the server says about its keys, which it keeps.
func TestKeysOfAccounts(t *testing.T) {
	dir := t.TempDir()
	kept := func(s *server.Server) { s.Data.Ephemeral, s.Data.Dir = false, dir }
	d := newDoors(t, kept)
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	token := d.issue(`{"expirationSeconds":86400}`)
	_, discovery := d.Do(http.MethodGet, "/.well-known/openid-configuration", "", "Authorization", "Bearer root-token")
	about := decode[map[string]any](t, discovery)
	if about["issuer"] != "https://kubernetes.default.svc" || about["jwks_uri"] != d.URL+"/openid/v1/jwks" {
		t.Errorf("the issuer is %s", discovery)
	}
	_, set := d.Do(http.MethodGet, "/openid/v1/jwks", "", "Authorization", "Bearer root-token")
	header, _ := base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[0])
	if id := decode[map[string]string](t, string(header))["kid"]; id == "" || !strings.Contains(set, id) {
		t.Errorf("the token's header is %s, the keys are %s", header, set)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if file, err := os.Stat(filepath.Join(dir, "service-account.key")); err != nil || file.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v", file, err)
	}
	again := newDoors(t, kept)
	if got := again.whoHas(token); !strings.HasPrefix(got, "system:serviceaccount:default:till/") {
		t.Errorf("after a restart the token is %s", got)
	}
}

// TestTokenReview: it tells whose a token is, and for whom.
func TestTokenReview(t *testing.T) {
	d := newDoors(t)
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	for _, tc := range []struct{ name, token, audiences, want string }{
		{"account", d.issue("{}"), "", "system:serviceaccount:default:till [https://kubernetes.default.svc]"},
		{"account for others", d.issue(`{"audiences":["a","b"]}`), "b", "system:serviceaccount:default:till [b]"},
		{"account for us, asked by others", d.issue("{}"), "b", " []"},
		{"of the file", "alice-token", "", "alice [https://kubernetes.default.svc]"},
		{"of the file, asked by others", "alice-token", "b", " []"},
		{"administrator", "root-token", "", "system:admin [https://kubernetes.default.svc]"},
		{"nobody", "nonsense", "", " []"},
	} {
		review := authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: tc.token}}
		if tc.audiences != "" {
			review.Spec.Audiences = []string{tc.audiences}
		}
		body, _ := json.Marshal(review)
		_, text := d.Do(http.MethodPost, "/apis/authentication.k8s.io/v1/tokenreviews", string(body), "Authorization", "Bearer alice-token", "Content-Type", "application/json")
		status := decode[authenticationv1.TokenReview](t, text).Status
		if got := fmt.Sprint(status.User.Username, " ", status.Audiences); got != tc.want || status.Authenticated == (tc.want == " []") {
			t.Errorf("%s: %s, want %s: %s", tc.name, got, tc.want, text)
		}
	}
}

// TestEveryPathAsks: no path and no method reaches anything without a credential.
func TestEveryPathAsks(t *testing.T) {
	d := newDoors(t)
	_, root := d.Do(http.MethodGet, "/", "", "Authorization", "Bearer root-token")
	paths := append(decode[struct{ Paths []string }](t, root).Paths, "/", "/nothing", "/healthz/ping", "/debug/reset", "/debug/snapshot",
		"/api/v1/namespaces/default", "/api/v1/watch/namespaces", "/api/v1/namespaces/default/pods/x/status", "/apis/no/v1/such", "/api/v1/namespaces/", "/openapi/v3/api/v1")
	for _, path := range paths {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"} {
			if r, text := d.Do(method, path, ""); r.StatusCode != http.StatusUnauthorized || method != "HEAD" && !strings.Contains(text, "Unauthorized") {
				t.Errorf("%s %s: %s %.100s", method, path, r.Status, text)
			}
		}
	}
	if r, _ := d.Do("POST", "/api/v1/namespaces", "", "X-HTTP-Method-Override", "GET"); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("a method override: %s", r.Status)
	}
	upgrade := []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13", "Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol"}
	for token, want := range map[string]int{"nobody": http.StatusUnauthorized, "alice-token": http.StatusSwitchingProtocols} {
		encoded := base64.RawURLEncoding.EncodeToString([]byte(token))
		r, _ := d.upgrade("/api/v1/namespaces?watch=true", append(upgrade, "base64url.bearer.authorization.k8s.io."+encoded+", v1")...)
		if r != want {
			t.Errorf("a WebSocket with the token %s: %d, want %d", token, r, want)
		}
	}
}

// upgrade asks for a WebSocket and leaves it.
func (d *doors) upgrade(path string, headers ...string) (int, error) {
	d.t.Helper()
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, d.URL+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	res, err := transport.RoundTrip(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, nil
}

// TestAccessOptions: what a server with users refuses to start with.
func TestAccessOptions(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	clients, proxies := credentials.NewAuthority(t, "clients"), credentials.NewAuthority(t, "proxies")
	both := filepath.Join(t.TempDir(), "both.crt")
	if err := os.WriteFile(both, append(clients.PEM(), proxies.PEM()...), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		set  func(*server.Server)
		want string
	}{
		"certificates without HTTPS": {func(s *server.Server) { s.Access.ClientCAFile = bad }, "--tls"},
		"no authority in the file":   {func(s *server.Server) { s.TLS.On, s.Access.ClientCAFile = true, bad }, "--client-ca-file"},
		"no such file":               {func(s *server.Server) { s.TLS.On, s.Access.ClientCAFile = true, bad+"x" }, "--client-ca-file"},
		"no token in a line":         {func(s *server.Server) { s.Access.TokenAuthFile = bad }, "--token-auth-file"},
		"no configuration":           {func(s *server.Server) { s.Access.AuthenticationConfigFile = bad }, "--authentication-config"},
		"headers of anybody":         {func(s *server.Server) { s.Access.RequestHeader.UsernameHeaders = []string{"X-User"} }, "--requestheader-client-ca-file"},
		"unknown mode":               {func(s *server.Server) { s.Access.AuthorizationMode = "ABAC" }, "--authorization-mode"},
		"no signing key in the file": {func(s *server.Server) {
			s.Access.TokenAuthFile = os.DevNull
			s.Access.ServiceAccountSigningKeyFile = bad
		}, "--service-account-signing-key-file"},
		"one authority for clients and proxies": {func(s *server.Server) {
			s.TLS.On, s.Access.ClientCAFile, s.Access.RequestHeader.ClientCAFile = true, both, proxies.File
		}, "--requestheader-client-ca-file and --client-ca-file contain overlapping certificates; --requestheader-allowed-names must be specified"},
		"keys without the one that signs": {func(s *server.Server) { s.Access.ServiceAccountKeyFiles = []string{bad} }, "--service-account-signing-key-file"},
	} {
		s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}, Log: slog.New(slog.DiscardHandler)}
		tc.set(s)
		err := s.Start(t.Context())
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			s.Close()
		}
	}
}

// withRules turns RBAC on.
func withRules(s *server.Server) { s.Access.AuthorizationMode = "RBAC" }

// TestImpersonationNeedsRights: with RBAC a user needs one for each part of whom it wants to be taken for. What
// is told of is the right that the first of Kubernetes' modes lacks.
func TestImpersonationNeedsRights(t *testing.T) {
	d := newDoors(t, withRules)
	rule := func(verbs, groups, resources, names string) string {
		return "- {apiGroups: [" + groups + "], resources: [" + resources + "], verbs: [" + verbs + "], resourceNames: [" + names + "]}\n"
	}
	const authentication = "authentication.k8s.io"
	d.grant("alice", rule("impersonate", `""`, "users", "bob")+rule("impersonate", `""`, "groups", "actors")+
		rule("impersonate", authentication, "uids", `"7"`)+rule("impersonate", authentication, "userextras/scopes", "view"))
	d.grant("bob", "- {apiGroups: ['"+authentication+"'], resources: [selfsubjectreviews], verbs: ['impersonate-on:user-info:create', 'impersonate-on:serviceaccount:create', 'impersonate-on:arbitrary-node:create']}\n"+
		rule("impersonate:user-info", authentication, "users", "carol")+rule("impersonate:user-info", authentication, "groups", "actors")+
		rule("impersonate:serviceaccount", authentication, "serviceaccounts", "till")+rule("impersonate:arbitrary-node", authentication, "nodes", "n1"))
	const refused = `User \"alice\" cannot impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at the cluster scope`
	for _, tc := range []struct {
		name, token string
		headers     []string
		want        string // who it is, or part of the refusal
	}{
		{"user", "alice-token", []string{"Impersonate-User", "bob"}, "bob/ system:authenticated"},
		{"all parts", "alice-token", []string{"Impersonate-User", "bob", "Impersonate-Group", "actors", "Impersonate-Uid", "7", "Impersonate-Extra-Scopes", "view"}, "bob/7 actors,system:authenticated"},
		{"another user", "alice-token", []string{"Impersonate-User", "system:admin"}, refused},
		{"another group", "alice-token", []string{"Impersonate-User", "bob", "Impersonate-Group", "system:masters"}, refused},
		{"one group of two", "alice-token", []string{"Impersonate-User", "bob", "Impersonate-Group", "actors", "Impersonate-Group", "system:masters"}, refused},
		{"another uid", "alice-token", []string{"Impersonate-User", "bob", "Impersonate-Uid", "8"}, refused},
		{"another value", "alice-token", []string{"Impersonate-User", "bob", "Impersonate-Extra-Scopes", "edit"}, refused},
		{"account", "alice-token", []string{"Impersonate-User", "system:serviceaccount:shop:till"}, strings.Replace(refused, "user-info", "serviceaccount", 1)},
		{"user, for this request", "bob-token", []string{"Impersonate-User", "carol", "Impersonate-Group", "actors"}, "carol/ actors,system:authenticated"},
		{"another user, for this request", "bob-token", []string{"Impersonate-User", "dave"}, `users.authentication.k8s.io \"dave\" is forbidden: User \"bob\" cannot impersonate:user-info resource \"users\" in API group \"authentication.k8s.io\" at the cluster scope`},
		{"administrator, for this request", "bob-token", []string{"Impersonate-User", "carol", "Impersonate-Group", "system:masters"}, "impersonating the system:masters group is not allowed"},
		{"account, for this request", "bob-token", []string{"Impersonate-User", "system:serviceaccount:shop:till"}, "system:serviceaccount:shop:till/ system:serviceaccounts,system:serviceaccounts:shop,system:authenticated"},
		{"node, for this request", "bob-token", []string{"Impersonate-User", "system:node:n1"}, "system:node:n1/ system:nodes,system:authenticated"},
		{"another node", "bob-token", []string{"Impersonate-User", "system:node:n2"}, `User \"bob\" cannot impersonate:arbitrary-node resource \"nodes\"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, text := d.ask(nil, false, http.MethodPost, selfReview, "{}", append(tc.headers, "Authorization", "Bearer "+tc.token)...)
			if r.StatusCode == http.StatusCreated {
				text = who(t, r, text)
			}
			if r.StatusCode == http.StatusCreated && text != tc.want || !strings.Contains(text, tc.want) {
				t.Errorf("%s, want %s", text, tc.want)
			}
		})
	}
	// bob has no right to act as carol for anything else, even to do what everybody may.
	if r, text := d.ask(nil, false, http.MethodGet, "/version", "", "Authorization", "Bearer bob-token", "Impersonate-User", "carol"); r.StatusCode != http.StatusForbidden ||
		!strings.Contains(text, `User \"bob\" cannot impersonate-on:user-info:get path \"/version\"`) {
		t.Errorf("%s %s", r.Status, text)
	}
}

// TestImpersonationOfOwnNode: an agent on each node acts as the node on which its pod runs, and as no other, with one right.
func TestImpersonationOfOwnNode(t *testing.T) {
	d := newDoors(t, withRules)
	d.make(tillSpace+"/serviceaccounts", "metadata: {name: till}")
	d.make("/api/v1/nodes", "metadata: {name: n1}")
	d.make(tillSpace+"/pods", "metadata: {name: agent}\nspec: {nodeName: n1, serviceAccountName: till, containers: [{name: c, image: i}]}")
	d.grant("system:serviceaccount:default:till", "- {apiGroups: [authentication.k8s.io], resources: [nodes], verbs: ['impersonate:associated-node']}\n"+
		"- {apiGroups: [authentication.k8s.io], resources: [selfsubjectreviews], verbs: ['impersonate-on:associated-node:create']}\n")
	onNode, anywhere := d.issue(`{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"agent"}}`), d.issue("{}")
	for _, tc := range []struct{ name, token, node, want string }{
		{"its own", onNode, "n1", "system:node:n1/ system:nodes,system:authenticated"},
		{"another", onNode, "n2", "403"},
		{"without a pod", anywhere, "n1", "403"},
	} {
		r, text := d.ask(nil, false, http.MethodPost, selfReview, "{}", "Authorization", "Bearer "+tc.token, "Impersonate-User", "system:node:"+tc.node)
		if got := who(t, r, text); got != tc.want {
			t.Errorf("%s: %s, want %s: %s", tc.name, got, tc.want, text)
		}
	}
}

// grant gives a user the rules of a role of its own.
func (d *doors) grant(name, rules string) {
	d.t.Helper()
	role := strings.ReplaceAll(name, ":", "-")
	d.make("/apis/rbac.authorization.k8s.io/v1/clusterroles", "metadata: {name: "+role+"}\nrules:\n"+rules)
	d.make("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", "metadata: {name: "+role+"}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "+role+"}\nsubjects: [{kind: User, name: '"+name+"', apiGroup: rbac.authorization.k8s.io}]")
}

// TestNodeModes: the mode Node, which clusters have beside RBAC, lets a node with a certificate do what it needs, in either order.
func TestNodeModes(t *testing.T) {
	const secret, space = "/api/v1/namespaces/default/secrets/mounted", "/api/v1/namespaces/default/"
	for _, modes := range []string{"Node,RBAC", "RBAC,Node"} {
		t.Run(modes, func(t *testing.T) {
			d := newDoors(t, func(s *server.Server) { s.Access.AuthorizationMode = modes })
			d.make("/api/v1/nodes", "metadata: {name: n1}")
			d.make(space+"secrets", "metadata: {name: mounted}")
			d.make(space+"pods", "metadata: {name: p}\nspec: {nodeName: n1, volumes: [{name: v, secret: {secretName: mounted}}], containers: [{name: c, image: i}]}")
			node := d.clients.Issue(t, "system:node:n1", []string{"system:nodes"}, nil)
			get := func(cert *tls.Certificate, path, token string) string {
				t.Helper()
				r, text := d.ask(cert, false, http.MethodGet, path, "", "Authorization", token)
				return fmt.Sprint(r.StatusCode, " ", text)
			}
			for _, path := range []string{"/api/v1/nodes/n1", secret, space + "pods/p"} {
				if got := get(node, path, ""); !strings.HasPrefix(got, "200") {
					t.Errorf("the node gets %s: %s", path, got)
				}
				if got := get(nil, path, "Bearer alice-token"); !strings.HasPrefix(got, "403") {
					t.Errorf("alice gets %s: %s", path, got)
				}
				if got := get(nil, path, "Bearer root-token"); !strings.HasPrefix(got, "200") {
					t.Errorf("an administrator gets %s: %s", path, got)
				}
			}
		})
	}
}

// TestAnonymousWithRules: who shows nothing is system:anonymous, unless that's turned off; a wrong credential is
// 401 in any case.
func TestAnonymousWithRules(t *testing.T) {
	no := false
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\nanonymous: {enabled: true, conditions: [{path: /livez}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name  string
		set   func(*server.Server)
		codes map[string]int // by path
	}{
		{"by default", func(*server.Server) {}, map[string]int{"/livez": 200, "/version": 200, "/api/v1/namespaces": 403, "/nothing": 403}},
		{"off", func(s *server.Server) { s.Access.AnonymousAuth = &no }, map[string]int{"/livez": 401, "/version": 401, "/api/v1/namespaces": 401}},
		{"at one path", func(s *server.Server) { s.Access.AuthenticationConfigFile = file }, map[string]int{"/livez": 200, "/readyz": 401, "/version": 401}},
	} {
		d := newDoors(t, withRules, tc.set)
		for path, want := range tc.codes {
			code := 0
			get := func() bool { // the rules are there soon after the start
				r, _ := d.Do(http.MethodGet, path, "")
				code = r.StatusCode
				return code == want
			}
			until(t, fmt.Sprintf("%s: %s: %d", tc.name, path, want), get)
			if r, _ := d.Do(http.MethodGet, path, "", "Authorization", "Bearer wrong"); r.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s: %s with a wrong token: %d", tc.name, path, r.StatusCode)
			}
		}
	}
}

// TestAdministratorsKubeconfig: with users told apart and no token given, the kubeconfig has one that may do everything, and
// nobody else has any right.
func TestAdministratorsKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	d := newDoors(t, withRules, func(s *server.Server) { s.Token, s.Serving.KubeconfigFile = "", file })
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, token, found := strings.Cut(string(text), "token: ")
	if token, _, _ = strings.Cut(token, "\n"); !found || len(token) < 20 {
		t.Fatalf("the kubeconfig is %s", text)
	}
	if got := d.whoHas(token); got != "system:admin/ system:masters,system:authenticated" {
		t.Errorf("its holder is %s", got)
	}
	if r, text := d.Do(http.MethodGet, "/api/v1/secrets", "", "Authorization", "Bearer "+token); r.StatusCode != http.StatusOK {
		t.Errorf("its holder may not read: %s", text)
	}
	for _, token := range []string{"root-token", ""} {
		if r, text := d.Do(http.MethodGet, "/api/v1/secrets", "", "Authorization", "Bearer "+token); r.StatusCode == http.StatusOK {
			t.Errorf("with %q: %s", token, text)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file: %v, %v", info.Mode(), err)
	}
}
