package server

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	// The same in CertDir, by kube-apiserver's names.
	certDirCert = "apiserver.crt"
	certDirKey  = "apiserver.key"

	certLifetime = 365 * 24 * time.Hour // that of kube-apiserver's own certificate from kubeadm
	certRenew    = 30 * 24 * time.Hour  // a certificate that ends sooner is replaced at start: a server may run as long as that
)

// certificateFromFiles returns the certificate of --tls-cert-file, or the one that is in CertDir, or nil.
func (s *Server) certificateFromFiles() (*tls.Certificate, error) {
	if s.TLS && s.CertDir != "" {
		return s.certificateFromDir()
	}
	if s.TLSCertFile == "" {
		return nil, nil
	}
	if err := private.Secret(s.TLSKeyFile, s.log()); err != nil {
		return nil, fmt.Errorf("--tls-key-file: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	return &pair, nil
}

// certificateHosts is what clients may call the server: loopback, the machine's name, and what the
// flags say.
func (s *Server) certificateHosts() []string {
	hosts := []string{"localhost", "127.0.0.1", "::1"}
	if name, err := os.Hostname(); err == nil && name != "" {
		hosts = append(hosts, name)
	}
	if host, _, err := net.SplitHostPort(cmp.Or(s.Listen, DefaultListen)); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	for _, host := range s.AllowedHosts {
		hosts = append(hosts, hostOnly(host))
	}
	return hosts
}

// certDirPaths are where the certificate of CertDir is, and its key.
func (s *Server) certDirPaths() (cert, key string) {
	return filepath.Join(s.CertDir, certDirCert), filepath.Join(s.CertDir, certDirKey)
}

// certificateFromDir returns the certificate that is in CertDir, nil if there's none.
func (s *Server) certificateFromDir() (*tls.Certificate, error) {
	if err := private.Place(s.CertDir); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	certPath, keyPath := s.certDirPaths()
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	switch {
	case err == nil:
		if err := private.Secret(keyPath, s.log()); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
		return &pair, nil
	case !missing(certPath) || !missing(keyPath):
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return nil, nil
}

// ownCertificate returns the certificate of --tls that is made for this server: in CertDir, which has none yet, or in the data
// directory, where one is kept.
func (s *Server) ownCertificate(dataDir string, now time.Time) (*tls.Certificate, error) {
	if s.CertDir == "" {
		return s.selfSigned(dataDir, s.certificateHosts(), now)
	}
	certPath, keyPath := s.certDirPaths()
	certPEM, keyPEM, err := makeCertificate(s.certificateHosts(), now)
	if err == nil {
		err = os.MkdirAll(s.CertDir, 0o755)
	}
	if err == nil {
		err = errors.Join(replaceFile(keyPath, keyPEM), replaceFile(certPath, certPEM))
	}
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &pair, err
}

// tlsConfig is HTTPS's, with the certificate; nil without one.
func (s *Server) tlsConfig(certificate *tls.Certificate) *tls.Config {
	if certificate == nil {
		return nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TLSConfig != nil {
		config = s.TLSConfig.Clone()
	}
	config.Certificates = []tls.Certificate{*certificate}
	if s.Access.NeedsTLS() && config.ClientAuth == tls.NoClientCert {
		config.ClientAuth = tls.RequestClientCert // package access verifies it
	}
	return config
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// selfSigned returns the certificate kept in dir, or makes a new one there if there is none, or if it's
// about to end, can't be read, doesn't name all hosts, or could sign others. Clients trust it by its file.
func (s *Server) selfSigned(dir string, hosts []string, now time.Time) (*tls.Certificate, error) {
	certPath, keyPath := filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	if pair, err := tls.LoadX509KeyPair(certPath, keyPath); err == nil && usable(pair.Leaf, hosts, now) {
		if err := private.Secret(keyPath, s.log()); err != nil {
			return nil, fmt.Errorf("--tls: %w", err)
		}
		return &pair, nil
	}
	certPEM, keyPEM, err := makeCertificate(hosts, now)
	if err == nil {
		// The key goes first: a certificate without its key is made anew at the next start.
		err = errors.Join(replaceFile(keyPath, keyPEM), replaceFile(certPath, certPEM))
	}
	if err != nil {
		return nil, fmt.Errorf("--tls: %w", err)
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &pair, err
}

func usable(cert *x509.Certificate, hosts []string, now time.Time) bool {
	if cert.IsCA || now.Before(cert.NotBefore) || now.Add(certRenew).After(cert.NotAfter) {
		return false
	}
	for _, host := range hosts {
		if cert.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

func makeCertificate(hosts []string, now time.Time) (certPEM, keyPEM []byte, err error) {
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
		NotAfter:              now.Add(certLifetime),
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

// replaceFile writes a file of mode 0600, whole or not at all. CreateTemp gives that mode from the first
// moment, whatever the umask.
func replaceFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
