package server

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
)

// check is one thing that can be wrong with the server.
type check struct {
	name  string
	kinds []string     // the endpoints that it belongs to
	run   func() error // must return at once
}

// checks are what the health endpoints look at. livez fails only where a restart would help: when etcd has stopped for
// good. (Run returns then; a program that calls Start may go on.)
func (in *instance) checks() []check {
	all := []check{
		{"ping", []string{"healthz", "livez", "readyz"}, func() error { return nil }},
		{"store", []string{"healthz", "livez", "readyz"}, func() error {
			select {
			case <-in.storeDone():
				return in.etcdStopped()
			default:
				return nil
			}
		}},
		{"etcd", []string{"healthz", "readyz"}, in.storeHealth},
		{"caches", []string{"readyz"}, func() error { return closed(in.cacher.Primed(), "the caches are still being filled") }},
		{"definitions", []string{"readyz"}, func() error { return closed(in.registry.Ready(), "the stored definitions are not served yet") }},
		{"serving", []string{"readyz"}, func() error {
			if !in.ready.Load() || in.stopping.Load() {
				return errors.New("starting or shutting down")
			}
			return nil
		}},
	}
	if in.backing.keys != nil { // a restart of this process wouldn't help
		all = append(all, check{"kms-providers", []string{"healthz", "readyz"}, in.backing.keys.Health})
	}
	if in.replica != nil {
		all = append(all, check{"consistency", []string{"readyz"}, in.replica.Reached}, check{"lag", []string{"readyz"}, in.replica.Follows})
	}
	return all
}

func closed(c <-chan struct{}, otherwise string) error {
	select {
	case <-c:
		return nil
	default:
		return errors.New(otherwise)
	}
}

// health serves /healthz, /livez and /readyz: "ok", or 500 and which checks failed and why. ?verbose
// lists all, ?exclude=NAME leaves one out.
func (h *handler) health(kind string) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		query := r.URL.Query()
		var list strings.Builder
		failed := false
		for _, c := range h.state.checks {
			if !slices.Contains(c.kinds, kind) || slices.Contains(query["exclude"], c.name) {
				continue
			}
			if err := c.run(); err != nil {
				failed = true
				fmt.Fprintf(&list, "[-]%s failed: %s\n", c.name, w.reason(err))
			} else {
				fmt.Fprintf(&list, "[+]%s ok\n", c.name)
			}
		}
		switch {
		case failed:
			w.writeText(http.StatusInternalServerError, list.String()+kind+" check failed\n")
		case query.Has("verbose"):
			w.writeText(http.StatusOK, list.String()+kind+" check passed\n")
		default:
			w.writeText(http.StatusOK, "ok")
		}
		return nil
	})
}

// healthCheck serves one check by its name, as /readyz/etcd.
func (h *handler) healthCheck(kind string) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		name := chi.URLParam(r, "check")
		i := slices.IndexFunc(h.state.checks, func(c check) bool { return c.name == name && slices.Contains(c.kinds, kind) })
		if i < 0 {
			return noPage(w)
		}
		if err := h.state.checks[i].run(); err != nil {
			w.writeText(http.StatusInternalServerError, w.reason(err)+"\n")
		} else {
			w.writeText(http.StatusOK, "ok")
		}
		return nil
	})
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
