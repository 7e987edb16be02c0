package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Options of a Client. The zero value suffices for a server on this machine that asks for no token.
type Options struct {
	// Token is the bearer token. Without https whoever sits between can read it.
	Token string
	// TokenFile is a file with the token, which is read again every minute because tokens of pods are replaced.
	TokenFile string
	// GetToken returns the token for each request. It's called by many goroutines at once.
	GetToken func(context.Context) (string, error)
	// CA has the PEM certificates of the authorities that may have signed the server's. Defaults to the system's.
	CA []byte
	// Cert and Key are the client's certificate, as PEM.
	Cert, Key []byte
	// ServerName is the name in the server's certificate. Defaults to the URL's host.
	ServerName string
	// InsecureSkipVerify takes any certificate. UNSAFE: whoever sits between can read and change everything.
	InsecureSkipVerify bool
	// Timeout bounds each request but watches. Defaults to a minute, after which servers give up, too; negative for none.
	Timeout time.Duration
	// UserAgent defaults to the program's name.
	UserAgent string
	// Namespace is what Client.Namespace returns. Defaults to "default".
	Namespace string
	// Compress asks for compressed answers: less network, more CPU on both sides.
	Compress bool
	// HTTP is a client of your own. It must have no Timeout, because watches are long. With it the settings about
	// certificates and compression, and unix sockets, are its Transport's business.
	HTTP *http.Client
	// Log takes warnings from the server, and what goes wrong while a watch is followed. Defaults to slog.Default.
	Log *slog.Logger
}

// Client is a connection to a server; many goroutines may use it. It costs nothing while it isn't used.
type Client struct {
	base      string // scheme, host and path prefix, without a slash at the end
	http      *http.Client
	token     func(context.Context) (string, error)
	timeout   time.Duration
	userAgent string
	namespace string
	log       *slog.Logger

	mu    sync.Mutex        // guards kinds
	kinds map[string]string // by apiVersion/plural
}

// defaultTimeout is how long kube-apiserver works on a request that is no watch.
const defaultTimeout = time.Minute

// New returns a client for the server at a URL: http://host:port, https://host:port/prefix or unix:/path/of/socket.
// It doesn't connect yet.
func New(address string, o Options) (*Client, error) {
	base, socket, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	c := &Client{base: base, http: o.HTTP, timeout: o.Timeout, userAgent: o.UserAgent, namespace: o.Namespace, log: o.Log, kinds: map[string]string{}}
	if c.token, err = o.tokens(); err != nil {
		return nil, err
	}
	if c.http == nil {
		transport, err := o.transport(socket)
		if err != nil {
			return nil, err
		}
		c.http = &http.Client{Transport: transport, CheckRedirect: refuseRedirect}
	}
	if c.timeout == 0 {
		c.timeout = defaultTimeout
	}
	if c.userAgent == "" {
		c.userAgent = fmt.Sprintf("%s (%s/%s) apiserver-lite-client", filepath.Base(os.Args[0]), runtime.GOOS, runtime.GOARCH)
	}
	if c.namespace == "" {
		c.namespace = "default"
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	return c, nil
}

// Namespace returns where the user works: the pod's namespace, the kubeconfig's, or Options.Namespace.
func (c *Client) Namespace() string { return c.namespace }

// CloseIdleConnections closes connections that nobody uses. It's for tests that count goroutines.
func (c *Client) CloseIdleConnections() { c.http.CloseIdleConnections() }

// parseAddress returns what paths are appended to, and the path of a unix socket.
func parseAddress(address string) (base, socket string, err error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if path = strings.TrimPrefix(path, "//"); !strings.HasPrefix(path, "/") {
			return "", "", fmt.Errorf("server %q: a socket needs an absolute path, as unix:/run/apiserver.sock", address)
		}
		return "http://localhost", path, nil
	}
	u, err := url.Parse(address)
	switch {
	case err != nil:
		return "", "", fmt.Errorf("server %q: %w", address, err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", "", fmt.Errorf("server %q: want http://host:port, https://host:port or unix:/path", address)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", errors.New("the server's URL must not have a user, a query or a fragment")
	}
	return strings.TrimRight(u.String(), "/"), "", nil
}

// refuseRedirect hands a redirect to the caller: API servers send none, and the token isn't for others.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

const (
	dialTimeout = 30 * time.Second
	// A peer that has gone without a word is noticed by TCP's keep-alives, which Go sends every 15 s, and with HTTP/2
	// by pings.
	pingAfter = 30 * time.Second
	pingWait  = 15 * time.Second
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
		IdleConnTimeout:     90 * time.Second,
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

// tokens returns where tokens come from, nil if there are none.
func (o Options) tokens() (func(context.Context) (string, error), error) {
	given := 0
	for _, is := range []bool{o.Token != "", o.TokenFile != "", o.GetToken != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return nil, errors.New("give one of Token, TokenFile and GetToken")
	case o.Token != "":
		return func(context.Context) (string, error) { return o.Token, nil }, nil
	case o.TokenFile != "":
		f := &tokenFile{path: o.TokenFile}
		_, err := f.get(context.Background()) // which doesn't use the context
		return f.get, err
	}
	return o.GetToken, nil
}

// tokenFile is a token that is replaced from time to time.
type tokenFile struct {
	path string

	mu    sync.Mutex // guards both below
	token string
	read  time.Time
}

// tokenAge is how long a token that was read from a file is used. Those of pods are valid for at least ten minutes.
const tokenAge = time.Minute

func (f *tokenFile) get(context.Context) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.token != "" && time.Since(f.read) < tokenAge {
		return f.token, nil
	}
	text, err := os.ReadFile(f.path)
	token := strings.TrimSpace(string(text))
	switch {
	case err == nil && token != "":
		f.token, f.read = token, time.Now()
	case f.token != "": // the old one may still do
	case err == nil:
		return "", fmt.Errorf("token file %s is empty", f.path)
	default:
		return "", fmt.Errorf("token file: %w", err)
	}
	return f.token, nil
}

// Where a pod finds its token, the authority and its namespace.
const podDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// InPod returns a client for the server of the pod that the program runs in, with the pod's service account.
func InPod(o Options) (*Client, error) { return inPod(podDirectory, os.Getenv, o) }

func inPod(directory string, getenv func(string) string, o Options) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT aren't set")
	}
	var err error
	if o.CA, err = os.ReadFile(filepath.Join(directory, "ca.crt")); err != nil {
		return nil, fmt.Errorf("the pod's authority: %w", err)
	}
	if o.Namespace == "" {
		namespace, _ := os.ReadFile(filepath.Join(directory, "namespace")) // optional: without it, "default"
		o.Namespace = strings.TrimSpace(string(namespace))
	}
	o.TokenFile = filepath.Join(directory, "token")
	return New("https://"+net.JoinHostPort(host, port), o)
}
