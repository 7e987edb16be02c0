// Package metrics counts a server's requests and watches for Prometheus, and shows there what its parts count.
package metrics

import (
	"cmp"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
)

// maxResources is how many resources have series of their own. Definitions come and go, and the
// series of each stay. When one more resource would pass the bound, all series begin anew, which counters may.
const maxResources = 1024

// durations are the bounds of kube-apiserver's histograms of requests, in seconds. Recording rules name some of them.
var durations = []float64{.05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60}

// Metrics are one server's, named as kube-apiserver names what means the same. No label's value comes
// from a client: verbs are ours, codes are HTTP's, resources are those served.
type Metrics struct {
	Registry *prometheus.Registry

	requests    *prometheus.CounterVec
	duration    *prometheus.HistogramVec
	sli         *prometheus.HistogramVec
	terminated  *prometheus.CounterVec
	longRunning *prometheus.GaugeVec
	events      *prometheus.CounterVec
	Panics      prometheus.Counter
	Rejected    *prometheus.CounterVec
	refused     *prometheus.CounterVec

	mu        sync.Mutex // guards the following
	resources map[Resource]bool
	watches   map[Resource]int // open ones; none is 0
}

// Resource is the labels group, version and resource, empty outside of resources.
type Resource struct{ Group, Version, Resource string }

// New returns those of a server of which inFlight says how many requests are under way, by their kind.
func New(inFlight map[string]func() int) *Metrics {
	resource := []string{"group", "version", "resource"}
	request := append([]string{"verb", "dry_run", "subresource", "scope"}, resource...)
	own := prometheus.Labels{"component": "apiserver"} // the other value is for aggregators that are programs of their own
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_total",
			Help: "Requests answered, by verb, resource and HTTP code. A watch counts when it ends.", ConstLabels: own,
		}, append(slices.Clone(request), "code")),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_duration_seconds",
			Help:    "Time from a request's headers to the end of its answer, watches excepted.",
			Buckets: append([]float64{.0005, .001, .0025, .005, .01, .025}, durations...), ConstLabels: own,
		}, request),
		sli: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "apiserver_request_sli_duration_seconds",
			Help:    "That time without what requests waited for seats and for admission webhooks, watches excepted.",
			Buckets: durations, ConstLabels: own,
		}, request),
		terminated: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_request_terminations_total",
			Help: "Requests that the server turned away to protect itself.", ConstLabels: own,
		}, append([]string{"verb", "subresource", "scope", "code"}, resource...)),
		longRunning: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "apiserver_longrunning_requests",
			Help: "Open watches.",
		}, append([]string{"verb"}, resource...)),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_watch_events_total",
			Help: "Watch events sent to clients, bookmarks and errors included.",
		}, resource),
		Panics: prometheus.NewCounter(prometheus.CounterOpts{Name: "apiserver_request_panics_total", Help: "Requests that ended in a panic."}),
		Rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_flowcontrol_rejected_requests_total",
			Help: "Requests that got no seat, by level, FlowSchema and reason.",
		}, []string{"priority_level", "flow_schema", "reason"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "apiserver_lite_refused_requests_total",
			Help: "Requests that were asked to come back, by the bound that they met.",
		}, []string{"bound"}),
		resources: map[Resource]bool{},
		watches:   map[Resource]int{},
	}
	m.Registry.MustRegister(m.requests, m.duration, m.sli, m.terminated, m.longRunning, m.events, m.Panics, m.Rejected, m.refused)
	// A rate sees the first refusal only if the count was 0 before.
	m.refused.WithLabelValues("requests")
	m.terminated.WithLabelValues("GET", "", "", "429", "", "", "")
	for _, reason := range []error{fair.ErrFull, fair.ErrTimeout} {
		m.Rejected.WithLabelValues(flowcontrol.DefaultLevel, "", reason.Error())
	}
	for name, now := range inFlight {
		m.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name:        "apiserver_current_inflight_requests",
			Help:        "Requests under way, with those that wait for a seat, watches excepted.",
			ConstLabels: prometheus.Labels{"request_kind": name},
		}, func() float64 { return float64(now()) }))
	}
	return m
}

// labels returns the labels of a resource, having made sure that there is room for it.
func (m *Metrics) labels(e *registry.Endpoint) Resource {
	if e == nil {
		return Resource{}
	}
	return m.roomFor(Resource{e.Group, e.Version, e.Plural})
}

// roomFor returns the labels, having made sure that there is room for them.
func (m *Metrics) roomFor(l Resource) Resource {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.makeRoomLocked(l)
	return l
}

// makeRoomLocked notes that a resource has series. Beyond maxResources besides those with open watches, all begin anew.
func (m *Metrics) makeRoomLocked(l Resource) {
	if m.resources[l] {
		return
	}
	if len(m.resources)-len(m.watches) >= maxResources {
		m.beginAnewLocked()
	}
	m.resources[l] = true
}

// beginAnewLocked deletes all series except those of watches that are open: these go on counting their events.
func (m *Metrics) beginAnewLocked() {
	m.requests.Reset()
	m.duration.Reset()
	m.sli.Reset()
	m.terminated.Reset()
	for l := range m.resources {
		if m.watches[l] == 0 {
			m.events.DeleteLabelValues(l.Group, l.Version, l.Resource)
			m.longRunning.DeleteLabelValues("WATCH", l.Group, l.Version, l.Resource)
			delete(m.resources, l)
		}
	}
}

func (m *Metrics) setWatchesLocked(l Resource) {
	m.longRunning.WithLabelValues("WATCH", l.Group, l.Version, l.Resource).Set(float64(m.watches[l]))
}

// Answer is what is counted of a request.
type Answer struct {
	Verb, Method    string // Verb is "" outside of resources
	Endpoint        *registry.Endpoint
	registry.Target // that its path names
	DryRun          bool
	Foreign         schema.GroupVersion // that another server has; zero if this one answers
	Code            int                 // 0 if nothing was written
	Refused         string              // the name of the bound that the request met; "" for none
	Took            time.Duration
	Waited          time.Duration // of that for seats and webhooks
}

// scope is kube-apiserver's word for how much a request is about.
func (a Answer) scope() string {
	switch {
	case a.Endpoint == nil:
		return ""
	case a.Name != "" || a.Verb == "POST":
		return "resource"
	case a.Namespace != "":
		return "namespace"
	}
	return "cluster"
}

// Observe counts a request that has been answered.
func (m *Metrics) Observe(a Answer) {
	verb := a.Verb
	if verb == "" {
		verb = Verb("", a.Method)
	}
	l := m.labels(a.Endpoint)
	if a.Foreign.Version != "" {
		l = m.roomFor(Resource{Group: a.Foreign.Group, Version: a.Foreign.Version})
	}
	code := cmp.Or(a.Code, http.StatusOK) // nothing was written: net/http says 200, or the connection was cut
	if a.Refused != "" {
		m.refused.WithLabelValues(a.Refused).Inc()
	}
	dryRun, scope, status := "", a.scope(), strconv.Itoa(code)
	if a.DryRun {
		dryRun = metav1.DryRunAll
	}
	m.requests.WithLabelValues(verb, dryRun, a.Subresource, scope, l.Group, l.Version, l.Resource, status).Inc()
	if a.Refused != "" {
		m.terminated.WithLabelValues(verb, a.Subresource, scope, status, l.Group, l.Version, l.Resource).Inc()
	}
	if verb != "WATCH" {
		m.duration.WithLabelValues(verb, dryRun, a.Subresource, scope, l.Group, l.Version, l.Resource).Observe(a.Took.Seconds())
		m.sli.WithLabelValues(verb, dryRun, a.Subresource, scope, l.Group, l.Version, l.Resource).Observe(max(0, a.Took-a.Waited).Seconds())
	}
}

// Watching counts a watch as open until the function it returns is called.
func (m *Metrics) Watching(e *registry.Endpoint) (done func()) {
	return m.WatchingAt(Resource{e.Group, e.Version, e.Plural})
}

// WatchingAt is Watching for a resource of another server's.
func (m *Metrics) WatchingAt(l Resource) (done func()) {
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

// WatchEvents returns what counts the events of watches of a resource.
func (m *Metrics) WatchEvents(e *registry.Endpoint) prometheus.Counter {
	l := m.labels(e)
	return m.events.WithLabelValues(l.Group, l.Version, l.Resource)
}

// EventsSent returns how many events watches have sent; less than before when the series began anew.
func (m *Metrics) EventsSent() float64 { return sum(m.events) }

// Refusals returns how many requests were asked to come back.
func (m *Metrics) Refusals() float64 { return sum(m.refused) }

// sum returns the sum of all series of counters.
func sum(of prometheus.Collector) (total float64) {
	all := make(chan prometheus.Metric)
	go func() { defer close(all); of.Collect(all) }()
	for one := range all {
		var m dto.Metric
		if one.Write(&m) == nil { // it can't fail: counters have no text
			total += m.GetCounter().GetValue()
		}
	}
	return total
}

// Verb is kube-apiserver's name in metrics for an API verb, or for the method where there is none.
func Verb(verb, method string) string {
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

// objects counts stored objects. The series are those of the resources there are.
type objects struct{ registry *registry.Registry }

// storedObjects are the names that kube-apiserver had for it until 1.33, and has since.
var storedObjects = [...]*prometheus.Desc{
	prometheus.NewDesc("apiserver_storage_objects", "Objects in storage, by resource.", []string{"group", "resource"}, nil),
	prometheus.NewDesc("apiserver_resource_objects", "Objects in storage, by resource.", []string{"group", "resource"}, nil),
}

func (o objects) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range storedObjects {
		descs <- d
	}
}

func (o objects) Collect(metrics chan<- prometheus.Metric) {
	left := maxResources
	for r, n := range o.registry.Catalog().Objects() {
		if left--; left < 0 {
			return
		}
		for _, d := range storedObjects {
			metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(n), r.Group, r.Resource)
		}
	}
}
