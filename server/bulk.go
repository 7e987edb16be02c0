package server

import (
	"context"
	"net/http"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/markup"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

func (h *handler) bulkRoutes(routes chi.Router) {
	routes.Use(parsed(h.enterResource))
	routes.HandleFunc(bulk.ApplyPath, handle(h.serveBulk))
	routes.HandleFunc(bulk.CreatePath, handle(h.serveBulk))
	routes.HandleFunc(bulk.TransactionsPath, handle(h.serveTransaction))
}

// serveBulk answers a POST of a List, whose objects are written one after the other.
func (h *handler) serveBulk(w *response, r *http.Request) error {
	place, text, err := h.enterBulk(w, r)
	if err != nil {
		return err
	}
	defer place.Leave()
	list, err := bulk.Parse(r, w.query, text)
	if err != nil {
		return err
	}
	w.held.raw.Leave()
	// The answer begins before the first object is written, so that nothing refuses it afterwards.
	answer, err := wire.NewLongAnswer(w, h.port.StreamTimeout)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", string(negotiation.JSON))
	w.WriteHeader(http.StatusOK)
	host := h.hostOf(w)
	if err := list.Write(itemContext(r), host.Find, host.Serve, answer); err != nil {
		return wire.Gone(err) // cut off: the client has to see that results are missing
	}
	return nil
}

// enterBulk takes a place among the requests that come with several others, and reads the body. Who calls it leaves the place.
func (h *handler) enterBulk(w *response, r *http.Request) (place fair.Seat, text []byte, err error) {
	if r.Method != http.MethodPost {
		return place, nil, methodNotAllowed(w, http.MethodPost, "only POST is served here")
	}
	if _, err := negotiation.Negotiate(r.Header.Values("Accept"), negotiation.OnlyJSON); err != nil {
		return place, nil, err
	}
	w.leaveSeat() // what waits for its place needs none, and each object takes its own
	if place, err = h.capacity.lists.enter(r.Context(), w.held.flow, 1, waitFor(r.Context())); err != nil {
		return place, nil, err
	}
	if text, err = w.readList(r); err != nil {
		place.Leave()
	}
	return place, text, err
}

// itemContext returns the context of the requests that come with another one.
func itemContext(r *http.Request) context.Context {
	ctx := context.WithValue(r.Context(), chi.RouteCtxKey, (*chi.Context)(nil)) // each finds its own route
	return audit.NewContext(ctx, nil)
}

// hostOf is what the items of a request need.
func (h *handler) hostOf(w *response) bulk.Host {
	return bulk.Host{
		Find:  func(apiVersion, kind string) bulk.Place { return bulk.PlaceOf(h.registry.Catalog(), apiVersion, kind) },
		Named: h.registry.Named, Store: h.registry.Store,
		Serve: func(rw http.ResponseWriter, item *http.Request, body []byte) []string {
			return h.serveItem(w, rw, item, body)
		},
	}
}

// serveTransaction answers a POST of operations that are stored together or not at all.
func (h *handler) serveTransaction(w *response, r *http.Request) error {
	place, text, err := h.enterBulk(w, r)
	if err != nil {
		return err
	}
	defer place.Leave()
	t, err := bulk.ParseTransaction(r, w.query, text)
	if err != nil {
		return err
	}
	e := h.registry.Namespaces.Res.Storage // any one: its errors are about storage
	values, err := writes.Of(e).CheckValues(text)
	if err == nil {
		err = w.enterBody(r, text, values) // for all operations: those that wait for others keep what they have
	}
	if err != nil {
		return err
	}
	answer, err := t.Do(h.registry.Authored(itemContext(r)), h.hostOf(w))
	if err != nil {
		return e.Fail("", err)
	}
	return w.writeObject(r, http.StatusOK, negotiation.JSON, answer.JSON())
}

// readList reads a List or a transaction as JSON, or a rule for faults.
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
	if len(b.data) > maxBody {
		return nil, &http.MaxBytesError{Limit: maxBody}
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
	transaction.Of(r.Context()).BeforeWait(w.leaveSeat) // there may be fewer seats than operations that wait for each other
	h.whole(w, r, func(w *response, r *http.Request) {
		let, err := h.letItemIn(of, w, r)
		if err == nil && h.aggregator.Route(r.URL.Path) != nil {
			err = status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "another server has this kind, and takes it at its own path")
		}
		if err != nil {
			w.fail(r, err)
			return
		}
		h.routes.ServeHTTP(w, let)
	})
	return w.warnings
}

// letItemIn is letIn for the request of an object: whose it is was found out.
func (h *handler) letItemIn(of, w *response, r *http.Request) (*http.Request, error) {
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
	w.audit.Annotate(bulk.Annotation, of.auditID)
	if w.As != nil {
		if w.As, err = w.As.For(r); err != nil {
			return nil, err
		}
		w.audit.Impersonate(w.As.User, w.As.Constraint)
		r = withUser(r, w.As.User) // who may have other groups than for the List
	}
	return r, h.authorize(w, r)
}
