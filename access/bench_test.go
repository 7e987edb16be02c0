package access

import (
	"crypto"
	"crypto/sha256"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
)

// BenchmarkAuthenticate is what a request costs whose bearer token is in a file.
func BenchmarkAuthenticate(b *testing.B) {
	file := filepath.Join(b.TempDir(), "tokens.csv")
	if err := os.WriteFile(file, []byte("t,alice,1,\"a,b\"\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	options := Options{TokenAuthFile: file}
	a, err := New(b.Context(), options, Wiring{Admin: func(string) bool { return false }, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := a.Attach(Home{Key: func() (crypto.Signer, error) {
		key, _, err := NewSigningKey()
		return key, err
	}}); err != nil {
		b.Fatal(err)
	}
	r := httptest.NewRequest("GET", "/api", nil)
	b.ReportAllocs()
	for b.Loop() {
		if u, _, err := a.Authenticate(r, "t"); err != nil || u.GetName() != "alice" {
			b.Fatal(u, err)
		}
	}
}

// BenchmarkAccountToken is what it costs to verify a ServiceAccount's token: for the first time, and again. What it's bound to
// is looked up besides.
func BenchmarkAccountToken(b *testing.B) {
	k, _ := newTestKeys(b)
	c := tokenClaims{Issuer: defaultIssuer, Subject: "system:serviceaccount:a:b", Kubernetes: boundTo{Namespace: "a", Account: reference{Name: "b", UID: "1"}}}
	token, err := k.sign(c)
	if err != nil {
		b.Fatal(err)
	}
	for name, again := range map[string]bool{"first": false, "again": true} {
		b.Run(name, func(b *testing.B) {
			a := &Accounts{issuers: []string{defaultIssuer}, keys: func() (*keys, error) { return k, nil }}
			b.ReportAllocs()
			for b.Loop() {
				hash := sha256.Sum256([]byte(token))
				if again && a.seen(hash) != nil {
					continue
				}
				t, err := parseJWT(token)
				if err != nil || !a.knows(t) {
					b.Fatal(err)
				}
				if _, err := a.verify(hash, t); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkImpersonate is what a request costs that asks for nobody else.
func BenchmarkImpersonate(b *testing.B) {
	r := httptest.NewRequest("GET", "/api", nil)
	r.Header.Set("Accept", "application/json")
	by := &user.DefaultInfo{Name: "alice"}
	b.ReportAllocs()
	for b.Loop() {
		if u, err := Impersonate(r, by, nil); u != nil || err != nil {
			b.Fatal(u, err)
		}
	}
}
