// Package credentials makes what clients of tests show: certificates of an authority, and tokens of an OIDC issuer.
package credentials

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// life is how long before and after now a certificate is valid, unless it's changed.
const life = time.Hour

// Authority issues certificates.
type Authority struct {
	File string // its own certificate, as PEM
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority makes an authority. Two of the same name have different keys.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-life), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a := &Authority{cert: sign(t, template, template, key, key), key: key}
	a.File = write(t, name+".crt", a.PEM())
	return a
}

// PEM returns the authority's certificate as text.
func (a *Authority) PEM() []byte { return certificatePEM(a.cert.Raw) }

// Issue makes a certificate for a client: the name is its common name, the groups are its organizations. change, if it isn't
// nil, may make another one of it.
func (a *Authority) Issue(t testing.TB, name string, groups []string, change func(*x509.Certificate)) *tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name, Organization: groups},
		NotBefore: time.Now().Add(-life), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(template)
	}
	return &tls.Certificate{Certificate: [][]byte{sign(t, template, a.cert, key, a.key).Raw}, PrivateKey: key}
}

// Files writes a certificate and its key to files that go with the test.
func Files(t testing.TB, c *tls.Certificate) (certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "tls.crt", certificatePEM(c.Certificate[0])), write(t, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

func sign(t testing.TB, template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) *x509.Certificate {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func certificatePEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func write(t testing.TB, name string, content []byte) (file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
