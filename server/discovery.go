package server

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// encodingOf is the form of a document in a media type.
func encodingOf(media negotiation.Media) form.Encoding {
	switch media {
	case negotiation.Protobuf, negotiation.AggregatedProtobuf, negotiation.OpenAPI2, negotiation.OpenAPI3:
		return form.Protobuf
	}
	return form.JSON
}

// serveDiscovery serves /api and /apis in the form that the client wants: everything at once, or the list from which older clients go on.
func (h *handler) serveDiscovery(w *response, r *http.Request) error {
	media, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.Discovery)
	if err != nil {
		return err
	}
	path := strings.Trim(r.URL.Path, "/")
	if media != negotiation.AggregatedJSON && media != negotiation.AggregatedProtobuf {
		return w.writeMessage(r, media, h.discovery.List(path, r.Host))
	}
	doc, err := h.discovery.Aggregated(r.Context(), path, encodingOf(media))
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "public")
	return w.writeDocument(r, doc, media)
}

// serveGroup serves /apis/{group}.
func (h *handler) serveGroup(w *response, r *http.Request) error {
	doc := h.discovery.Group(chi.URLParam(r, "group"))
	if doc == nil {
		return noPage(w)
	}
	return w.negotiateMessage(r, doc)
}

// serveResources serves /api/{version} and /apis/{group}/{version}.
func (h *handler) serveResources(w *response, r *http.Request) error {
	of := schema.GroupVersion{Group: chi.URLParam(r, "group"), Version: chi.URLParam(r, "version")}
	if doc := h.discovery.Resources(of); doc != nil {
		return w.negotiateMessage(r, doc)
	}
	if of.Group != "" && !h.hasTypes(of.Group) {
		return noPage(w)
	}
	return registry.ErrNotServed
}

// hasTypes tells whether Go types of a group of the API are served.
func (h *handler) hasTypes(name string) bool {
	return slices.ContainsFunc(h.registry.Catalog().Groups, func(g registry.Group) bool {
		return g.Name == name && slices.ContainsFunc(g.Versions, func(v registry.Version) bool {
			return slices.ContainsFunc(v.Resources, (*registry.Endpoint).GoType)
		})
	})
}

func (w *response) negotiateMessage(r *http.Request, doc discovery.Message) error {
	media, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.Message)
	if err != nil {
		return err
	}
	return w.writeMessage(r, media, doc)
}

func (w *response) writeMessage(r *http.Request, media negotiation.Media, doc discovery.Message) error {
	body, err := discovery.Encode(doc, encodingOf(media))
	if err != nil {
		return err
	}
	return w.writeObject(r, http.StatusOK, media, body)
}

// writeDocument answers with a document that isn't compressed, or with 304 if the client has it.
func (w *response) writeDocument(r *http.Request, d *discovery.Document, media negotiation.Media) error {
	vary(w.Header(), "Accept")
	if d.Size > largeAnswer { // it may be compressed
		w.Header().Add("Vary", "Accept-Encoding")
	}
	if w.notModified(r, negotiation.JSON, d.Hash) {
		return nil
	}
	body, end := d.Raw(), ""
	if encodingOf(media) == form.JSON {
		body, end = w.laidOut(r, body)
	}
	w.Header().Set("Content-Type", string(media))
	return w.writeBody(r, http.StatusOK, body, end)
}

// serveOpenAPIRoot serves /openapi/v3: which documents there are, by the hash of their contents.
func (h *handler) serveOpenAPIRoot(w *response, r *http.Request) error {
	if _, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.OnlyJSON); err != nil {
		return err
	}
	doc, err := h.discovery.OpenAPIRoot(r.Context())
	if err != nil {
		return err
	}
	if w.notModified(r, negotiation.JSON, doc.Hash) {
		return nil
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8") // as kube-apiserver answers
	http.ServeContent(w, r, "", doc.Built, bytes.NewReader(doc.Raw()))
	return nil
}

// serveOpenAPI serves one group version's document. With its hash in the query it can be kept forever;
// with an old one the client is sent to the new.
func (h *handler) serveOpenAPI(w *response, r *http.Request) error {
	media, err := negotiation.OpenAPI(r.Header.Values("Accept"), negotiation.OpenAPI3)
	if err != nil {
		return err
	}
	path := chi.URLParam(r, "*")
	found, err := h.discovery.OpenAPI3(r.Context(), path)
	if err != nil {
		return err
	}
	if found == nil {
		return h.serveForeignOpenAPI(w, r, path)
	}
	asked := w.query.Get("hash")
	if asked != "" && asked != found.Hash {
		http.Redirect(w, r, found.URL, http.StatusMovedPermanently)
		return nil
	}
	doc, err := found.Document(r.Context(), encodingOf(media))
	if err != nil {
		return err
	}
	if asked != "" {
		w.Header().Set("Cache-Control", "public, immutable")
		w.Header().Set("Expires", time.Now().AddDate(1, 0, 0).UTC().Format(time.RFC1123))
	}
	return w.writeOpenAPI(r, doc, media)
}

// serveForeignOpenAPI serves the document of a group version that another server has: the server does, or if it has none, it's
// one that was made of its version 2. Where there's none it answers as kube-apiserver does, with nothing but the code.
func (h *handler) serveForeignOpenAPI(w *response, r *http.Request, path string) error {
	others := h.aggregator.OpenAPI()
	document, ok := others.Three[path]
	switch {
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		return nil
	case document.JSON == nil:
		w.leaveSeat() // it takes another one
		return h.serveAggregated(w, r, others.Of[path])
	}
	if _, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.OnlyJSON); err != nil {
		return err
	}
	return w.writeDocument(r, discovery.Plain(document.JSON), negotiation.JSON)
}

// serveOpenAPI2 serves /openapi/v2: one document for all group versions.
func (h *handler) serveOpenAPI2(w *response, r *http.Request) error {
	media, err := negotiation.OpenAPI(r.Header.Values("Accept"), negotiation.OpenAPI2)
	if err != nil {
		return err
	}
	doc, err := h.discovery.OpenAPI2(r.Context(), encodingOf(media))
	if err != nil {
		return err
	}
	return w.writeOpenAPI(r, doc, media)
}

// writeOpenAPI answers with a document of OpenAPI, or with 304 if the client has it.
func (w *response) writeOpenAPI(r *http.Request, doc *discovery.Document, media negotiation.Media) error {
	if w.notModified(r, media, doc.Hash) {
		return nil
	}
	header := w.Header()
	header.Set("Content-Type", string(media))
	vary(header, "Accept, Accept-Encoding")
	header.Set("Accept-Ranges", "bytes")
	header.Set("Last-Modified", doc.Built.UTC().Format(http.TimeFormat))
	if media == negotiation.JSON && w.wantsPretty(r) {
		return w.writeStream(r, media, doc.Unzip)
	}
	switch {
	case r.Header.Get("Range") != "" || r.Header.Get("If-Modified-Since") != "":
		if err := w.enterLarge(r.Context()); err != nil {
			return err
		}
		var whole bytes.Buffer
		if err := doc.Unzip(&whole); err != nil {
			return err
		}
		http.ServeContent(w, r, "", doc.Built, bytes.NewReader(whole.Bytes()))
		return nil
	case doc.Size > largeAnswer && negotiation.Gzip(r.Header.Values("Accept-Encoding")):
		header.Set("Content-Encoding", "gzip")
		header.Set("ETag", strings.TrimSuffix(header.Get("ETag"), `"`)+gzipTag+`"`)
		header.Set("Content-Length", strconv.Itoa(len(doc.Raw())))
		w.WriteHeader(http.StatusOK)
		_, err := w.Write(doc.Raw())
		return err
	}
	header.Set("Content-Length", strconv.Itoa(doc.Size))
	if media == negotiation.JSON {
		return w.writeStream(r, media, doc.Unzip)
	}
	w.WriteHeader(http.StatusOK)
	return doc.Unzip(w)
}
