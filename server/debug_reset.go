package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/resets"
)

// Tests take an ephemeral server back to how it started with POST /debug/reset, or to a state that they named before with
// POST /debug/snapshot?name=x and name again in POST /debug/reset?to=x. Kubernetes has nothing of that.

// serveReset answers POST /debug/reset.
func (h *handler) serveReset(w *response, r *http.Request) error {
	if err := h.besides.snapshots.Check(w, r, w.query, "to", func() ([]byte, error) { return readAll(w, r) }); err != nil {
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
	if err := h.besides.snapshots.Check(w, r, w.query, "name", func() ([]byte, error) { return readAll(w, r) }); err != nil {
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

// writePage answers with a value as JSON.
func (w *response) writePage(page any) error {
	w.Header().Set("Content-Type", string(negotiation.JSON))
	return json.NewEncoder(w).Encode(page)
}
