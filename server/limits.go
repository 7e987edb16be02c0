package server

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/registry/writes"
	"github.com/apiserver-lite/apiserver-lite/server/bounds"
	"github.com/apiserver-lite/apiserver-lite/server/bulk"
	"github.com/apiserver-lite/apiserver-lite/server/faketime"
	"github.com/apiserver-lite/apiserver-lite/server/flowcontrol"
	"github.com/apiserver-lite/apiserver-lite/server/inflight"
	"github.com/apiserver-lite/apiserver-lite/server/packed"
	"github.com/apiserver-lite/apiserver-lite/server/status"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/storage/transaction"
	"github.com/apiserver-lite/apiserver-lite/tracing"
)

// kube-apiserver's defaults: what may be in flight, and for how long.
const (
	readDeadline  = bounds.DefaultRequestTimeout
	writeDeadline = 34 * time.Second

	// sayLate is how long after its deadline net/http still waits for an answer: it may say that.
	sayLate = 5 * time.Second
)

// collectionWrites is how many seats the deletion of a collection takes: as many as the writes that it does at once.
const collectionWrites = writes.DeletersAtOnce

// What requests share, besides the seats of reads and writes together, which are as many as kube-apiserver's.
const (
	// maxFlowQueue is how many requests of one user or address may wait for a seat: the queues of kube-apiserver's hand.
	maxFlowQueue = 6 * 50
	// maxQueue is how many of all may wait, as in its level global-default.
	maxQueue = 128 * 50
	// maxUploads is how many requests may have a body that is on its way, or that waits for a seat: up to trustedBody each, and
	// beyond that as many as have room (maxRaw).
	maxUploads = 400
	// maxArrivals is how many requests may be between their headers and their user's name. It takes a moment, unless the
	// store that it's read from doesn't answer.
	maxArrivals = 1024
	// maxWaits is how many requests may wait for the controllers (/debug/quiescent).
	maxWaits = 256
	// waitShare is the part of its time, a quarter, that a request may wait for a seat, as in kube-apiserver.
	waitShare = 4
)

// levels are where requests get their seats: a flowcontrol.Priorities, or a flowcontrol.Addresses where users aren't told apart. A list
// takes one seat, however many objects it has, and gives it back when its answer begins. From then on it needs a place among large
// answers (maxLargeAnswers). kube-apiserver gives a list up to ten seats until it's written.
type levels interface {
	Place(r *http.Request, asks *authorizer.AttributesRecord) flowcontrol.Place
	Levels() []flowcontrol.Level
}

// capacity is for what requests do at once. Flows share it: see package fair.
type capacity struct {
	inflight   *inflight.Requests
	levels     levels
	arrivals   bound
	uploads    bound         // for bodies that are on their way
	raw        bound         // of rawUnit: for large bodies as they're sent
	bodyMemory *fair.Weights // to make objects of large bodies
	quiescent  bound         // to wait for the controllers
	lists      bound         // to write the objects of a List
	backups    bound         // to read a snapshot of the store
	watches    bound
	large      bound       // to write a large answer
	stalled    *fair.Level // to have begun one whose client doesn't take it
	yaml       bound       // to make a large one YAML
	packed     packed.Lists
}

// newCapacity returns room for what's bounded, with levels for requests and seats for watches.
func newCapacity(l levels, watches *fair.Level) *capacity {
	queued := func(most int) *fair.Level {
		return fair.NewLevel(fair.Limits{Most: most, PerFlow: maxFlowQueue, Waiting: maxQueue})
	}
	return &capacity{
		inflight:   inflight.New(),
		levels:     l,
		arrivals:   bound{queued(maxArrivals), "arrivals", "too many requests are arriving"},
		uploads:    bound{queued(maxUploads), "uploads", "too many bodies are on their way"},
		raw:        bound{queued(maxRaw / rawUnit), "large_uploads", "too many large bodies are on their way"},
		bodyMemory: &fair.Weights{Most: maxBodies},
		quiescent:  bound{fair.NewLevel(fair.Limits{Most: maxWaits}), "quiescent", "too many requests wait for the controllers"},
		lists:      bound{queued(bulk.MaxAtOnce), "lists", "too many Lists are being written"},
		backups:    bound{fair.NewLevel(fair.Limits{Most: maxBackups}), "snapshots", "too many snapshots are being read"},
		watches:    bound{watches, "watches", "too many watches are open"},
		large:      bound{queued(maxLargeAnswers), "large_answers", "too many large answers are being made"},
		stalled:    fair.NewLevel(fair.Limits{Most: maxStalled}),
		yaml:       bound{queued(1), "large_answers", "too many large answers are being made"},
	}
}

// bound is a level with its name in metrics, and what one is told that gets nothing of it.
type bound struct {
	*fair.Level
	name, refusal string
}

// enter gives a request so many seats, or a 429.
func (b bound) enter(ctx context.Context, f fair.Flow, seats int, wait time.Duration) (fair.Seat, error) {
	_, step := tracing.Begin(ctx, tracing.Queue, "wait for "+b.name)
	s, err := b.Enter(ctx, f, seats, wait)
	step.End(err)
	if errors.Is(err, fair.ErrFull) || errors.Is(err, fair.ErrTimeout) {
		err = status.TooMany(b.name, b.refusal+", please try again later")
	}
	return s, err
}

// flowOf names whose request it is: the user's, or where users aren't told apart the address's.
func (h *handler) flowOf(r *http.Request) fair.Flow {
	if h.identity.on {
		return fair.Flow{Rule: "user", Who: registry.UserFrom(r.Context()).GetName()}
	}
	return fair.Flow{Who: wire.ClientOf(r)}
}

// name says in the answer by which stored objects the request has its place.
func (w *response) name(at flowcontrol.Place) {
	if at.SchemaUID != "" {
		w.Header()[headerFlowSchema] = []string{string(at.SchemaUID)}
	}
	if at.LevelUID != "" {
		w.Header()[headerPriorityLevel] = []string{string(at.LevelUID)}
	}
}

// The names of headers as net/http has them: to make one of Kubernetes' costs memory.
var (
	headerFlowSchema    = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	headerPriorityLevel = http.CanonicalHeaderKey(flowcontrolv1.ResponseHeaderMatchedPriorityLevelConfigurationUID)
)

// seatsNow returns how many seats of requests are taken.
func (h *handler) seatsNow() (n int) {
	for _, l := range h.capacity.levels.Levels() {
		n += l.Taken()
	}
	return n
}

// takeSeat gives a request seats until it's answered. It waits for a quarter of its time at most.
func (h *handler) takeSeat(w *response, r *http.Request, class inflight.Class, n int) error {
	at := h.capacity.levels.Place(r, w.Asks)
	w.name(at)
	if at.Level != nil {
		_, step := w.trace.Begin(r.Context(), tracing.Queue, "wait for a seat")
		seat, err := at.Level.Enter(r.Context(), at.Flow, n, waitFor(r.Context()))
		if step.End(err); err != nil {
			return h.refuseSeat(at, err)
		}
		w.held.seat = seat
	}
	if w.held.writes = class == inflight.Write; w.held.writes {
		h.capacity.inflight.Writing.Add(1)
	}
	return nil
}

// refuseSeat counts a request that gets no seat, and says so to its client if he is still there.
func (h *handler) refuseSeat(at flowcontrol.Place, err error) error {
	reason := "cancelled"
	if errors.Is(err, fair.ErrFull) || errors.Is(err, fair.ErrTimeout) {
		reason = err.Error()
		err = status.TooMany("requests", "too many requests are under way, please try again later")
	}
	h.metrics.Rejected.WithLabelValues(at.Name, at.Schema, reason).Inc()
	return err
}

// waitFor returns how long a request may wait for a seat.
func waitFor(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline) / waitShare
	}
	return readDeadline / waitShare
}

// leaveSeat gives back what takeSeat took, if it did. The handler calls it at the end, and the response when the answer
// begins: what a client takes slowly keeps nobody waiting.
func (w *response) leaveSeat() {
	w.held.seat.Leave()
	if w.held.writes {
		w.held.writes = false
		w.capacity.inflight.Writing.Add(-1)
	}
}

// parsed makes a middleware of a function that serves a request whose query has been parsed.
func parsed(serve func(w *response, r *http.Request, next http.Handler) error) func(next http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return handle(func(w *response, r *http.Request) error {
			if err := w.parseQuery(r); err != nil {
				return err
			}
			return serve(w, r, next)
		})
	}
}

// enterDocument is for paths that aren't resources: what they serve is only read.
func (h *handler) enterDocument(w *response, r *http.Request, next http.Handler) error {
	return h.enterClass(w, r, inflight.Read, next)
}

// enterResource is for resources.
func (h *handler) enterResource(w *response, r *http.Request, next http.Handler) error {
	class := inflight.ClassOf(r)
	if r.Method == http.MethodGet && reads.Flag(w.query, "watch") {
		class = inflight.Long
	}
	return h.enterClass(w, r, class, next)
}

// enterLegacyWatch is for the paths below /watch/, where old clients watch without asking for it by a parameter.
func (h *handler) enterLegacyWatch(w *response, r *http.Request, next http.Handler) error {
	if r.Method != http.MethodGet {
		return methodNotAllowed(w, http.MethodGet, "below /watch/ only GET is served: leave /watch out of the path")
	}
	w.query.Set("watch", "true")
	return h.enterClass(w, r, inflight.Long, next)
}

// enterWait is for what only waits: it takes a place of its own, and nobody waits for it at the end.
func (h *handler) enterWait(w *response, r *http.Request, next http.Handler) error {
	place, err := h.capacity.quiescent.enter(r.Context(), h.flowOf(r), 1, 0)
	if err != nil {
		return err
	}
	defer place.Leave()
	return h.enterClass(w, r, inflight.Long, handle(func(w *response, r *http.Request) error {
		w.leaveSeat() // it works for nobody while it waits
		next.ServeHTTP(w, r)
		return nil
	}))
}

// enterClass serves a request if the server is ready, when it has a seat. All but watches get a deadline. A body is read
// before, so that one that doesn't come takes no seat.
func (h *handler) enterClass(w *response, r *http.Request, class inflight.Class, next http.Handler) error {
	if err := h.comeIn(w, class); err != nil {
		return err
	}
	defer h.capacity.inflight.Leave(class)
	w.held.flow = h.flowOf(r)
	defer w.leaveSeat()
	if class == inflight.Long {
		w.trace.Long = true
		if err := h.takeSeat(w, r, class, 1); err != nil {
			return err
		}
		next.ServeHTTP(w, r.WithContext(fair.NewContext(r.Context(), w.held.flow)))
		return nil
	}
	ctx, cancel := context.WithDeadline(fair.NewContext(r.Context(), w.held.flow), w.begun.Add(h.timeLimit(class, r, w.query)))
	defer cancel()
	r = r.WithContext(h.traced(ctx, w, r))
	if err := h.readThenSit(w, r, class); err != nil {
		return err
	}
	next.ServeHTTP(w, r)
	return nil
}

// comeIn counts a request, or says why it can't be served now. Each nil must be followed by inflight.Leave.
func (h *handler) comeIn(w *response, class inflight.Class) error {
	if w.end.lobby {
		return status.Unavailable("connections", "too many connections are open, please try again later")
	}
	if !h.capacity.inflight.Enter(class) {
		return status.Unavailable("shutdown", "the server is shutting down")
	}
	if !h.state.ready() {
		h.capacity.inflight.Leave(class)
		return status.TooMany("start", "the server is still reading what it stored, please try again")
	}
	return nil
}

// readThenSit reads the body of a write and takes a seat for it. The place for the body is given back then, because what
// has a seat is bounded by that.
func (h *handler) readThenSit(w *response, r *http.Request, class inflight.Class) error {
	if class == inflight.Write && r.ContentLength != 0 && !w.upload.read {
		place, err := h.capacity.uploads.enter(r.Context(), w.held.flow, 1, waitFor(r.Context()))
		if err != nil {
			return err
		}
		defer place.Leave()
		_, step := w.trace.Begin(r.Context(), tracing.Body, "read the body")
		w.upload.received, err = readAll(w, r)
		if step.End(err); err != nil {
			return err
		}
		w.upload.read = true
	}
	if class != inflight.Write { // a read, as a check makes one, doesn't ask for its turn later
		if err := bulk.InTurn(r); err != nil {
			return err
		}
		return h.takeSeat(w, r, class, 1)
	}
	return transaction.Of(r.Context()).WhenInTurn(func() error { return h.takeSeat(w, r, class, 1) })
}

// timeLimit returns how long a request may take that isn't a watch, from its headers on. Where the client gives it no time, or one that can't
// be read, it's the longest.
func (h *handler) timeLimit(class inflight.Class, r *http.Request, query url.Values) time.Duration {
	limit := h.manner.timeout
	if class == inflight.Write {
		limit = min(limit, writeDeadline)
	}
	if asked, _ := time.ParseDuration(query.Get("timeout")); asked > 0 && !access.LongRunning(access.AttributesOf(r)) {
		limit = min(limit, asked)
	}
	return limit
}

// arrivalLimit returns how long it may take until it's known who makes a request, and whether he may: no longer than the
// request itself. The start of a watch takes no longer than a read. A timeout that can't be read is refused, as by kube-apiserver, which asks
// after that who sends it, and so is a request whose time is over by now. A request that may last as long as its client wants has none.
func (h *handler) arrivalLimit(w *response, r *http.Request) (time.Duration, error) {
	var query url.Values
	if strings.Contains(r.URL.RawQuery, "timeout=") { // the others needn't be parsed
		if asks := access.AttributesOf(r); !access.LongRunning(asks) && r.URL.Path != "/debug/quiescent" && r.URL.Path != faketime.Path { // which read their own
			query = r.URL.Query()
		}
	}
	if asked := query.Get("timeout"); asked != "" {
		d, err := time.ParseDuration(asked)
		switch {
		case err != nil:
			return 0, status.BadRequest("invalid timeout specified in the request URL - " + clip.Text(err.Error()))
		case d > 0 && time.Since(w.begun) >= d:
			return 0, registry.ErrEnded
		}
	}
	return h.timeLimit(inflight.ClassOf(r), r, query), nil
}
