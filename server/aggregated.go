package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
)

// discoveryDeadline is how long a server may take to say what it serves, when clients ask: kube-apiserver's figure.
const discoveryDeadline = 5 * time.Second

// discoverySlashes are those of the path of a group version: /apis/example.com/v1.
const discoverySlashes = 3

// serveAggregated lets the server that an APIService names answer. The request is known and allowed by then. It takes a seat
// of its flow, as any other, and gives it back for one among those that wait for this one server: a slow one keeps seats from
// nobody else.
func (h *handler) serveAggregated(w *response, r *http.Request, to *aggregator.Route) error {
	asks := w.Asks
	if asks == nil {
		asks = access.AttributesOf(r)
	}
	w.foreign = to.GroupVersion
	if asks.ResourceRequest {
		w.verb = metrics.Verb(asks.Verb, r.Method)
	}
	w.query = r.URL.Query()
	class := inflight.ClassOf(r)
	if access.LongRunning(asks) || aggregator.Upgrades(r) {
		class, w.trace.Long = inflight.Long, true
	}
	if err := h.comeIn(w, class); err != nil {
		return err
	}
	defer h.capacity.inflight.Leave(class)
	w.held.flow = h.flowOf(r)
	ctx := fair.NewContext(r.Context(), w.held.flow)
	if class != inflight.Long {
		limit := h.timeLimit(inflight.Read, r, w.query)
		if strings.Count(strings.TrimSuffix(r.URL.Path, "/"), "/") == discoverySlashes {
			limit = min(limit, discoveryDeadline)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, w.begun.Add(limit))
		defer cancel()
	}
	r = r.WithContext(ctx)
	if err := to.Ready(); err != nil {
		return w.refuseAggregated(err)
	}
	defer w.leaveSeat()
	if err := h.takeSeat(w, r, class, 1); err != nil {
		return err
	}
	calls := bound{to.Calls, "aggregated", "too many requests wait for the aggregated API server"}
	call, err := calls.enter(ctx, w.held.flow, 1, waitFor(ctx))
	if err != nil {
		return err
	}
	defer call.Leave()
	w.leaveSeat()
	return h.forward(w, r, to, class, call.Leave)
}

// forward has another server answer, when the request has its place there. A watch gives the place back when it has begun.
func (h *handler) forward(w *response, r *http.Request, to *aggregator.Route, class inflight.Class, leave func()) error {
	asked := aggregator.Call{
		User: registry.UserFrom(r.Context()), AuditID: w.auditID,
		Began:  func(code int) { w.begunElsewhere(code) },
		Failed: func(err error) { w.fail(r, err) },
	}
	var answer http.ResponseWriter = w
	if class == inflight.Long {
		open, err := h.enterWatches(w, 1)
		if err != nil {
			return err
		}
		defer open.Leave()
		defer h.metrics.WatchingAt(metrics.Resource{Group: to.Group, Version: to.Version})()
		asked.Began = func(code int) {
			leave()
			w.begunElsewhere(code)
		}
		answer, _ = wire.NewLongAnswer(w, h.port.StreamTimeout) // what has no deadlines needs no longer ones
	}
	if aggregator.Upgrades(r) {
		defer h.port.Hold()()
	}
	return w.refuseAggregated(w.unlessBroken(func() error { return to.Serve(answer, r, asked) }))
}

// begunElsewhere notes that another server has answered. What is no answer of HTTP is noted as one here, because its bytes go
// past the response.
func (w *response) begunElsewhere(code int) {
	if code == http.StatusSwitchingProtocols {
		w.code = code
		w.audit.Started(code)
	}
}

// refuseAggregated answers as kube-apiserver's aggregator does: with text.
func (w *response) refuseAggregated(err error) error {
	var refusal *aggregator.Refusal
	if errors.As(err, &refusal) {
		http.Error(w, refusal.Message, refusal.Code)
		return nil
	}
	return err
}

// unlessBroken calls a function, and cuts the client off if it panics because an answer has broken off.
func (w *response) unlessBroken(f func() error) error {
	defer func() {
		if cause := recover(); cause == http.ErrAbortHandler {
			w.end.cutOff = true
		} else if cause != nil {
			panic(cause)
		}
	}()
	return f()
}
