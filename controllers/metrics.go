package controllers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// queues are the metrics of all queues, as kube-controller-manager has them of its own. Each series is a controller's.
type queues struct {
	depth            *prometheus.GaugeVec
	adds, retries    *prometheus.CounterVec
	waited, workedOn *prometheus.HistogramVec
}

func newQueues() *queues {
	labels := []string{"name"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(1e-6, 10, 10)}, labels)
	}
	return &queues{
		depth:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "workqueue_depth", Help: "Keys that wait for a worker of a controller."}, labels),
		adds:     counter("workqueue_adds_total", "Keys that were queued for a controller."),
		retries:  counter("workqueue_retries_total", "Keys that a controller failed with and that wait for another try."),
		waited:   histogram("workqueue_queue_duration_seconds", "How long a key waited for a worker, once it was due."),
		workedOn: histogram("workqueue_work_duration_seconds", "How long a controller worked on a key."),
	}
}

// Collectors are the metrics of the controllers' queues.
func (c *Controllers) Collectors() []prometheus.Collector {
	q := c.queues
	return []prometheus.Collector{q.depth, q.adds, q.retries, q.waited, q.workedOn}
}

// queueMetrics are those of one queue. The zero value counts nothing.
type queueMetrics struct {
	depth            prometheus.Gauge
	adds, retries    prometheus.Counter
	waited, workedOn prometheus.Observer
}

func (q *queues) of(name string) queueMetrics {
	return queueMetrics{
		depth: q.depth.WithLabelValues(name), adds: q.adds.WithLabelValues(name), retries: q.retries.WithLabelValues(name),
		waited: q.waited.WithLabelValues(name), workedOn: q.workedOn.WithLabelValues(name),
	}
}

// added counts a key that became ready, of so many.
func (m *queueMetrics) added(ready int) {
	if m.adds != nil {
		m.adds.Inc()
	}
	m.left(ready)
}

// left says how many keys are ready.
func (m *queueMetrics) left(ready int) {
	if m.depth != nil {
		m.depth.Set(float64(ready))
	}
}

// begun counts a key that was ready since then and is worked on now; so many are left.
func (m *queueMetrics) begun(since time.Time, ready int) {
	if m.waited != nil {
		m.waited.Observe(time.Since(since).Seconds())
	}
	m.left(ready)
}

// done counts a key that was worked on since then.
func (m *queueMetrics) done(since time.Time, failed bool) {
	if m.workedOn == nil {
		return
	}
	m.workedOn.Observe(time.Since(since).Seconds())
	if failed {
		m.retries.Inc()
	}
}
