package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/markup"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
)

// serveBulk answers a POST of a List, whose objects are written one after the other.
func (h *handler) serveBulk(w *response, r *http.Request) error {
	media, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.OnlyJSON)
	if err != nil {
		return err
	}
	text, err := w.readList(r)
	if err != nil {
		return err
	}
	list, err := bulk.Parse(r, w.query, text)
	if err != nil {
		return err
	}
	w.leaveSeat()                                                               // each object's request takes its own
	ctx := context.WithValue(r.Context(), chi.RouteCtxKey, (*chi.Context)(nil)) // and finds its own route
	ctx = audit.NewContext(ctx, nil)
	serve := func(rw http.ResponseWriter, item *http.Request, body []byte) []string {
		return h.serveItem(w, rw, item, body)
	}
	return w.writeStream(r, media, func(to io.Writer) error { return list.Write(ctx, h.kind, serve, to) })
}

// kind finds what serves the objects of a kind. Where nothing does, it says what would say who asks at the kind's path.
func (h *handler) kind(ctx context.Context, apiVersion, kind string) (*registry.Endpoint, error) {
	if e := h.registry.Catalog().Kind(apiVersion, kind); e != nil {
		return e, nil
	}
	path, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	e, err := h.registry.Lookup(ctx, path)
	switch {
	case err == nil && e.Kind == kind: // it has come meanwhile
		return e, nil
	case err != nil && !errors.Is(err, registry.ErrNotServed):
		return nil, err
	}
	return nil, statusError(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("the kind %q of %q isn't served: see /apis", clip.Text(kind), clip.Text(apiVersion)))
}

// readList reads a List as JSON.
func (w *response) readList(r *http.Request) ([]byte, error) {
	media, err := contentType(r)
	if err != nil {
		return nil, err
	}
	if media != "" && media != string(negotiation.JSON) && media != string(negotiation.YAML) {
		return nil, unsupportedType()
	}
	b := body{}
	if b.data, err = readAll(w, r); err != nil || media != string(negotiation.YAML) {
		return b.data, err
	}
	duplicates, err := b.fromYAML()
	if err != nil {
		return nil, registry.BadRequest("the body of the request can't be decoded: %v", err)
	}
	warnings, err := markup.DuplicateFields(duplicates, w.query.Get("fieldValidation"))
	if err != nil {
		return nil, registry.BadRequest("%v", err)
	}
	w.warn(warnings)
	return b.data, nil
}

// serveItem answers the request of one object of a List, which another request came with. Who asks is known, and has yet to be allowed it.
func (h *handler) serveItem(of *response, rw http.ResponseWriter, r *http.Request, body []byte) (warnings []string) {
	w := &response{
		ResponseWriter: rw, log: h.log, auditID: uuid.NewString(), begun: time.Now(), capacity: h.capacity, Grounds: of.Grounds,
		upload: upload{received: body, read: true},
	}
	h.whole(w, r, func(w *response, r *http.Request) {
		let, err := h.letItemIn(w, r)
		if err != nil {
			w.fail(r, err)
			return
		}
		h.route(w, let)
	})
	return w.warnings
}

// letItemIn is letIn for the request of an object: whose it is was found out.
func (h *handler) letItemIn(w *response, r *http.Request) (*http.Request, error) {
	r, err := h.fresh(r)
	if err != nil {
		return nil, err
	}
	by := registry.UserFrom(r.Context())
	if w.As != nil {
		by = w.As.By()
	}
	if r, err = h.beginAudit(w, r, by); err != nil {
		return nil, err
	}
	if w.As != nil {
		if w.As, err = w.As.For(r); err != nil {
			return nil, err
		}
		w.audit.Impersonate(w.As.User, w.As.Constraint)
	}
	return r, h.authorize(w, r)
}
