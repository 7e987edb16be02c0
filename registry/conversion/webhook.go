package conversion

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Timeout is how long one request to a webhook may take in all: waiting for a slot, connecting, sending, and
// reading the answer. A context that ends earlier ends it earlier.
const Timeout = 10 * time.Second

const (
	// maxBatchBytes bounds the objects of one request. A larger object is sent alone.
	maxBatchBytes = 1 << 20
	// maxBatchObjects leaves a webhook 20 ms for each object, five times what Kubernetes expects it to take.
	// It's also the size of the pages in which clients list.
	maxBatchObjects = 500
	// maxAnswerBytes lets an answer be three times as large as a batch, or twice as large as the largest object.
	maxAnswerBytes = 3 << 20
	// maxHeaderBytes is plenty for headers of which none but the Content-Type is read. net/http's default is 10 MiB.
	maxHeaderBytes = 64 << 10
	// maxCalls bounds the requests under way at once, and with them connections and memory: about
	// maxAnswerBytes each, twice while an answer is taken apart. Others wait for a slot.
	maxCalls = 16
	// Idle connections spare a handshake to calls that follow shortly.
	maxIdle     = 2
	idleTimeout = 30 * time.Second
)

// ErrClosed is returned by Convert when the Webhook was closed, because its definition was replaced or the
// server stops.
var ErrClosed = errors.New("the conversion webhook's client is closed")

// Webhook calls the webhook of one definition. Its methods may be called concurrently. It must be closed.
type Webhook struct {
	url       string
	version   string // of ConversionReview
	transport *http.Transport
	timeout   time.Duration // Timeout; less in tests
	slots     chan struct{} // of capacity maxCalls, holds a token for each request under way; never closed

	calls sync.WaitGroup // Converts under way
	dials sync.WaitGroup // dials under way; one may go on after the call that wanted it has ended

	mu       sync.Mutex // guards what follows
	closed   bool       // Convert is refused
	finished bool       // and its calls have ended, so nothing is dialled any more
	conns    map[*conn]struct{}
}

// New returns a client for a definition's spec.conversion.webhook. Nothing is dialled before Convert. An error
// says what is wrong with the configuration: what Validate finds, a service, or a caBundle that has no certificate.
func New(c *apiextensionsv1.WebhookConversion, p Policy) (*Webhook, error) {
	if err := Validate(c, field.NewPath("spec", "conversion", "webhook"), p).ToAggregate(); err != nil {
		return nil, err
	}
	if c.ClientConfig.Service != nil {
		return nil, errors.New("spec.conversion.webhook.clientConfig.service: this server has no services that it could call; use url")
	}
	pool, err := roots(c.ClientConfig.CABundle)
	if err != nil {
		return nil, fmt.Errorf("spec.conversion.webhook.%w", err)
	}
	w := &Webhook{
		url:     *c.ClientConfig.URL,
		version: reviewVersion(c.ConversionReviewVersions),
		timeout: Timeout,
		slots:   make(chan struct{}, maxCalls),
		conns:   map[*conn]struct{}{},
	}
	// HTTP/1.1 alone, as in Kubernetes: calls spread over a webhook's backends (k8s#75791), and one that finds
	// its kept connection closed is repeated by net/http. Proxy is left nil: it would be what is dialled, and
	// the policy couldn't see what the proxy dials.
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	w.transport = &http.Transport{
		DialContext:            w.dialer(p),
		TLSClientConfig:        &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    Timeout,
		Protocols:              &protocols,
		DisableCompression:     true,
		MaxConnsPerHost:        maxCalls,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeaderBytes,
	}
	return w, nil
}

// Convert asks the webhook to make objects, which may be of several versions of one group, into apiVersion
// (group/version). Each is JSON as the webhook is to see it, so with its resourceVersion. They aren't changed.
//
// What comes back is in the same order, in the form in which objects are stored: compact, top-level fields
// and those of metadata sorted, without resourceVersion. Below that, values are as the webhook wrote them. An
// object that has that apiVersion already isn't sent, and its place is nil.
//
// An error means that nothing was converted. It says what went wrong with which object, in Kubernetes' words,
// and has nothing of the answer but the message of a failure. It wraps ctx's error if that has ended, and is
// ErrClosed after Close. Calls are repeated only if a kept connection turns out to be closed.
func (w *Webhook) Convert(ctx context.Context, apiVersion string, objects [][]byte) ([][]byte, error) {
	if err := w.begin(); err != nil {
		return nil, err
	}
	defer w.calls.Done()

	todo, err := toConvert(apiVersion, objects)
	if err != nil {
		return nil, err
	}
	converted := make([][]byte, len(objects))
	for len(todo) > 0 {
		n := batch(todo)
		answered, err := w.call(ctx, apiVersion, todo[:n])
		if err != nil {
			return nil, err
		}
		for i := range todo[:n] {
			converted[todo[i].index] = answered[i]
		}
		todo = todo[n:]
	}
	return converted, nil
}

// Calls returns how many requests are under way, at most maxCalls.
func (w *Webhook) Calls() int { return len(w.slots) }

func (w *Webhook) begin() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	w.calls.Add(1)
	return nil
}

// Close refuses further calls, waits for those under way (their contexts can end them) and closes the
// connections. It may be called more than once, and each call waits.
func (w *Webhook) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()

	w.calls.Wait()
	w.mu.Lock()
	w.finished = true
	w.mu.Unlock()

	w.transport.CloseIdleConnections() // also ends dials that nobody waits for any more
	w.dials.Wait()
	// What is left are connections that were made for calls which didn't wait for them.
	for _, c := range w.open() {
		c.Close()
	}
}

func (w *Webhook) open() []*conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	conns := make([]*conn, 0, len(w.conns))
	for c := range w.conns {
		conns = append(conns, c)
	}
	return conns
}

// conn is a connection that its Webhook knows until it's closed. net/http may open one for a request that has
// ended since; the Webhook makes sure that none is left.
type conn struct {
	net.Conn
	of *Webhook
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

func (w *Webhook) dialer(p Policy) func(ctx context.Context, network, address string) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: Timeout, Control: p.control}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if err := w.beginDial(); err != nil {
			return nil, err
		}
		defer w.dials.Done()
		raw, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: raw, of: w}
		w.mu.Lock()
		w.conns[c] = struct{}{}
		w.mu.Unlock()
		return c, nil
	}
}

// beginDial refuses to dial when nobody can wait for it.
func (w *Webhook) beginDial() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.finished {
		return ErrClosed
	}
	w.dials.Add(1)
	return nil
}

// call makes one request. What it returns has the length of sources.
func (w *Webhook) call(ctx context.Context, apiVersion string, sources []source) ([][]byte, error) {
	kind := sources[0].kind()
	r := newRequest(w.version, apiVersion, sources)
	body, err := w.post(ctx, r.body)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", kind, err)
	}
	answered, err := r.objects(body)
	if err != nil {
		return nil, fmt.Errorf("conversion webhook for %v failed: %w", kind, err)
	}
	if len(answered) != len(sources) {
		return nil, fmt.Errorf("conversion webhook for %v returned %d objects, expected %d", kind, len(answered), len(sources))
	}
	converted := make([][]byte, len(sources))
	for i, s := range sources {
		converted[i], err = s.accept(answered[i], apiVersion)
		if err != nil {
			return nil, fmt.Errorf("conversion webhook for %v returned invalid converted object at index %d (%s): %w", s.kind(), i, s.id(), err)
		}
	}
	return converted, nil
}

// post sends a body and returns the answer's, which isn't larger than maxAnswerBytes.
func (w *Webhook) post(parent context.Context, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(parent, w.timeout)
	defer cancel()
	answer, err := w.exchange(ctx, body)
	switch {
	case err == nil:
		return answer, nil
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer within %v", w.timeout)
	}
	return nil, err
}

func (w *Webhook) exchange(ctx context.Context, body []byte) ([]byte, error) {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = http.Header{
		"Accept":       {"application/json, */*"},
		"Content-Type": {"application/json"},
		"User-Agent":   {"apiserver-lite"},
		// Not sent: it tells net/http that the call may be repeated when an idle connection turns out closed.
		"Idempotency-Key": {},
	}
	response, err := w.transport.RoundTrip(request) // it follows no redirects, unlike a Client
	if err != nil {
		return nil, withoutAnswer(err)
	}
	defer response.Body.Close()
	if err := checkHead(response); err != nil {
		return nil, err
	}
	return readAnswer(response)
}

func checkHead(response *http.Response) error {
	code := response.StatusCode
	if code >= 300 && code < 400 {
		return fmt.Errorf("it answered with a redirect (%d), which isn't followed: configure the URL that it leads to", code)
	}
	if code != http.StatusOK {
		return fmt.Errorf("it answered %d %s, expected 200 OK", code, http.StatusText(code))
	}
	// A Go server that sets no type says text/plain of JSON; so do all webhooks made with controller-runtime.
	// kube-apiserver takes any type.
	header := response.Header.Get("Content-Type")
	if mediaType, _, _ := mime.ParseMediaType(header); header != "" && mediaType != "application/json" && mediaType != "text/plain" {
		return errors.New("its answer isn't JSON: expected the Content-Type application/json")
	}
	return nil
}

func readAnswer(response *http.Response) ([]byte, error) {
	tooLarge := fmt.Errorf("its answer is larger than %d bytes", maxAnswerBytes)
	if response.ContentLength > maxAnswerBytes {
		return nil, tooLarge
	}
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes+1))
	if err != nil {
		return nil, withoutAnswer(err)
	}
	if len(answer) > maxAnswerBytes {
		return nil, tooLarge
	}
	return answer, nil
}

// withoutAnswer returns an error of the connection without what was received: net/http quotes what it can't
// parse. Errors of the system and of TLS have none of that, but certificates' names.
func withoutAnswer(err error) error {
	var (
		refused     *refusedError
		certificate *tls.CertificateVerificationError
		network     *net.OpError
	)
	switch {
	case errors.As(err, &refused):
		return refused
	case errors.As(err, &certificate):
		return errors.New(quote(certificate.Error()))
	case errors.As(err, &network):
		return errors.New(quote(network.Error()))
	case errors.Is(err, http.ErrSchemeMismatch):
		return errors.New("it doesn't speak TLS at that port")
	}
	return errors.New("the connection broke, or what came isn't HTTP over TLS")
}

// kind is for messages; it prints as Kubernetes prints it.
func (s *source) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(s.APIVersion, s.Kind)
}
