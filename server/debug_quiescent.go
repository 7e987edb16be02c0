package server

import (
	"context"
	"errors"
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/server/quiescence"
)

// Tests wait with GET /debug/quiescent until the controllers have nothing left to do, instead of sleeping. Kubernetes has
// nothing like it.

// quiescentPage is the answer when nothing is left to do.
type quiescentPage struct {
	ResourceVersion string             `json:"resourceVersion"` // everything up to it was acted on, and what followed
	Held            []controllers.Held `json:"held"`            // objects that are being deleted, and that others hold
	HeldMore        int                `json:"heldMore,omitempty"`
}

// serveQuiescent answers GET /debug/quiescent?resourceVersion=N&timeout=30s.
func (h *handler) serveQuiescent(w *response, r *http.Request) error {
	if r.Method != http.MethodGet {
		return methodNotAllowed(w, http.MethodGet, "only GET is served here")
	}
	rev, timeout, err := quiescence.Options(w.query, readDeadline)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	report, err := h.quiescent(ctx, rev)
	switch {
	case err == nil:
		return w.writePage(quiescentPage{report.Revision.String(), report.Held, report.HeldMore})
	case r.Context().Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return quiescence.Pending(report, timeout)
	case r.Context().Err() != nil:
		return err // the request has ended, or the server
	}
	return h.registry.Failed(err)
}
