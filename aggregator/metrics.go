package aggregator

import "github.com/prometheus/client_golang/prometheus"

// newUnavailable returns a metric of kube-apiserver's.
func newUnavailable() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "aggregator_unavailable_apiservice_total", Help: "How often an APIService became unavailable, by its name and the reason.",
	}, []string{"name", "reason"})
}

var isUnavailable = prometheus.NewDesc("aggregator_unavailable_apiservice", "1 while an APIService that names a service is unavailable, else 0.", []string{"name"}, nil)

// Collector returns the metrics of the servers.
func (a *Aggregator) Collector() prometheus.Collector { return collector{a} }

type collector struct{ aggregator *Aggregator }

func (c collector) Describe(descs chan<- *prometheus.Desc) {
	descs <- isUnavailable
	c.aggregator.unavailable.Describe(descs)
}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	c.aggregator.unavailable.Collect(metrics)
	for _, r := range c.aggregator.current().remote {
		value := 1.0
		if r.available {
			value = 0
		}
		metrics <- prometheus.MustNewConstMetric(isUnavailable, prometheus.GaugeValue, value, r.Name)
	}
}
