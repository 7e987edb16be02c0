package server

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// faulty returns the routes with the faults before them that rules ask for, or the routes themselves on a server without faults. Who asks is known by
// then, and that he may. What happens to open watches is in serveWatch.
func (h *handler) faulty(routes http.Handler) http.Handler {
	f := h.besides.faults
	if f == nil {
		return routes
	}
	return handle(func(w *response, r *http.Request) error {
		to := w.ResponseWriter
		if err := bulk.InTurn(r); err != nil { // operations meet faults in their order, so that a run can be repeated
			return err
		}
		hit := f.Strike(to, r, w.Asks, w.auditID)
		if hit == nil {
			routes.ServeHTTP(w, r)
			return nil
		}
		err := hit.Serve(to, r, func(through http.ResponseWriter, r *http.Request) {
			defer func() { w.ResponseWriter = to }()
			w.ResponseWriter = through
			routes.ServeHTTP(w, r)
		})
		if err != nil && !errors.Is(err, wire.ErrGone) {
			w.code, w.bytes, w.end = 0, 0, ending{lobby: w.end.lobby} // what was answered nobody got
		}
		return err
	})
}

// versions are those that stale lists may have.
func (in *instance) versions() faults.Versions {
	return faults.Versions{Newest: func() int64 { return int64(in.cacher.Position()) }, Oldest: func() int64 { return int64(in.cacher.Oldest()) }}
}

// serveFaults answers at the paths of the faults.
func (h *handler) serveFaults(w *response, r *http.Request) error {
	return h.besides.faults.Answer(w, r, chi.URLParam(r, "name"), func() ([]byte, error) { return w.readList(r) })
}
