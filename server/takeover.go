package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// takeovers are the HTTP/1.1 connections, with or without TLS, that watches took over from net/http. Once the headers
// are out the handler returns. net/http's buffers and its goroutine, which would be most of the memory of an idle
// watcher, are free then. From there on this file does what net/http did: it writes chunks, recovers panics, writes the
// log line and the counts, notices that the client has left, and waits for all streams to end.
type takeovers struct {
	ctx     context.Context // ends every stream; not a request's: those end with their handlers
	streams sync.WaitGroup
}

// endTimeout bounds the last writes of a stream when the server is going away.
const endTimeout = 3 * time.Second

// takenOver is one of them.
type takenOver struct {
	carrier
	watch  *openWatch
	done   *response // what is logged and counted at the end: a copy without what belongs to net/http
	method string
	path   string
	start  time.Time
}

// carrier carries a stream over a connection that was taken over: as the body of an answer (connSink), or as the
// messages of a WebSocket (webSocket).
type carrier interface {
	watchstream.Sink
	// listen returns an error when the client has left.
	listen() error
	// end leaves all writes from now on, and one that hangs, endTimeout together.
	end()
	// finish ends the stream so that the client knows that it has all, and closes the connection.
	finish() error
	// cutOff closes the connection so that the client doesn't take the stream for whole.
	cutOff()
}

// takeOver makes the connection the stream's own, after the headers, and lets the handler return. After a nil error a
// goroutine owns the watch.
func (h *handler) takeOver(w *response, r *http.Request, watch *openWatch, f *framing, options watchstream.Options) error {
	c, err := h.carry(w, r, f, &watch.bytes)
	if err != nil {
		return err
	}
	t := &takenOver{
		carrier: c,
		done:    &response{log: w.log, auditID: w.auditID, audit: w.audit, code: w.code, call: call{verb: w.verb, endpoint: w.endpoint, subresource: w.subresource}},
		watch:   watch,
		method:  r.Method,
		path:    shortPath(r),
		start:   time.Now(),
	}
	w.takenOver = true
	go func() {
		defer h.takeovers.streams.Done()
		defer watch.end()
		h.stream(t, options)
	}()
	return nil
}

// carry answers with the head of a stream and takes the connection from net/http. After a nil error the stream counts as
// one of takeovers.streams.
func (h *handler) carry(w *response, r *http.Request, f *framing, sent *atomic.Int64) (c carrier, err error) {
	// Counted before net/http forgets the connection, so that at any time either net/http or we wait for it.
	h.takeovers.streams.Add(1)
	defer func() {
		if c == nil {
			h.takeovers.streams.Done()
		}
	}()
	sink := &connSink{deadline: deadline{timeout: h.watchWriteTimeout}, events: h.metrics.watchEvents(w.endpoint), framing: f, sent: sent}
	if isWebSocket(r) {
		if c, err = upgrade(w, r, sink); err == nil {
			w.audit.Started(http.StatusSwitchingProtocols)
		}
		return c, err
	}
	w.Header().Set("Connection", "close") // there's no way back to net/http, so no second request either
	w.WriteHeader(http.StatusOK)
	control := http.NewResponseController(w.ResponseWriter)
	err = control.Flush()
	var conn net.Conn
	if err == nil {
		conn, _, err = control.Hijack()
	}
	if err == nil {
		err = sink.take(conn)
	}
	if err != nil {
		return nil, clientGone(err)
	}
	sink.chunked = r.ProtoAtLeast(1, 1)
	return sink, nil
}

// stream serves a connection that was taken over, and closes it.
func (h *handler) stream(t *takenOver, options watchstream.Options) {
	ctx, cancel := context.WithCancelCause(h.takeovers.ctx)
	var reader sync.WaitGroup
	reader.Go(func() { cancel(t.listen()) })
	h.watchers.serve(t.watch, cancel)
	// A write that hangs when the server goes away gets little time more.
	stop := context.AfterFunc(ctx, t.end)

	whole := false
	defer func() {
		if cause := recover(); cause != nil {
			h.metrics.panics.Inc()
			h.log.Error("panic", "audit_id", t.done.auditID, "method", t.method, "path", t.path, "panic", fmt.Sprint(cause), "stack", string(debug.Stack()))
		}
		stop()
		cancel(nil)
		if !whole {
			t.cutOff()
		}
		reader.Wait()
		t.done.bytes = t.watch.bytes.Load()
		h.finish(t.done, t.method, t.path, time.Since(t.start))
	}()
	err := h.unlessTold(t.done, t.path, watchstream.Serve(ctx, t.watch.cursor, options, t))
	if err == nil {
		err = t.finish()
	}
	whole = err == nil
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

// connSink writes batches to a connection of its own, a batch in one chunk.
type connSink struct {
	conn    net.Conn
	chunked bool
	last    atomic.Pointer[time.Time] // set when the stream has to end: no deadline is later
	deadline
	events  prometheus.Counter
	framing *framing
	sent    *atomic.Int64
}

// take makes the connection the sink's. What net/http had set for it is over.
func (s *connSink) take(conn net.Conn) error {
	s.conn, s.deadline.set = conn, conn.SetWriteDeadline
	err := conn.SetDeadline(time.Time{})
	if err != nil {
		conn.Close()
	}
	return err
}

// Write sends whole frames. The error means that the client is gone, or took nothing for too long.
func (s *connSink) Write(buf []byte) error {
	s.events.Add(float64(s.framing.count(buf[watchstream.Headroom:])))
	p := buf[watchstream.Headroom:]
	if s.chunked {
		p = chunk(buf)
	}
	return s.send(p)
}

// send writes bytes in pieces, each under a deadline.
func (s *connSink) send(p []byte) error {
	for {
		piece := p[:min(len(p), sinkPiece)]
		if err := s.renew(time.Now()); err != nil {
			return err
		}
		if last := s.last.Load(); last != nil {
			s.conn.SetWriteDeadline(*last)
		}
		n, err := s.conn.Write(piece)
		s.sent.Add(int64(n))
		if p = p[n:]; err != nil || len(p) == 0 {
			return err
		}
	}
}

func (s *connSink) listen() error { return awaitClient(s.conn) }

func (s *connSink) end() {
	last := time.Now().Add(endTimeout)
	s.last.CompareAndSwap(nil, &last)
	s.conn.SetWriteDeadline(*s.last.Load())
}

// finish sends the last chunk. Without it a client of HTTP/1.1 knows that it was cut off.
func (s *connSink) finish() error {
	if s.chunked {
		s.end()
		if _, err := s.conn.Write([]byte("0\r\n\r\n")); err != nil {
			return err
		}
	}
	s.conn.Close()
	return nil
}

func (s *connSink) cutOff() { cutOff(s.conn) }

// chunk puts the frames after the headroom into one HTTP/1.1 chunk, in place.
func chunk(buf []byte) []byte {
	var digits [watchstream.Headroom]byte
	head := append(strconv.AppendUint(digits[:0], uint64(len(buf)-watchstream.Headroom), 16), '\r', '\n')
	begin := watchstream.Headroom - len(head)
	copy(buf[begin:], head)
	return append(buf, '\r', '\n')[begin:]
}
