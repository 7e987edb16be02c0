package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/aggregator"
	"github.com/apiserver-lite/apiserver-lite/audit"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/internal/loglimit"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/server/discovery"
	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/faults"
	"github.com/apiserver-lite/apiserver-lite/server/guard"
	"github.com/apiserver-lite/apiserver-lite/server/health"
	"github.com/apiserver-lite/apiserver-lite/server/metrics"
	"github.com/apiserver-lite/apiserver-lite/server/quiescence"
	"github.com/apiserver-lite/apiserver-lite/server/replica"
	"github.com/apiserver-lite/apiserver-lite/server/resets"
	"github.com/apiserver-lite/apiserver-lite/server/stack"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/traffic"
	"github.com/apiserver-lite/apiserver-lite/server/watches"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
	"github.com/apiserver-lite/apiserver-lite/tracing"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// handler is the outermost: what every request gets, whatever it asks for.
type handler struct {
	log      *slog.Logger
	registry *registry.Registry
	gate
	streams
	manner    manner
	capacity  *capacity
	metrics   *metrics.Metrics
	tells     tells
	discovery *discovery.Discovery
	state     state
	quiescent quiescence.Quiescent
	pulse     *replica.Pulse // nil: no other process uses the store
	besides   besides
	// aggregator knows what other servers have; nil: none has anything.
	aggregator *aggregator.Aggregator
	routes     http.Handler
}

// tells are what a server tells of its requests, besides metrics.
type tells struct {
	traffic *traffic.Log
	tracer  *tracing.Tracer // nil: no request is traced
	slow    loglimit.Limit
}

// besides is what a server has besides Kubernetes' API.
type besides struct {
	console   bool // the console is served
	snapshots *resets.Snapshots
	backup    snapshot.Open  // of snapshots of the store
	members   *etcd.Server   // nil unless the store has several
	faults    *faults.Faults // nil: none are on purpose
	clock     *faketime.Clock
}

// state tells how the server is.
type state struct {
	ready  func() bool // for requests
	checks health.Checks
}

// manner is how all requests are answered.
type manner struct {
	timeout  time.Duration // for a request that isn't a watch
	goaway   float64       // the probability with which a client over HTTP/2 has to open another connection
	security string        // the header Strict-Transport-Security; "": there is none
}

// gate is what a request passes before its route.
type gate struct {
	guard    *guard.Guard
	identity *identity
	may      *access.Authorizer // nil: everybody may do everything
	audit    *audit.Log         // nil: nothing is audited
}

// streams are the open watches.
type streams struct {
	port    *wire.Port
	watches *watches.Set
	sweeper *watchstream.Sweeper
}

// requestInfo is what a request asks for.
type requestInfo struct {
	query    url.Values // set by parseQuery
	verb     string     // as kube-apiserver's metrics name it; "" outside of resources
	endpoint *registry.Endpoint
	named    registry.Target     // by the path of a resource
	foreign  schema.GroupVersion // that another server has; zero if this one answers
}

// held is what a request has of what all share.
type held struct {
	flow   fair.Flow // as whose
	seat   fair.Seat // of its level
	writes bool      // a write is being worked for
	raw    fair.Seat // of capacity.raw

	large   fair.Seat    // of capacity.large
	stalled fair.Seat    // of capacity.stalled
	reenter func() error // takes the place among large answers again
}

// response is the ResponseWriter that goes through the routes, and what is remembered about a request.
type response struct {
	http.ResponseWriter
	requestInfo
	log     *slog.Logger
	auditID string
	begun   time.Time
	audit   *audit.Record // nil: the request isn't audited
	access.Grounds
	stranger bool // has shown no credential, where one is needed
	code     int  // 0 until the header is written
	bytes    int64
	trace    tracing.Request

	capacity *capacity
	held     held
	upload   upload
	warnings []string // that the answer has
	end      ending
}

// upload is what is remembered about a request's body.
type upload struct {
	received []byte // the body, if read says that it's there
	read     bool
	leave    func() // gives back what the body has of capacity.bodyMemory; nil: nothing
}

// ending is how an answer ends, if it isn't an ordinary one.
type ending struct {
	lobby     bool   // the connection is beyond MaxConnections: it gets a 503
	takenOver bool   // by a stream, which finishes it later
	cutOff    bool   // the client mustn't take the answer for whole: its connection is closed
	refused   string // the name of the refusal that it is; "" for none
}

// handle makes a handler of a function that returns its error instead of answering with it.
func handle(f func(w *response, r *http.Request) error) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		w := rw.(*response)
		err := f(w, r)
		var panicked *registry.PanicError
		if errors.As(err, &panicked) {
			panic(panicked) // as if it had been in this goroutine
		}
		if err != nil {
			w.fail(r, err)
		}
	}
}

func (h *handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w := &response{ResponseWriter: rw, log: h.log, auditID: auditID(r), begun: time.Now(), capacity: h.capacity, end: ending{lobby: wire.InLobby(r.Context())}}
	header := w.Header()
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-cache, private")
	header.Set("Audit-Id", w.auditID)
	if h.manner.security != "" {
		header.Set("Strict-Transport-Security", h.manner.security)
	}
	if w.end.lobby || h.manner.goaway > 0 && r.ProtoMajor == 2 && rand.Float64() < h.manner.goaway {
		header.Set("Connection", "close") // which over HTTP/2 is a GOAWAY: what is open on the connection goes on
	}
	if r.ProtoMajor == 1 && len(r.TransferEncoding) > 0 {
		// net/http hides whether the request had a Content-Length too. A proxy that went by it may have seen another
		// end of the body. So what follows on the connection is not read as a request.
		header.Set("Connection", "close")
	}

	h.whole(w, r, h.serve)
	if w.end.cutOff {
		panic(http.ErrAbortHandler) // net/http closes the connection and says nothing
	}
}

// whole serves a request and ends it: what the request took is given back, it's logged and counted, and a panic is a 500.
func (h *handler) whole(w *response, r *http.Request, serve func(w *response, r *http.Request)) {
	defer func() {
		cause := recover()
		w.leaveLarge()
		if w.upload.leave != nil {
			w.upload.leave()
		}
		w.held.raw.Leave()
		w.leaveSeat()
		if cause != nil {
			h.metrics.Panics.Inc()
			stack := debug.Stack()
			if elsewhere, ok := cause.(*registry.PanicError); ok {
				cause, stack = fmt.Sprintf("%v: %v", elsewhere, elsewhere.Cause), elsewhere.Stack
			}
			what := fmt.Sprint(cause)
			h.log.ErrorContext(r.Context(), "panic", "audit_id", w.auditID, "method", r.Method, "path", shortPath(r), "panic", what, "stack", string(stack))
			w.afterPanic(r)
			w.audit.Panicked(what)
			w.audit = nil // its last event is written
		}
		if !w.end.takenOver {
			took := time.Since(w.begun)
			h.tells.traffic.Request(r.UserAgent())
			h.finish(w, r.Method, shortPath(r), took)
			h.tellTime(w, r, took)
		}
	}()
	stack.Grow(r)
	serve(w, r)
}

func (h *handler) serve(w *response, r *http.Request) {
	preflight := h.guard.Origins.Tell(w.Header(), r)
	err := h.guard.Check(r)
	switch {
	case err != nil:
	case preflight:
		w.WriteHeader(http.StatusNoContent)
		return
	case len(r.RequestURI) > maxURI:
		err = status.Error(http.StatusRequestURITooLong, metav1.StatusReasonBadRequest, "the URI is longer than "+strconv.Itoa(maxURI)+" bytes")
	default:
		err = guard.CleanPath(r.URL)
	}
	nowhere := err == guard.ErrEmptySegment
	if nowhere {
		err = nil // once it's known who asks, it's answered as any other path that leads nowhere
	}
	if err == nil && !nowhere && h.consoleTakes(w, r) {
		handle(h.serveConsole)(w, r)
		return
	}
	identified := r
	if err == nil {
		identified, err = h.letIn(w, r)
	}
	if err != nil {
		w.fail(r, err)
		return
	}
	if nowhere {
		h.noRoute(w, identified)
		return
	}
	if to := h.aggregator.Route(identified.URL.Path); to != nil {
		handle(func(w *response, r *http.Request) error { return h.serveAggregated(w, r, to) })(w, identified)
		return
	}
	guard.CutSlash(identified.URL)
	h.routes.ServeHTTP(w, identified)
}

// letIn finds out whose request it is, and whether he may make it. That may wait for the store. What waits is bounded, except
// that the server's health waits for nobody's place, and it ends with the request's time. A request that is let in goes on
// with a context that doesn't end then: it may be a watch.
func (h *handler) letIn(w *response, r *http.Request) (let *http.Request, err error) {
	limit, err := h.arrivalLimit(w, r)
	if err != nil {
		h.auditRefused(w, r)
		return nil, err
	}
	if h.pulse == nil && !h.identity.on {
		return h.judge(w, r)
	}
	ctx, end := context.WithCancelCause(r.Context())
	late := time.AfterFunc(limit, func() { end(context.DeadlineExceeded) })
	defer func() {
		if late.Stop(); err != nil && context.Cause(ctx) == context.DeadlineExceeded {
			err = status.Error(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, "it could not be found out in time who makes the request and whether he may; nothing was done")
		}
	}()
	r = r.WithContext(ctx)
	if !health.Asks(r) {
		place, err := h.capacity.arrivals.enter(ctx, fair.Flow{Who: wire.ClientOf(r)}, 1, limit/waitShare)
		if err != nil {
			return nil, err
		}
		defer place.Leave()
	}
	return h.judge(w, r)
}

// judge finds out who asks and whether he may, when the request has its place.
func (h *handler) judge(w *response, r *http.Request) (*http.Request, error) {
	_, step := w.trace.Begin(r.Context(), tracing.Barrier, "barrier")
	r, err := h.fresh(r)
	step.End(err)
	if err != nil {
		return nil, err
	}
	_, step = w.trace.Begin(r.Context(), tracing.Rights, "rights")
	defer func() { step.End(err) }()
	if r, err = h.identify(w, r); err != nil {
		return nil, err
	}
	return r, h.authorize(w, r)
}

// afterPanic answers 500 if nothing is answered yet.
func (w *response) afterPanic(r *http.Request) {
	if w.code != 0 {
		w.end.cutOff = true
		return
	}
	w.answerStatus(r, w.internalStatus())
}

// finish leaves the request's log line and its counts.
func (h *handler) finish(w *response, method, path string, took time.Duration) {
	h.metrics.Observe(metrics.Answer{Verb: w.verb, Method: method, Endpoint: w.endpoint, Target: w.named, DryRun: w.query["dryRun"] != nil, Foreign: w.foreign, Code: w.code, Refused: w.end.refused, Took: took, Waited: w.trace.Took(tracing.Queue) + w.trace.Took(tracing.Webhooks)})
	w.audit.Completed(w.code)
	if !h.log.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	h.log.Debug("request", "method", method, "path", path, "code", w.code, "bytes", w.bytes, "duration", took, "audit_id", w.auditID)
}

const (
	// maxURI is the length of a request line's URI, in bytes. Long label selectors fit.
	maxURI = 64 << 10
	// maxLoggedPath is how much of a path the log has, in bytes. Those of most objects fit.
	maxLoggedPath = 256
	// maxAuditID is how long a client's Audit-Id may be, in bytes. A UUID has 36.
	maxAuditID = 64
)

// shortPath is a path for the log. The query isn't in it, because it may hold anything.
func shortPath(r *http.Request) string { return clip.To(r.URL.Path, maxLoggedPath) }

// auditID is the client's id for the request, if it's one that can go into a log, or a new one.
func auditID(r *http.Request) string {
	id := r.Header.Get("Audit-Id")
	if len(id) == 0 || len(id) > maxAuditID {
		return uuid.NewString()
	}
	for _, c := range []byte(id) {
		if c <= ' ' || c >= 0x7f || c == '"' {
			return uuid.NewString()
		}
	}
	return id
}

// parseQuery keeps the query, refusing one that doesn't parse.
func (w *response) parseQuery(r *http.Request) (err error) {
	if w.query, err = url.ParseQuery(r.URL.RawQuery); err != nil {
		return status.BadRequest("the query doesn't parse: " + err.Error())
	}
	if lite := w.query["lite"]; len(lite) > 1 || len(lite) == 1 && lite[0] != "true" && lite[0] != "false" {
		// What it asks for would be left out otherwise, and a deletion take more than was meant. No client of Kubernetes sends it.
		return registry.BadRequest("the parameter lite must be true or false, and is %q", clip.Text(strings.Join(lite, ",")))
	}
	return nil
}

// WriteHeader remembers the code.
func (w *response) WriteHeader(code int) {
	if w.code == 0 && (code >= 200 || code == http.StatusSwitchingProtocols) {
		w.code = code
		w.audit.Started(code)
		w.leaveSeat()
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write counts. Its error is wire.ErrGone.
func (w *response) Write(p []byte) (int, error) {
	if w.code == 0 {
		w.code = http.StatusOK
		w.audit.Started(w.code)
		w.leaveSeat()
	}
	n, err := w.writeOut(p)
	w.bytes += int64(n)
	if err != nil {
		err = wire.Gone(err)
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }
