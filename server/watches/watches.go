// Package watches has the open watches of a server: what each of them is, how far it's behind, and what they may take together.
package watches

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Watch is one open watch, from Open to End. It has one owner, which ends it whatever happens: the handler, by defer, or
// over HTTP/1.1 the goroutine of its stream, likewise.
type Watch struct {
	Resources []string // "widgets.v1.example.com", in the order of the source's reports
	UserAgent string
	Source    Source
	Options   watchstream.Options
	Cancel    context.CancelCauseFunc        // ends the stream
	Stream    *wire.Stream                   // nil until it has begun
	Sent      atomic.Int64                   // in bytes
	Why       access.Grounds                 // it was let in
	Asks      []*authorizer.AttributesRecord // what its user was allowed, for each resource; none if everybody may do everything

	opened  time.Time
	among   *Set      // that it's one of
	seat    fair.Seat // among them
	uncount []func()  // take it out of the metrics
}

// Source is what a watch is of: one resource (cacher.Cursor), or several (cacher.Merged).
type Source interface {
	watchstream.Source
	// Reports tells where the watch is in each resource. Any goroutine may call it.
	Reports(now time.Time) []cacher.Report
}

// maxUserAgent is how much of a User-Agent is kept, in bytes.
const maxUserAgent = 128

// Open notes a watch that has a seat as open, until End, which calls uncount, too.
func (ws *Set) Open(w *Watch, seat fair.Seat, uncount []func()) {
	w.UserAgent = strings.Clone(clip.To(w.UserAgent, maxUserAgent))
	w.opened, w.among, w.seat, w.uncount = time.Now(), ws, seat, uncount
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.open[w] = struct{}{}
	ws.turned++
}

// End gives back all that an open watch holds.
func (w *Watch) End() {
	w.Cancel(nil)
	w.Source.Close()
	w.among.remove(w)
	for _, uncount := range w.uncount {
		uncount()
	}
}

// Serve serves an open watch until its client or the server ends it.
func (w *Watch) Serve(ctx context.Context) error {
	return w.Stream.Serve(ctx, w.Cancel, w.Source, w.Options)
}

// Set is the open watches of a server, for the page about them and for the metrics of their lag.
type Set struct {
	Seats *fair.Level // for those that are open

	mu     sync.Mutex // guards open and turned
	open   map[*Watch]struct{}
	turned int // how many were opened or closed
}

// maxWatches is how many watches may be open. Those of HTTP/1.1 are bounded as connections; one connection of HTTP/2
// can have thousands, and what one takes there docs/performance.md says.
const maxWatches = 1 << 17

// Share is how many times what it leaves free one user or address may have of the watches: three quarters of all, as an
// address of the connections.
const Share = 3

// New returns a set without watches.
func New() *Set {
	return &Set{open: map[*Watch]struct{}{}, Seats: fair.NewLevel(fair.Limits{Most: maxWatches, Times: Share})}
}

// remove undoes Open.
func (ws *Set) remove(w *Watch) {
	w.seat.Leave()
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.open, w)
	ws.turned++
}

const (
	// tidyAfter is how many watches must have been opened or closed before memory is given back.
	tidyAfter = 1000
	// tidyInterval is how long no watch must have been opened or closed by then.
	tidyInterval = 5 * time.Second
)

// Tidy calls free when many watches have come or gone and none comes or goes any more, until ctx ends. A watch that
// opens leaves buffers of net/http behind. Go would collect them with the next load or after two minutes, and would
// return their memory to the system much later.
func (ws *Set) Tidy(ctx context.Context, free func()) {
	tick := time.NewTicker(tidyInterval)
	defer tick.Stop()
	for done, before := 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		ws.mu.Lock()
		turned := ws.turned
		ws.mu.Unlock()
		if turned == before && turned-done >= tidyAfter {
			free()
			done = turned
		}
		before = turned
	}
}

// All returns the open watches.
func (ws *Set) All() []*Watch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.AppendSeq(make([]*Watch, 0, len(ws.open)), maps.Keys(ws.open))
}

// Len returns how many there are.
func (ws *Set) Len() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.open)
}

// maxLooked is at how many watches Lag looks: each takes about a microsecond, and it's asked all the time.
const maxLooked = 10_000

// Lag returns the age of the oldest event that some watch has still to take, among maxLooked of them by chance.
func (ws *Set) Lag() (most time.Duration) {
	all, now := ws.All(), time.Now()
	for _, w := range all[:min(len(all), maxLooked)] { // the order of a map is by chance
		for _, rep := range w.Source.Reports(now) {
			most = max(most, rep.Lag)
		}
	}
	return most
}

// Page is the answer of /debug/watchers.
type Page struct {
	Groups   []*groupRow   `json:"groups"`
	Watchers []*watcherRow `json:"watchers"`
}

// selection is what a watcher or a group of them asks for.
type selection struct {
	Resource      string `json:"resource"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	ShardSelector string `json:"shardSelector,omitempty"`
}

type groupRow struct {
	selection
	Members int `json:"members"`
}

type watcherRow struct {
	selection
	UserAgent       string  `json:"userAgent"`
	ResourceVersion string  `json:"resourceVersion"`
	LagEvents       int     `json:"lagEvents"`
	LagSeconds      float64 `json:"lagSeconds"`
	BytesSent       int64   `json:"bytesSent"`
	AgeSeconds      float64 `json:"ageSeconds"`
}

// Page reports on every watch, those with the most events to take first. One of several resources has a row for each.
func (ws *Set) Page(now time.Time) Page {
	p := Page{Groups: []*groupRow{}, Watchers: []*watcherRow{}}
	seen := map[any]bool{}
	for _, w := range ws.All() {
		for i, rep := range w.Source.Reports(now) {
			what := selection{w.Resources[i], rep.Namespace, rep.Name, rep.Labels, rep.Fields, rep.Shards}
			if !seen[rep.Group] {
				seen[rep.Group] = true
				p.Groups = append(p.Groups, &groupRow{what, rep.Members})
			}
			p.Watchers = append(p.Watchers, &watcherRow{what, w.UserAgent, rep.Revision.String(), rep.LagEvents, rep.Lag.Seconds(), w.Sent.Load(), now.Sub(w.opened).Seconds()})
		}
	}
	slices.SortFunc(p.Groups, func(a, b *groupRow) int {
		return cmp.Or(cmp.Compare(b.Members, a.Members), strings.Compare(fmt.Sprint(a.selection), fmt.Sprint(b.selection)))
	})
	slices.SortFunc(p.Watchers, func(a, b *watcherRow) int {
		return cmp.Or(cmp.Compare(b.LagEvents, a.LagEvents), cmp.Compare(b.LagSeconds, a.LagSeconds), cmp.Compare(b.AgeSeconds, a.AgeSeconds))
	})
	return p
}

// Table writes the page for a person.
func (p Page) Table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBERS\tRESOURCE\tNAMESPACE\tNAME\tLABELS\tFIELDS\tSHARDS")
	for _, g := range p.Groups {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\t%s\n", g.Members, g.Resource, printable(g.Namespace), printable(g.Name), printable(g.LabelSelector), printable(g.FieldSelector), printable(g.ShardSelector))
	}
	fmt.Fprintln(t, "\nLAG EVENTS\tLAG\tVERSION\tSENT\tAGE\tRESOURCE\tNAMESPACE\tNAME\tLABELS\tFIELDS\tSHARDS\tUSER AGENT")
	for _, w := range p.Watchers {
		fmt.Fprintf(t, "%d\t%.1fs\t%s\t%d\t%.0fs\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", w.LagEvents, w.LagSeconds, w.ResourceVersion, w.BytesSent, w.AgeSeconds,
			w.Resource, printable(w.Namespace), printable(w.Name), printable(w.LabelSelector), printable(w.FieldSelector), printable(w.ShardSelector), printable(w.UserAgent))
	}
	return t.Flush()
}

// printable is a client's text without what would break the table, or steer the terminal that shows it.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c < ' ' || c >= 0x7f && c < 0xa0 {
			return ' '
		}
		return c
	}, text)
}

// laggingAfter is how old the oldest event may be that a watcher hasn't taken before it counts as lagging.
const laggingAfter = time.Second

// Collect registers the metrics of lag, which are worked out when they're asked for.
func (ws *Set) Collect(r *prometheus.Registry) {
	worst := func(of func(cacher.Report) float64) func() float64 {
		return func() (most float64) {
			now := time.Now()
			for _, w := range ws.All() {
				for _, rep := range w.Source.Reports(now) {
					most = max(most, of(rep))
				}
			}
			return most
		}
	}
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_lite_watchers_lagging",
			Help: "Open watches whose oldest event not yet taken is more than a second old.",
		}, func() (n float64) {
			now := time.Now()
			for _, w := range ws.All() {
				if slices.ContainsFunc(w.Source.Reports(now), func(r cacher.Report) bool { return r.Lag > laggingAfter }) {
					n++
				}
			}
			return n
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_lite_watch_lag_events_max",
			Help: "Events that the watch furthest behind has still to take.",
		}, worst(func(r cacher.Report) float64 { return float64(r.LagEvents) })),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_lite_watch_lag_seconds_max",
			Help: "Age of the oldest event that some watch has still to take.",
		}, worst(func(r cacher.Report) float64 { return r.Lag.Seconds() })),
	)
}
