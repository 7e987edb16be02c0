// Package secrets has what a server keeps to itself, in files or in the store: its certificate's key, the tokens that it takes, and the
// key that signs ServiceAccounts' tokens.
package secrets

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

const (
	certFile = "tls.crt"
	keyFile  = "tls.key"
	// The same in TLS.Dir, by kube-apiserver's names.
	certDirCert = "apiserver.crt"
	certDirKey  = "apiserver.key"
)

// TLS says whether and how a Server serves HTTPS.
type TLS struct {
	// On serves HTTPS with a certificate that the server makes for itself and keeps in the data
	// directory (tls.crt, tls.key).
	On bool

	// Dir, if set, is where TLS keeps the server's certificate, as apiserver.crt and apiserver.key: a pair that is there
	// is used as it is. Defaults to the data directory, where one that doesn't fit is made anew.
	Dir string

	// Config, if set, is what HTTPS begins from: versions, cipher suites, key exchanges. Its certificates don't count.
	Config *tls.Config

	// CertFile and KeyFile are PEM files to serve HTTPS with. The key must not be readable for
	// everybody, or writable for group or others.
	CertFile, KeyFile string

	// Named are further certificates, for clients that ask for one of their names (SNI), or at one of their addresses.
	Named []cliflag.NamedCertKey
}

// AddNamed adds kube-apiserver's flag of further certificates.
func (o *TLS) AddNamed(set *pflag.FlagSet) {
	set.Var(cliflag.NewNamedCertKeyArray(&o.Named), "tls-sni-cert-key", "further certificate, as CERT,KEY or CERT,KEY:NAME,... where the names in the certificate don't count; may be given several times")
}

// Validate tells the first setting that can't work, by the name of its flag.
func (o TLS) Validate() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file need each other")
	case o.On && o.CertFile != "":
		return errors.New("--tls makes a certificate; leave it out where --tls-cert-file brings one")
	case len(o.Named) > 0 && !o.On && o.CertFile == "":
		return errors.New("--tls-sni-cert-key needs HTTPS: set --tls, or --tls-cert-file and --tls-key-file")
	}
	return nil
}

// Read returns the certificate of --tls-cert-file, or the one that is in TLS.Dir, or nil. It refuses further ones that can't be used, too.
func (o TLS) Read(log *slog.Logger) (*tls.Certificate, error) {
	if _, err := o.named(log); err != nil {
		return nil, err
	}
	if o.On && o.Dir != "" {
		return o.fromDir(log)
	}
	if o.CertFile == "" {
		return nil, nil
	}
	if err := private.Secret(o.KeyFile, log); err != nil {
		return nil, fmt.Errorf("--tls-key-file: %w", err)
	}
	pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert-file, --tls-key-file: %w", err)
	}
	return &pair, nil
}

// paths are where the certificate of TLS.Dir is, and its key.
func (o TLS) paths() (cert, key string) {
	return filepath.Join(o.Dir, certDirCert), filepath.Join(o.Dir, certDirKey)
}

// fromDir returns the certificate that is in TLS.Dir, nil if there's none.
func (o TLS) fromDir(log *slog.Logger) (*tls.Certificate, error) {
	if err := private.Place(o.Dir); err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	certPath, keyPath := o.paths()
	pair, err := tls.LoadX509KeyPair(certPath, keyPath)
	switch {
	case err == nil:
		if err := private.Secret(keyPath, log); err != nil {
			return nil, fmt.Errorf("--cert-dir: %w", err)
		}
		return &pair, nil
	case !missing(certPath) || !missing(keyPath):
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return nil, nil
}

// Make returns the certificate of --tls that is made for this server: in TLS.Dir, which has none yet, or in the data
// directory, where one is kept.
func (o TLS) Make(dataDir string, hosts []string, now time.Time, log *slog.Logger) (*tls.Certificate, error) {
	if o.Dir == "" {
		return selfSigned(dataDir, hosts, now, log)
	}
	certPath, keyPath := o.paths()
	pair, err := leaveCertificate(certPath, keyPath, hosts, now)
	if err != nil {
		return nil, fmt.Errorf("--cert-dir: %w", err)
	}
	return pair, nil
}

// leaveCertificate makes a certificate and leaves it in files, in a directory that is made if it's missing.
func leaveCertificate(certPath, keyPath string, hosts []string, now time.Time) (*tls.Certificate, error) {
	certPEM, keyPEM, err := newCertificate(hosts, now)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(certPath), 0o755)
	}
	if err == nil {
		// The key goes first: a certificate without its key is made anew at the next start.
		err = errors.Join(ReplaceFile(keyPath, keyPEM), ReplaceFile(certPath, certPEM))
	}
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	return &pair, err
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, os.ErrNotExist)
}

// selfSigned returns the certificate kept in dir, or makes a new one there if there is none, or if it's
// about to end, can't be read, doesn't name all hosts, or could sign others. Clients trust it by its file.
func selfSigned(dir string, hosts []string, now time.Time, log *slog.Logger) (*tls.Certificate, error) {
	certPath, keyPath := filepath.Join(dir, certFile), filepath.Join(dir, keyFile)
	if pair, err := tls.LoadX509KeyPair(certPath, keyPath); err == nil && usable(pair.Leaf, hosts, now) {
		if err := private.Secret(keyPath, log); err != nil {
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

// ReplaceFile writes a file of mode 0600, whole or not at all. CreateTemp gives that mode from the first
// moment, whatever the umask.
func ReplaceFile(path string, data []byte) error {
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
