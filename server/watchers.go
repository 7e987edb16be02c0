package server

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
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
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// openWatch is one open watch, from open to end. It has one owner, which ends it whatever happens: the handler, by defer, or
// over HTTP/1.1 the goroutine of its stream, likewise.
type openWatch struct {
	resource  string // "widgets.v1.example.com"
	userAgent string
	cursor    *cacher.Cursor
	cancel    context.CancelCauseFunc // ends the stream
	stream    *wire.Stream            // nil until it has begun
	opened    time.Time
	bytes     atomic.Int64 // sent
	admitted

	among   *watchers // that it's one of
	seat    fair.Seat // among them
	uncount func()    // takes it out of the metrics
}

// maxUserAgent is how much of a User-Agent is kept, in bytes.
const maxUserAgent = 128

// open makes an open watch of a cursor, whose stream cancel ends. Beyond maxWatches it closes the cursor, and the error is a 429.
func (h *handler) open(w *response, r *http.Request, t target, cursor *cacher.Cursor, cancel context.CancelCauseFunc) (*openWatch, error) {
	o := &openWatch{
		resource:  strings.TrimSuffix(t.endpoint.Plural+"."+t.endpoint.Version+"."+t.endpoint.Group, "."),
		userAgent: strings.Clone(clip.To(r.UserAgent(), maxUserAgent)),
		cursor:    cursor,
		cancel:    cancel,
		opened:    time.Now(),
		admitted:  w.admitted,
		among:     h.watchers,
	}
	if err := h.watchers.add(o, w.share.flow); err != nil {
		cursor.Close()
		cancel(nil)
		return nil, err
	}
	o.uncount = h.metrics.watching(t.endpoint)
	return o, nil
}

// end gives back all that an open watch holds.
func (o *openWatch) end() {
	o.cancel(nil)
	o.cursor.Close()
	o.among.remove(o)
	o.uncount()
}

// watchers are the open watches of a server, for the page about them and for the metrics of their lag.
type watchers struct {
	mu     sync.Mutex // guards open and turned
	open   map[*openWatch]struct{}
	turned int         // how many were opened or closed
	seats  *fair.Level // for those that are open
}

// admitted is why a request was let in.
type admitted struct {
	credential access.Credential            // of its user
	asks       *authorizer.AttributesRecord // what the user was allowed; nil if everybody may do everything
	as         *access.Impersonated         // for whom the credential's user is taken; nil: for himself
}

// maxWatches is how many watches may be open. Those of HTTP/1.1 are bounded as connections; one connection of HTTP/2
// can have thousands. One that waits takes about 20 KiB there, so that this many take some 1.3 GiB.
const maxWatches = 1 << 16

// watchShare is how many times what it leaves free one user or address may have of the watches: three quarters of all, as an
// address of the connections.
const watchShare = 3

func newWatchers() *watchers {
	return &watchers{open: map[*openWatch]struct{}{}, seats: fair.NewLevel(fair.Limits{Most: maxWatches, Times: watchShare})}
}

// add notes a watch of a flow as open, until remove. Beyond maxWatches, and beyond the part of them that one flow may have, it
// returns a 429.
func (ws *watchers) add(w *openWatch, flow fair.Flow) (err error) {
	if w.seat, err = enter(context.Background(), ws.seats, flow, 1, 0, "too many watches are open, please try again later"); err != nil {
		return err
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.open[w] = struct{}{}
	ws.turned++
	return nil
}

// remove undoes add.
func (ws *watchers) remove(w *openWatch) {
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

// tidy calls free when many watches have come or gone and none comes or goes any more, until ctx ends. A watch that
// opens leaves buffers of net/http behind. Go would collect them with the next load or after two minutes, and would
// return their memory to the system much later.
func (ws *watchers) tidy(ctx context.Context, free func()) {
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

func (ws *watchers) all() []*openWatch {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	all := make([]*openWatch, 0, len(ws.open))
	for w := range ws.open {
		all = append(all, w)
	}
	return all
}

// watcherPage is the answer of /debug/watchers.
type watcherPage struct {
	Groups   []groupRow   `json:"groups"`
	Watchers []watcherRow `json:"watchers"`
}

// selection is what a watcher or a group of them asks for.
type selection struct {
	Resource      string `json:"resource"`
	Namespace     string `json:"namespace,omitempty"`
	Name          string `json:"name,omitempty"`
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
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

// page reports on every watch, those with the most events to take first.
func (ws *watchers) page(now time.Time) watcherPage {
	p := watcherPage{Groups: []groupRow{}, Watchers: []watcherRow{}}
	seen := map[any]bool{}
	for _, w := range ws.all() {
		rep := w.cursor.Report(now)
		what := selection{w.resource, rep.Namespace, rep.Name, rep.Labels, rep.Fields}
		if !seen[rep.Group] {
			seen[rep.Group] = true
			p.Groups = append(p.Groups, groupRow{what, rep.Members})
		}
		p.Watchers = append(p.Watchers, watcherRow{what, w.userAgent, rep.Revision.String(), rep.LagEvents, rep.Lag.Seconds(), w.bytes.Load(), now.Sub(w.opened).Seconds()})
	}
	slices.SortFunc(p.Groups, func(a, b groupRow) int {
		return cmp.Or(cmp.Compare(b.Members, a.Members), strings.Compare(fmt.Sprint(a.selection), fmt.Sprint(b.selection)))
	})
	slices.SortFunc(p.Watchers, func(a, b watcherRow) int {
		return cmp.Or(cmp.Compare(b.LagEvents, a.LagEvents), cmp.Compare(b.LagSeconds, a.LagSeconds), cmp.Compare(b.AgeSeconds, a.AgeSeconds))
	})
	return p
}

// serveWatchers answers /debug/watchers: JSON, or a table for a person with ?pretty.
func (h *handler) serveWatchers(w *response, r *http.Request) error {
	if _, err := w.parseQuery(r); err != nil {
		return err
	}
	page := h.watchers.page(time.Now())
	if registry.Flag(w.query, "pretty") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return page.table(w)
	}
	w.Header().Set("Content-Type", string(mediaJSON))
	return json.NewEncoder(w).Encode(page)
}

func (p watcherPage) table(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MEMBERS\tRESOURCE\tNAMESPACE\tNAME\tLABELS\tFIELDS")
	for _, g := range p.Groups {
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%s\n", g.Members, g.Resource, printable(g.Namespace), printable(g.Name), printable(g.LabelSelector), printable(g.FieldSelector))
	}
	fmt.Fprintln(t, "\nLAG EVENTS\tLAG\tVERSION\tSENT\tAGE\tRESOURCE\tNAMESPACE\tNAME\tLABELS\tFIELDS\tUSER AGENT")
	for _, w := range p.Watchers {
		fmt.Fprintf(t, "%d\t%.1fs\t%s\t%d\t%.0fs\t%s\t%s\t%s\t%s\t%s\t%s\n", w.LagEvents, w.LagSeconds, w.ResourceVersion, w.BytesSent, w.AgeSeconds,
			w.Resource, printable(w.Namespace), printable(w.Name), printable(w.LabelSelector), printable(w.FieldSelector), printable(w.UserAgent))
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

// collect registers the metrics of lag, which are worked out when they're asked for.
func (ws *watchers) collect(r *prometheus.Registry) {
	worst := func(of func(cacher.Report) float64) func() float64 {
		return func() (most float64) {
			now := time.Now()
			for _, w := range ws.all() {
				most = max(most, of(w.cursor.Report(now)))
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
			for _, w := range ws.all() {
				if w.cursor.Report(now).Lag > laggingAfter {
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
