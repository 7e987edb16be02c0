package hookclient

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/egress"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/internal/connections"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

const (
	// maxHeaderBytes is plenty for headers of which none but the Content-Type is read. net/http's default is 10 MiB.
	maxHeaderBytes = 64 << 10
	// dialTimeout bounds connecting, and the handshake, where the caller's context doesn't. It's what Kubernetes
	// gives a webhook by default, in all.
	dialTimeout = 10 * time.Second
	// Idle connections spare a handshake to calls that follow shortly.
	maxIdle     = 2
	idleTimeout = 30 * time.Second
	// callShare lets one flow (see package fair) have so many times the calls that it leaves to others: three quarters.
	callShare = 3
	// noLimit is how long a call waits for its turn: as long as its context lasts.
	noLimit = math.MaxInt64 * time.Nanosecond
	// ServicePort is the port of a service of which none is named, as in kube-apiserver.
	ServicePort = 443

	jsonType = "application/json"
)

// ErrClosed is returned by Begin when the Client was closed.
var ErrClosed = errors.New("the webhook's client is closed")

// ErrTooLarge is returned by Post for an answer of more than MaxAnswer bytes. It comes with the bound.
var ErrTooLarge = errors.New("is larger")

// Config says what a Client calls. It has a URL or a Service.
type Config struct {
	URL      string
	Service  *Service
	CABundle []byte // certificates in PEM; empty for the system's
	// MaxCalls bounds the requests under way at once, and with them connections and memory: about MaxAnswer bytes each,
	// twice while an answer is taken apart. Others wait for a slot.
	MaxCalls  int
	MaxAnswer int64 // bytes
}

// Service is a Service that is called, by the name NAME.NAMESPACE.svc, which its certificate must have.
type Service struct {
	Namespace, Name string
	Path            string // of the URL
	Port            int32  // of the Service; 0 for ServicePort
}

// host is the name by which a service is called.
func (s *Service) host() string {
	port := cmp.Or(s.Port, ServicePort)
	return net.JoinHostPort(s.Name+"."+s.Namespace+".svc", strconv.Itoa(int(port)))
}

// Network is how webhooks are reached.
type Network struct {
	Policy
	// Ways lead to webhooks, those with a URL by ControlPlane and those at a Service by Cluster. Where there is a way, the Policy says nothing: who
	// started the server has named the proxy.
	Ways egress.Ways
	// Resolve finds the address (host and port) at which a Service is served now. nil: there are no services.
	Resolve func(ctx context.Context, s Service) (address string, err error)
	// Log is told at which address a webhook couldn't be called whose URL has a name: errors don't say it, because whoever
	// writes a webhook could ask by them what names resolve to. nil: nobody is.
	Log *slog.Logger
}

// Client calls one webhook. Its methods may be called concurrently. It must be closed.
type Client struct {
	url       *url.URL
	maxAnswer int64
	log       *slog.Logger // nil: none
	transport *http.Transport
	slots     *fair.Level // of which each request under way has one

	calls       sync.WaitGroup  // from Begin to Done
	connections connections.Set // a dial may go on after the call that wanted it has ended

	mu     sync.Mutex // guards closed
	closed bool       // Begin refuses
}

// New returns a client. Nothing is dialled before the first Post. An error says which part of the configuration is wrong.
func New(config Config, n Network) (*Client, error) {
	pool, err := roots(config.CABundle)
	if err != nil {
		return nil, err
	}
	c := &Client{maxAnswer: config.MaxAnswer, log: n.Log}
	c.slots = fair.NewLevel(fair.Limits{Most: config.MaxCalls, Times: callShare, PerFlow: math.MaxInt, Waiting: math.MaxInt})
	if s := config.Service; s != nil {
		if n.Resolve == nil {
			return nil, errors.New("clientConfig.service: this server has no services that it could call; use url")
		}
		c.url = &url.URL{Scheme: "https", Host: s.host(), Path: s.Path}
	} else if c.url, err = url.Parse(config.URL); err != nil {
		return nil, errors.New("clientConfig.url isn't a URL")
	}
	// As Kubernetes' client does: with two slashes, which is what envtest makes, a Go webhook would redirect.
	c.url.Path, c.url.RawPath = path.Join("/", c.url.Path), ""
	// HTTP/1.1 alone, as in Kubernetes: calls spread over a webhook's backends (k8s#75791), and one that finds
	// its kept connection closed is repeated by net/http. Proxy is left nil: it would be what is dialled, and
	// the policy couldn't see what the proxy dials.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	c.transport = &http.Transport{
		DialContext:            c.dialer(n, config.Service),
		TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    dialTimeout,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxConnsPerHost:        config.MaxCalls,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return c, nil
}

// Calls returns how many requests are under way.
func (c *Client) Calls() int {
	taken, _ := c.slots.Now()
	return taken
}

// Connections returns how many connections are open.
func (c *Client) Connections() int { return c.connections.Len() }

// Begin must come before calls of Post, and Done after them: Close waits for Done. It returns ErrClosed after Close.
func (c *Client) Begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// Done ends what a Begin without an error began.
func (c *Client) Done() { c.calls.Done() }

// Close refuses further calls, waits for those under way (their contexts can end them) and closes the
// connections. It may be called more than once, and each call waits.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()

	c.calls.Wait()
	c.connections.Refuse()
	c.transport.CloseIdleConnections() // also ends dials that nobody waits for any more
	c.connections.Close()              // what is left was made for calls which didn't wait for it
}

func (c *Client) dialer(n Network, s *Service) func(ctx context.Context, network, address string) (net.Conn, error) {
	dial, way := (&net.Dialer{Timeout: dialTimeout, Control: n.Control}).DialContext, n.Ways.ControlPlane
	if s != nil {
		way = n.Ways.Cluster
	}
	if way != nil {
		dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			made, err := way(ctx, network, address)
			if err != nil && ctx.Err() == nil {
				c.note(err)
				err = ErrNoWay
			}
			return made, err
		}
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		return c.connections.Dial(func() (net.Conn, error) {
			if s != nil {
				var err error
				if address, err = n.Resolve(ctx, *s); err != nil {
					return nil, &unresolvedError{err}
				}
			}
			return dial(ctx, network, address)
		})
	}
}

// ErrNoWay is what a client is told of a proxy through which no connection is made: not where the proxy is.
var ErrNoWay = errors.New("the egress proxy makes no connection to it")

// unresolvedError is returned when a service has no address.
type unresolvedError struct{ cause error }

func (e *unresolvedError) Error() string { return e.cause.Error() }

// Post sends a JSON document and returns what was answered with success, unchecked but not empty: as kube-apiserver, it takes any Content-Type.
// query is added to the URL. An error is in the words of Kubernetes' client. It has nothing of the answer but its code and its Content-Type, and wraps
// ctx's if that has ended. Calls are repeated only if a kept connection turns out to be closed.
func (c *Client) Post(ctx context.Context, body []byte, query url.Values) ([]byte, error) {
	target := *c.url
	target.RawQuery = query.Encode()
	uncalled := func(err error) error { return &url.Error{Op: "Post", URL: target.String(), Err: c.told(ctx, err)} }
	slot, err := c.slots.Enter(ctx, fair.FromContext(ctx), 1, noLimit)
	if err != nil {
		return nil, uncalled(err)
	}
	defer slot.Leave()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{
		"Accept":       {jsonType + ", */*"},
		"Content-Type": {jsonType},
		"User-Agent":   {"apiserver-lite"},
		// Not sent: it tells net/http that the call may be repeated when an idle connection turns out closed.
		"Idempotency-Key": {},
	}
	tracing.Inject(ctx, request.Header)
	response, err := c.transport.RoundTrip(request) // it follows no redirects, unlike a http.Client
	if err != nil {
		return nil, uncalled(err)
	}
	defer response.Body.Close()
	if err := checkCode(response.StatusCode); err != nil {
		return nil, err
	}
	answer, err := c.readAnswer(response)
	switch {
	case err != nil:
		return nil, fmt.Errorf("unexpected error when reading response body. Please retry. Original error: %w", c.told(ctx, err))
	case len(answer) == 0:
		contentType := cmp.Or(response.Header.Get("Content-Type"), jsonType)
		return nil, fmt.Errorf("0-length response with status code: %d and content type: %s", response.StatusCode, Quote(contentType))
	}
	return answer, nil
}

// checkCode refuses a code that isn't one of success. What came with it isn't looked at.
func checkCode(code int) error {
	const unsaid = "unknown"
	switch {
	case code >= 200 && code <= http.StatusPartialContent:
		return nil
	case code >= 300 && code < 400:
		return fmt.Errorf("it answered with a redirect (%d), which isn't followed: configure the URL that it leads to", code)
	}
	said := apierrors.NewGenericServerResponse(code, http.MethodPost, schema.GroupResource{}, "", unsaid, 0, true).Error()
	if said == unsaid {
		said = fmt.Sprintf("the server responded with the status code %d but did not return more information", code)
	}
	return errors.New(said)
}

func (c *Client) readAnswer(response *http.Response) ([]byte, error) {
	tooLarge := fmt.Errorf("its answer %w than %d bytes", ErrTooLarge, c.maxAnswer)
	if response.ContentLength > c.maxAnswer {
		return nil, tooLarge
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, c.maxAnswer+1))
	if err == nil && int64(len(answer)) > c.maxAnswer {
		err = tooLarge
	}
	return answer, err
}

// told returns an error of a call as the client may be told it.
func (c *Client) told(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, ErrTooLarge):
		return err
	}
	return c.withoutAddress(withoutAnswer(err))
}

// withoutAnswer returns an error of the connection without what was received: net/http quotes what it can't
// parse. Errors of the system and of TLS have none of that, but certificates' names.
func withoutAnswer(err error) error {
	var (
		refused     *refusedError
		unresolved  *unresolvedError
		certificate *tls.CertificateVerificationError
		network     *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &unresolved):
		return errors.New(Quote(unresolved.Error()))
	case errors.As(err, &certificate):
		return errors.New(Quote(certificate.Error()))
	case errors.As(err, &network):
		return network
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("it doesn't speak TLS at that port")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return errors.New("the connection broke, or what came isn't HTTP over TLS")
}

// withoutAddress returns an error of the connection for the client, which may be told an address only if the URL has it.
func (c *Client) withoutAddress(err error) error {
	var (
		refused *refusedError
		network *net.OpError
	)
	_, literal := netip.ParseAddr(c.url.Hostname())
	switch named := literal != nil; {
	case errors.As(err, &network) && named:
		c.note(err)
		return errors.New(Quote((&net.OpError{Op: network.Op, Net: network.Net, Err: withoutServer(network.Err)}).Error()))
	case errors.As(err, &network):
		return errors.New(Quote(network.Error()))
	case errors.As(err, &refused) && named:
		c.note(err)
		return errors.New(refusal("of " + Quote(c.url.Hostname())))
	}
	return err
}

// withoutServer returns an error without the address of the server of names that was asked.
func withoutServer(err error) error {
	var lookup *net.DNSError
	if !errors.As(err, &lookup) {
		return err
	}
	plain := *lookup
	plain.Server = ""
	return &plain
}

// note logs what the client isn't told.
func (c *Client) note(err error) {
	if c.log != nil {
		c.log.Warn("a webhook can't be reached", "host", c.url.Host, "error", err)
	}
}
