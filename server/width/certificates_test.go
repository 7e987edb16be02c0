package width_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestCertificates: strangers show chains of which each certificate could have signed the first one, with the curve that takes
// longest, and ask for little. What has signed it isn't among them, so all are tried.
func TestCertificates(t *testing.T) {
	const requests = 100
	authority := credentials.NewAuthority(t, "clients")
	s := servertest.New(t, func(s *server.Server) { s.TLS.On, s.Access.ClientCAFile = true, authority.File })
	for _, length := range []int{8, 95} { // as many as are looked at, and as many as Go tries
		chain := alike(t, length)
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return chain, nil }}}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		name := fmt.Sprint(requests, " requests with ", length, " certificates")
		check(t, name, measure(t, name, func() {
			for range requests {
				res, err := client.Get(s.URL + "/api")
				if err != nil {
					t.Fatal(err)
				}
				io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if res.StatusCode != http.StatusUnauthorized {
					t.Fatalf("%d certificates: %s", length, res.Status)
				}
			}
		}))
	}
}

// alike returns a chain of so many certificates that have one subject and are issued by it, none of them by another.
func alike(t *testing.T, length int) *tls.Certificate {
	key := func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	issuer, chain := key(), &tls.Certificate{}
	for i := range length {
		own := key()
		template := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i) + 1), Subject: pkix.Name{CommonName: "eve"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		}
		der, err := x509.CreateCertificate(rand.Reader, template, &x509.Certificate{Subject: template.Subject}, own.Public(), issuer)
		if err != nil {
			t.Fatal(err)
		}
		chain.Certificate = append(chain.Certificate, der)
		if i == 0 {
			chain.PrivateKey = own
		}
	}
	return chain
}
