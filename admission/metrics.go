package admission

import (
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// newDurations is how long plug-ins took, as kube-apiserver has it.
func newDurations() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "apiserver_admission_controller_admission_duration_seconds",
		Help:    "How long admission plug-ins took that a request concerned.",
		Buckets: []float64{.0005, .005, .025, .1, .5, 1, 2.5},
	}, []string{"name", "type", "operation", "rejected"})
}

// What a plug-in is asked, for metrics.
const (
	admitting = iota
	validating
	kinds
)

var kindNames = [kinds]string{"admit", "validate"}

// operations are those that plug-ins are asked about.
var operations = [...]registry.Operation{registry.Create, registry.Update, registry.Delete}

// took are one plug-in's series. A series is looked up once, because the look-up takes longer than most plug-ins.
type took struct {
	name   string
	in     *prometheus.HistogramVec
	series [kinds][len(operations)][2]atomic.Pointer[prometheus.Observer]
}

// note counts a question that was asked then.
func (t *took) note(began time.Time, kind int, of registry.Operation, rejected bool) {
	for op, is := range operations {
		if is != of {
			continue
		}
		at := &t.series[kind][op][btoi(rejected)]
		o := at.Load()
		if o == nil {
			made := t.in.WithLabelValues(t.name, kindNames[kind], string(of), strconv.FormatBool(rejected))
			o = &made
			at.Store(o)
		}
		(*o).Observe(time.Since(began).Seconds())
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
