package aggregator

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

const (
	// dialTimeout bounds connecting, and the handshake, where no context does.
	dialTimeout = 10 * time.Second
	// maxIdle and idleTimeout bound the connections that are kept for the next request.
	maxIdle     = 25
	idleTimeout = 90 * time.Second
	// pingAfter and pingTimeout find out that the machine at the other end of an HTTP/2 connection is gone, as Kubernetes'
	// clients do.
	pingAfter, pingTimeout = 30 * time.Second, 15 * time.Second
	// maxHeaderBytes bounds the headers of an answer.
	maxHeaderBytes = 1 << 20
	// rereadAfter is for how long the files of the certificate count as read.
	rereadAfter = time.Second
)

// clients reach one server.
type clients struct {
	err     error           // why there are none
	any     *http.Transport // HTTP/2, or HTTP/1.1
	upgrade *http.Transport // HTTP/1.1, whose connections can become something else
}

// newClients returns the clients for what an APIService says. The server's certificate must have the name of the Service.
func (a *Aggregator) newClients(spec apiregistrationv1.APIServiceSpec) *clients {
	config := &tls.Config{
		MinVersion:           tls.VersionTLS12,
		ServerName:           spec.Service.Name + "." + spec.Service.Namespace + ".svc",
		InsecureSkipVerify:   spec.InsecureSkipTLSVerify, // whoever writes the APIService has decided so
		GetClientCertificate: a.certificate.get,
	}
	if len(spec.CABundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(spec.CABundle) {
			return &clients{err: errors.New("unable to load root certificates: unable to parse bytes as PEM block")}
		}
	}
	transport := func(http2 bool) *http.Transport {
		t := &http.Transport{
			DialContext:            a.dial,
			TLSClientConfig:        config.Clone(),
			TLSHandshakeTimeout:    dialTimeout,
			DisableCompression:     true, // the client's wish goes through
			MaxIdleConns:           maxIdle,
			MaxIdleConnsPerHost:    maxIdle,
			IdleConnTimeout:        idleTimeout,
			MaxResponseHeaderBytes: maxHeaderBytes,
			Protocols:              new(http.Protocols),
			HTTP2:                  &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout},
		}
		// Proxy is left nil, as for webhooks: the policy couldn't see what a proxy dials.
		t.Protocols.SetHTTP1(true)
		t.Protocols.SetHTTP2(http2)
		return t
	}
	const http2 = true
	return &clients{any: transport(http2), upgrade: transport(!http2)}
}

// retire ends the connections that nobody uses. Those in use end when they're idle.
func (c *clients) retire() {
	if c.err == nil {
		c.any.CloseIdleConnections()
		c.upgrade.CloseIdleConnections()
	}
}

// errRefused is what a client may know of an address that isn't allowed: not what a name has resolved to.
var errRefused = errors.New("its address isn't allowed: aggregated API servers are called at public addresses, and at those that this server is configured to allow")

// dial connects to an address that the policy allows, or by the way, if there is one.
func (a *Aggregator) dial(ctx context.Context, network, address string) (net.Conn, error) {
	dial := (&net.Dialer{Timeout: dialTimeout, Control: a.policy.Control}).DialContext
	if a.way != nil {
		dial = a.way
	}
	made, err := a.connections.Dial(func() (net.Conn, error) { return dial(ctx, network, address) })
	if errors.Is(err, hookclient.ErrRefused) {
		a.log.Warn("an aggregated API server can't be reached", "address", address, "error", err)
		return nil, errRefused
	}
	if err != nil && a.way != nil && ctx.Err() == nil {
		a.log.Warn("an aggregated API server can't be reached", "address", address, "error", err)
		return nil, hookclient.ErrNoWay
	}
	return made, err
}

// Certificate is what servers are shown. Its files are read again when they change; if they can't be used then, what was read
// last stays.
type Certificate struct {
	certFile, keyFile string // "" for none
	log               *slog.Logger

	mu        sync.Mutex // guards the following; held while the files are read, which are small
	read      time.Time
	cert, key []byte
	pair      *tls.Certificate
}

// ReadCertificate reads the files of the options. An error names their flags.
func ReadCertificate(o Options, log *slog.Logger) (*Certificate, error) {
	c := &Certificate{certFile: o.ProxyClientCertFile, keyFile: o.ProxyClientKeyFile, log: log, pair: &tls.Certificate{}}
	if c.certFile == "" {
		return c, nil
	}
	if err := private.Secret(c.keyFile, log); err != nil {
		return nil, fmt.Errorf("--proxy-client-key-file: %w", err)
	}
	if err := c.rereadLocked(time.Now()); err != nil {
		return nil, fmt.Errorf("--proxy-client-cert-file, --proxy-client-key-file: %w", err)
	}
	return c, nil
}

func (c *Certificate) rereadLocked(now time.Time) error {
	c.read = now
	cert, err := os.ReadFile(c.certFile)
	if err != nil {
		return err
	}
	key, err := os.ReadFile(c.keyFile)
	if err != nil || bytes.Equal(cert, c.cert) && bytes.Equal(key, c.key) {
		return err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return err
	}
	c.cert, c.key, c.pair = cert, key, &pair
	return nil
}

// get returns the certificate for a handshake. Without files it's an empty one, which TLS takes for none.
func (c *Certificate) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); c.certFile != "" && now.Sub(c.read) >= rereadAfter {
		if err := c.rereadLocked(now); err != nil {
			c.log.Error("the certificate of --proxy-client-cert-file can't be read; the one that was read before stays", "error", err)
		}
	}
	return c.pair, nil
}
