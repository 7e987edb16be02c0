package conversion

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/apiserver-lite/apiserver-lite/registry/hookclient"
)

// Timeout is how long one request to a webhook may take in all: waiting for a slot, connecting, sending, and
// reading the answer: kube-apiserver's, too. A context that ends earlier ends it earlier.
const Timeout = 30 * time.Second

const (
	// maxBatchBytes bounds the objects of one request. A larger object is sent alone.
	maxBatchBytes = 1 << 20
	// maxBatchObjects leaves a webhook 60 ms for each object, fifteen times what Kubernetes expects it to take.
	// It's also the size of the pages in which clients list.
	maxBatchObjects = 500
	// maxAnswerBytes lets an answer be three times as large as a batch, or twice as large as the largest object. Where
	// objects grow by more, they're sent in smaller batches.
	maxAnswerBytes = 3 << 20
	// maxCalls bounds the requests under way at once, so that a webhook of one small process isn't overrun. Others wait for a
	// slot.
	maxCalls = 16
)

// ErrClosed is returned by Convert when the Webhook was closed, because its definition was replaced or the
// server stops.
var ErrClosed = hookclient.ErrClosed

// Webhook calls the webhook of one definition. Its methods may be called concurrently. It must be closed.
type Webhook struct {
	client  *hookclient.Client
	version string        // of ConversionReview
	timeout time.Duration // Timeout; less in tests
}

// New returns a client for a definition's spec.conversion.webhook. Nothing is dialled before Convert. An error
// says what is wrong with the configuration: what Validate finds, a service where there are none, or a caBundle that has no
// certificate.
func New(c *apiextensionsv1.WebhookConversion, n hookclient.Network) (*Webhook, error) {
	if err := Validate(c, field.NewPath("spec", "conversion"), n.Policy).ToAggregate(); err != nil {
		return nil, err
	}
	config := hookclient.Config{CABundle: c.ClientConfig.CABundle, MaxCalls: maxCalls, MaxAnswer: maxAnswerBytes}
	if s := c.ClientConfig.Service; s != nil {
		config.Service = &hookclient.Service{Namespace: s.Namespace, Name: s.Name, Path: ptr.Deref(s.Path, ""), Port: ptr.Deref(s.Port, 0)}
	} else {
		config.URL = *c.ClientConfig.URL
	}
	client, err := hookclient.New(config, n)
	if err != nil {
		return nil, fmt.Errorf("spec.conversion.webhook.%w", err)
	}
	return &Webhook{client: client, version: hookclient.ReviewVersion(c.ConversionReviewVersions), timeout: Timeout}, nil
}

// Convert asks the webhook to make objects, which may be of several versions of one group, into apiVersion
// (group/version). Each is JSON as the webhook is to see it, so with its resourceVersion. They aren't changed.
//
// What comes back is in the same order, in the form in which objects are stored: compact, top-level fields
// and those of metadata sorted, without resourceVersion. Below that, values are as the webhook wrote them. An
// object that has that apiVersion already isn't sent, and its place is nil.
//
// An error means that nothing was converted. It says what went wrong with which object, in Kubernetes' words,
// and has nothing of the answer but the message of a failure, a kind or a uid, and a character or a number that is in the wrong place. It wraps ctx's error if that has ended, and is
// ErrClosed after Close. Calls are repeated only if a kept connection turns out to be closed.
func (w *Webhook) Convert(ctx context.Context, apiVersion string, objects [][]byte) ([][]byte, error) {
	if err := w.client.Begin(); err != nil {
		return nil, err
	}
	defer w.client.Done()

	todo, err := toConvert(apiVersion, objects)
	if err != nil {
		return nil, err
	}
	converted := make([][]byte, len(objects))
	for most := maxBatchObjects; len(todo) > 0; {
		n := min(batch(todo), most)
		answered, err := w.call(ctx, apiVersion, todo[:n])
		if errors.Is(err, hookclient.ErrTooLarge) && n > 1 { // objects may grow by conversion
			most = n / 2
			continue
		}
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
func (w *Webhook) Calls() int { return w.client.Calls() }

// Close refuses further calls, waits for those under way (their contexts can end them) and closes the
// connections. It may be called more than once, and each call waits.
func (w *Webhook) Close() { w.client.Close() }

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
	answer, err := w.client.Post(ctx, body, url.Values{"timeout": {Timeout.String()}}) // as kube-apiserver's says
	switch {
	case err == nil:
		return answer, nil
	case parent.Err() != nil:
		return nil, parent.Err()
	case ctx.Err() != nil:
		return nil, errors.New(err.Error()) // the end of the call alone
	}
	return nil, err
}

// kind is for messages; it prints as Kubernetes prints it.
func (s *source) kind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(s.APIVersion, s.Kind)
}
