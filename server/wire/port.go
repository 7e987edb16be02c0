package wire

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What net/http may wait for. A stream sets its own deadlines.
const (
	// headerTimeout is enough for a slow line: maxHeaderBytes arrive at 5 KiB/s.
	headerTimeout = 30 * time.Second
	// bodyTimeout is for headers and body together. A body that comes as slowly gets a 408 before its
	// client, which often gives up after a minute, does.
	bodyTimeout = 55 * time.Second
	// idleTimeout is longer than clients keep idle connections (90 s in Go), so that they close first.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes has room for a URI of 64 KiB and as much again for headers.
	maxHeaderBytes = 128 << 10
	// shutdownTimeout is for connections whose handlers have been told to end.
	shutdownTimeout = 2 * time.Second
)

// Options say where a Port listens and what clients may take of it.
type Options struct {
	Address string // "host:port" or "unix:/path"
	Asks    bool   // clients need credentials; otherwise only loopback addresses and unix sockets will do
	Secure  bool   // TLS is spoken

	MaxConnections int           // 0: DefaultMaxConnections, or what the limit of open files leaves
	MaxStreams     int           // requests that one HTTP/2 connection may have open
	WriteTimeout   time.Duration // for an answer, from the request's headers on
	StreamTimeout  time.Duration // for a stream whose client takes nothing
	Timeouts       Timeouts
	NoHTTP2        bool // HTTP/1.1 only

	Log *slog.Logger
}

// Timeouts are how long clients may take. They default to headerTimeout, bodyTimeout and idleTimeout.
type Timeouts struct{ Header, Body, Idle time.Duration }

// Port is where a server listens, net/http's server there, and the connections and streams that are open.
type Port struct {
	Options
	listener *listener
	http     *http.Server // nil until Serve

	serving     sync.WaitGroup // the listener's loop
	connections sync.WaitGroup // net/http's, from accept to close
	silent      sync.Map       // net.Conn: connections on which nothing has come yet

	streams    sync.WaitGroup  // connections that streams have taken over
	ctx        context.Context // ends every stream and request; set by Serve
	endStreams context.CancelCauseFunc
}

// Open takes the port. Nobody is served there before Serve.
func Open(o Options) (*Port, error) {
	l, err := listen(o.Address, o.Asks)
	if err != nil {
		return nil, err
	}
	return &Port{Options: o, listener: newListener(l, maxConnections(o.MaxConnections, o.Log), o.Secure, o.Log)}, nil
}

// Addr returns where the port is.
func (p *Port) Addr() net.Addr { return p.listener.Addr() }

// URL returns the URL under which clients on this machine reach the port.
func (p *Port) URL() string { return urlOf(p.Addr(), p.Secure) }

// Connections returns how many connections are open, and how many are in the lobby.
func (p *Port) Connections() (open, lobby int) { return p.listener.taken() }

// Collect registers the metrics of connections.
func (p *Port) Collect(r *prometheus.Registry) { p.listener.collect(r) }

// Serve starts the listener's loop, with TLS if secure isn't nil. If the loop ends by itself, failed gets the reason, and must have
// room for it.
func (p *Port) Serve(ctx context.Context, h http.Handler, secure *tls.Config, failed chan<- error) {
	p.ctx, p.endStreams = context.WithCancelCause(ctx)
	p.http = &http.Server{
		Handler:                      h,
		TLSConfig:                    secure,
		ReadHeaderTimeout:            cmp.Or(p.Timeouts.Header, headerTimeout),
		ReadTimeout:                  cmp.Or(p.Timeouts.Body, bodyTimeout),
		WriteTimeout:                 p.WriteTimeout,
		IdleTimeout:                  cmp.Or(p.Timeouts.Idle, idleTimeout),
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug), // TLS handshakes that failed, and the like
		BaseContext:                  func(net.Listener) context.Context { return p.ctx },
		ConnContext:                  markClient,
		ConnState:                    p.countConnection,
		Protocols:                    new(http.Protocols),
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: p.MaxStreams},
		DisableGeneralOptionsHandler: true,
	}
	p.http.Protocols.SetHTTP1(true)
	p.http.Protocols.SetHTTP2(!p.NoHTTP2)
	p.http.Protocols.SetUnencryptedHTTP2(!p.NoHTTP2)
	p.serving.Go(func() {
		var err error
		if secure != nil {
			err = p.http.ServeTLS(p.listener, "", "")
		} else {
			err = p.http.Serve(p.listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	})
}

// countConnection counts connections, so that Close can wait for them: net/http's own Close doesn't. It also notes
// those on which nothing has come yet, because clients dial some in advance and Shutdown would give each of them five
// seconds.
func (p *Port) countConnection(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		p.connections.Add(1)
		p.silent.Store(conn, nil)
		return
	}
	p.silent.Delete(conn)
	if state == http.StateClosed || state == http.StateHijacked {
		p.connections.Done()
	}
}

// Close ends the listener, and after Serve the streams, for the reason given, and the connections, and waits for them. It tells waitingFor what
// it waits for.
func (p *Port) Close(reason error, waitingFor func(what string)) error {
	if p.http == nil {
		return p.listener.Close()
	}
	p.endStreams(reason)
	p.silent.Range(func(conn, _ any) bool {
		conn.(net.Conn).Close()
		return true
	})
	waitingFor("connections")
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTimeout)
	defer cancel()
	if p.http.Shutdown(ctx) != nil {
		p.http.Close() // what's left takes nothing, or has never said anything
	}
	p.serving.Wait()
	p.connections.Wait()
	waitingFor("watches")
	p.streams.Wait() // last: connections become streams
	return nil
}
