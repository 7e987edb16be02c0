package client

import (
	"cmp"
	"context"
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
	// TokenFile is a file with the token. Like all files here it's read again every minute, and when the server answers 401:
	// what mounts have is replaced.
	TokenFile string
	// GetToken returns the token for each request, "" for none. It's called by many goroutines at once.
	GetToken func(context.Context) (string, error)
	// CA has the PEM certificates of the authorities that may have signed the server's. Defaults to the system's.
	CA []byte
	// CAFile is a file with them.
	CAFile string
	// Cert and Key are the client's certificate, as PEM.
	Cert, Key []byte
	// CertFile and KeyFile are files with it. New requests use a new certificate; watches that are open keep theirs.
	CertFile, KeyFile string
	// GetCert returns the client's certificate and its key, as PEM, for each request; nil for none. It's called by many
	// goroutines at once.
	GetCert func(context.Context) (cert, key []byte, err error)
	// Unauthorized is called when a request that was sent at that time was answered 401: GetToken and GetCert should return
	// nothing that is older. The request is sent once more.
	Unauthorized func(sent time.Time)
	// ServerName is the name in the server's certificate. Defaults to the URL's host.
	ServerName string
	// InsecureSkipVerify takes any certificate. UNSAFE: whoever sits between can read and change everything.
	InsecureSkipVerify bool
	// Timeout bounds each request; of a watch, the wait for the head of its answer. Defaults to a minute, after which servers give up, too; negative for none.
	Timeout time.Duration
	// UserAgent defaults to the program's name.
	UserAgent string
	// Namespace is what Client.Namespace returns. Defaults to "default".
	Namespace string
	// Compress asks for compressed answers: less network, more CPU on both sides.
	Compress bool
	// HTTP is a client of your own. It must have no Timeout, because watches are long. With it the settings about
	// certificates, their files and compression, and unix sockets, are its Transport's business.
	HTTP *http.Client
	// Log takes warnings from the server, and what goes wrong while a watch is followed. Defaults to slog.Default.
	Log *slog.Logger
}

// Client is a connection to a server; many goroutines may use it. It costs nothing while it isn't used.
type Client struct {
	base         string // scheme, host and path prefix, without a slash at the end
	http         *http.Client
	token        func(context.Context) (string, error)
	unauthorized []func(sent time.Time) // of those who keep a credential, and may get a newer one
	timeout      time.Duration
	userAgent    string
	namespace    string
	log          *slog.Logger

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
	c := &Client{base: base, http: o.HTTP, timeout: o.Timeout, userAgent: o.UserAgent, namespace: o.Namespace, log: o.log(), kinds: map[string]string{}}
	if err := o.check(); err != nil {
		return nil, err
	}
	if o.Unauthorized != nil {
		c.unauthorized = append(c.unauthorized, o.Unauthorized)
	}
	c.token = o.GetToken
	switch {
	case o.Token != "":
		c.token = func(context.Context) (string, error) { return o.Token, nil }
	case o.TokenFile != "":
		f := &file{path: o.TokenFile}
		if _, err := f.get(); err != nil {
			return nil, fmt.Errorf("token file: %w", err)
		}
		c.token = f.token
		c.unauthorized = append(c.unauthorized, f.unauthorized)
	}
	if c.http == nil {
		t := newTransport(o, socket)
		if _, err := t.current(context.Background()); err != nil {
			return nil, err
		}
		if t.ca != nil || t.cert != nil || t.key != nil {
			c.unauthorized = append(c.unauthorized, t.unauthorized)
		}
		c.http = &http.Client{Transport: t, CheckRedirect: refuseRedirect}
	}
	c.timeout = cmp.Or(c.timeout, defaultTimeout)
	if c.userAgent == "" {
		c.userAgent = fmt.Sprintf("%s (%s/%s) apiserver-lite-client", filepath.Base(os.Args[0]), runtime.GOOS, runtime.GOARCH)
	}
	c.namespace = cmp.Or(c.namespace, "default")
	return c, nil
}

func (o Options) log() *slog.Logger {
	if o.Log == nil {
		return slog.Default()
	}
	return o.Log
}

// check refuses what is given twice.
func (o Options) check() error {
	given := 0
	for _, is := range []bool{o.Token != "", o.TokenFile != "", o.GetToken != nil} {
		if is {
			given++
		}
	}
	switch {
	case given > 1:
		return errors.New("give one of Token, TokenFile and GetToken")
	case len(o.CA) > 0 && o.CAFile != "":
		return errors.New("give one of CA and CAFile")
	case len(o.Cert) > 0 && o.CertFile != "" || len(o.Key) > 0 && o.KeyFile != "":
		return errors.New("give one of Cert and CertFile, and one of Key and KeyFile")
	case o.GetCert != nil && (len(o.Cert) > 0 || len(o.Key) > 0 || o.CertFile != "" || o.KeyFile != ""):
		return errors.New("give GetCert or a certificate")
	}
	return nil
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
	case err != nil && strings.Contains(address, "://"):
		return "", "", fmt.Errorf("server %q: %w", address, err)
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", "", fmt.Errorf("server %q: want http://host:port, https://host:port or unix:/path", address)
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return "", "", errors.New("the server's URL must not have a user, a query or a fragment")
	}
	return strings.TrimRight(u.String(), "/"), "", nil
}

// refuseRedirect hands a redirect to the caller: API servers send none, and the token isn't for others.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Where a pod finds its token, the authority and its namespace.
const podDirectory = "/var/run/secrets/kubernetes.io/serviceaccount"

// InPod returns a client for the server of the pod that the program runs in, with the pod's service account.
func InPod(o Options) (*Client, error) { return inPod(podDirectory, os.Getenv, o) }

func inPod(directory string, getenv func(string) string, o Options) (*Client, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT aren't set")
	}
	o.CAFile = filepath.Join(directory, "ca.crt")
	if o.Namespace == "" {
		namespace, _ := os.ReadFile(filepath.Join(directory, "namespace")) // optional: without it, "default"
		o.Namespace = strings.TrimSpace(string(namespace))
	}
	o.TokenFile = filepath.Join(directory, "token")
	return New("https://"+net.JoinHostPort(host, port), o)
}
