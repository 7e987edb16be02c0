package secrets

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
)

// Shown are the certificates that a server shows: they may change. It's safe for concurrent use.
type Shown struct{ now atomic.Pointer[certificates] }

// certificates are those that are shown at a time.
type certificates struct {
	main  *tls.Certificate
	named map[string]*tls.Certificate // by lower-case names, of which one may begin with "*.", and addresses
}

// of returns the certificate for a client: by the name that it asks for or, without one, by the address that it came to.
func (c *certificates) of(hello *tls.ClientHelloInfo) *tls.Certificate {
	name := strings.ToLower(strings.TrimSuffix(hello.ServerName, "."))
	if name == "" && hello.Conn != nil {
		name, _, _ = net.SplitHostPort(hello.Conn.LocalAddr().String())
	}
	if found := c.named[name]; found != nil {
		return found
	}
	if _, domain, ok := strings.Cut(name, "."); ok {
		if found := c.named["*."+domain]; found != nil {
			return found
		}
	}
	return c.main
}

// named reads the further certificates. As with kube-apiserver, the first that has a name counts, and names that a flag says before those that
// a certificate says.
func (o TLS) named(log *slog.Logger) (map[string]*tls.Certificate, error) {
	said, found := map[string]*tls.Certificate{}, map[string]*tls.Certificate{}
	for _, from := range slices.Backward(o.Named) {
		if err := private.Secret(from.KeyFile, log); err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		pair, err := tls.LoadX509KeyPair(from.CertFile, from.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("--tls-sni-cert-key: %w", err)
		}
		for _, name := range from.Names {
			said[strings.ToLower(name)] = &pair
		}
		if len(from.Names) == 0 {
			for _, name := range append([]string{pair.Leaf.Subject.CommonName}, pair.Leaf.DNSNames...) {
				found[strings.ToLower(name)] = &pair
			}
		}
	}
	for name, pair := range said {
		found[name] = pair
	}
	return found, nil
}

// Serving returns what HTTPS is served with; both are nil without a certificate. asks tells whether clients are asked for one of theirs.
func (o TLS) Serving(certificate *tls.Certificate, asks bool, log *slog.Logger) (*tls.Config, *Shown) {
	if certificate == nil {
		return nil, nil
	}
	named, err := o.named(log)
	if err != nil { // Read could use them
		log.Error("further certificates can't be read any more", "error", err)
	}
	shown := &Shown{}
	shown.now.Store(&certificates{certificate, named})
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.Config != nil {
		config = o.Config.Clone()
	}
	config.Certificates = nil
	config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.now.Load().of(hello), nil }
	if asks && config.ClientAuth == tls.NoClientCert {
		config.ClientAuth = tls.RequestClientCert // package access verifies it
	}
	return config, shown
}

// Rotate shows the certificates in the files of --tls-cert-file, --tls-key-file and --tls-sni-cert-key whenever they have changed, until ctx
// ends: new connections get them. Files that can't be used are logged, and what is shown stays. It returns at once where there are no such files.
func (o TLS) Rotate(ctx context.Context, shown *Shown, log *slog.Logger) {
	var paths []string
	if o.CertFile != "" {
		paths = append(paths, o.CertFile, o.KeyFile)
	}
	for _, from := range o.Named {
		paths = append(paths, from.CertFile, from.KeyFile)
	}
	if shown == nil || len(paths) == 0 {
		return
	}
	used, _ := reload.SumOf(paths...)
	if main, err := o.Read(log); err == nil && o.CertFile != "" && !slices.Equal(main.Certificate[0], shown.now.Load().main.Certificate[0]) {
		used = reload.Sum{} // it has changed since the start
	}
	reload.Files{
		Paths: paths,
		Used:  used,
		Read: func(context.Context) error {
			next := &certificates{main: shown.now.Load().main}
			var err error
			if next.named, err = o.named(log); err == nil && o.CertFile != "" {
				next.main, err = o.Read(log)
			}
			if err == nil {
				shown.now.Store(next)
				log.Info("new certificates are shown", "files", paths, "until", next.main.Leaf.NotAfter)
			}
			return err
		},
		Refused: func(err error) {
			log.Error("the new certificate is refused: the one before is shown", "error", err)
		},
	}.Watch(ctx)
}
