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
	timeout time.Duration // that the client has to take a piece
	late    *time.Timer   // calls tooLate; it runs while something is being written
	ended   chan struct{} // has an element for each tooLate that is over
}

func newHTTP2Sink(w http.ResponseWriter, out Outlet, timeout time.Duration) *http2Sink {
	return &http2Sink{Outlet: out, w: w, control: http.NewResponseController(w), timeout: timeout, ended: make(chan struct{}, 1)}
}

// open sends the headers. The deadlines of ordinary requests end here.
func (s *http2Sink) open() error {
	err := s.control.SetReadDeadline(time.Time{})
	if err == nil {
		err = s.control.SetWriteDeadline(time.Time{})
	}
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

// send writes within the timeout. A deadline of net/http's for each write would have to be taken back, as one that passes ends the stream
// even if nothing is being written: that's two more turns of the connection's loop than an event takes.
func (s *http2Sink) send(p []byte) error {
	if s.late == nil {
		s.late = time.AfterFunc(s.timeout, s.tooLate)
	} else {
		s.late.Reset(s.timeout)
	}
	defer func() {
		if !s.late.Stop() {
			<-s.ended // it uses what the handler has until it returns
		}
	}()
	n, err := s.w.Write(p)
	if s.Sent.Add(int64(n)); err != nil {
		return err
	}
	return s.control.Flush()
}

// tooLate ends the stream.
func (s *http2Sink) tooLate() {
	_ = s.control.SetWriteDeadline(time.Now()) // an error means that it has ended
	s.ended <- struct{}{}
}
