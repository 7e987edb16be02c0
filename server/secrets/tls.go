// Package secrets has what a server keeps to itself, in files or in the store: its certificate's key, the tokens that it takes, and the
// key that signs ServiceAccounts' tokens.
package secrets

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
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
}

// Validate tells the first setting that can't work, by the name of its flag.
func (o TLS) Validate() error {
	switch {
	case (o.CertFile == "") != (o.KeyFile == ""):
		return errors.New("--tls-cert-file and --tls-key-file need each other")
	case o.On && o.CertFile != "":
		return errors.New("--tls makes a certificate; leave it out where --tls-cert-file brings one")
	}
	return nil
}

// Read returns the certificate of --tls-cert-file, or the one that is in TLS.Dir, or nil.
func (o TLS) Read(log *slog.Logger) (*tls.Certificate, error) {
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

// Shown is the certificate that a server shows: it may change. It's safe for concurrent use.
type Shown struct {
	now atomic.Pointer[tls.Certificate]
}

// Serving returns what HTTPS is served with; both are nil without a certificate. asks tells whether clients are asked for one of theirs.
func (o TLS) Serving(certificate *tls.Certificate, asks bool) (*tls.Config, *Shown) {
	if certificate == nil {
		return nil, nil
	}
	shown := &Shown{}
	shown.now.Store(certificate)
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Config != nil {
		config = o.Config.Clone()
	}
	config.Certificates, config.GetConfigForClient = nil, nil
	config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.now.Load(), nil }
	if asks && config.ClientAuth == tls.NoClientCert {
		config.ClientAuth = tls.RequestClientCert // package access verifies it
	}
	return config, shown
}

// Rotate shows the certificate in the files of --tls-cert-file and --tls-key-file whenever they have changed, until ctx ends: new connections
// get it. Files that can't be used are logged, and what is shown stays. It returns at once where there are no such files.
func (o TLS) Rotate(ctx context.Context, shown *Shown, log *slog.Logger) {
	if shown == nil || o.CertFile == "" {
		return
	}
	reload.Files{
		Paths: []string{o.CertFile, o.KeyFile},
		Read: func(context.Context) error {
			pair, err := o.Read(log)
			if err == nil {
				shown.now.Store(pair)
				log.Info("a new certificate is shown", "file", o.CertFile, "until", pair.Leaf.NotAfter)
			}
			return err
		},
		Refused: func(err error) {
			log.Error("the new certificate is refused: the one before is shown", "error", err)
		},
	}.Watch(ctx)
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
