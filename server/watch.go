package server

import (
	"bytes"
	"io"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// watch opens a watch and serves it. What's wrong with the request is still an HTTP error; once the
// headers are out everything else is the stream's.
func (h *handler) watch(w *response, r *http.Request, t target) error {
	if _, err := negotiate(r.Header.Values("Accept"), acceptJSON); err != nil {
		return err
	}
	cursor, options, err := t.endpoint.Watch(r.Context(), t.namespace, t.name, w.query)
	if err != nil {
		return err
	}
	defer h.metrics.watching(t.endpoint)()
	sink := &httpSink{
		w:       w,
		control: http.NewResponseController(w.ResponseWriter),
		timeout: h.watchWriteTimeout,
		streams: r.ProtoMajor >= 2,
		events:  h.metrics.watchEvents(t.endpoint),
	}
	w.Header().Set("Content-Type", string(mediaJSON))
	if err := sink.open(); err != nil {
		cursor.Close()
		panic(http.ErrAbortHandler) // the client is gone
	}
	if err := watchstream.Serve(r.Context(), cursor, options, sink); err != nil {
		panic(http.ErrAbortHandler) // cut off: a clean end would tell the client that it has all
	}
	return nil
}

// httpSink is a stream's socket by way of net/http.
type httpSink struct {
	w       io.Writer
	control *http.ResponseController
	timeout time.Duration // for a write that makes no progress
	renewed time.Time     // when the deadline was last set
	streams bool          // HTTP/2, where a deadline ends a stream even if nothing is being written
	events  prometheus.Counter
}

// sinkPiece is how many bytes share a write deadline: taking that much is progress.
const sinkPiece = 64 << 10

// open sends the headers. The deadlines of ordinary requests end here.
func (s *httpSink) open() error {
	if err := s.control.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	s.w.(http.ResponseWriter).WriteHeader(http.StatusOK)
	return s.send(nil)
}

// Write sends whole frames. The error means that the client is gone, or took nothing for too long.
func (s *httpSink) Write(p []byte) error {
	s.events.Add(float64(bytes.Count(p, []byte{'\n'}))) // a frame is one line
	for len(p) > sinkPiece {
		if err := s.send(p[:sinkPiece]); err != nil {
			return err
		}
		p = p[sinkPiece:]
	}
	return s.send(p)
}

func (s *httpSink) send(p []byte) error {
	// Setting a deadline costs a timer, so it's done when a quarter of it has passed.
	if now := time.Now(); s.streams || now.Sub(s.renewed) > s.timeout/4 {
		s.renewed = now
		if err := s.control.SetWriteDeadline(now.Add(s.timeout)); err != nil {
			return err
		}
	}
	if _, err := s.w.Write(p); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	if s.streams {
		return s.control.SetWriteDeadline(time.Time{})
	}
	return nil
}
