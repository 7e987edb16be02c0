package server

import (
	"net/http"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/health"
	"github.com/apiserver-lite/apiserver-lite/server/traffic"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
)

// fresh makes sure that a request is judged by what was acknowledged before it on any replica: rights, definitions and the
// rest. While the store can't be reached, reads that take what is in memory go on, and are judged by that, too. A write may
// presume that what is in memory is new enough: see registry.Presume.
func (h *handler) fresh(r *http.Request) (*http.Request, error) {
	if h.pulse == nil || unjudged(r) {
		return r, nil
	}
	if h.mayPresume(r) {
		if ctx, may := h.registry.Presume(r.Context()); may {
			return r.WithContext(ctx), nil
		}
	}
	old := takesOld(r)
	if old && h.pulse.Reached() != nil {
		return r, nil
	}
	ctx, err := h.registry.Fresh(r.Context())
	switch {
	case err == nil:
		return r.WithContext(ctx), nil
	case old && r.Context().Err() == nil:
		return r, nil
	}
	return nil, err
}

// mayPresume tells whether a request may be a write of one object that nobody's rights judge, while the store
// answers. Who a user is, and what he may do, is decided before the registry is asked, and has to be new by then.
func (h *handler) mayPresume(r *http.Request) bool {
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return transaction.Of(r.Context()) == nil && h.may == nil && !h.identity.on && h.pulse.Reached() == nil && (strings.HasPrefix(r.URL.Path, "/apis/") || strings.HasPrefix(r.URL.Path, "/api/"))
	}
	return false
}

// freshened makes a request fresh that presumed, and turned out to be no write of one object.
func (h *handler) freshened(r *http.Request) (*http.Request, error) {
	if !registry.Presumes(r.Context()) {
		return r, nil
	}
	ctx, err := h.registry.Fresh(r.Context())
	if err != nil {
		return nil, err
	}
	return r.WithContext(ctx), nil
}

// unjudged tells whether a request is answered without looking at what is stored.
func unjudged(r *http.Request) bool {
	if health.Asks(r) {
		return true
	}
	switch r.URL.Path {
	case metricsPath, traffic.Path, "/version", "/version/", "/debug/watchers":
		return true
	}
	return false
}

// takesOld tells whether a request takes objects as old as the caches have them: a read from a resourceVersion, or a watch.
func takesOld(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	query := r.URL.Query()
	return query.Get("resourceVersion") != "" || reads.Flag(query, "watch") || r.URL.Path == mergedPath ||
		strings.Contains(r.URL.Path, "/watch/") && access.AttributesOf(r).Verb == "watch" // a namespace may have the name, too
}
