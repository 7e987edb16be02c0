package wire

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// ErrGone is in the errors of what writes to a client that has left, or takes nothing. There's nobody to tell, and
// nothing to log: the connection is cut off.
var ErrGone = errors.New("the client is gone")

// Gone returns ErrGone with what the connection said.
func Gone(err error) error { return fmt.Errorf("%w: %w", ErrGone, err) }

// Framing is a form in which the events of streams are written.
type Framing struct {
	Media    string                               // the Content-Type
	Count    func(frames []byte) int              // counts events
	Messages func(frames []byte) iter.Seq[[]byte] // yields events as a WebSocket has them
	Binary   bool                                 // they're binary messages, not text
}

// Outlet is what all sinks write by, and count.
type Outlet struct {
	Framing *Framing
	Events  prometheus.Counter
	Sent    *atomic.Int64 // bytes
}

// ownSink is where a stream meets a connection that it has for itself: as the chunks of an answer (chunkSink), or as the
// messages of a WebSocket (webSocket).
type ownSink interface {
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

// Stream is an answer that goes on until one side ends it. Its Write takes whole frames.
type Stream struct {
	watchstream.Sink
	own  ownSink // the same; nil over HTTP/2
	port *Port
}

// Lasting returns the context in which a request's stream lives: over HTTP/1.1 the request's ends when its handler returns, and
// the stream goes on.
func (p *Port) Lasting(r *http.Request) context.Context {
	if r.ProtoMajor == 1 {
		return p.ctx
	}
	return r.Context()
}

// Hold counts a connection that somebody else has taken from net/http as a stream, until the function it returns is called.
func (p *Port) Hold() (release func()) {
	p.streams.Add(1)
	return p.streams.Done
}

// Begin answers with the head of a stream. Over HTTP/1.1 it takes the connection from net/http. The stream must be served or
// told then. The error is ErrGone, or the refusal of a WebSocket.
func (p *Port) Begin(w http.ResponseWriter, r *http.Request, out Outlet) (s *Stream, err error) {
	if r.ProtoMajor > 1 {
		to, err := openHTTP2(w, out, p.StreamTimeout)
		return &Stream{Sink: to, port: p}, err
	}
	d := deadline{timeout: p.StreamTimeout}
	// Counted before net/http forgets the connection, so that at any time either net/http or we wait for it.
	p.streams.Add(1)
	var to ownSink
	if IsWebSocket(r) {
		to, err = upgrade(w, r, &chunkSink{Outlet: out, deadline: d})
	} else {
		to, err = takeOver(w, r, &chunkSink{Outlet: out, deadline: d})
	}
	if err != nil {
		p.streams.Done()
		return nil, err
	}
	return &Stream{to, to, p}, nil
}

// Own tells whether the stream has its connection for itself. Its handler has to return then, and the stream goes on (Go).
func (s *Stream) Own() bool { return s.own != nil }

// Go has a stream with its own connection served on a goroutine of its own. The port waits for that.
func (s *Stream) Go(serve func()) {
	go func() {
		defer s.port.streams.Done()
		serve()
	}()
}

// Serve writes what a source has until ctx ends, and then ends the stream: so that the client knows that it has all, or cut off,
// which over HTTP/2 the handler does if there's an error. When the client leaves, cancel ends ctx. The error is watchstream.Serve's;
// of one with watchstream.ErrTold the client knows, so that the stream ends as if there were none.
func (s *Stream) Serve(ctx context.Context, cancel context.CancelCauseFunc, from watchstream.Source, o watchstream.Options) (err error) {
	if !s.Own() {
		return watchstream.Serve(ctx, from, o, s.Sink)
	}
	var reader sync.WaitGroup
	reader.Go(func() { cancel(s.own.listen()) })
	// A write that hangs when the server goes away gets little time more.
	stop := context.AfterFunc(ctx, s.own.end)
	whole := false
	defer func() {
		stop()
		cancel(nil)
		if !whole {
			s.own.cutOff()
		}
		reader.Wait()
	}()
	if err = watchstream.Serve(ctx, from, o, s.Sink); err == nil || errors.Is(err, watchstream.ErrTold) {
		whole = s.own.finish() == nil
	}
	return err
}

// Tell writes frames as all that a stream with its own connection has.
func (s *Stream) Tell(frames []byte) error {
	defer s.port.streams.Done()
	s.Write(frames) // an error means that the client is gone
	return s.own.finish()
}

const (
	// sinkPiece is how many bytes share a write deadline: taking that much is progress.
	sinkPiece = 64 << 10
	// renewAfter is the part of a deadline's time, a quarter, that passes before it is set anew. Setting it costs a timer. A
	// client that takes nothing is cut off after at least three quarters of Options.StreamTimeout.
	renewAfter = 4
	// endTimeout bounds the last writes of a stream when the server is going away.
	endTimeout = 3 * time.Second
)

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
