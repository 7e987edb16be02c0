package kv

import (
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// maxTimed is how many resources have durations of their own. Definitions come and go; when one more would pass the bound, all series begin
// anew, which histograms may.
const maxTimed = 1024

// durations are how long etcd took for requests, as kube-apiserver has them.
type durations struct {
	*prometheus.HistogramVec

	mu    sync.Mutex                    // guards the following
	known map[timed]prometheus.Observer // a look-up in the vector hashes all labels
}

// timed is what has a series.
type timed struct {
	op     string
	prefix storage.Prefix
}

func newDurations() *durations {
	return &durations{
		HistogramVec: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "etcd_request_duration_seconds",
			Help:    "How long etcd took for a request, by operation, group and resource.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .4, .6, .8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60},
		}, []string{"operation", "group", "resource"}),
		known: map[timed]prometheus.Observer{},
	}
}

// since notes a request about a key that began then.
func (d *durations) since(began time.Time, op, key string) {
	took := time.Since(began)
	prefix, _, _, ok := storage.SplitKey(key)
	if !ok {
		return // it's the server's own
	}
	d.of(timed{op, prefix}).Observe(took.Seconds())
}

func (d *durations) of(t timed) prometheus.Observer {
	d.mu.Lock()
	defer d.mu.Unlock()
	if o := d.known[t]; o != nil {
		return o
	}
	if len(d.known) >= maxTimed {
		clear(d.known)
		d.Reset()
	}
	t.prefix = storage.Prefix(strings.Clone(string(t.prefix))) // not the whole key
	o := d.WithLabelValues(t.op, t.prefix.Group(), t.prefix.Resource())
	d.known[t] = o
	return o
}
