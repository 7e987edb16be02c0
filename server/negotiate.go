package server

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/server/markup"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// negotiateForm is negotiate for objects of a target, which there are in other forms, too. metadata is how the client
// calls their metadata: that of one object or of a list.
func (t target) negotiateForm(headers []string, accept negotiation.Accepter, metadata string) (negotiation.Media, form.Form, error) {
	var wanted form.Form
	media, err := negotiation.As(negotiation.ObjectMedia, headers, func(c negotiation.Clause) (media negotiation.Media, ok bool) {
		asked := form.Form{}
		if c.Params["as"] != "" {
			if asked, ok = formOf(c, metadata); !ok || asked.Kind == form.Table && !t.endpoint.Tabular(t.Subresource) {
				return "", false
			}
		}
		if c.Media == string(negotiation.Protobuf) {
			asked.Encoding = form.Protobuf
			media, ok = negotiation.Protobuf, t.endpoint.Encodes(t.Subresource, asked.Kind)
		} else {
			media, ok = accept(negotiation.Clause{Media: c.Media})
			if media == negotiation.Events {
				asked.Encoding = form.ServerSent
			}
			ok = ok && (c.Media != "application/*" || !t.endpoint.GoType() || negotiation.KnowsObjects(headers)) // see unacceptable
		}
		if ok {
			wanted = asked
		}
		return media, ok
	})
	return media, wanted, err
}

// What clients call objects of which they want the metadata only.
const (
	oneMetadata  = string(form.MetadataOnly)
	listMetadata = oneMetadata + "List"
)

// formOf returns the form that a clause asks for by as, g and v.
func formOf(c negotiation.Clause, metadata string) (form.Form, bool) {
	f := form.Form{Version: c.Params["v"]}
	switch c.Params["as"] {
	case string(form.Table):
		f.Kind = form.Table
	case metadata:
		f.Kind = form.MetadataOnly
	}
	known := f.Kind != form.Whole && c.Params["g"] == metav1.GroupName && (f.Version == "v1" || f.Version == "v1beta1")
	return f, known
}

// unacceptable is the 406 about an object. Of a Go type, Kubernetes looks at the media types alone first.
func (t target) unacceptable(r *http.Request, otherwise error) error {
	return t.unavailable(r, otherwise, "")
}

// unavailable is unacceptable where there's more than negotiation.ObjectMedia.
func (t target) unavailable(r *http.Request, otherwise error, more string) error {
	if !t.endpoint.GoType() || negotiation.KnowsObjects(r.Header.Values("Accept")) {
		return otherwise
	}
	return registry.AsKubernetes(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable, "406: Not Acceptable\n\nAvailable representations: "+negotiation.ObjectMedia+more)
}

// unacceptableList is the 406 about a list: of custom resources Kubernetes says what was asked of it.
func (t target) unacceptableList(r *http.Request, otherwise error) error {
	one := func(c negotiation.Clause) bool {
		f, ok := formOf(c, oneMetadata)
		return ok && f.Kind == form.MetadataOnly
	}
	if t.endpoint.GoType() {
		return t.unavailable(r, otherwise, ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch")
	}
	if !slices.ContainsFunc(negotiation.Parse(r.Header.Values("Accept")), one) {
		return otherwise
	}
	return negotiation.NotAcceptable("you requested PartialObjectMetadata, but the requested object is a list (*unstructured.UnstructuredList)")
}

// wantsPretty reports whether JSON should be indented: because the client says so, or because there is a
// person who uses it and it doesn't say.
func (w *response) wantsPretty(r *http.Request) bool {
	query := w.query
	if query == nil {
		query = r.URL.Query()
	}
	for _, accept := range r.Header.Values("Accept") {
		if strings.Contains(accept, "pretty=1") && slices.ContainsFunc(negotiation.Parse([]string{accept}), func(c negotiation.Clause) bool { return c.Params["pretty"] == "1" }) {
			return true
		}
	}
	if text := query.Get("pretty"); text != "" {
		pretty, _ := strconv.ParseBool(text)
		return pretty
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl/") || strings.HasPrefix(agent, "Wget/") || strings.HasPrefix(agent, "Mozilla/5.0")
}

// writeObject answers with one document in the form negotiated. body is JSON, also for YAML, or protobuf. What was written
// isn't refused because of its form.
func (w *response) writeObject(r *http.Request, code int, media negotiation.Media, body []byte) error {
	end := ""
	if media == negotiation.YAML {
		text, err := w.toYAML(r.Context(), body)
		switch {
		case err == nil:
			body = text
		case r.Method == http.MethodGet || r.Method == http.MethodHead || code >= http.StatusBadRequest:
			return err
		default: // the write has happened and must not be refused: send the JSON, which is YAML too
		}
	} else if media == negotiation.JSON {
		body, end = w.laidOut(r, body)
	}
	w.Header().Set("Content-Type", string(media))
	vary(w.Header(), "Accept, Accept-Encoding")
	return w.writeBody(r, code, body, end)
}

// writeIndented answers with a JSON document that is indented whatever the client wants, as kube-apiserver does with some.
func (w *response) writeIndented(r *http.Request, code int, body []byte) error {
	w.Header().Set("Content-Type", string(negotiation.JSON))
	return w.writeBody(r, code, markup.Indented(body), "")
}

// vary names what an answer depends on, once.
func vary(header http.Header, on string) {
	if !slices.Contains(header.Values("Vary"), on) {
		header.Add("Vary", on)
	}
}

// lineEnd ends a JSON document that isn't indented, as kube-apiserver ends it.
const lineEnd = "\n"

// laidOut returns a JSON document as the client wants it, and what comes after it.
func (w *response) laidOut(r *http.Request, body []byte) (out []byte, end string) {
	if !w.wantsPretty(r) {
		return bytes.TrimRight(body, " "), lineEnd // some are stored with a space at their end
	}
	return markup.Indented(body), ""
}

// What a document may take as YAML, which is built in memory.
const (
	// maxYAMLSource bounds its JSON, in bytes: the library takes 200 times as much. Every object that can be stored fits.
	maxYAMLSource = 2 << 20
	// maxYAMLText bounds an estimate of the text, in bytes.
	maxYAMLText = 16 << 20
	// largeYAML is the size in bytes of JSON from which documents are made YAML one at a time.
	largeYAML = 64 << 10
)

func errYAMLTooLarge() error {
	return status.Error(http.StatusNotAcceptable, metav1.StatusReasonNotAcceptable,
		"the answer is too large or too deep for application/yaml: ask for application/json")
}

// limitedBuffer takes at most maxYAMLSource bytes.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.Len()+len(p) > maxYAMLSource {
		return 0, errYAMLTooLarge()
	}
	return b.Buffer.Write(p)
}

func (w *response) toYAML(ctx context.Context, body []byte) ([]byte, error) {
	if len(body) > maxYAMLSource || markup.Measure(body).Indented > maxYAMLText {
		return nil, errYAMLTooLarge()
	}
	if len(body) > largeYAML {
		place, err := w.capacity.yaml.enter(ctx, w.held.flow, 1, largeAnswerWait)
		if err != nil {
			return nil, err
		}
		defer place.Leave()
	}
	return yaml.JSONToYAML(body)
}

// maxWarningTexts is how many distinct warnings of a request are kept. More than a few don't fit in the headers anyway, and each is compared with all others.
const maxWarningTexts = 512

// warn adds warnings to the answer: a header of the form of RFC 7234 for each distinct one.
func (w *response) warn(warnings []string) {
	if len(warnings) == 0 {
		return
	}
	for _, text := range warnings {
		if !slices.Contains(w.warnings, text) && len(w.warnings) < maxWarningTexts {
			w.warnings = append(w.warnings, text)
		}
	}
	w.Header().Del("Warning")
	for _, text := range negotiation.Warnings(w.warnings) {
		w.Header().Add("Warning", text)
	}
}
