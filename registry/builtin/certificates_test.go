package builtin_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// testKey is always the same.
var testKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

// stubRequest is a PKCS#10 request that names nothing.
func stubRequest() []byte {
	request, err := x509.CreateCertificateRequest(nil, &x509.CertificateRequest{}, testKey)
	if err != nil {
		panic(err)
	}
	return request
}

func asPEM(kind string, content []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
}

// requestText is a request as CertificateSigningRequests have it in JSON.
func requestText() string {
	return base64.StdEncoding.EncodeToString(asPEM("CERTIFICATE REQUEST", stubRequest()))
}

// certificate returns one of the test's key as PEM, an authority's or none.
func certificate(authority bool, begin, end time.Time) []byte {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: begin, NotAfter: end, IsCA: authority, BasicConstraintsValid: true}
	made, err := x509.CreateCertificate(nil, template, template, testKey.Public(), testKey)
	if err != nil {
		panic(err)
	}
	return asPEM("CERTIFICATE", made)
}

// TestPodCertificates: a request is answered once, with a certificate of its own key and with times that are the certificate's.
func TestPodCertificates(t *testing.T) {
	s := servertest.New(t, all)
	const path = "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests"
	must(t, s, http.MethodPost, path, fmt.Sprintf(`{"metadata":{"name":"a"},"spec":{"signerName":"example.com/s","podName":"p","podUID":"u","serviceAccountName":"s","serviceAccountUID":"u","nodeName":"n","nodeUID":"u","stubPKCS10Request":%q}}`,
		base64.StdEncoding.EncodeToString(stubRequest())), http.StatusCreated)
	begin := time.Now().UTC().Truncate(time.Second)
	end := begin.Add(2 * time.Hour)
	stamp := func(t time.Time) string { return t.Format(time.RFC3339) }
	issue := func(name string, refresh time.Time, chain []byte, want int, says string) {
		t.Helper()
		body := fmt.Sprintf(`{"status":{"conditions":[{"type":"Issued","status":"True","reason":"R","message":"m","lastTransitionTime":%[1]q}],"notBefore":%[1]q,"notAfter":%[2]q,"beginRefreshAt":%[3]q,"certificateChain":%[4]q}}`,
			stamp(begin), stamp(end), stamp(refresh), chain)
		if code, text := do(s, http.MethodPatch, path+"/"+name+"/status", body, "Content-Type", "application/merge-patch+json"); code != want || !strings.Contains(text, says) {
			t.Errorf("%d %s, want %d with %q", code, text, want, says)
		}
	}
	good := certificate(false, begin, end)
	issue("a", begin.Add(time.Hour), nil, http.StatusUnprocessableEntity, "must contain at least one certificate")
	issue("a", begin, good, http.StatusUnprocessableEntity, "must be at least 10 minutes after status.notBefore")
	issue("a", begin.Add(time.Hour), certificate(false, begin, end.Add(time.Hour)), http.StatusUnprocessableEntity, "must be set to the NotAfter time encoded in the leaf certificate")
	issue("a", begin.Add(time.Hour), good, http.StatusOK, "Issued")
	issue("a", begin.Add(30*time.Minute), good, http.StatusUnprocessableEntity, "immutable after PodCertificateRequest is issued, denied, or failed")
}
