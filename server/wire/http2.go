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
	answer *LongAnswer
}

// openHTTP2 sends the headers.
func openHTTP2(w http.ResponseWriter, out Outlet, timeout time.Duration) (*http2Sink, error) {
	answer, err := NewLongAnswer(w, timeout)
	s := &http2Sink{out, answer}
	if err == nil {
		w.WriteHeader(http.StatusOK)
		err = s.send(nil)
	}
	if err != nil {
		return s, Gone(err)
	}
	return s, nil
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

func (s *http2Sink) send(p []byte) error {
	n, err := s.answer.Write(p)
	s.Sent.Add(int64(n))
	return err
}
