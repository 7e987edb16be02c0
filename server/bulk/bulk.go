// Package bulk makes requests of the objects of a List: one for each, in order, which is judged, admitted, audited and answered as if
// it had come alone. Kubernetes has nothing of that. It starts no goroutine.
package bulk

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation/path"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// Where Lists are taken.
const (
	ApplyPath  = "/apiserver-lite/v1/apply"
	CreatePath = "/apiserver-lite/v1/create"
)

// Takes tells whether a request is one that comes with a List.
func Takes(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == ApplyPath || r.URL.Path == CreatePath)
}

// MaxItems is how many objects a List may have. The smallest that can be stored, of 60 bytes, fit in the largest body 50,000 times.
// So many take longer than a request may.
const MaxItems = 20_000

// List is the objects that came in one request, and what is done with each of them.
type List struct {
	Items []json.RawMessage // as they came

	apply     bool
	query     url.Values // of each object's request
	namespace string     // of an object that names none
	from      *http.Request
}

// Parse reads a List, which is JSON. Its errors are a Status of 400.
func Parse(r *http.Request, query url.Values, list []byte) (*List, error) {
	l := &List{
		apply: r.URL.Path == ApplyPath, namespace: cmp.Or(query.Get("namespace"), metav1.NamespaceDefault), from: r,
		query: url.Values{"pretty": {"false"}},
	}
	passed := []string{"dryRun", "fieldManager", "fieldValidation"}
	if l.apply {
		if passed = append(passed, "force"); query.Get("fieldManager") == "" {
			return nil, registry.BadRequest("the parameter fieldManager is missing: an apply needs the name of who owns the fields, as in %s?fieldManager=me", ApplyPath)
		}
	}
	for _, name := range passed {
		if values, ok := query[name]; ok {
			l.query[name] = values
		}
	}
	var sent struct {
		metav1.TypeMeta `json:",inline"`
		Items           *[]json.RawMessage `json:"items"`
	}
	if err := object.Decode(list, &sent); err != nil {
		return nil, registry.BadRequest("the body of the request %v", err)
	}
	switch {
	case sent.Kind != "List" || sent.APIVersion != "v1":
		return nil, registry.BadRequest("the body of the request has the kind %q of %q, and must be a List of v1: send one object to the path of its kind", clip.Text(sent.Kind), clip.Text(sent.APIVersion))
	case sent.Items == nil:
		return nil, registry.BadRequest("the List has no items")
	case len(*sent.Items) > MaxItems:
		return nil, registry.BadRequest("the List has %d items, and at most %d may come in one request", len(*sent.Items), MaxItems)
	}
	l.Items = *sent.Items
	return l, nil
}

// Find returns what serves a kind, or a Status that says why nothing does.
type Find func(ctx context.Context, apiVersion, kind string) (*registry.Endpoint, error)

// Serve answers one request.
type Serve func(w http.ResponseWriter, r *http.Request, body []byte) (warnings []string)

// result is what became of one object.
type result struct {
	Code     int             `json:"code"`             // of HTTP
	Object   json.RawMessage `json:"object,omitempty"` // as it's stored
	Status   json.RawMessage `json:"status,omitempty"` // why it isn't
	Warnings []string        `json:"warnings,omitempty"`
}

// Write has a request served for each object, one after the other, and writes their results as they come: each on a line, in the
// order of the objects. Those that weren't tried when ctx ends have a 504. The error is that of writing.
func (l *List) Write(ctx context.Context, find Find, serve Serve, to io.Writer) error {
	if _, err := io.WriteString(to, `{"kind":"ResultList","apiVersion":"apiserver-lite/v1","results":[`); err != nil {
		return err
	}
	failed := 0
	for i, item := range l.Items {
		res := l.result(ctx, find, item, serve)
		if res.Code >= http.StatusBadRequest {
			failed++
		}
		line, err := json.Marshal(res)
		if err != nil {
			return err
		}
		between := ",\n"
		if i == 0 {
			between = "\n"
		}
		if _, err := to.Write(append([]byte(between), line...)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(to, "\n],\"failed\":%d}\n", failed)
	return err
}

// result serves the request of one object.
func (l *List) result(ctx context.Context, find Find, item []byte, serve Serve) result {
	r, err := l.request(ctx, find, item)
	if err == nil && ctx.Err() != nil {
		err = registry.Refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the request's time is over: the object wasn't tried")
	}
	if err != nil {
		return refused(err)
	}
	var got recorder
	warnings := serve(&got, r, item)
	text := bytes.TrimSpace(got.body.Bytes())
	res := result{Code: got.code, Warnings: warnings}
	switch {
	case !json.Valid(text): // an answer of net/http's own kind, such as "404 page not found"
		return refused(registry.Refusal(int32(got.code), metav1.StatusReasonUnknown, string(text)))
	case got.code >= http.StatusBadRequest:
		res.Status = text
	default:
		res.Object = text
	}
	return res
}

// refused is the result of an object that has no request.
func refused(err error) result {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	text, err := json.Marshal(status)
	if err != nil {
		panic(err) // metav1.Status always marshals
	}
	return result{Code: int(status.Code), Status: text}
}

// request makes the request that an object would have come with alone.
func (l *List) request(ctx context.Context, find Find, item []byte) (*http.Request, error) {
	var sent struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Namespace string `json:"namespace"`
			Name      string `json:"name"`
		} `json:"metadata"`
	}
	if item[0] != '{' {
		return nil, registry.BadRequest("the object must be a JSON object, and is %q", clip.Text(string(item)))
	}
	if err := object.Decode(item, &sent); err != nil {
		return nil, registry.BadRequest("the object %v", err)
	}
	e, err := find(ctx, sent.APIVersion, sent.Kind)
	if err != nil {
		return nil, err
	}
	at := "/apis/" + e.Group + "/" + e.Version
	if e.Group == "" {
		at = "/api/" + e.Version
	}
	if e.Namespaced {
		namespace := cmp.Or(sent.Metadata.Namespace, l.namespace)
		if why := path.IsValidPathSegmentName(namespace); len(why) > 0 {
			return nil, registry.BadRequest("metadata.namespace: Invalid value: %q: %s", clip.Text(namespace), why[0])
		}
		at += "/namespaces/" + namespace
	}
	at += "/" + e.Plural
	method, media := http.MethodPost, "application/json"
	if l.apply {
		name := sent.Metadata.Name
		if name == "" {
			return nil, registry.BadRequest("metadata.name is missing, and an apply needs it: generated names are for %s", CreatePath)
		}
		if why := path.IsValidPathSegmentName(name); len(why) > 0 {
			return nil, registry.BadRequest("metadata.name: Invalid value: %q: %s", clip.Text(name), why[0])
		}
		at += "/" + name
		method, media = http.MethodPatch, "application/apply-patch+yaml"
	}
	r := l.from.WithContext(ctx)
	r.Method, r.URL = method, &url.URL{Path: at, RawQuery: l.query.Encode()}
	r.RequestURI, r.Body, r.ContentLength, r.TransferEncoding = r.URL.RequestURI(), http.NoBody, int64(len(item)), nil
	r.Header = http.Header{"Content-Type": {media}, "Accept": {"application/json"}}
	for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} { // by the last two the audit log knows who it is
		if values, ok := l.from.Header[name]; ok {
			r.Header[name] = values
		}
	}
	return r, nil
}

// recorder keeps an answer.
type recorder struct {
	header http.Header
	code   int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header {
	if r.header == nil {
		r.header = http.Header{}
	}
	return r.header
}

func (r *recorder) WriteHeader(code int) {
	if r.code == 0 && code >= http.StatusOK {
		r.code = code
	}
}

func (r *recorder) Write(p []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(p)
}
