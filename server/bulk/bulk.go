// Package bulk makes requests of the objects of a List, or of the operations of a transaction: one for each, in order, which is judged,
// admitted, audited and answered as if it had come alone. Those of a transaction are stored together or not at all. Kubernetes has nothing of
// that. It starts no goroutine by itself: transaction.Run does.
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
	"strconv"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/internal/jsonscan"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/object"
)

// Where Lists and transactions are taken.
const (
	ApplyPath        = "/apiserver-lite/v1/apply"
	CreatePath       = "/apiserver-lite/v1/create"
	TransactionsPath = "/apiserver-lite/v1/transactions"
)

// Takes tells whether a request is one that comes with a List or with a transaction.
func Takes(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == ApplyPath || r.URL.Path == CreatePath || r.URL.Path == TransactionsPath)
}

// MaxAtOnce is how many Lists and transactions are worked for at once. What their objects do is bounded as if each had come alone.
const MaxAtOnce = 32

// Annotation names in the audit log the request that an object or an operation came with.
const Annotation = "apiserver-lite/list"

// MaxItems is how many objects a List may have. The smallest that can be stored, of 60 bytes, fit in the largest body 50,000 times.
// So many take longer than a request may.
const MaxItems = 20_000

// List is the objects that came in one request, and what is done with each of them.
type List struct {
	Items []json.RawMessage // as they came

	apply     bool
	query     string // of each object's request
	namespace string // of an object that names none
	from      *http.Request
}

// Parse reads a List, which is JSON. The objects stay where they are in it. Its errors are a Status of 400.
func Parse(r *http.Request, query url.Values, text []byte) (*List, error) {
	l := &List{
		apply: r.URL.Path == ApplyPath, namespace: cmp.Or(query.Get("namespace"), metav1.NamespaceDefault), from: r,
	}
	passed := []string{"dryRun", "fieldManager", "fieldValidation"}
	if l.apply {
		if passed = append(passed, "force"); query.Get("fieldManager") == "" {
			return nil, registry.BadRequest("the parameter fieldManager is missing: an apply needs the name of who owns the fields, as in %s?fieldManager=me", ApplyPath)
		}
	}
	l.query = passedOn(query, passed...)
	if len(text) == 0 {
		return nil, registry.BadRequest("the body of the request is empty: send a List as JSON or YAML")
	}
	var sent metav1.TypeMeta
	var err error
	if sent, l.Items, err = split(text); err != nil {
		return nil, err
	}
	if sent.Kind != "List" || sent.APIVersion != "v1" {
		return nil, registry.BadRequest("the body of the request has the kind %q of %q, and must be a List of v1: send one object to the path of its kind", clip.Text(sent.Kind), clip.Text(sent.APIVersion))
	}
	if l.Items == nil {
		return nil, registry.BadRequest("the List has no items")
	}
	return l, nil
}

// passedOn is the query of each request that comes with another one: what that says of some parameters, and that answers aren't indented.
func passedOn(query url.Values, names ...string) string {
	passed := url.Values{"pretty": {"false"}}
	for _, name := range names {
		if values, ok := query[name]; ok {
			passed[name] = values
		}
	}
	return passed.Encode()
}

// split returns a List's kind, and its objects without a copy: at most MaxItems are counted before it's refused.
func split(text []byte) (sent metav1.TypeMeta, items []json.RawMessage, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	begin := func(want json.Delim) error {
		token, err := d.Token()
		if err == nil && token != want {
			err = fmt.Errorf("it has %v where %v was expected", token, want)
		}
		return err
	}
	if err = begin('{'); err != nil {
		return sent, nil, undecodable(err)
	}
	for d.More() {
		var name json.Token
		if name, err = d.Token(); err != nil {
			return sent, nil, undecodable(err)
		}
		switch name {
		case "kind":
			err = d.Decode(&sent.Kind)
		case "apiVersion":
			err = d.Decode(&sent.APIVersion)
		case "items":
			if err = begin('['); err == nil {
				items, err = splitItems(d, text)
			}
		default:
			var skipped json.RawMessage
			err = d.Decode(&skipped)
		}
		if err != nil {
			return sent, nil, undecodable(err)
		}
	}
	if _, err = d.Token(); err != nil {
		return sent, nil, undecodable(err)
	}
	if _, err = d.Token(); !errors.Is(err, io.EOF) {
		return sent, nil, undecodable(errors.New("something follows the List"))
	}
	return sent, items, nil
}

// splitItems returns the elements of the array that the decoder is in, and leaves it.
func splitItems(d *json.Decoder, text []byte) ([]json.RawMessage, error) {
	items := []json.RawMessage{}
	var item json.RawMessage // a copy, which the next one overwrites
	for d.More() {
		if len(items) == MaxItems {
			return nil, registry.BadRequest("the List has more than %d items, which is what may come in one request", MaxItems)
		}
		if err := d.Decode(&item); err != nil {
			return nil, err
		}
		end := int(d.InputOffset())
		items = append(items, text[end-len(item):end:end])
	}
	_, err := d.Token()
	return items, err
}

// undecodable is a decoder's error as a Status. What is one already stays.
func undecodable(err error) error {
	var known apierrors.APIStatus
	if errors.As(err, &known) {
		return err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return registry.BadRequest("the body of the request %v", object.Undecodable(err))
}

// Place is where the objects of a kind are.
type Place struct {
	Resource   schema.GroupVersionResource
	Namespaced bool
}

// PlaceOf returns where the objects of a kind are. Of one that isn't served it's the usual place, in a namespace: there, who may not
// write it is told so, and who may is told that it isn't served.
func PlaceOf(served *registry.Catalog, apiVersion, kind string) Place {
	if e := served.Kind(apiVersion, kind); e != nil {
		return Place{e.Path(), e.Namespaced}
	}
	usual, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	e := served.Endpoint(usual) // of a kind that isn't stored, perhaps
	return Place{usual, e == nil || e.Namespaced}
}

// Find returns where the objects of a kind are; of one that isn't served where they would be.
type Find func(apiVersion, kind string) Place

// Serve answers one request.
type Serve func(w http.ResponseWriter, r *http.Request, body []byte) (warnings []string)

// result is what became of one object.
type result struct {
	Code     int             `json:"code"`             // of HTTP
	Object   json.RawMessage `json:"object,omitempty"` // as it's stored
	Status   *metav1.Status  `json:"status,omitempty"` // why it isn't
	Warnings []string        `json:"warnings,omitempty"`
}

// Write has a request served for each object, one after the other, and writes their results as they come, each on a line and with one
// call, in the order of the objects. Those that weren't tried when ctx ends have a 504. The error is that of writing.
func (l *List) Write(ctx context.Context, find Find, serve Serve, to io.Writer) error {
	line := []byte(`{"kind":"ResultList","apiVersion":"apiserver-lite/v1","results":[`)
	failed := 0
	for i, item := range l.Items {
		res := l.result(ctx, find, item, serve)
		if res.Code >= http.StatusBadRequest {
			failed++
		}
		text, err := json.Marshal(res)
		if err != nil {
			return err
		}
		if i > 0 {
			line = append(line, ',')
		}
		if _, err := to.Write(append(append(line, '\n'), text...)); err != nil {
			return err
		}
		line = line[:0]
	}
	_, err := to.Write(fmt.Appendf(line, "\n],\"failed\":%d}\n", failed))
	return err
}

// result serves the request of one object. Where the server asks to come back later, it does.
func (l *List) result(ctx context.Context, find Find, item []byte, serve Serve) result {
	for {
		if ctx.Err() != nil {
			return refused(registry.Refusal(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "the request's time is over: the object wasn't tried"))
		}
		r, err := l.request(ctx, find, item)
		if err != nil {
			return refused(err)
		}
		var got recorder
		warnings := serve(&got, r, item)
		after, err := strconv.Atoi(got.Header().Get("Retry-After"))
		if err != nil || got.code != http.StatusTooManyRequests {
			return got.result(warnings)
		}
		select {
		case <-ctx.Done():
			return got.result(warnings)
		case <-time.After(time.Duration(after) * time.Second):
		}
	}
}

// refused is the result of an object that has no request.
func refused(err error) result {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	return statusResult(known.Status())
}

func statusResult(s metav1.Status) result {
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return result{Code: int(s.Code), Status: &s}
}

// request makes the request that an object would have come with alone.
func (l *List) request(ctx context.Context, find Find, item []byte) (*http.Request, error) {
	if item[0] != '{' {
		return nil, registry.BadRequest("the object must be a JSON object, and is %q", clip.Text(string(item)))
	}
	sent, err := headOf(item)
	if err != nil {
		return nil, registry.BadRequest("the object %v", err)
	}
	if sent.Kind == "" || sent.APIVersion == "" {
		return nil, registry.BadRequest("the object has no kind or no apiVersion")
	}
	place := find(sent.APIVersion, sent.Kind)
	at := place.path(cmp.Or(sent.Metadata.Namespace, l.namespace))
	method, media := http.MethodPost, "application/json"
	if l.apply {
		if sent.Metadata.Name == "" {
			return nil, registry.BadRequest("metadata.name is missing, and an apply needs it: generated names are for %s", CreatePath)
		}
		at = append(at, sent.Metadata.Name)
		method, media = http.MethodPatch, applyMedia
	}
	return newRequest(ctx, l.from, method, at, media, l.query, item)
}

// head is what the path of an object depends on.
type head struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"metadata"`
}

// headOf reads an object's head. What isn't as it's to be is decoded, for the error.
func headOf(item []byte) (h head, err error) {
	s, sound := jsonscan.Scanner{Data: item}, true
	text := func(into *string) {
		if s.Peek() != '"' {
			sound = false
			s.Skip()
			return
		}
		*into = string(jsonscan.Unquote(s.Quoted()))
	}
	s.Members(func(name []byte) {
		switch string(name) {
		case "apiVersion":
			text(&h.APIVersion)
		case "kind":
			text(&h.Kind)
		case "metadata":
			sound = s.Members(func(name []byte) {
				switch string(name) {
				case "namespace":
					text(&h.Metadata.Namespace)
				case "name":
					text(&h.Metadata.Name)
				default:
					s.Skip()
				}
			}) && sound
		default:
			s.Skip()
		}
	})
	if sound && s.Err() == nil {
		return h, nil
	}
	h = head{}
	return h, object.Decode(item, &h)
}

const applyMedia = "application/apply-patch+yaml"

// path returns the segments of the path of a place's objects. The namespace is for those that are in one.
func (p Place) path(namespace string) []string {
	at := []string{"/apis", p.Resource.Group, p.Resource.Version}
	if p.Resource.Group == "" {
		at = []string{"/api", p.Resource.Version}
	}
	if p.Namespaced {
		at = append(at, "namespaces", namespace)
	}
	return append(at, p.Resource.Resource)
}

// newRequest makes a request that comes with another one, from.
func newRequest(ctx context.Context, from *http.Request, method string, at []string, media, query string, body []byte) (*http.Request, error) {
	for _, segment := range at[1:] {
		if err := fits(segment); err != nil {
			return nil, err
		}
	}
	r := from.WithContext(ctx)
	r.Method, r.URL = method, &url.URL{Path: strings.Join(at, "/"), RawQuery: query}
	r.RequestURI, r.Body, r.ContentLength, r.TransferEncoding = r.URL.RequestURI(), http.NoBody, int64(len(body)), nil
	r.Header = http.Header{"Accept": {"application/json"}}
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for _, name := range []string{"User-Agent", "X-Forwarded-For", "X-Real-Ip"} { // by the last two the audit log knows who it is
		if values, ok := from.Header[name]; ok {
			r.Header[name] = values
		}
	}
	return r, nil
}

// maxSegment is how long a name in a path may be, in bytes. Names that can be stored have at most 253.
const maxSegment = 1 << 10

// fits refuses what can't be a part of a path.
func fits(segment string) error {
	if len(segment) > maxSegment {
		return registry.BadRequest("%q can't be a name: it has more than %d bytes", clip.Text(segment), maxSegment)
	}
	why := content.IsPathSegmentName(segment)
	if segment == "" || strings.ContainsFunc(segment, unicode.IsControl) {
		why = []string{"may not be empty or contain control characters"}
	}
	if len(why) > 0 {
		return registry.BadRequest("%q can't be a name: it %s", clip.Text(segment), why[0])
	}
	return nil
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
	if r.body.Len() == 0 { // most answers are one piece and the end of its line
		r.body.Grow(len(p) + 1)
	}
	return r.body.Write(p)
}

// result is the answer as a result.
func (r *recorder) result(warnings []string) result {
	if r.code == 0 {
		return refused(errors.New("nothing was answered"))
	}
	text := bytes.TrimSpace(r.body.Bytes())
	if r.code < http.StatusBadRequest {
		return result{Code: r.code, Object: text, Warnings: warnings}
	}
	var status metav1.Status
	if err := json.Unmarshal(text, &status); err != nil { // text, as of a path that leads nowhere
		status = metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Message: "nothing of that kind is served: see /apis"}
	}
	status.Code = int32(r.code)
	res := statusResult(status)
	res.Warnings = warnings
	return res
}
