package server

import (
	"context"
	"net/http"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/quiescence"
	"github.com/apiserver-lite/apiserver-lite/server/recheck"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
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

// newClock returns the clock that requests move, nil if it's the machine's. Watches have what happened before history may end there.
func (in *instance) newClock(open *watches.Set) *faketime.Clock {
	return faketime.New(in.content.clock, readDeadline, in.log,
		faketime.Step{Name: "the controllers", Before: in.controllers.CatchUp, After: quiescence.Quiescent(in.controllers.Quiescent).Await},
		faketime.Step{Name: "watches to take their events and bookmarks", Before: open.CatchUp, After: in.sweeper.Sweep},
		faketime.Step{Name: "history to be compacted", Before: in.backing.etcd.KeepHistory, After: func(ctx context.Context) error {
			defer in.cacher.TrimToHistory()
			return in.backing.etcd.KeepHistory(ctx)
		}},
	)
}

// newRecheck returns what looks at open watches again, also when the clock is moved.
func (in *instance) newRecheck(h *handler, every time.Duration) *recheck.Recheck {
	again := &recheck.Recheck{Watches: h.watches, May: in.rights.may, Fresh: in.registry.Fresh, Every: every, Log: in.log}
	if h.identity.on {
		again.Access = in.rights.access
	}
	h.besides.clock.Then(faketime.Step{Name: "watches whose users may no longer watch to end", After: again.All})
	return again
}
