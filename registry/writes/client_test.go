package writes

import (
	"context"
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// client calls the verbs of an endpoint with what most tests vary of a request.
type client struct {
	Writer
	form      form.Form
	userAgent string
}

// In returns a client that gets objects in a form.
func (c client) In(f form.Form) *client { c.form = f; return &c }

// By returns a client that calls itself so.
func (c client) By(userAgent string) *client { c.userAgent = userAgent; return &c }

func (c *client) request(t registry.Target, q url.Values, body []byte) *registry.Request {
	return &registry.Request{Target: t, Query: q, Body: body, UserAgent: c.userAgent, Form: c.form}
}

func (c *client) Get(ctx context.Context, namespace, name, subresource string, q url.Values) (registry.Result, error) {
	return c.Writer.Get(ctx, c.request(registry.Target{Namespace: namespace, Name: name, Subresource: subresource}, q, nil))
}

func (c *client) List(ctx context.Context, namespace string, q url.Values) (*reads.List, error) {
	return c.Writer.List(ctx, c.request(registry.Target{Namespace: namespace}, q, nil))
}

func (c *client) Watch(ctx context.Context, namespace, name string, q url.Values) (*cacher.Cursor, watchstream.Options, error) {
	return c.Writer.Watch(ctx, c.request(registry.Target{Namespace: namespace, Name: name}, q, nil))
}

func (c *client) Create(ctx context.Context, namespace string, q url.Values, body []byte) (registry.Result, error) {
	return c.Writer.Create(ctx, c.request(registry.Target{Namespace: namespace}, q, body))
}

func (c *client) Update(ctx context.Context, namespace, name, subresource string, q url.Values, body []byte) (registry.Result, error) {
	return c.Writer.Update(ctx, c.request(registry.Target{Namespace: namespace, Name: name, Subresource: subresource}, q, body))
}

func (c *client) Patch(ctx context.Context, namespace, name, subresource, mediaType string, q url.Values, patch []byte) (registry.Result, error) {
	r := c.request(registry.Target{Namespace: namespace, Name: name, Subresource: subresource}, q, patch)
	r.PatchType = mediaType
	return c.Writer.Patch(ctx, r)
}

func (c *client) Delete(ctx context.Context, namespace, name string, q url.Values, body []byte) (registry.Result, error) {
	return c.Writer.Delete(ctx, c.request(registry.Target{Namespace: namespace, Name: name}, q, body))
}

func (c *client) DeleteCollection(ctx context.Context, namespace string, q url.Values, body []byte) (*reads.List, error) {
	return c.Writer.DeleteCollection(ctx, c.request(registry.Target{Namespace: namespace}, q, body))
}
