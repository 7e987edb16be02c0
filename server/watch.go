package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/server/wire"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// watch opens a watch and serves it. What's wrong with the request is still an HTTP error; once the
// headers are out everything else is the stream's.
func (h *handler) watch(w *response, r *http.Request, t target) error {
	accept := r.Header.Values("Accept")
	media, wanted, err := t.negotiateForm(accept, acceptJSON, oneMetadata)
	if err != nil && knowsMedia(accept) { // in which there are objects, but no streams of them
		return notAcceptable("only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch")
	}
	if err != nil {
		return err
	}
	t.warn(w, r)
	framing := framingOf(media)
	cursor, options, err := t.endpoint.Watch(r.Context(), t.request(w, r, wanted))
	var about *registry.StreamError
	if errors.As(err, &about) {
		return h.tell(w, r, framing, about.ErrStatus)
	}
	if err != nil {
		return err
	}
	options.Sweeper = h.sweeper
	ctx, cancel := context.WithCancelCause(h.port.Lasting(r))
	watch, err := h.open(w, r, t, cursor, cancel)
	if err != nil {
		return err
	}
	defer func() {
		if !w.end.takenOver {
			watch.end()
		}
	}()
	w.Header().Set("Content-Type", framing.Media)
	if watch.stream, err = h.port.Begin(w, r, wire.Outlet{Framing: &framing.Framing, Events: h.metrics.watchEvents(t.endpoint), Sent: &watch.bytes}); err != nil {
		return err
	}
	path := shortPath(r)
	if !watch.stream.Own() {
		if err := h.stream(ctx, watch, options, w, path); err != nil {
			return wire.Gone(err) // cut off: a clean end would tell the client that it has all
		}
		return nil
	}
	w.end.takenOver = true
	last, method := w.last(), r.Method
	watch.stream.Go(func() { h.streamOn(ctx, watch, options, last, method, path) })
	return nil
}

// stream serves an open watch. Of an error that the client knows only the log is told.
func (h *handler) stream(ctx context.Context, watch *openWatch, options watchstream.Options, w *response, path string) error {
	err := watch.stream.Serve(ctx, watch.cancel, watch.cursor, options)
	if !errors.Is(err, watchstream.ErrTold) {
		return err
	}
	h.log.Warn("a watch failed", "audit_id", w.auditID, "path", path, "error", err)
	return nil
}

// last is what is logged and counted of a request whose handler has returned: a copy without what belongs to net/http.
func (w *response) last() *response {
	return &response{log: w.log, auditID: w.auditID, begun: time.Now(), audit: w.audit, code: w.code, call: call{verb: w.verb, endpoint: w.endpoint, subresource: w.subresource}}
}

// streamOn serves a watch whose handler has returned, on a goroutine of its own that owns the watch. It does at the end what
// ServeHTTP does for other requests.
func (h *handler) streamOn(ctx context.Context, watch *openWatch, options watchstream.Options, w *response, method, path string) {
	defer watch.end()
	defer func() {
		if cause := recover(); cause != nil {
			h.metrics.panics.Inc()
			h.log.Error("panic", "audit_id", w.auditID, "method", method, "path", path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
		w.bytes = watch.bytes.Load()
		h.finish(w, method, path, time.Since(w.begun))
	}()
	h.stream(ctx, watch, options, w, path) // what it returns is of a client that is gone
}

// framing is a form in which events are written, and errors among them.
type framing struct {
	wire.Framing
	tell func(dst []byte, status metav1.Status) []byte // appends an ERROR event
}

// The framings.
var (
	framingJSON = framing{
		Framing: wire.Framing{
			Media:    string(mediaJSON),
			Count:    func(p []byte) int { return bytes.Count(p, []byte{'\n'}) }, // each event is one line
			Messages: bytes.Lines,
		},
		tell: func(dst []byte, status metav1.Status) []byte {
			return watchstream.AppendError(dst, encodeStatus(status))
		},
	}
	framingProtobuf = framing{
		Framing: wire.Framing{Media: kubeproto.StreamMedia, Count: kubeproto.CountFrames, Messages: kubeproto.Frames, Binary: true},
		tell: func(dst []byte, status metav1.Status) []byte {
			return kubeproto.AppendError(dst, statusMessage(status))
		},
	}
)

func framingOf(media mediaType) *framing {
	if media == mediaProtobuf {
		return &framingProtobuf
	}
	return &framingJSON
}

// tell answers with a stream of one ERROR event.
func (h *handler) tell(w *response, r *http.Request, f *framing, status metav1.Status) error {
	event, events := f.tell(make([]byte, watchstream.Headroom), status), h.metrics.watchEvents(w.endpoint)
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
