package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/resets"
	"github.com/apiserver-lite/apiserver-lite/server/status"
)

// Tests take an ephemeral server back to how it started with POST /debug/reset, or to a state that they named before with
// POST /debug/snapshot?name=x and name again in POST /debug/reset?to=x. Kubernetes has nothing of that.

// serveReset answers POST /debug/reset.
func (h *handler) serveReset(w *response, r *http.Request) error {
	if err := h.checkReset(w, r, "to"); err != nil {
		return err
	}
	name := ""
	if w.query.Has("to") {
		var err error
		if name, err = resets.NameOf(w.query, "to"); err != nil {
			return err
		}
	}
	page, err := h.besides.snapshots.Reset(r.Context(), name, func(ctx context.Context) error {
		if !h.may.RBAC() || name != "" { // what the start noted may lack some of Kubernetes' own rules; what has a name has them as they were
			return nil
		}
		return h.may.Rules().Bootstrap(ctx, h.log)
	})
	if err != nil {
		return err
	}
	return w.writePage(page)
}

// serveSnapshot answers POST /debug/snapshot.
func (h *handler) serveSnapshot(w *response, r *http.Request) error {
	if err := h.checkReset(w, r, "name"); err != nil {
		return err
	}
	name, err := resets.NameOf(w.query, "name")
	if err != nil {
		return err
	}
	if h.may.RBAC() {
		if err := h.may.Rules().Bootstrapped(r.Context()); err != nil {
			return err
		}
	}
	page, err := h.besides.snapshots.Take(r.Context(), name)
	if err != nil {
		return err
	}
	return w.writePage(page)
}

// checkReset refuses all but a POST on an ephemeral server, without a body, and without other parameters than one. A reset takes
// everything away, so nothing of a request for one is ignored.
func (h *handler) checkReset(w *response, r *http.Request, parameter string) error {
	switch {
	case h.besides.snapshots == nil:
		return status.Error(http.StatusNotFound, metav1.StatusReasonNotFound, "only a server with --ephemeral can be reset")
	case r.Method != http.MethodPost:
		return methodNotAllowed(w, http.MethodPost, "only POST is served here")
	}
	for name := range w.query {
		if name != parameter {
			return status.BadRequest(
				fmt.Sprintf("there is no parameter %s here, only %s", guard.Quote(name), parameter))
		}
	}
	switch sent, err := readAll(w, r); {
	case err != nil:
		return err
	case len(sent) > 0:
		return status.BadRequest("this takes no body: what it is to do is said in the query, as " + parameter + "=NAME")
	}
	return nil
}

// writePage answers with a value as JSON.
func (w *response) writePage(page any) error {
	w.Header().Set("Content-Type", string(negotiation.JSON))
	return json.NewEncoder(w).Encode(page)
}
