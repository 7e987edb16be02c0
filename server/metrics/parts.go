package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/controllers"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/replica"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// Store is one that also counts.
type Store interface {
	storage.Store
	// Durations are how long etcd took for requests.
	Durations() prometheus.Collector
}

// Parts are those of a server, which count by themselves.
type Parts struct {
	Store       Store
	Etcd        *etcd.Server // nil if the store is elsewhere
	Cacher      *cacher.Cacher
	Registry    *registry.Registry
	Controllers *controllers.Controllers
	Replica     *replica.Replica // nil: no other process uses the store
	Audit       *audit.Log       // nil: nothing is audited
	Large       *fair.Level      // of large answers
}

// Register registers what the parts count.
func (p Parts) Register(r *prometheus.Registry) {
	to := series{r}
	p.addStore(to)
	p.addCaches(to)
	if p.Replica != nil {
		p.addReplica(to)
	}
	to.gauge("apiserver_lite_writes_waiting", "Writes that wait for other writes of the same object.", func() float64 { return float64(p.Registry.Usage().WaitingWrites) })
	to.counter("apiserver_lite_writes_without_turn_total", "Writes that waited too long for other writes of the same object, and went on without a turn.", func() int64 { return p.Registry.Usage().LapsedWrites })
	to.gauge("apiserver_lite_conversion_calls", "Requests to conversion webhooks under way.", func() float64 { return float64(p.Registry.Usage().WebhookCalls) })
	to.gauge("apiserver_lite_large_answers", "Answers of more than 128 KiB that are being written.", func() float64 { return float64(p.Large.Taken()) })
	to.gauge("apiserver_lite_controller_work", "Objects about which the server's own controllers have something left to do.", func() float64 { return float64(p.Controllers.Left()) })
	to.gauge("apiserver_lite_collector_queue", "Objects that the garbage collector has still to look at, with those that wait for another try.", func() float64 { return float64(p.Controllers.Usage().CollectorQueue) })
	to.gauge("apiserver_lite_owned_objects", "Objects with owner references, as the garbage collector knows them.", func() float64 { return float64(p.Controllers.Usage().OwnedObjects) })
	r.MustRegister(objects{p.Registry}, p.Store.Durations())
	r.MustRegister(p.Controllers.Collectors()...)
	p.addAudit(to)
}

// series registers those that are read at the scrape.
type series struct{ in *prometheus.Registry }

func (s series) gauge(name, help string, value func() float64) {
	s.in.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value))
}

func (s series) counter(name, help string, value func() int64) {
	s.in.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value()) }))
}

// one is a gauge's value for what is or isn't.
func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// addCaches registers what the feed and the caches count.
func (p Parts) addCaches(to series) {
	to.gauge("apiserver_lite_feed_revision", "The revision up to which every change is in the caches.", func() float64 { return float64(p.Cacher.Position()) })
	to.counter("apiserver_lite_feed_relists_total", "How often the caches fell out of history and were listed anew.", func() int64 { return p.Cacher.Counts().Relisted })
	to.counter("apiserver_lite_feed_undecodable_total", "Changes in the store that can't be decoded, and so are missing in the caches.", func() int64 { return p.Cacher.Counts().Undecodable })
	to.counter("apiserver_lite_tape_expired_total", "How often the controllers fell behind, or everything changed, and they read all objects anew.", func() int64 { return p.Cacher.Counts().TapesExpired })
	to.gauge("apiserver_lite_watch_log_bytes", "What the logs of recent events keep in memory.", func() float64 { return float64(p.Cacher.Usage().LogBytes) })
	to.gauge("apiserver_lite_watch_ring_bytes", "What the rings of watches with the same selection keep in memory.", func() float64 { return float64(p.Cacher.Usage().RingBytes) })
	to.gauge("apiserver_lite_watch_history_bytes", "Decoded history that late watchers share.", func() float64 { return float64(p.Cacher.Usage().StretchBytes) })
	to.gauge("apiserver_lite_kept_snapshots", "Snapshots that are kept for the next pages of lists.", func() float64 { return float64(p.Cacher.Usage().Snapshots) })
	to.gauge("apiserver_lite_kept_snapshot_bytes", "What those keep in memory besides the current state.", func() float64 { return float64(p.Cacher.Usage().SnapshotBytes) })
	to.gauge("apiserver_lite_initial_state_bytes", "Frames of initial states that watches share.", func() float64 { return float64(p.Cacher.Usage().StateBytes) })
	to.gauge("apiserver_lite_initial_state_pinned_bytes", "What unfinished initial states keep in memory besides the current state.", func() float64 { return float64(p.Cacher.Usage().StateRetained) })
	to.gauge("apiserver_lite_demand_index_bytes", "Indexes of fields by which lists selected often.", func() float64 { return float64(p.Cacher.Usage().DemandBytes) })
	to.gauge("apiserver_lite_message_bytes", "What is kept of objects as protobuf.", func() float64 { return float64(p.Cacher.Usage().MessageBytes) })
	to.gauge("apiserver_lite_converted_objects", "Objects that conversions made and that are in memory.", func() float64 { return float64(p.Cacher.Usage().Converted) })
	to.gauge("apiserver_lite_converted_bytes", "What those take.", func() float64 { return float64(p.Cacher.Usage().ConvertedBytes) })
	to.gauge("apiserver_lite_cached_resources", "Resources that have a cache, with those whose definition is gone.", func() float64 { return float64(p.Cacher.Usage().Resources) })
}

// addStore registers what the store counts.
func (p Parts) addStore(to series) {
	to.gauge("apiserver_lite_feed_tail_bytes", "About how many bytes of written changes the feed hasn't taken yet.", func() float64 { return float64(p.Store.TailBytes()) })
	if p.Etcd != nil {
		to.gauge("apiserver_lite_history_bytes", "Keys and values of the changes that are kept for watches to resume.", func() float64 { return float64(p.Etcd.Stats().HistoryBytes) })
		to.gauge("apiserver_lite_history_seconds", "How far back changes are kept.", func() float64 { return p.Etcd.Stats().HistoryKept.Seconds() })
		to.gauge("apiserver_lite_history_short", "1 while the bounds cut history below five minutes, else 0.", func() float64 { return one(p.Etcd.Stats().HistoryShort) })
	}
	to.counter("apiserver_lite_history_reads_total", "Stretches of history that were read, by the feed or for watches that are older than memory.", p.Store.Reads)
}

// addReplica registers what only a replica has.
func (p Parts) addReplica(to series) {
	to.gauge("apiserver_lite_replica_leads", "1 while this replica acts for all, else 0.", func() float64 {
		_, leads := p.Replica.Leading()
		return one(leads)
	})
	to.counter("apiserver_lite_replica_terms_total", "How often this replica was elected to act for all.", p.Replica.Terms)
	to.gauge("apiserver_lite_replica_lag_seconds", "How long the caches took lately to get to where the store was.", func() float64 { return p.Replica.Lagging().Seconds() })
	to.gauge("apiserver_lite_replica_lost", "1 while the store doesn't answer this replica, else 0.", func() float64 { return one(p.Replica.Reached() != nil) })
}

// addAudit registers the metrics of the audit log, which are 0 without one.
func (p Parts) addAudit(to series) {
	to.counter("apiserver_audit_event_total", "Audit events that there were to write.", func() int64 { return p.Audit.Counts().Events })
	to.counter("apiserver_audit_error_total", "Audit events that were lost.", func() int64 { return p.Audit.Counts().Lost })
	to.counter("apiserver_audit_requests_rejected_total", "Requests that were refused because they couldn't be audited.", func() int64 { return p.Audit.Counts().Rejected })
}
