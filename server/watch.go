package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/fair"
	"github.com/apiserver-lite/apiserver-lite/kubeproto"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/clip"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// watch opens a watch and serves it. What's wrong with the request is still an HTTP error; once the
// headers are out everything else is the stream's.
func (h *handler) watch(w *response, r *http.Request, t target) error {
	media, wanted, err := t.negotiateForm(r.Header.Values("Accept"), acceptJSON, oneMetadata)
	if err != nil {
		return err
	}
	t.warn(w, r)
	cursor, options, err := t.endpoint.Watch(r.Context(), t.request(w, r, wanted))
	var about *registry.StreamError
	if errors.As(err, &about) {
		return h.tell(w, r, framingOf(media), about.ErrStatus)
	}
	if err != nil {
		return err
	}
	options.Sweeper = h.sweeper
	framing := framingOf(media)
	w.Header().Set("Content-Type", framing.media)
	watch, err := h.open(t, r, cursor, w.admitted, w.flow)
	if err != nil {
		return err
	}
	defer func() {
		if !w.takenOver {
			watch.end()
		}
	}()
	if r.ProtoMajor == 1 {
		return h.takeOver(w, r, watch, framing, options)
	}
	sink := &httpSink{
		w:        w,
		control:  http.NewResponseController(w.ResponseWriter),
		events:   h.metrics.watchEvents(t.endpoint),
		framing:  framing,
		sent:     &watch.bytes,
		deadline: deadline{timeout: h.watchWriteTimeout},
	}
	sink.deadline.set = sink.control.SetWriteDeadline
	if err := sink.open(); err != nil {
		return clientGone(err)
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	h.watchers.serve(watch, cancel)
	if err := h.unlessTold(w, shortPath(r), watchstream.Serve(ctx, cursor, options, sink)); err != nil {
		return clientGone(err) // cut off: a clean end would tell the client that it has all
	}
	return nil
}

// openWatch is one open watch, from open to end. It has one owner, which ends it whatever happens: the handler, by defer, or
// from takeOver on the stream's goroutine, likewise.
type openWatch struct {
	resource  string // "widgets.v1.example.com"
	userAgent string
	cursor    *cacher.Cursor
	opened    time.Time
	bytes     atomic.Int64 // sent
	admitted

	among   *watchers // that it's one of
	seat    fair.Seat // among them
	uncount func()    // takes it out of the metrics

	cancel  context.CancelCauseFunc // ends its stream; nil until it's served. watchers.mu guards it
	revoked bool                    // see revoke. watchers.mu guards it
}

// maxUserAgent is how much of a User-Agent is kept, in bytes.
const maxUserAgent = 128

// open makes an open watch of a cursor. Beyond maxWatches it closes the cursor, and the error is a 429.
func (h *handler) open(t target, r *http.Request, cursor *cacher.Cursor, by admitted, flow fair.Flow) (*openWatch, error) {
	o := &openWatch{
		admitted:  by,
		resource:  strings.TrimSuffix(t.endpoint.Plural+"."+t.endpoint.Version+"."+t.endpoint.Group, "."),
		userAgent: strings.Clone(clip.To(r.UserAgent(), maxUserAgent)),
		cursor:    cursor,
		opened:    time.Now(),
		among:     h.watchers,
	}
	if err := h.watchers.add(o, flow); err != nil {
		cursor.Close()
		return nil, err
	}
	o.uncount = h.metrics.watching(t.endpoint)
	return o, nil
}

// end gives back all that an open watch holds.
func (o *openWatch) end() {
	o.cursor.Close()
	o.among.remove(o)
	o.uncount()
}

// framing is a form in which events are written.
type framing struct {
	media    string                                        // the Content-Type
	count    func(frames []byte) int                       // counts events
	tell     func(dst []byte, status metav1.Status) []byte // appends an ERROR event
	messages func(frames []byte) iter.Seq[[]byte]          // yields events as a WebSocket has them
	message  websocket.MessageType                         // of those
}

// The framings.
var (
	framingJSON = framing{
		media: string(mediaJSON),
		count: func(p []byte) int { return bytes.Count(p, []byte{'\n'}) }, // each event is one line
		tell: func(dst []byte, status metav1.Status) []byte {
			return watchstream.AppendError(dst, encodeStatus(status))
		},
		messages: bytes.Lines,
		message:  websocket.MessageText,
	}
	framingProtobuf = framing{
		media: kubeproto.StreamMedia,
		count: kubeproto.CountFrames,
		tell: func(dst []byte, status metav1.Status) []byte {
			return kubeproto.AppendError(dst, statusMessage(status))
		},
		messages: kubeproto.Frames,
		message:  websocket.MessageBinary,
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
	event := f.tell(make([]byte, watchstream.Headroom), status)
	if isWebSocket(r) {
		c, err := h.carry(w, r, f, new(atomic.Int64))
		if err != nil {
			return err
		}
		defer h.takeovers.streams.Done()
		c.Write(event) // an error means that the client is gone
		return c.finish()
	}
	w.Header().Set("Content-Type", f.media)
	w.WriteHeader(http.StatusOK)
	http.NewResponseController(w.ResponseWriter).Flush() // a stream has no length
	h.metrics.watchEvents(w.endpoint).Inc()
	w.Write(event[watchstream.Headroom:]) // an error means that the client is gone
	return nil
}

// unlessTold is the error of a stream that must be cut off. One of which the client has got an event is logged.
func (h *handler) unlessTold(w *response, path string, err error) error {
	if !errors.Is(err, watchstream.ErrTold) {
		return err
	}
	h.log.Warn("a watch failed", "audit_id", w.auditID, "path", path, "error", err)
	return nil
}

// sinkPiece is how many bytes share a write deadline: taking that much is progress.
const sinkPiece = 64 << 10

// renewAfter is the part of a deadline's time, a quarter, that passes before it is set anew. Setting it costs a timer. A
// client that takes nothing is cut off after at least three quarters of WatchWriteTimeout.
const renewAfter = 4

// deadline is the time a socket has to take something.
type deadline struct {
	set     func(time.Time) error
	timeout time.Duration
	renewed time.Time
}

func (d *deadline) renew(now time.Time) error {
	if now.Sub(d.renewed) <= d.timeout/renewAfter {
		return nil
	}
	d.renewed = now
	return d.set(now.Add(d.timeout))
}

// httpSink is an HTTP/2 stream's socket, by way of net/http, which has many of them on one connection.
type httpSink struct {
	w       io.Writer
	control *http.ResponseController
	events  prometheus.Counter
	framing *framing
	sent    *atomic.Int64
	deadline
}

// open sends the headers. The deadlines of ordinary requests end here.
func (s *httpSink) open() error {
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	s.w.(http.ResponseWriter).WriteHeader(http.StatusOK)
	return s.send(nil)
}

// Write sends whole frames. The error means that the client is gone, or took nothing for too long.
func (s *httpSink) Write(buf []byte) error {
	p := buf[watchstream.Headroom:]
	s.events.Add(float64(s.framing.count(p)))
	for len(p) > sinkPiece {
		if err := s.send(p[:sinkPiece]); err != nil {
			return err
		}
		p = p[sinkPiece:]
	}
	return s.send(p)
}

// send writes under a deadline that is taken back: in HTTP/2 one that passes ends the stream even if nothing
// is being written.
func (s *httpSink) send(p []byte) error {
	if err := s.set(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	n, err := s.w.Write(p)
	if s.sent.Add(int64(n)); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.set(time.Time{})
}
