package server

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	// The same in TLS.Dir, by kube-apiserver's names.
	certDirCert = "apiserver.crt"
	certDirKey  = "apiserver.key"
)

// certificateFromFiles returns the certificate of --tls-cert-file, or the one that is in TLS.Dir, or nil.
func (s *Server) certificateFromFiles() (*tls.Certificate, error) {
	if s.TLS.On && s.TLS.Dir != "" {
		return s.certificateFromDir()
	}
	if s.TLS.CertFile == "" {
		return nil, nil
	}
	if err := private.Secret(s.TLS.KeyFile, s.log()); err != nil {
		return nil, fmt.Errorf("--tls-key-file: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(s.TLS.CertFile, s.TLS.KeyFile)
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
	if host, _, err := net.SplitHostPort(cmp.Or(s.Serving.Listen, DefaultListen)); err == nil && host != "" {
		hosts = append(hosts, host)
	}
	for _, host := range s.Serving.AllowedHosts {
		hosts = append(hosts, hostOnly(host))
	}
	return hosts
}

// certDirPaths are where the certificate of TLS.Dir is, and its key.
func (s *Server) certDirPaths() (cert, key string) {
	return filepath.Join(s.TLS.Dir, certDirCert), filepath.Join(s.TLS.Dir, certDirKey)
}

// certificateFromDir returns the certificate that is in TLS.Dir, nil if there's none.
func (s *Server) certificateFromDir() (*tls.Certificate, error) {
	if err := private.Place(s.TLS.Dir); err != nil {
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

// ownCertificate returns the certificate of --tls that is made for this server: in TLS.Dir, which has none yet, or in the data
// directory, where one is kept.
func (s *Server) ownCertificate(dataDir string, now time.Time) (*tls.Certificate, error) {
	if s.TLS.Dir == "" {
		return s.selfSigned(dataDir, s.certificateHosts(), now)
	}
	certPath, keyPath := s.certDirPaths()
	pair, err := leaveCertificate(certPath, keyPath, s.certificateHosts(), now)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return pair, nil
}

// leaveCertificate makes a certificate and leaves it in files, in a directory that is made if it's missing.
func leaveCertificate(certPath, keyPath string, hosts []string, now time.Time) (*tls.Certificate, error) {
	certPEM, keyPEM, err := wire.NewCertificate(hosts, now)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(certPath), 0o755)
	}
	if err == nil {
		// The key goes first: a certificate without its key is made anew at the next start.
		err = errors.Join(replaceFile(keyPath, keyPEM), replaceFile(certPath, certPEM))
	}
	if err != nil {
		return nil, err
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
	if s.TLS.Config != nil {
		config = s.TLS.Config.Clone()
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
	if pair, err := tls.LoadX509KeyPair(certPath, keyPath); err == nil && wire.Usable(pair.Leaf, hosts, now) {
		if err := private.Secret(keyPath, s.log()); err != nil {
			return nil, fmt.Errorf("--tls: %w", err)
		}
		return &pair, nil
	}
	pair, err := leaveCertificate(certPath, keyPath, hosts, now)
	if err != nil {
		return nil, fmt.Errorf("--tls: %w", err)
	}
	return pair, nil
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
