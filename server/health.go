package server

import (
	"errors"
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/apiserver-lite/apiserver-lite/server/health"
)

// checks are what the health endpoints look at. livez fails only where a restart would help: when etcd has stopped for
// good. (Run returns then; a program that calls Start may go on.)
func (in *instance) checks() health.Checks {
	all := health.Checks{
		{Name: "ping", Kinds: []string{"healthz", "livez", "readyz"}, Run: func() error { return nil }},
		{Name: "store", Kinds: []string{"healthz", "livez", "readyz"}, Run: func() error {
			select {
			case <-in.storeDone():
				return in.etcdStopped()
			default:
				return nil
			}
		}},
		{Name: "etcd", Kinds: []string{"healthz", "readyz"}, Run: in.storeHealth},
		{Name: "caches", Kinds: []string{"readyz"}, Run: func() error { return health.Closed(in.cacher.Primed(), "the caches are still being filled") }},
		{Name: "definitions", Kinds: []string{"readyz"}, Run: func() error { return health.Closed(in.registry.Ready(), "the stored definitions are not served yet") }},
		{Name: "serving", Kinds: []string{"readyz"}, Run: func() error {
			if !in.ready.Load() || in.stopping.Load() {
				return errors.New("starting or shutting down")
			}
			return nil
		}},
	}
	if in.backing.keys != nil { // a restart of this process wouldn't help
		all = append(all, health.Check{Name: "kms-providers", Kinds: []string{"healthz", "readyz"}, Run: in.backing.keys.Health})
	}
	if in.replica != nil {
		all = append(all, health.Check{Name: "consistency", Kinds: []string{"readyz"}, Run: in.replica.Reached}, health.Check{Name: "lag", Kinds: []string{"readyz"}, Run: in.replica.Follows})
	}
	return all
}

// health serves /healthz, /livez and /readyz: 500 if a check failed.
func (h *handler) health(kind string) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		text, well := h.state.checks.Report(kind, r.URL.Query(), w.reason)
		w.writeText(codeOf(well), text)
		return nil
	})
}

// healthCheck serves one check by its name, as /readyz/etcd.
func (h *handler) healthCheck(kind string) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		check, ok := h.state.checks.Of(kind, chi.URLParam(r, "check"))
		if !ok {
			return noPage(w)
		}
		text, err := "ok", check.Run()
		if err != nil {
			text = w.reason(err) + "\n"
		}
		w.writeText(codeOf(err == nil), text)
		return nil
	})
}

func codeOf(well bool) int {
	if well {
		return http.StatusOK
	}
	return http.StatusInternalServerError
}

// reason is why a check failed, for whoever may know: addresses and paths are nothing for strangers. The text is Kubernetes'.
func (w *response) reason(err error) string {
	if w.stranger {
		return "reason withheld"
	}
	return err.Error()
}

func (w *response) writeText(code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	w.Write([]byte(text))
}
