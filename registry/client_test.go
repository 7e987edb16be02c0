package registry

import (
	"context"
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// client calls the verbs of an endpoint with what most tests vary of a request.
type client struct {
	*Endpoint
	form      form.Form
	userAgent string
}

// In returns a client that gets objects in a form.
func (c client) In(f form.Form) *client { c.form = f; return &c }

// By returns a client that calls itself so.
func (c client) By(userAgent string) *client { c.userAgent = userAgent; return &c }

func (c *client) request(t Target, q url.Values, body []byte) *Request {
	return &Request{Target: t, Query: q, Body: body, UserAgent: c.userAgent, Form: c.form}
}

func (c *client) Get(ctx context.Context, namespace, name, subresource string, q url.Values) (Result, error) {
	return c.Endpoint.Get(ctx, c.request(Target{namespace, name, subresource}, q, nil))
}

func (c *client) List(ctx context.Context, namespace string, q url.Values) (*List, error) {
	return c.Endpoint.List(ctx, c.request(Target{Namespace: namespace}, q, nil))
}

func (c *client) Watch(ctx context.Context, namespace, name string, q url.Values) (*cacher.Cursor, watchstream.Options, error) {
	return c.Endpoint.Watch(ctx, c.request(Target{Namespace: namespace, Name: name}, q, nil))
}

func (c *client) Create(ctx context.Context, namespace string, q url.Values, body []byte) (Result, error) {
	return c.Endpoint.Create(ctx, c.request(Target{Namespace: namespace}, q, body))
}

func (c *client) Update(ctx context.Context, namespace, name, subresource string, q url.Values, body []byte) (Result, error) {
	return c.Endpoint.Update(ctx, c.request(Target{namespace, name, subresource}, q, body))
}

func (c *client) Patch(ctx context.Context, namespace, name, subresource, mediaType string, q url.Values, patch []byte) (Result, error) {
	r := c.request(Target{namespace, name, subresource}, q, patch)
	r.PatchType = mediaType
	return c.Endpoint.Patch(ctx, r)
}

func (c *client) Delete(ctx context.Context, namespace, name string, q url.Values, body []byte) (Result, error) {
	return c.Endpoint.Delete(ctx, c.request(Target{Namespace: namespace, Name: name}, q, body))
}

func (c *client) DeleteCollection(ctx context.Context, namespace string, q url.Values, body []byte) (*List, error) {
	return c.Endpoint.DeleteCollection(ctx, c.request(Target{Namespace: namespace}, q, body))
}
