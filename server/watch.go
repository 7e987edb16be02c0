package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/framing"
	"github.com/apiserver-lite/apiserver-lite/server/negotiation"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// watch opens a watch and serves it. What's wrong with the request is still an HTTP error; once the
// headers are out everything else is the stream's.
func (h *handler) watch(w *response, r *http.Request, t target) error {
	accept := r.Header.Values("Accept")
	media, wanted, err := t.negotiateForm(accept, negotiation.Stream, oneMetadata)
	if err != nil && negotiation.KnowsObjects(accept) { // in which there are objects, but no streams of them
		return negotiation.NotAcceptable("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch")
	}
	if err != nil {
		return err
	}
	t.warn(w, r)
	asked := t.request(w, r, wanted)
	open := func() (watches.Source, watchstream.Options, error) {
		return reads.Of(t.endpoint).Watch(r.Context(), asked)
	}
	o := opening{Framing: framing.Of(media), targets: []target{t}, open: open, events: h.metrics.WatchEvents(t.endpoint)}
	if media == negotiation.Events {
		o.open = func() (watches.Source, watchstream.Options, error) {
			return openAgain(r, open, func(version string) opener {
				asked.Query = after(asked.Query, version)
				return open
			})
		}
	}
	if h.may != nil {
		o.asks = []*authorizer.AttributesRecord{w.Asks}
	}
	return h.serveWatch(w, r, o)
}

// opening is a watch that is to be opened, of one target or of several.
type opening struct {
	*framing.Framing
	targets []target
	asks    []*authorizer.AttributesRecord // what the user was allowed, for each target; none if everybody may do everything
	open    opener
	events  prometheus.Counter
}

// serveWatch opens a watch and serves it.
func (h *handler) serveWatch(w *response, r *http.Request, o opening) error {
	source, options, err := faults.Open(r.Context(), o.open)
	var about *reads.StreamError
	if errors.As(err, &about) {
		return h.tell(w, r, o.Framing, about.ErrStatus)
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(h.port.Lasting(r))
	watch := &watches.Watch{UserAgent: r.UserAgent(), Source: faults.Source(r.Context(), source, &o.Framing.Framing, cancel), Options: options, Cancel: cancel, Why: w.Grounds, Asks: o.asks}
	seat, err := h.enterWatches(w, len(o.targets))
	if err != nil {
		watch.Source.Close()
		cancel(nil)
		return err
	}
	watch.Options.Begin(h.sweeper)
	uncount := make([]func(), len(o.targets))
	for i, t := range o.targets {
		uncount[i] = h.metrics.Watching(t.endpoint)
		watch.Resources = append(watch.Resources, strings.TrimSuffix(t.endpoint.Plural+"."+t.endpoint.Version+"."+t.endpoint.Group, "."))
	}
	h.watches.Open(watch, seat, uncount)
	defer func() {
		if !w.end.takenOver {
			watch.End()
		}
	}()
	w.Header().Set("Content-Type", o.Media)
	if watch.Stream, err = h.port.Begin(w, r, wire.Outlet{Framing: &o.Framing.Framing, Events: o.events, Sent: &watch.Sent}); err != nil {
		watch.Options.Abandon()
		return err
	}
	if !watch.Stream.Own() {
		if err := h.stream(ctx, watch, w, shortPath(r)); err != nil {
			return wire.Gone(err) // cut off: a clean end would tell the client that it has all
		}
		return nil
	}
	w.end.takenOver = true
	afterHandler, method, path := w.afterHandler(), r.Method, shortPath(r)
	watch.Stream.Go(func() { h.streamOn(ctx, watch, afterHandler, method, path) })
	return nil
}

// enterWatches gives a request seats among the open watches, one for each resource, or a 429: of them one flow may have a part.
func (h *handler) enterWatches(w *response, n int) (fair.Seat, error) {
	return h.capacity.watches.enter(context.Background(), w.held.flow, n, 0)
}

// stream serves an open watch. Of an error that the client knows only the log is told.
func (h *handler) stream(ctx context.Context, watch *watches.Watch, w *response, path string) error {
	err := watch.Serve(ctx)
	if !errors.Is(err, watchstream.ErrTold) {
		return err
	}
	h.log.Warn("a watch failed", "audit_id", w.auditID, "path", path, "error", err)
	return nil
}

// afterHandler is what is logged and counted of a request whose handler has returned: a copy without what belongs to net/http.
func (w *response) afterHandler() *response {
	return &response{log: w.log, auditID: w.auditID, begun: time.Now(), audit: w.audit, code: w.code, requestInfo: requestInfo{verb: w.verb, endpoint: w.endpoint, named: w.named}}
}

// streamOn serves a watch whose handler has returned, on a goroutine of its own that owns the watch. It does at the end what
// ServeHTTP does for other requests.
func (h *handler) streamOn(ctx context.Context, watch *watches.Watch, w *response, method, path string) {
	defer watch.End()
	defer func() {
		if cause := recover(); cause != nil {
			h.metrics.Panics.Inc()
			h.log.Error("panic", "audit_id", w.auditID, "method", method, "path", path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
		w.bytes = watch.Sent.Load()
		h.finish(w, method, path, time.Since(w.begun))
	}()
	h.stream(ctx, watch, w, path) // what it returns is of a client that is gone
}

// serveWatchers answers /debug/watchers: JSON, or a table for a person with ?pretty.
func (h *handler) serveWatchers(w *response, r *http.Request) error {
	if err := w.parseQuery(r); err != nil {
		return err
	}
	page := h.watches.Page(time.Now())
	if reads.Flag(w.query, "pretty") {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		return page.Table(w)
	}
	w.Header().Set("Content-Type", string(negotiation.JSON))
	return json.NewEncoder(w).Encode(page)
}

// tell answers with a stream of one ERROR event.
func (h *handler) tell(w *response, r *http.Request, f *framing.Framing, status metav1.Status) error {
	event, events := f.Tell(make([]byte, watchstream.Headroom), status), h.metrics.WatchEvents(w.endpoint)
	if wire.IsWebSocket(r) {
		stream, err := h.port.Begin(w, r, wire.Outlet{Framing: &f.Framing, Events: events, Sent: new(atomic.Int64)})
		if err != nil {
			return err
		}
		return stream.Tell(event)
	}
	w.Header().Set("Content-Type", f.Media)
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w.ResponseWriter).Flush() // a stream has no length
	events.Inc()
	w.Write(event[watchstream.Headroom:]) // an error means that the client is gone
	return nil
}
