package wire

import (
	"net/http"
	"time"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// http2Sink is an HTTP/2 stream's socket, by way of net/http, which has many of them on one connection, tells the request's
// context when the client leaves, and ends the stream when the handler returns.
type http2Sink struct {
	Outlet
	w       http.ResponseWriter
	control *http.ResponseController
	deadline
}

func newHTTP2Sink(w http.ResponseWriter, out Outlet, d deadline) *http2Sink {
	s := &http2Sink{Outlet: out, w: w, control: http.NewResponseController(w), deadline: d}
	s.set = s.control.SetWriteDeadline
	return s
}

// open sends the headers. The deadlines of ordinary requests end here.
func (s *http2Sink) open() error {
	err := s.control.SetReadDeadline(time.Time{})
	if err == nil {
		s.w.WriteHeader(http.StatusOK)
		err = s.send(nil)
	}
	if err != nil {
		return Gone(err)
	}
	return nil
}

// Write sends whole frames. The error means that the client is gone, or took nothing for too long.
func (s *http2Sink) Write(buf []byte) error {
	p := buf[watchstream.Headroom:]
	s.Events.Add(float64(s.Framing.Count(p)))
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
func (s *http2Sink) send(p []byte) error {
	if err := s.set(time.Now().Add(s.timeout)); err != nil {
		return err
	}
	n, err := s.w.Write(p)
	if s.Sent.Add(int64(n)); err != nil {
		return err
	}
	if err := s.control.Flush(); err != nil {
		return err
	}
	return s.set(time.Time{})
}
