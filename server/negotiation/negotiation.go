// Package negotiation finds out in which media type a client wants an answer (RFC 9110, section 12.5.1). It keeps nothing, starts no goroutine
// and takes no lock. What it reads of a header is bounded (MaxClauses).
package negotiation

import (
	"cmp"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Media is a form in which a body is written.
type Media string

// The media types of most answers.
const (
	JSON     Media = "application/json"
	YAML     Media = "application/yaml"
	Protobuf Media = kubeproto.Media             // typed clients ask for it, and send it
	Events   Media = watchstream.ServerSentMedia // browsers' EventSource asks for it
)

// Accepter says in which media type, if any, a Clause of an Accept header can be answered.
type Accepter func(Clause) (Media, bool)

// Object is for documents that are given as they are. A Clause that asks for another rendering, such
// as as=Table, isn't one that we can answer; kubectl names plain JSON after it.
func Object(c Clause) (Media, bool) {
	if c.Params["as"] != "" {
		return "", false
	}
	switch c.Media {
	case "application/json", "application/*", "*/*":
		return JSON, true
	case "application/yaml":
		return YAML, true
	}
	return "", false
}

// Message is for documents that there are as protobuf, too.
func Message(c Clause) (Media, bool) {
	if c.Media == string(Protobuf) && c.Params["as"] == "" {
		return Protobuf, true
	}
	return Object(c)
}

// Stream is for watches.
func Stream(c Clause) (Media, bool) {
	if c.Media == string(Events) {
		return Events, true
	}
	return OnlyJSON(c)
}

// OnlyJSON is for what exists as JSON only.
func OnlyJSON(c Clause) (Media, bool) {
	media, ok := Object(c)
	return media, ok && media == JSON
}

// Clause is one alternative of an Accept header.
type Clause struct {
	Media  string // in lower case
	Params map[string]string
	Q      float64 // from 0, which refuses it, to 1
}

// MaxClauses is how many alternatives of a header count; kubectl sends three.
const MaxClauses = 64

// Parse returns the clauses of Accept or Accept-Encoding by falling q, then in the client's order. What doesn't
// parse is left out. (goautoneg's parser doesn't keep the client's order, minds upper case, and takes any number.)
func Parse(headers []string) []Clause {
	var all []Clause
	for _, header := range headers {
		for part := range strings.SplitSeq(header, ",") {
			media, params, err := mime.ParseMediaType(part)
			if err != nil || len(all) == MaxClauses {
				continue
			}
			c := Clause{Media: media, Params: params, Q: 1}
			if text, ok := params["q"]; ok {
				if c.Q, err = strconv.ParseFloat(text, 64); err != nil || !(c.Q >= 0) {
					continue
				}
			}
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b Clause) int { return cmp.Compare(b.Q, a.Q) })
	return all
}

// ObjectMedia are the media types that kube-apiserver says it has of objects, also of those that aren't in all of them.
const ObjectMedia = "application/json, application/yaml, application/vnd.kubernetes.protobuf"

// Negotiate returns the first media type that the client wants and the Accepter has, JSON where the client
// says nothing, and else a 406.
func Negotiate(headers []string, accept Accepter) (Media, error) {
	served := string(JSON)
	for _, other := range []Media{YAML, Protobuf} {
		if _, ok := accept(Clause{Media: string(other)}); ok {
			served += ", " + string(other)
		}
	}
	return As(served, headers, accept)
}

// As is Negotiate with what the 406 says is served.
func As(served string, headers []string, accept Accepter) (Media, error) {
	if len(headers) == 0 || len(headers) == 1 && (headers[0] == "" || headers[0] == "*/*" || headers[0] == string(JSON)) {
		return JSON, nil
	}
	for _, c := range Parse(headers) {
		if media, ok := accept(c); ok && c.Q > 0 {
			return media, nil
		}
	}
	return "", NotAcceptable("only the following media types are accepted: " + served)
}

// NotAcceptable returns a 406 that says why.
func NotAcceptable(why string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable, Message: why,
	}}
}

// KnowsObjects tells whether a client accepts one of ObjectMedia, in whichever form.
func KnowsObjects(headers []string) bool {
	return slices.ContainsFunc(Parse(headers), func(c Clause) bool {
		return slices.Contains([]string{"*/*", string(JSON), string(YAML), string(Protobuf)}, c.Media)
	})
}
