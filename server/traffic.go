package server

import (
	"net/http"

	"github.com/apiserver-lite/apiserver-lite/server/traffic"
)

// newTraffic returns the log of what a server does.
func (h *handler) newTraffic(in *instance) *traffic.Log {
	series := []traffic.Series{
		{Name: "writes", Value: func() float64 { return float64(in.cacher.Position()) }, PerSecond: true}, // each is a revision
		{Name: "events", Value: h.metrics.EventsSent, PerSecond: true},
		{Name: "watchers", Value: func() float64 { return float64(h.watches.Len()) }},
		{Name: "lagSeconds", Value: func() float64 { return h.watches.Lag().Seconds() }},
		{Name: "memoryBytes", Value: traffic.MemoryInUse},
		{Name: "refusals", Value: h.metrics.Refusals, PerSecond: true},
	}
	if in.backing.etcd != nil {
		series = append(series, traffic.Series{Name: "historySeconds", Value: func() float64 { return in.backing.etcd.Stats().HistoryKept.Seconds() }})
	}
	return traffic.New(series, in.replica.Names)
}

// serveTraffic answers GET /apiserver-lite/v1/traffic.
func (h *handler) serveTraffic(w *response, r *http.Request) error {
	return w.writePage(h.tells.traffic.Page(r.Context()))
}
