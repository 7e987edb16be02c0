package server

import (
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/framing"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Several kinds are watched on one stream at /apiserver-lite/v1/watch?resource=configmaps&resource=widgets.example.com. Kubernetes has
// nothing of that. Each resource is judged as its own watch would be.

// mergedPath is where that is.
const mergedPath = "/apiserver-lite/v1/watch"

// maxMerged is how many resources one stream may have: all that most servers have. Each batch looks at all of them.
const maxMerged = 256

// enterMerged is for watches of several kinds.
func (h *handler) enterMerged(w *response, r *http.Request, next http.Handler) error {
	return h.enterClass(w, r, inflight.Long, next)
}

// serveMerged answers a watch of several kinds.
func (h *handler) serveMerged(w *response, r *http.Request) error {
	targets, err := h.mergedTargets(w, r)
	if err != nil {
		return err
	}
	asks, err := h.mayWatch(w, r, targets)
	if err != nil {
		return err
	}
	media, wanted, err := negotiateMerged(r.Header.Values("Accept"))
	if err != nil {
		return err
	}
	start := cacher.StartNow
	if reads.Flag(w.query, "initialEvents") {
		start = cacher.StartState
	}
	query := reads.PartQuery(w.query)
	at := func(query url.Values, start cacher.Start) opener {
		return func() (watches.Source, watchstream.Options, error) {
			parts := make([]reads.Part, len(targets))
			for i, t := range targets {
				asked := t.request(w, r, wanted)
				asked.Query = query
				parts[i] = reads.Part{Reader: reads.Of(t.endpoint), Request: asked}
			}
			return reads.WatchMerged(r.Context(), parts, start)
		}
	}
	o := opening{Framing: framing.Of(media), targets: targets, asks: asks, open: at(query, start), events: h.metrics.WatchEvents(nil)}
	if asked := o.open; media == negotiation.Events {
		o.open = func() (watches.Source, watchstream.Options, error) {
			return openAgain(r, asked, func(version string) opener {
				if version == "" {
					return at(after(query, ""), cacher.StartState)
				}
				return at(after(query, version), cacher.StartNow)
			})
		}
	}
	return h.serveWatch(w, r, o)
}

// mergedTargets finds the resources that a request names. A namespace is for those that are in namespaces.
func (h *handler) mergedTargets(w *response, r *http.Request) (targets []target, err error) {
	names := w.query["resource"]
	switch {
	case len(names) == 0:
		return nil, registry.BadRequest("the parameter resource is missing: name each kind to watch, as in resource=configmaps&resource=widgets.example.com")
	case len(names) > maxMerged:
		return nil, registry.BadRequest("%d resources are named, and at most %d may be watched on one stream", len(names), maxMerged)
	}
	for _, name := range names {
		if err := h.mayName(w, r, name); err != nil {
			return nil, err
		}
		e, err := h.registry.Named(r.Context(), name)
		if errors.Is(err, registry.ErrNotServed) {
			return nil, status.Error(http.StatusNotFound, "NotFound", "the parameter resource names "+strconv.Quote(clip.Text(name))+", which isn't served: see /apis, and write it as configmaps, widgets.example.com or widgets.v1.example.com")
		}
		if err != nil {
			return nil, err
		}
		if !slices.Contains(e.Verbs, "watch") {
			return nil, apierrors.NewMethodNotSupported(target{endpoint: e}.resource(), "watch")
		}
		if slices.ContainsFunc(targets, func(t target) bool { return t.endpoint == e }) {
			continue
		}
		t := target{endpoint: e}
		if e.Namespaced {
			t.Namespace = w.query.Get("namespace")
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// toWatch is what a user asks for who names a resource.
func (h *handler) toWatch(w *response, r *http.Request, of schema.GroupVersionResource, namespace string) *authorizer.AttributesRecord {
	asks := access.WatchOf(of, namespace, reads.PartQuery(w.query))
	asks.Path, asks.User = r.URL.Path, w.Asks.User
	return asks
}

// mayName returns 403 if the user may watch nothing that a name can mean. It's asked before the name is looked up: a 404 would tell
// him what isn't served, as no path of Kubernetes does.
func (h *handler) mayName(w *response, r *http.Request, name string) error {
	if h.may == nil {
		return nil
	}
	exact, of := schema.ParseResourceArg(name)
	meant, other := of.WithVersion(""), exact
	if exact != nil && ofKubernetes.MatchString(exact.Version) {
		meant, other = *exact, &meant
	}
	namespace := w.query.Get("namespace")
	if other != nil {
		if h.may.Allows(r.Context(), h.toWatch(w, r, *other, namespace)) {
			return nil // if it's the first that is served, mayWatch asks
		}
	}
	return h.decide(r.Context(), h.toWatch(w, r, meant, namespace))
}

// ofKubernetes is how the versions of Kubernetes begin: what has one before its group is refused in these words.
var ofKubernetes = regexp.MustCompile(`^v[0-9]`)

// mayWatch returns what the user asks for, a watch of each target, or 403 for the first that he may not watch.
func (h *handler) mayWatch(w *response, r *http.Request, targets []target) (all []*authorizer.AttributesRecord, err error) {
	if h.may == nil {
		return nil, nil
	}
	for _, t := range targets {
		asks := h.toWatch(w, r, t.endpoint.Path(), t.Namespace)
		if err := h.decide(r.Context(), asks); err != nil {
			return nil, err
		}
		all = append(all, asks)
	}
	return all, nil
}

// negotiateMerged is negotiate for a watch of several kinds, which there is as JSON and as server-sent events.
func negotiateMerged(headers []string) (negotiation.Media, form.Form, error) {
	var wanted form.Form
	media, err := negotiation.As(string(negotiation.JSON)+", "+string(negotiation.Events), headers, func(c negotiation.Clause) (negotiation.Media, bool) {
		media, ok := negotiation.Stream(negotiation.Clause{Media: c.Media})
		asked := form.Form{}
		if ok && c.Params["as"] != "" {
			asked, ok = formOf(c, oneMetadata)
		}
		if media == negotiation.Events {
			asked.Encoding = form.ServerSent
		}
		if ok {
			wanted = asked
		}
		return media, ok
	})
	return media, wanted, err
}
