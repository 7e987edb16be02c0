package registry

import (
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Column is a column of the tables in which kubectl prints objects.
type Column = form.Column

// In returns the endpoint as it answers in a form: its verbs do the same. For a Table the parameter
// includeObject says what comes with each row. Errors are Status errors.
func (e *Endpoint) In(f form.Form, q url.Values) (*Endpoint, error) {
	k, err := f.WithOptions(q)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	return e.in(k), nil
}

// in returns the endpoint as it answers in a form with its options.
func (e *Endpoint) in(k form.Key) *Endpoint {
	if k.Kind == form.Whole {
		return e
	}
	in := *e
	in.shown = e.forms.Get(k, e.view)
	return &in
}

// By returns the endpoint as it serves a client that calls itself so in User-Agent.
func (e *Endpoint) By(userAgent string) *Endpoint {
	by := *e
	by.userAgent = userAgent
	return &by
}
