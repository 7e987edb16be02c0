package wire

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// takeOver answers with the head of a stream and takes the connection of HTTP/1.1, with or without TLS, from net/http. From there on this package
// does what net/http did: it writes chunks, and notices that the client has left.
func takeOver(w http.ResponseWriter, r *http.Request, s *chunkSink) (ownSink, error) {
	w.Header().Set("Connection", "close") // there's no way back to net/http, so no second request either
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w)
	err := control.Flush()
	var conn net.Conn
	if err == nil {
		conn, _, err = control.Hijack()
	}
	if err == nil {
		err = s.take(conn)
	}
	if err != nil {
		return nil, Gone(err)
	}
	s.chunked = r.ProtoAtLeast(1, 1)
	return s, nil
}

// cutOff closes the connection to a client that has left, or takes nothing. TLS would wait some seconds to
// say goodbye, and the kernel would keep what isn't sent for as long as the client likes.
func cutOff(conn net.Conn) {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	socket := conn
	if c, ok := conn.(*connection); ok {
		socket = c.NetConn()
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		tcp.SetLinger(0)
	}
	conn.Close()
}

var errClientLeft = errors.New("the client closed the connection")

// awaitClient returns when the client has left. What it sends is nothing that anyone reads.
func awaitClient(conn net.Conn) error {
	var b [64]byte // small, because each watcher has one
	for {
		if _, err := conn.Read(b[:]); err != nil {
			return errClientLeft
		}
	}
}

// chunkSink writes batches to a connection of its own, a batch in one chunk.
type chunkSink struct {
	conn    net.Conn
	chunked bool
	last    atomic.Pointer[time.Time] // set when the stream has to end: no deadline is later
	deadline
	Outlet
}

// take makes the connection the sink's. What net/http had set for it is over.
func (s *chunkSink) take(conn net.Conn) error {
	s.conn, s.deadline.set = conn, conn.SetWriteDeadline
	err := conn.SetDeadline(time.Time{})
	if err != nil {
		conn.Close()
	}
	return err
}

// Write sends whole frames. The error means that the client is gone, or took nothing for too long.
func (s *chunkSink) Write(buf []byte) error {
	s.Events.Add(float64(s.Framing.Count(buf[watchstream.Headroom:])))
	p := buf[watchstream.Headroom:]
	if s.chunked {
		p = chunk(buf)
	}
	return s.send(p)
}

// send writes bytes in pieces, each under a deadline.
func (s *chunkSink) send(p []byte) error {
	for {
		piece := p[:min(len(p), sinkPiece)]
		if err := s.renew(time.Now()); err != nil {
			return err
		}
		if last := s.last.Load(); last != nil {
			s.conn.SetWriteDeadline(*last)
		}
		n, err := s.conn.Write(piece)
		s.Sent.Add(int64(n))
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
}

func (s *chunkSink) listen() error { return awaitClient(s.conn) }

func (s *chunkSink) end() {
	last := time.Now().Add(endTimeout)
	s.last.CompareAndSwap(nil, &last)
	s.conn.SetWriteDeadline(*s.last.Load())
}

// finish sends the last chunk. Without it a client of HTTP/1.1 knows that it was cut off.
func (s *chunkSink) finish() error {
	if s.chunked {
		s.end()
		if _, err := s.conn.Write([]byte("0\r\n\r\n")); err != nil {
			return err
		}
	}
	s.conn.Close()
	return nil
}

func (s *chunkSink) cutOff() { cutOff(s.conn) }

// chunk puts the frames after the headroom into one HTTP/1.1 chunk, in place.
func chunk(buf []byte) []byte {
	var digits [watchstream.Headroom]byte
	head := append(strconv.AppendUint(digits[:0], uint64(len(buf)-watchstream.Headroom), 16), '\r', '\n')
	begin := watchstream.Headroom - len(head)
	copy(buf[begin:], head)
	return append(buf, '\r', '\n')[begin:]
}
