package server

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
)

// maxResources is how many resources have series of their own. Definitions come and go, and the
// series of each stay. When one more resource would pass the bound, all series begin anew, which counters may.
const maxResources = 1024

// metrics are one server's, named as kube-apiserver names what means the same. No label's value comes
// from a client: verbs are ours, codes are HTTP's, resources are those served.
type metrics struct {
	registry *prometheus.Registry

	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	longRunning *prometheus.GaugeVec
	events      *prometheus.CounterVec
	panics      prometheus.Counter
	rejected    *prometheus.CounterVec

	mu        sync.Mutex // guards the following
	resources map[resourceLabels]bool
	watches   map[resourceLabels]int // open ones; none is 0
}

// resourceLabels are the labels group, version and resource, empty outside of resources.
type resourceLabels struct{ group, version, resource string }

func newMetrics(f *inflight) *metrics {
	resource := []string{"group", "version", "resource"}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests answered, by verb, resource and HTTP code. A watch counts when it ends.",
		}, append([]string{"verb", "subresource", "code"}, resource...)),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time from a request's headers to the end of its answer, watches excepted.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, append([]string{"verb", "subresource"}, resource...)),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Open watches.",
		}, append([]string{"verb"}, resource...)),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Watch events sent to clients, bookmarks and errors included.",
		}, resource),
		panics: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "apiserver_request_panics_total",
			Help: "Requests that ended in a panic.",
		}),
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_flowcontrol_rejected_requests_total",
			Help: "Requests that got no seat, by level, FlowSchema and reason.",
		}, []string{"priority_level", "flow_schema", "reason"}),
		resources: map[resourceLabels]bool{},
		watches:   map[resourceLabels]int{},
	}
	m.registry.MustRegister(m.requests, m.duration, m.longRunning, m.events, m.panics, m.rejected)
	// A rate sees the first refusal only if the count was 0 before.
	for _, reason := range []error{fair.ErrFull, fair.ErrTimeout} {
		m.rejected.WithLabelValues(defaultLevel, "", reason.Error())
	}
	for name, class := range map[string]requestClass{"readOnly": classRead, "mutating": classWrite} {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "apiserver_current_inflight_requests",
			Help:        "Requests under way, with those that wait for a seat, watches excepted.",
			ConstLabels: prometheus.Labels{"request_kind": name},
		}, func() float64 { return float64(f.now(class)) }))
	}
	return m
}

// addGauges registers what the other packages count.
func (in *instance) addGauges(r *prometheus.Registry, large *fair.Level) {
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
	}
	counter := func(name, help string, value func() int64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
	}
	in.addStoreGauges(gauge, counter)
	in.addCacheGauges(gauge, counter)
	if in.replica.election != nil {
		in.addReplicaGauges(gauge, counter)
	}
	gauge("apiserver_lite_writes_waiting", "Writes that wait for other writes of the same object.",
		func() float64 { return float64(in.registry.Usage().WaitingWrites) })
	counter("apiserver_lite_writes_without_turn_total", "Writes that waited too long for other writes of the same object, and went on without a turn.",
		func() int64 { return in.registry.Usage().LapsedWrites })
	gauge("apiserver_lite_conversion_calls", "Requests to conversion webhooks under way.",
		func() float64 { return float64(in.registry.Usage().WebhookCalls) })
	gauge("apiserver_lite_large_answers", "Answers of more than 128 KiB that are being written.",
		func() float64 { return float64(taken(large)) })
	gauge("apiserver_lite_controller_work", "Objects about which the server's own controllers have something left to do.",
		func() float64 { return float64(in.controllers.Left()) })
	gauge("apiserver_lite_collector_queue", "Objects that the garbage collector has still to look at, with those that wait for another try.",
		func() float64 { return float64(in.controllers.Usage().CollectorQueue) })
	gauge("apiserver_lite_owned_objects", "Objects with owner references, as the garbage collector knows them.",
		func() float64 { return float64(in.controllers.Usage().OwnedObjects) })
	r.MustRegister(objects{in.registry})
	r.MustRegister(in.admission.Collectors()...)
}

// addCacheGauges registers what the feed and the caches count.
func (in *instance) addCacheGauges(gauge func(name, help string, value func() float64), counter func(name, help string, value func() int64)) {
	gauge("apiserver_lite_feed_revision", "The revision up to which every change is in the caches.",
		func() float64 { return float64(in.cacher.Position()) })
	counter("apiserver_lite_feed_relists_total", "How often the caches fell out of history and were listed anew.",
		func() int64 { return in.cacher.Counts().Relisted })
	counter("apiserver_lite_feed_undecodable_total", "Changes in the store that can't be decoded, and so are missing in the caches.",
		func() int64 { return in.cacher.Counts().Undecodable })
	counter("apiserver_lite_tape_expired_total", "How often the controllers fell behind, or everything changed, and they read all objects anew.",
		func() int64 { return in.cacher.Counts().TapesExpired })
	gauge("apiserver_lite_watch_log_bytes", "What the logs of recent events keep in memory.",
		func() float64 { return float64(in.cacher.Usage().LogBytes) })
	gauge("apiserver_lite_watch_ring_bytes", "What the rings of watches with the same selection keep in memory.",
		func() float64 { return float64(in.cacher.Usage().RingBytes) })
	gauge("apiserver_lite_watch_history_bytes", "Decoded history that late watchers share.",
		func() float64 { return float64(in.cacher.Usage().StretchBytes) })
	gauge("apiserver_lite_kept_snapshots", "Snapshots that are kept for the next pages of lists.",
		func() float64 { return float64(in.cacher.Usage().Snapshots) })
	gauge("apiserver_lite_kept_snapshot_bytes", "What those keep in memory besides the current state.",
		func() float64 { return float64(in.cacher.Usage().SnapshotBytes) })
	gauge("apiserver_lite_initial_state_bytes", "Frames of initial states that watches share.",
		func() float64 { return float64(in.cacher.Usage().StateBytes) })
	gauge("apiserver_lite_initial_state_pinned_bytes", "What unfinished initial states keep in memory besides the current state.",
		func() float64 { return float64(in.cacher.Usage().StateRetained) })
	gauge("apiserver_lite_message_bytes", "What is kept of objects as protobuf.",
		func() float64 { return float64(in.cacher.Usage().MessageBytes) })
	gauge("apiserver_lite_converted_objects", "Objects that conversions made and that are in memory.",
		func() float64 { return float64(in.cacher.Usage().Converted) })
	gauge("apiserver_lite_converted_bytes", "What those take.",
		func() float64 { return float64(in.cacher.Usage().ConvertedBytes) })
	gauge("apiserver_lite_cached_resources", "Resources that have a cache, with those whose definition is gone.",
		func() float64 { return float64(in.cacher.Usage().Resources) })
}

// addStoreGauges registers what the store counts.
func (in *instance) addStoreGauges(gauge func(name, help string, value func() float64), counter func(name, help string, value func() int64)) {
	gauge("apiserver_lite_feed_tail_bytes", "About how many bytes of written changes the feed hasn't taken yet.",
		func() float64 { return float64(in.backing.store.TailBytes()) })
	if in.backing.etcd != nil {
		gauge("apiserver_lite_history_bytes", "Keys and values of the changes that are kept for watches to resume.",
			func() float64 { return float64(in.backing.etcd.Stats().HistoryBytes) })
		gauge("apiserver_lite_history_seconds", "How far back changes are kept.",
			func() float64 { return in.backing.etcd.Stats().HistoryKept.Seconds() })
		gauge("apiserver_lite_history_short", "1 while the bounds cut history below five minutes, else 0.",
			func() float64 {
				if in.backing.etcd.Stats().HistoryShort {
					return 1
				}
				return 0
			})
	}
	counter("apiserver_lite_history_reads_total", "Stretches of history that were read, by the feed or for watches that are older than memory.",
		in.backing.store.Reads)
}

// objects counts stored objects. The series are those of the resources there are.
type objects struct{ registry *registry.Registry }

var storedObjects = prometheus.NewDesc("apiserver_storage_objects", "Objects in storage, by resource.", []string{"group", "resource"}, nil)

func (o objects) Describe(descs chan<- *prometheus.Desc) { descs <- storedObjects }

func (o objects) Collect(metrics chan<- prometheus.Metric) {
	left := maxResources
	for r, n := range o.registry.Catalog().Objects() {
		if left--; left < 0 {
			return
		}
		metrics <- prometheus.MustNewConstMetric(storedObjects, prometheus.GaugeValue, float64(n), r.Group, r.Resource)
	}
}

// labels returns the labels of a resource, having made sure that there is room for it.
func (m *metrics) labels(e *registry.Endpoint) resourceLabels {
	if e == nil {
		return resourceLabels{}
	}
	return m.roomFor(resourceLabels{e.Group, e.Version, e.Plural})
}

// roomFor returns the labels, having made sure that there is room for them.
func (m *metrics) roomFor(l resourceLabels) resourceLabels {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.makeRoomLocked(l)
	return l
}

// makeRoomLocked notes that a resource has series. Beyond maxResources besides those with open watches, all begin anew.
func (m *metrics) makeRoomLocked(l resourceLabels) {
	if m.resources[l] {
		return
	}
	if len(m.resources)-len(m.watches) >= maxResources {
		m.beginAnewLocked()
	}
	m.resources[l] = true
}

// beginAnewLocked deletes all series except those of watches that are open: these go on counting their events.
func (m *metrics) beginAnewLocked() {
	m.requests.Reset()
	m.duration.Reset()
	for l := range m.resources {
		if m.watches[l] == 0 {
			m.events.DeleteLabelValues(l.group, l.version, l.resource)
			m.longRunning.DeleteLabelValues("WATCH", l.group, l.version, l.resource)
			delete(m.resources, l)
		}
	}
}

func (m *metrics) setWatchesLocked(l resourceLabels) {
	m.longRunning.WithLabelValues("WATCH", l.group, l.version, l.resource).Set(float64(m.watches[l]))
}

// observe counts a request that has been answered.
func (m *metrics) observe(w *response, method string, took time.Duration) {
	verb := w.verb
	if verb == "" {
		verb = metricVerb("", method)
	}
	l := m.labels(w.endpoint)
	if w.foreign.Version != "" {
		l = m.roomFor(resourceLabels{group: w.foreign.Group, version: w.foreign.Version})
	}
	code := w.code
	if code == 0 {
		code = http.StatusOK // nothing was written: net/http says 200, or the connection was cut
	}
	m.requests.WithLabelValues(verb, w.subresource, strconv.Itoa(code), l.group, l.version, l.resource).Inc()
	if verb != "WATCH" {
		m.duration.WithLabelValues(verb, w.subresource, l.group, l.version, l.resource).Observe(took.Seconds())
	}
}

// watching counts a watch as open until the function it returns is called.
func (m *metrics) watching(e *registry.Endpoint) (done func()) {
	return m.watchingAt(resourceLabels{e.Group, e.Version, e.Plural})
}

func (m *metrics) watchingAt(l resourceLabels) (done func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.makeRoomLocked(l)
	m.watches[l]++
	m.setWatchesLocked(l)
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.watches[l]--
		m.setWatchesLocked(l)
		if m.watches[l] == 0 {
			delete(m.watches, l)
		}
	}
}

func (m *metrics) watchEvents(e *registry.Endpoint) prometheus.Counter {
	l := m.labels(e)
	return m.events.WithLabelValues(l.group, l.version, l.resource)
}

// metricVerb is kube-apiserver's name in metrics for an API verb, or for the method where there is none.
func metricVerb(verb, method string) string {
	switch verb {
	case "create":
		return "POST"
	case "update":
		return "PUT"
	case "":
		if slices.Contains([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE"}, method) {
			return method
		}
		return "other"
	}
	return strings.ToUpper(verb)
}

// serveMetrics serves Prometheus' text format. HandlerFor negotiates and compresses by itself.
func serveMetrics(g prometheus.Gatherer) http.HandlerFunc {
	return promhttp.HandlerFor(g, promhttp.HandlerOpts{}).ServeHTTP
}

// addReplicaGauges registers what only a replica has.
func (in *instance) addReplicaGauges(gauge func(name, help string, value func() float64), counter func(name, help string, value func() int64)) {
	one := func(is bool) float64 {
		if is {
			return 1
		}
		return 0
	}
	gauge("apiserver_lite_replica_leads", "1 while this replica acts for all, else 0.", func() float64 {
		_, leads := in.replica.election.Leading()
		return one(leads)
	})
	counter("apiserver_lite_replica_terms_total", "How often this replica was elected to act for all.", in.replica.election.Terms)
	gauge("apiserver_lite_replica_lag_seconds", "How long the caches took lately to get to where the store was.",
		func() float64 { return in.replica.pulse.lagging().Seconds() })
	gauge("apiserver_lite_replica_lost", "1 while the store doesn't answer this replica, else 0.",
		func() float64 { return one(in.replica.pulse.reached() != nil) })
}

// taken is how many seats of a level are taken.
func taken(l *fair.Level) int {
	used, _ := l.Now()
	return used
}
