package secrets

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"strings"
	"time"
)

const (
	// certificateLifetime is that of kube-apiserver's own certificate from kubeadm.
	certificateLifetime = 365 * 24 * time.Hour
	// certificateRenew is how long before its end a certificate is replaced at the start: a server may run as long as that.
	certificateRenew = 30 * 24 * time.Hour
)

// usable tells whether a certificate that newCertificate made still does: it isn't about to end, names all hosts, and could sign no
// others.
func usable(cert *x509.Certificate, hosts []string, now time.Time) bool {
	if cert.IsCA || now.Before(cert.NotBefore) || now.Add(certificateRenew).After(cert.NotAfter) {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// newCertificate returns a certificate for hosts, and its key, which nobody but itself has signed.
func newCertificate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	// RFC 5280 allows 20 bytes, and what is guessed must not collide: 127 bits are always positive.
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "apiserver-lite"},
		NotBefore:             now.Add(-time.Hour), // clocks differ
		NotAfter:              now.Add(certificateLifetime),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  false, // clients trust this one certificate, and nothing that its key might sign
		BasicConstraintsValid: true,
	}
	for _, host := range hosts {
		if ip := net.ParseIP(strings.Trim(host, "[]")); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), nil
}
