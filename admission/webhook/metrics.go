package webhook

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/admission/match"
)

// Metrics counts calls of webhooks, under kube-apiserver's names. The series of a webhook go with it.
type Metrics struct {
	duration   *prometheus.HistogramVec
	requests   *prometheus.CounterVec
	rejections *prometheus.CounterVec
	failedOpen *prometheus.CounterVec
	exclusions *prometheus.CounterVec
	conditions *prometheus.CounterVec

	mu    sync.Mutex          // guards names
	names map[string][]string // of the webhooks that there are, by step
}

const prefix = "apiserver_admission_"

// NewMetrics returns metrics of one server's.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
	}
	return &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "webhook_admission_duration_seconds", Help: "How long calls of admission webhooks took.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.5, 1, 2.5, 10, 25},
		}, []string{"name", "type", "operation", "rejected"}),
		requests:   counter("webhook_request_total", "Calls of admission webhooks.", "name", "type", "operation", "code", "rejected"),
		rejections: counter("webhook_rejection_count", "Requests that admission webhooks refused, and why: their verdict or their failure.", "name", "type", "operation", "error_type", "rejection_code"),
		failedOpen: counter("webhook_fail_open_count", "Requests that passed because a webhook failed whose failurePolicy is Ignore.", "name", "type"),
		exclusions: counter("match_condition_exclusions_total", "Requests about which a webhook wasn't called because of its match conditions.", "name", "kind", "type", "operation"),
		conditions: counter("match_condition_evaluation_errors_total", "Requests for which a webhook's match conditions couldn't be evaluated.", "name", "kind", "type", "operation"),
		names:      map[string][]string{},
	}
}

// Collectors are what a registry of metrics takes.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.duration, m.requests, m.rejections, m.failedOpen, m.exclusions, m.conditions}
}

// keep drops the series of webhooks that are gone.
func (m *Metrics) keep(step string, all []*hook) {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := make([]string, 0, len(all))
	for _, h := range all {
		names = append(names, h.name)
	}
	for _, name := range m.names[step] {
		if slices.Contains(names, name) {
			continue
		}
		gone := prometheus.Labels{"name": name, "type": step}
		m.duration.DeletePartialMatch(gone)
		for _, c := range []*prometheus.CounterVec{m.requests, m.rejections, m.failedOpen, m.exclusions, m.conditions} {
			c.DeletePartialMatch(gone)
		}
	}
	m.names[step] = names
}

// outcome is how a call ended.
type outcome struct {
	took   time.Duration
	err    error // of the call, or the webhook's verdict
	failed bool  // err is a failure of the call
}

// called counts a call.
func (m *Metrics) called(h *hook, step string, q *match.Request, o outcome) {
	code, kind := 200, "no_error"
	var status apierrors.APIStatus
	switch {
	case o.failed:
		code, kind = 503, "calling_webhook_error"
	case errors.As(o.err, &status):
		code = int(status.Status().Code)
	case o.err != nil:
		code, kind = 0, "apiserver_internal_error"
	}
	rejected := o.err != nil && !(o.failed && h.ignores())
	op := string(q.Path.Operation)
	m.duration.WithLabelValues(h.name, step, op, strconv.FormatBool(rejected)).Observe(o.took.Seconds())
	m.requests.WithLabelValues(h.name, step, op, strconv.Itoa(code), strconv.FormatBool(rejected)).Inc()
	if rejected {
		m.rejections.WithLabelValues(h.name, step, op, kind, strconv.Itoa(code)).Inc()
	} else if o.failed {
		m.failedOpen.WithLabelValues(h.name, step).Inc()
	}
}

func (m *Metrics) excluded(h *hook, step string, q *match.Request) {
	m.exclusions.WithLabelValues(h.name, "webhook", step, string(q.Path.Operation)).Inc()
}

func (m *Metrics) conditionFailed(h *hook, step string, q *match.Request) {
	m.conditions.WithLabelValues(h.name, "webhook", step, string(q.Path.Operation)).Inc()
}
