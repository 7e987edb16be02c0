package registry

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/url"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
)

// Target is what a request is about.
type Target struct {
	Namespace   string // "" for what has none, and for all namespaces
	Name        string // "" for a collection, and for a new object
	Subresource string // "status", "scale" or "finalize"; "" for the object itself
}

// Request is what a client asks of an Endpoint. The verbs don't change it, and keep nothing of it after they return.
type Request struct {
	Target
	Query     url.Values
	Body      []byte              // JSON; of a patch as it was sent
	Message   *kubeproto.Envelope // the body instead, if it came as protobuf; see OpenProtobuf
	PatchType string              // the media type of a patch, without parameters
	UserAgent string              // names the client in managedFields if it gives no fieldManager
	Form      form.Form
	// MayCreate is asked before an update or a patch creates the object, which is another right than the one to change it.
	// Its error is answered. Nil: it may.
	MayCreate func(ctx context.Context) error
}

// Result is the answer to a request for one object. With an error, only Warnings is set.
type Result struct {
	Object   []byte   // as the client sees it: JSON, or protobuf if the Form asks for it
	Tag      string   // of a get: another one whenever Object is another; "" for a Table, which shows ages
	Created  bool     // an object was created: 201
	Accepted bool     // a deletion waits for finalizers, and the client set orphanDependents: 202
	Warnings []string // for the client, one Warning header each
}

// The subresources.
const (
	Whole      = ""
	AtStatus   = "status"
	AtScale    = "scale"
	AtFinalize = "finalize"
)

// Shown returns how a request's answer shows objects. For a Table the parameter includeObject says what comes with
// each row. A Form of protobuf must be one that the endpoint Encodes.
func (e *Endpoint) Shown(r *Request) (*form.Shown, error) {
	switch {
	case r.Form.Encoding == form.ServerSent:
		plain := *r
		plain.Form.Encoding = form.JSON
		shown, err := e.Shown(&plain)
		if err != nil {
			return nil, err
		}
		return e.Forms.ServerSent(shown), nil
	case r.Form.Kind == form.Whole && r.Form.Encoding == form.JSON:
		return e.Whole, nil
	case r.Form.Kind == form.Whole && e.Messages != nil:
		return e.Messages, nil
	case r.Form.Kind == form.Whole:
		return apart, nil
	}
	key, err := r.Form.WithOptions(r.Query)
	if err != nil {
		return nil, BadRequest("%s", err)
	}
	return e.Forms.Get(key, e.View), nil
}

// Token says where a page of a list begins, in the form of kube-apiserver's tokens. It isn't signed, and the server
// remembers nothing for it. That is safe: whatever a client makes up, it names a place in the collection that it lists.
type Token struct {
	Version string `json:"v"`
	// Revision is that of all pages, or negative for the newest there is.
	Revision int64 `json:"rv"`
	// Start is the key from which the page goes on, relative to the collection.
	Start string `json:"start"`
	// By is by what the pages are sorted, "" by keys. Otherwise the page goes on after Start in that order.
	By string `json:"by,omitempty"`
}

const (
	TokenVersion = "meta.k8s.io/v1"
	// newest is the revision of a token whose page needn't be of one revision with those before.
	newest = -1
)

func (t Token) String() string {
	t.Start = "/" + t.Start
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // strings and a number always encode
	}
	return base64.RawURLEncoding.EncodeToString(text)
}
