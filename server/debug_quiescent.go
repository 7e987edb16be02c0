package server

import (
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/quiescence"
)

// Tests wait with GET /debug/quiescent until the controllers have nothing left to do, instead of sleeping, and move the clock with POST /debug/clock.
// Kubernetes has nothing like them.

// serveQuiescent answers GET /debug/quiescent?resourceVersion=N&timeout=30s.
func (h *handler) serveQuiescent(w *response, r *http.Request) error {
	if r.Method != http.MethodGet {
		return methodNotAllowed(w, http.MethodGet, "only GET is served here")
	}
	page, err := h.quiescent.Answer(r.Context(), w.query, readDeadline)
	if err != nil && r.Context().Err() == nil { // else the request has ended, or the server
		return h.registry.Failed(err)
	}
	if err != nil {
		return err
	}
	return w.writePage(page)
}

// newClock returns the clock that requests move, nil if it's the machine's.
func (in *instance) newClock() *faketime.Clock {
	return faketime.New(in.content.clock, readDeadline, in.log,
		faketime.Step{Name: "the controllers", Before: in.controllers.CatchUp, After: quiescence.Quiescent(in.controllers.Quiescent).Await},
		faketime.Step{Name: "history to be compacted", Before: in.backing.etcd.KeepHistory, After: in.backing.etcd.KeepHistory},
	)
}
