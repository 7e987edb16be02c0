package registry

import (
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Target is what a request is about.
type Target struct {
	Namespace   string // "" for what has none, and for all namespaces
	Name        string // "" for a collection, and for a new object
	Subresource string // "status", "scale" or "finalize"; "" for the object itself
}

// Request is what a client asks of an Endpoint. The verbs don't change it.
type Request struct {
	Target
	Query     url.Values
	Body      []byte // JSON; of a patch as it was sent
	PatchType string // the media type of a patch, without parameters
	UserAgent string // by which a client is known that names no fieldManager
	Form      form.Form
}

// Result is the answer to a request for one object. Beside an error it has the warnings only.
type Result struct {
	Object   []byte   // JSON, as the client sees it
	Tag      string   // of a get: changes when Object does; "" where that can't be said
	Created  bool     // an object was created: 201
	Accepted bool     // a deletion waits for others, and the client asked to be told so: 202
	Warnings []string // for the client, one Warning header each
}

// The subresources.
const (
	main     = ""
	status   = "status"
	scale    = "scale"
	finalize = "finalize"
)

// shown returns how a request's answer shows objects. For a Table the parameter includeObject says what comes with
// each row.
func (e *Endpoint) shown(r *Request) (*form.Shown, error) {
	if r.Form.Kind == form.Whole {
		return e.whole, nil
	}
	key, err := r.Form.WithOptions(r.Query)
	if err != nil {
		return nil, badRequest("%s", err)
	}
	return e.forms.Get(key, e.view), nil
}
