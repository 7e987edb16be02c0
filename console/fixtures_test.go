package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"testing"
	"time"
)

// widgets is a definition of a kind with all that a form can have.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, shortNames: [wd]}
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Color, type: string, jsonPath: .spec.color}
    schema:
      openAPIV3Schema:
        type: object
        description: A Widget is something that a shop sells.
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            properties:
              size: {type: integer, minimum: 1, maximum: 100, description: How large it is.}
              color: {type: string, enum: [red, green, blue], default: green}
              fragile: {type: boolean}
              parts: {type: array, items: {type: object, required: [name], properties: {name: {type: string, maxLength: 10}}}}
              tags: {type: object, additionalProperties: {type: string}}
`

const widgetsPath = "/apis/example.com/v1/namespaces/default/widgets"

// defineWidgets stores the definition and waits until it's served.
func (p *process) defineWidgets() {
	p.t.Helper()
	p.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", widgets)
	p.ask("GET", widgetsPath, "")
}

// clientCertificate makes an authority, whose certificate it writes to a file, and returns a certificate of mary by it, of the group
// system:masters.
func clientCertificate(t *testing.T, file string) tls.Certificate {
	t.Helper()
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	mary := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "mary", Organization: []string{"system:masters"}}, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	var keys [2]*ecdsa.PrivateKey
	for i := range keys {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		keys[i] = key
	}
	signed := func(of *x509.Certificate, key *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificate(rand.Reader, of, authority, key.Public(), keys[0])
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed(authority, keys[0])}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed(mary, keys[1])}, PrivateKey: keys[1]}
}

// newProxy starts a proxy that passes on what it's asked to a server, to which it shows a certificate. It returns its URL.
func newProxy(t *testing.T, to string, shows tls.Certificate) string {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{shows}, InsecureSkipVerify: true}}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport, FlushInterval: -1})
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
		transport.CloseIdleConnections()
	})
	return proxy.URL
}
