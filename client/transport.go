package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// transport is the HTTP transport with the certificates of the moment. When they're replaced, so is the connections' own
// transport: what is open goes on over the old one.
type transport struct {
	o             Options // as they were given
	socket        string
	ca, cert, key *file // nil for those that are no files

	mu   sync.Mutex // guards all below
	now  *http.Transport
	made Options // now is made with its certificates
	bad  string  // why newer ones aren't used; empty if they are
}

func newTransport(o Options, socket string) *transport {
	t := &transport{o: o, socket: socket}
	for _, f := range []struct {
		path string
		file **file
	}{{o.CAFile, &t.ca}, {o.CertFile, &t.cert}, {o.KeyFile, &t.key}} {
		if f.path != "" {
			*f.file = &file{path: f.path}
		}
	}
	return t
}

// RoundTrip is http.RoundTripper's.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	now, err := t.current(r.Context())
	if err != nil {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, err
	}
	return now.RoundTrip(r)
}

// CloseIdleConnections is what http.Client.CloseIdleConnections calls.
func (t *transport) CloseIdleConnections() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.CloseIdleConnections()
}

// unauthorized has files read again that were read before a request was sent which was answered 401.
func (t *transport) unauthorized(sent time.Time) {
	for _, f := range []*file{t.ca, t.cert, t.key} {
		if f != nil {
			f.unauthorized(sent)
		}
	}
}

// current returns the transport with the certificates of the moment. Those that can't be used, a new certificate with the old
// key for example, are logged once, and the ones before them go on.
func (t *transport) current(ctx context.Context) (*http.Transport, error) {
	o, err := t.certificates(ctx)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now != nil && bytes.Equal(o.CA, t.made.CA) && bytes.Equal(o.Cert, t.made.Cert) && bytes.Equal(o.Key, t.made.Key) {
		t.bad = ""
		return t.now, nil
	}
	next, err := o.transport(t.socket)
	switch {
	case err != nil && t.now == nil:
		return nil, err
	case err != nil && t.bad != err.Error():
		t.bad = err.Error()
		o.log().Warn("the new certificates can't be used", "error", err)
		fallthrough
	case err != nil:
		return t.now, nil
	}
	if t.now != nil {
		t.now.CloseIdleConnections()
	}
	t.now, t.made, t.bad = next, o, ""
	return next, nil
}

// certificates returns the options with what is in their files.
func (t *transport) certificates(ctx context.Context) (o Options, err error) {
	o = t.o
	for _, f := range []struct {
		what string
		from *file
		to   *[]byte
	}{{"the authority", t.ca, &o.CA}, {"the client's certificate", t.cert, &o.Cert}, {"the client's key", t.key, &o.Key}} {
		if f.from == nil {
			continue
		}
		if *f.to, err = f.from.get(); err != nil {
			return o, fmt.Errorf("%s: %w", f.what, err)
		}
	}
	if o.GetCert != nil {
		if o.Cert, o.Key, err = o.GetCert(ctx); err != nil {
			return o, fmt.Errorf("get a certificate: %w", err)
		}
	}
	return o, nil
}

const (
	dialTimeout = 30 * time.Second
	// A peer that has gone without a word is noticed by TCP's keep-alives, which Go sends every 15 s, and with HTTP/2
	// by pings.
	pingAfter = 30 * time.Second
	pingWait  = 15 * time.Second
	// idleTimeout is how long a connection is kept that nobody uses, as by net/http's own transport.
	idleTimeout = 90 * time.Second
	// idleConnections that are kept for one server, so that many requests at once don't dial each time.
	idleConnections = 100
)

func (o Options) transport(socket string) (*http.Transport, error) {
	config, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	t := &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: dialTimeout,
		DisableCompression:  !o.Compress,
		MaxIdleConnsPerHost: idleConnections,
		IdleConnTimeout:     idleTimeout,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait},
	}
	if socket != "" {
		t.Proxy = nil
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}
	}
	return t, nil
}

func (o Options) tlsConfig() (*tls.Config, error) {
	config := &tls.Config{ServerName: o.ServerName, InsecureSkipVerify: o.InsecureSkipVerify}
	if len(o.CA) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(o.CA) {
			return nil, errors.New("CA has no PEM certificate")
		}
	}
	if len(o.Cert) > 0 || len(o.Key) > 0 {
		pair, err := tls.X509KeyPair(o.Cert, o.Key)
		if err != nil {
			return nil, fmt.Errorf("the client's certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}
