package policy

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/registry/expression"
)

// Metrics counts what policies decide, under kube-apiserver's names. The series of a policy go with it.
type Metrics struct {
	validating, mutating checks
}

// checks are the metrics of one kind of policies.
type checks struct {
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec

	mu    sync.Mutex // guards names
	names []string   // of the policies that there are
}

// NewMetrics returns metrics of one server's.
func NewMetrics() *Metrics {
	m := &Metrics{}
	m.validating.init("apiserver_validating_admission_policy_",
		"Validations of ValidatingAdmissionPolicies that failed, by what was done about them.",
		"How long validations of ValidatingAdmissionPolicies took that failed.", "policy", "policy_binding", "error_type", "enforcement_action")
	m.mutating.init("apiserver_mutating_admission_policy_",
		"Mutations of MutatingAdmissionPolicies.", "How long mutations of MutatingAdmissionPolicies took.", "policy", "policy_binding", "error_type")
	return m
}

func (c *checks) init(prefix, total, duration string, labels ...string) {
	c.total = prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + "check_total", Help: total}, labels)
	c.duration = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: prefix + "check_duration_seconds", Help: duration, Buckets: []float64{0.0000005, 0.001, 0.01, 0.1, 1},
	}, labels)
}

// Collectors are what a registry of metrics takes.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.validating.total, m.validating.duration, m.mutating.total, m.mutating.duration}
}

// checked counts a check, by the values of its labels.
func (c *checks) checked(took time.Duration, labels ...string) {
	c.total.WithLabelValues(labels...).Inc()
	c.duration.WithLabelValues(labels...).Observe(took.Seconds())
}

// keep drops the series of policies that are gone.
func (c *checks) keep(names []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range c.names {
		if !slices.Contains(names, name) {
			c.total.DeletePartialMatch(prometheus.Labels{"policy": name})
			c.duration.DeletePartialMatch(prometheus.Labels{"policy": name})
		}
	}
	c.names = names
}

// errorType is what metrics call an error of an expression. As in Kubernetes, a validation that says no has invalid_error, too.
func errorType(err error) string {
	switch {
	case errors.Is(err, expression.ErrCompilation):
		return "compile_error"
	case errors.Is(err, expression.ErrBudget):
		return "out_of_budget"
	}
	return "invalid_error"
}
