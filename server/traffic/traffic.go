// Package traffic keeps what a server did in the last quarter of an hour, as points for plots: one each five seconds. Run has one
// goroutine, the caller's. What is kept is bounded by that (kept) and by maxClients, and the locks are leaves.
package traffic

import (
	"context"
	"runtime/metrics"
	"sync"
	"time"
)

// Path is where the points of the last quarter of an hour are. Whoever may get /metrics may get them.
const Path = "/apiserver-lite/v1/traffic"

const (
	// Interval is how far the points are apart.
	Interval = 5 * time.Second
	// kept is how many there are: a quarter of an hour.
	kept = int(15 * time.Minute / Interval)
	// patience is how long a Page waits for the names of the replicas, which etcd has. Without etcd the points are there all the same.
	patience = 2 * time.Second
)

// Series is something to plot.
type Series struct {
	Name  string
	Value func() float64 // is asked at each point
	// PerSecond makes points of how fast a count grows. One that begins anew hasn't grown.
	PerSecond bool
}

// Log is the points of a server. Page may be called at any time.
type Log struct {
	series   []Series
	replicas func(context.Context) ([]string, error)
	last     []float64 // of the counts, at the time at; Run's own
	at       time.Time

	looking sync.Mutex // held while the replicas' names are asked for; guards the following
	looked  time.Time  // when they were
	names   []Replica

	mu     sync.Mutex // guards the following
	times  []int64
	points [][]float64 // by series

	clients clients
}

// Page is the points as they're answered: series by name, of which each has a value for each of the times, the oldest first.
type Page struct {
	IntervalSeconds int                  `json:"intervalSeconds"`
	Times           []int64              `json:"times"` // in Unix seconds
	Series          map[string][]float64 `json:"series"`
	// Clients are those that had most requests answered in the last Interval, the busiest first.
	Clients []Client `json:"clients"`
	// Replicas are the processes that serve the store and run now; none if their names aren't known now. Nil: there's only this one.
	Replicas []Replica `json:"replicas,omitzero"`
}

// Replica is one of several processes that serve one store.
type Replica struct {
	Name string `json:"name"` // where the others reach it
	Acts bool   `json:"acts"` // for all of them
}

// New returns a Log without points. replicas returns the names of the processes that serve the store, the one that acts for all of
// them first; nil if it's only this one.
func New(series []Series, replicas func(context.Context) ([]string, error)) *Log {
	return &Log{series: series, replicas: replicas, last: make([]float64, len(series)), points: make([][]float64, len(series))}
}

// Run takes a point at once, and then one each Interval, until ctx ends.
func (l *Log) Run(ctx context.Context) {
	for i, s := range l.series {
		if s.PerSecond {
			l.last[i] = s.Value()
		}
	}
	l.at = time.Now().Add(-Interval)
	l.clients.turn(l.at)
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for {
		l.take(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// take takes a point.
func (l *Log) take(now time.Time) {
	values, passed := make([]float64, len(l.series)), now.Sub(l.at).Seconds() // more than Interval after a pause
	l.at = now
	l.clients.turn(now)
	for i, s := range l.series {
		values[i] = s.Value()
		if s.PerSecond {
			l.last[i], values[i] = values[i], max(0, values[i]-l.last[i])/passed
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.times = add(l.times, now.Unix())
	for i, v := range values {
		l.points[i] = add(l.points[i], v)
	}
}

// add appends a value, instead of the oldest if there are as many as are kept.
func add[T any](all []T, v T) []T {
	if len(all) == kept {
		copy(all, all[1:])
		all = all[:kept-1]
	}
	return append(all, v)
}

// Page returns a copy of the points, and the replicas as of an Interval ago at most.
func (l *Log) Page(ctx context.Context) Page {
	replicas := l.replicasNow(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	p := Page{IntervalSeconds: int(Interval / time.Second), Times: append([]int64{}, l.times...), Series: map[string][]float64{}, Clients: append([]Client{}, l.clients.busiest()...), Replicas: replicas}
	for i, s := range l.series {
		p.Series[s.Name] = append([]float64{}, l.points[i]...)
	}
	return p
}

// replicasNow returns Page.Replicas. However many ask, the store is asked once in an Interval.
func (l *Log) replicasNow(ctx context.Context) []Replica {
	l.looking.Lock()
	defer l.looking.Unlock()
	if !l.looked.IsZero() && time.Since(l.looked) < Interval {
		return l.names
	}
	l.names, l.looked = l.askReplicas(ctx), time.Now()
	return l.names
}

// askReplicas asks for the names of the replicas.
func (l *Log) askReplicas(ctx context.Context) []Replica {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience) // others get the answer, too
	defer cancel()
	names, err := l.replicas(ctx)
	if names == nil && err == nil {
		return nil
	}
	all := make([]Replica, len(names))
	for i, name := range names {
		all[i] = Replica{Name: name, Acts: i == 0}
	}
	return all
}

// MemoryInUse returns how many bytes Go has from the system and hasn't given back.
func MemoryInUse() float64 {
	of := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
	metrics.Read(of)
	return float64(of[0].Value.Uint64() - of[1].Value.Uint64())
}
