package access

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// newTestKeys returns keys that sign, and a token of theirs.
func newTestKeys(t testing.TB) (*keys, string) {
	t.Helper()
	signer, _, err := NewSigningKey()
	if err != nil {
		t.Fatal(err)
	}
	k, err := newKeys(signer, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, err := k.sign(tokenClaims{Issuer: defaultIssuer, Audiences: audiences{defaultIssuer}, Expires: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	return k, token
}

// FuzzToken: whatever is sent as a token is taken apart or refused, and none is verified whose text wasn't signed.
func FuzzToken(f *testing.F) {
	k, token := newTestKeys(f)
	signed := token[:strings.LastIndexByte(token, '.')]
	none := encode64([]byte(`{"alg":"none"}`))
	for _, seed := range []string{token, signed, signed + ".", none + "." + encode64([]byte("{}")) + ".", "a.b.c", "..", "", token + "=", "\n" + token} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		parsed, err := parseJWT(text)
		if err != nil {
			return
		}
		parsed.issuer()
		if k.verify(parsed) && parsed.signed != signed {
			t.Errorf("%q is verified", text)
		}
	})
}

// FuzzTokenFile: a file of tokens is read or refused; everybody in it has a name, and is found by the token alone.
func FuzzTokenFile(f *testing.F) {
	for _, seed := range []string{"t,alice,1,\"a,b\"\n", "t,alice,1\nu,bob,2,\n", "t,alice\n", "t,a,1\nt,b,2\n", "\"", ",a,1\n", "t,,1\n", "#\n", "t,a,1,\"a\nb\"\n"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		users, err := parseTokenFile(data)
		if err != nil {
			return
		}
		for hash, u := range users {
			if u.Name == "" || hash == sha256.Sum256(nil) {
				t.Errorf("%q has %+v", data, u)
			}
		}
		if users.find(sha256.Sum256(nil)) != nil {
			t.Errorf("%q lets nobody's token in", data)
		}
	})
}

// header reads headers as a server does.
func header(text string) http.Header {
	h, err := textproto.NewReader(bufio.NewReader(strings.NewReader(text + "\r\n\r\n"))).ReadMIMEHeader()
	if err != nil {
		return nil
	}
	return http.Header(h)
}

// nothing allows nothing.
type nothing struct{}

func (nothing) Authorize(context.Context, authorizer.Attributes) (authorizer.Decision, string, error) {
	return authorizer.DecisionNoOpinion, "", nil
}

// FuzzImpersonation: nobody is impersonated without a right, and no header is left that asks for it.
func FuzzImpersonation(f *testing.F) {
	for _, seed := range []string{"Impersonate-User: a", "impersonate-group: a", "Impersonate-User: a\r\nImpersonate-Extra-%2fX: y\r\nImpersonate-Uid: 1", "Impersonate-User:", "Impersonate-User: system:serviceaccount:a:b", "Impersonate-Extra-: x", "Impersonate-Extra-%: x\r\nImpersonate-User: system:anonymous"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h := header(text)
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header = h.Clone()
		if u, err := Impersonate(r, &user.DefaultInfo{Name: "by"}, nothing{}); u != nil || err == nil && h.Get("Impersonate-User") != "" {
			t.Fatalf("%q becomes %v, %v", text, u, err)
		}
		r.Header = h.Clone()
		as, err := Impersonate(r, &user.DefaultInfo{Name: "by"}, nil)
		if err != nil || as == nil {
			return
		}
		if as.User.GetName() == "" || len(as.User.GetGroups()) == 0 {
			t.Errorf("%q becomes %+v", text, as)
		}
		for name := range r.Header {
			if isImpersonation(name) {
				t.Errorf("%q leaves %q", text, name)
			}
		}
	})
}

// FuzzProxyHeaders: what a proxy says names somebody or nobody, and none of its headers is left.
func FuzzProxyHeaders(f *testing.F) {
	for _, seed := range []string{"X-Remote-User: a", "x-remote-group: b\r\nX-Remote-User: a\r\nX-Remote-Extra-A%2fB: c", "X-Remote-Extra-: x", "X-Remote-Uid: 1", "X-Remote-User:\r\nX-Remote-User: a"} {
		f.Add(seed)
	}
	p := newProxies(RequestHeader{}, &authorities{})
	f.Fuzz(func(t *testing.T, text string) {
		h := header(text)
		u := p.named(h)
		p.drop(h)
		if u != nil && u.GetName() == "" {
			t.Errorf("%q is %+v", text, u)
		}
		for name := range h {
			if p.owns(name) {
				t.Errorf("%q leaves %q", text, name)
			}
		}
	})
}

// FuzzKeyFile: a file of keys is read or refused, and so is one of authorities.
func FuzzKeyFile(f *testing.F) {
	_, private, err := NewSigningKey()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(private)
	f.Add(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}))
	f.Add([]byte("nonsense"))
	f.Add(append(private, private...))
	file := filepath.Join(f.TempDir(), "file")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if keys, err := readPublicKeys(file); err == nil && len(keys) == 0 {
			t.Errorf("%q has no key", data)
		}
		if key, err := ReadSigningKey(file); err == nil {
			if _, err := newPublicKey(key.Public()); err != nil && !strings.Contains(err.Error(), "key") {
				t.Error(err)
			}
		}
		a := &authorities{file: file, log: slog.New(slog.DiscardHandler)}
		if err := a.rereadLocked(time.Now()); err == nil && (a.trust == nil || !bytes.Contains(data, []byte("CERTIFICATE"))) {
			t.Errorf("%q has authorities", data)
		}
	})
}

// FuzzConfiguration: a file of --authentication-config is read or refused.
func FuzzConfiguration(f *testing.F) {
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n"
	for _, seed := range []string{head, head + "anonymous: {enabled: true, conditions: [{path: /healthz}]}\n", head + "jwt: [{issuer: {url: 'https://a', audiences: [b]}, claimMappings: {username: {claim: sub, prefix: ''}}}]\n", "{}", "- a", "kind: Pod"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseConfiguration(data, []string{defaultIssuer})
		if err == nil && c == nil {
			t.Errorf("%q is nothing", data)
		}
	})
}
