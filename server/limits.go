package server

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/registry"
)

// kube-apiserver's defaults: what may be in flight, and for how long.
const (
	maxReads  = 400
	maxWrites = 200

	readDeadline  = 60 * time.Second
	writeDeadline = 34 * time.Second
)

// collectionWrites is how many writes the deletion of a collection counts for: as many as it does at once.
const collectionWrites = registry.DeletersAtOnce

// requestClass is how a request counts.
type requestClass int

const (
	classRead requestClass = iota
	classWrite
	classWatch // bounded by its group and sink, not by a number
	classes
)

// classOf is for the paths of resources, which alone can be watched.
func classOf(r *http.Request, watch bool) requestClass {
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return classWrite
	case watch && r.Method == http.MethodGet:
		return classWatch
	}
	return classRead
}

// inflight counts requests under way. A request beyond the bound of its class gets a 429. After drain every request
// gets a 503.
type inflight struct {
	bounds [classes]int // 0: none

	mu       sync.Mutex // guards the following
	count    [classes]int
	draining bool
	idle     chan struct{} // closed when draining and no reads and writes are left
}

// bounds are how many requests may be in flight; 0 means any number.
type bounds struct{ reads, writes int }

func newInflight(b bounds) *inflight {
	return &inflight{bounds: [classes]int{classRead: b.reads, classWrite: b.writes}, idle: make(chan struct{})}
}

// enter counts a request, or says why it can't be served now. Each nil must be followed by a leave.
func (f *inflight) enter(c requestClass) error { return f.enterAs(c, 1) }

// enterAs counts a request that does as much at once as n others.
func (f *inflight) enterAs(c requestClass, n int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.draining:
		return retryLater(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the server is shutting down")
	case f.bounds[c] > 0 && f.count[c]+n > f.bounds[c]:
		return retryLater(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many requests are under way, please try again later")
	}
	f.count[c] += n
	return nil
}

func (f *inflight) leave(c requestClass) { f.leaveAs(c, 1) }

func (f *inflight) leaveAs(c requestClass, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count[c] -= n
	f.closeIfIdleLocked()
}

// drain refuses new requests from now on. The channel is closed when all but the watches are done.
func (f *inflight) drain() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.draining {
		f.draining = true
		f.closeIfIdleLocked()
	}
	return f.idle
}

// closeIfIdleLocked closes idle at the one moment when draining begins or the last request leaves: after
// that nobody enters, so nobody but watches leaves.
func (f *inflight) closeIfIdleLocked() {
	if f.draining && f.count[classRead] == 0 && f.count[classWrite] == 0 {
		select {
		case <-f.idle:
		default:
			close(f.idle)
		}
	}
}

func (f *inflight) now(c requestClass) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.count[c]
}

// enterDocument is the middleware of paths that aren't resources: what they serve is only read.
func (h *handler) enterDocument(next http.Handler) http.Handler {
	return handle(func(w *response, r *http.Request) error {
		if _, err := w.parseQuery(r); err != nil {
			return err
		}
		return h.enterClass(w, r, classRead, next)
	})
}

// enterResource is the middleware of resources.
func (h *handler) enterResource(next http.Handler) http.Handler {
	return handle(func(w *response, r *http.Request) error {
		watch, err := w.parseQuery(r)
		if err != nil {
			return err
		}
		return h.enterClass(w, r, classOf(r, watch), next)
	})
}

// enterLegacyWatch is the middleware of the paths below /watch/, where old clients watch without asking for it by a
// parameter.
func (h *handler) enterLegacyWatch(next http.Handler) http.Handler {
	return handle(func(w *response, r *http.Request) error {
		if _, err := w.parseQuery(r); err != nil {
			return err
		}
		if r.Method != http.MethodGet {
			return methodNotAllowed(w, http.MethodGet, "below /watch/ only GET is served: leave /watch out of the path")
		}
		w.query.Set("watch", "true")
		return h.enterClass(w, r, classWatch, next)
	})
}

// enterWait is the middleware of what only waits: like a watch, it isn't counted, and nobody waits for it at the end.
func (h *handler) enterWait(next http.Handler) http.Handler {
	return handle(func(w *response, r *http.Request) error {
		if _, err := w.parseQuery(r); err != nil {
			return err
		}
		return h.enterClass(w, r, classWatch, next)
	})
}

// enterClass serves a request if the server is ready and the bound of its class has room. All but watches get a deadline.
func (h *handler) enterClass(w *response, r *http.Request, class requestClass, next http.Handler) error {
	if w.lobby {
		return retryLater(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "too many connections are open, please try again later")
	}
	if err := h.inflight.enter(class); err != nil {
		return err
	}
	defer h.inflight.leave(class)
	if !h.ready() {
		return retryLater(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "the server is still reading what it stored, please try again")
	}
	if class == classWatch {
		next.ServeHTTP(w, r)
		return nil
	}
	deadline := readDeadline
	if class == classWrite {
		deadline = writeDeadline
	}
	asked, err := askedTimeout(w.query)
	if err != nil {
		return err
	}
	if asked > 0 {
		deadline = min(deadline, asked)
	}
	ctx, cancel := context.WithTimeout(r.Context(), deadline)
	defer cancel()
	next.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// askedTimeout returns the time that a client gives its request by the parameter timeout; 0 or less for none.
func askedTimeout(query url.Values) (time.Duration, error) {
	text := query.Get("timeout")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, statusError(http.StatusBadRequest, metav1.StatusReasonBadRequest, "invalid timeout specified in the request URL: expected a duration such as 10s")
	}
	return d, nil
}
