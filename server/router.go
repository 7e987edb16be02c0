package server

import (
	"net/http"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/profile"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/traffic"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
)

func newHandler(in *instance, s *Server, identity *identity) *handler {
	open := watches.New()
	h := &handler{
		log:      in.log,
		registry: in.registry,
		gate: gate{
			guard: guard.New(guard.Options{
				Address: in.port.Addr(), Asks: identity.asks(), Users: identity.on, Proxies: identity.proxies,
				AllowedHosts: s.Serving.AllowedHosts, Origins: in.rights.origins,
			}),
			identity: identity,
			may:      in.rights.may,
			audit:    in.noted.audit,
		},
		capacity:  newCapacity(in.levels(s), open.Seats),
		streams:   streams{port: in.port, watches: open, sweeper: in.sweeper},
		discovery: discovery.New(discovery.Sources{Registry: in.registry, Others: in.aggregator, Version: Version(), Log: in.log}),
		state:     state{in.ready.Load, in.checks()},
		quiescent: in.controllers.Quiescent,
		besides:   besides{console: !s.Serving.NoConsole, snapshots: in.content.snapshots, backup: in.backing.backup, faults: faults.New(s.API.Faults, in.versions(), in.log), clock: in.newClock(open)},

		aggregator: in.aggregator,
	}
	if in.replica != nil {
		h.pulse, h.quiescent = in.replica.Pulse, in.replica.Quiescent
	}
	h.metrics = metrics.New(map[string]func() int{
		"readOnly": func() int { return h.capacity.inflight.Now(inflight.Read) }, "mutating": func() int { return h.capacity.inflight.Now(inflight.Write) },
	})
	if s.Cluster.Listen != "" {
		h.besides.members = in.backing.etcd
	}
	h.tells.traffic, h.tells.tracer = h.newTraffic(in), in.noted.tracer
	h.routes = h.faulty(h.newRoutes(h.collect(in, s.Metrics), s.Telemetry.Profiling.Served(in.rights.may != nil)))
	h.manner.timeout, h.manner.goaway = s.Bounds.Time(), s.Bounds.GoawayChance
	if in.port.Secure {
		h.manner.security = strings.Join(s.Serving.TransportSecurity, "; ")
	}
	return h
}

// levels returns where requests get their seats.
func (in *instance) levels(s *Server) levels {
	most := s.Bounds.Requests()
	switch {
	case !s.Access.On():
		return flowcontrol.NewAddresses(most, fair.Limits{PerFlow: maxFlowQueue, Waiting: maxQueue})
	case s.API.Builtin == builtin.All:
		return flowcontrol.New(most, in.registry)
	}
	return flowcontrol.New(most, nil) // nobody can store others
}

// collect registers the metrics of everything, and returns them, with those of others if there are any.
func (h *handler) collect(in *instance, others prometheus.Gatherer) prometheus.Gatherer {
	own := h.metrics.Registry
	own.MustRegister(flowcontrol.Metrics(h.capacity.levels.Levels))
	metrics.Parts{
		Store: in.backing.store, Etcd: in.backing.etcd, Cacher: in.cacher, Registry: in.registry, Controllers: in.controllers,
		Replica: in.replica, Audit: in.noted.audit, Large: h.capacity.large.Level,
	}.Register(own)
	own.MustRegister(slices.Concat(in.admission.Collectors(), in.backing.backups.Collectors(), in.content.manifests.Collectors(), h.besides.faults.Collectors(), h.besides.clock.Collectors())...)
	h.discovery.Collect(own)
	h.watches.Collect(own)
	in.port.Collect(own)
	own.MustRegister(in.aggregator.Collector())
	if others != nil {
		return prometheus.Gatherers{own, others}
	}
	return own
}

const metricsPath = "/metrics"

// versionPrefixes are where group versions are.
var versionPrefixes = []string{"/api/{version}", "/apis/{group}/{version}"}

// newRoutes lays out the URL space.
func (h *handler) newRoutes(gatherer prometheus.Gatherer, profiles bool) http.Handler {
	routes := chi.NewRouter()
	for _, name := range []string{"healthz", "livez", "readyz"} {
		get(routes, "/"+name, h.seatless(h.health(name)))
		get(routes, "/"+name+"/{check}", h.seatless(h.healthCheck(name)))
	}
	routes.Group(func(routes chi.Router) {
		get(routes, "/version", h.seatless(handle(h.serveVersion)))
		get(routes, metricsPath, serveMetrics(gatherer))
		get(routes, traffic.Path, handle(h.serveTraffic))
		get(routes, "/debug/watchers", handle(h.serveWatchers))
	})
	routes.Group(func(routes chi.Router) {
		routes.Use(parsed(h.enterDocument))
		get(routes, "/", handle(h.serveRoot))
		get(routes, "/index.html", handle(h.serveRoot))
		get(routes, "/api", handle(h.serveDiscovery))
		get(routes, "/apis", handle(h.serveDiscovery))
		get(routes, "/apis/{group}", handle(h.serveGroup))
		get(routes, "/.well-known/openid-configuration", handle(h.serveIssuer))
		get(routes, "/openid/v1/jwks", handle(h.serveKeys))
		get(routes, "/openapi/v2", handle(h.serveOpenAPI2))
		get(routes, "/openapi/v3", handle(h.serveOpenAPIRoot))
		get(routes, "/openapi/v3/*", handle(h.serveOpenAPI))
		for _, prefix := range versionPrefixes {
			get(routes, prefix, handle(h.serveResources))
		}
	})
	routes.Group(h.resourceRoutes)
	routes.Group(func(routes chi.Router) {
		routes.Use(parsed(h.enterMerged))
		routes.Get(mergedPath, handle(h.serveMerged))
		routes.Get(backupPath, handle(h.serveBackup))
		if profiles {
			profileRoutes(routes)
		}
	})
	routes.Group(h.bulkRoutes)
	routes.Group(func(routes chi.Router) {
		routes.Use(parsed(h.enterWait))
		routes.HandleFunc("/debug/quiescent", handle(h.serveQuiescent))
		if h.besides.clock != nil {
			routes.HandleFunc(faketime.Path, handle(func(w *response, r *http.Request) error { return h.besides.clock.Answer(w, r) }))
		}
	})
	routes.Group(func(routes chi.Router) {
		routes.Use(parsed(h.enterLegacyWatch))
		for _, prefix := range versionPrefixes {
			for _, path := range []string{"/{resource}", "/{resource}/{name}", "/namespaces/{namespace}/{resource}", "/namespaces/{namespace}/{resource}/{name}"} {
				routes.HandleFunc(prefix+"/watch"+path, handle(h.serveResource))
			}
		}
	})
	routes.NotFound(h.noRoute)
	routes.MethodNotAllowed(handle(func(w *response, _ *http.Request) error {
		return methodNotAllowed(w, "GET, HEAD", "only GET and HEAD are served here")
	}))
	return routes
}

// profileRoutes lays out the paths of Go's profiles.
func profileRoutes(routes chi.Router) {
	profiles := profile.New()
	serve := handle(func(w *response, r *http.Request) error { return profiles.Serve(w, r) })
	routes.HandleFunc(profile.Path, serve)
	routes.HandleFunc(profile.Path+"/*", serve)
}

// resourceRoutes lays out the paths of resources, and of what else may be changed.
func (h *handler) resourceRoutes(routes chi.Router) {
	routes.Use(parsed(h.enterResource))
	routes.HandleFunc("/debug/reset", handle(h.serveReset))
	routes.HandleFunc("/debug/snapshot", handle(h.serveSnapshot))
	if h.besides.faults != nil {
		routes.HandleFunc(faults.Path, handle(h.serveFaults))
		routes.HandleFunc(faults.Path+"/{name}", handle(h.serveFaults))
		routes.HandleFunc(faults.LogPath, handle(h.serveFaults))
	}
	routes.HandleFunc(membersPath, handle(h.serveMembers))
	routes.HandleFunc(membersPath+"/{name}", handle(h.serveMember))
	for _, prefix := range versionPrefixes {
		resource := handle(h.serveResource)
		routes.HandleFunc(prefix+"/{resource}", resource)
		routes.HandleFunc(prefix+"/{resource}/{name}", resource)
		routes.HandleFunc(prefix+"/namespaces/{namespace}/{resource}", resource)
		routes.HandleFunc(prefix+"/namespaces/{namespace}/{resource}/{name}", resource)
		routes.HandleFunc(prefix+"/namespaces/{namespace}/{resource}/{name}/{subresource}", resource)
		routes.HandleFunc(prefix+"/{resource}/{name}/{subresource}", resource)
		// A namespace's own subresources, which look like types inside a namespace. They have no {resource}.
		routes.HandleFunc(prefix+"/namespaces/{name}/status", resource)
		routes.HandleFunc(prefix+"/namespaces/{name}/finalize", resource)
	}
}

// serveMetrics serves Prometheus' text format. HandlerFor negotiates and compresses by itself.
func serveMetrics(g prometheus.Gatherer) http.HandlerFunc {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP
}

// noRoute answers where nothing is.
func (h *handler) noRoute(w http.ResponseWriter, r *http.Request) {
	h.seatless(handle(func(w *response, _ *http.Request) error { return noPage(w) }))(w, r)
}

// seatless has an answer to a request that takes no seat name the flow schema that it's of.
func (h *handler) seatless(serve http.HandlerFunc) http.HandlerFunc {
	return handle(func(w *response, r *http.Request) error {
		w.name(h.capacity.levels.Place(r, w.Asks))
		serve(w, r)
		return nil
	})
}

func get(routes chi.Router, pattern string, f http.HandlerFunc) {
	routes.Get(pattern, f)
	routes.Head(pattern, f)
}

func methodNotAllowed(w *response, allow, message string) *apierrors.StatusError {
	w.Header().Set("Allow", allow)
	return status.Error(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, message)
}
