package server

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

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// What net/http may wait for. A watch sets its own deadlines.
const (
	// headerTimeout is enough for a slow line: maxHeaderBytes arrive at 5 KiB/s.
	headerTimeout = 30 * time.Second
	// bodyTimeout is for headers and body together. A body that comes as slowly gets a 408 before its
	// client, which often gives up after a minute, does.
	bodyTimeout = 55 * time.Second
	// writeTimeout leaves an answer that reaches the deadline of reads some time to say so.
	writeTimeout = readDeadline + 5*time.Second
	// idleTimeout is longer than clients keep idle connections (90 s in Go), so that they close first.
	idleTimeout = 2 * time.Minute
	// maxHeaderBytes has room for the URI (maxURI) and as much again for headers.
	maxHeaderBytes = 128 << 10
)

// front is the HTTP side of an instance: the listener, net/http's server, and the connections and requests that are open.
type front struct {
	listener *connections
	inflight *inflight
	http     *http.Server // nil until serve
	handler  *handler     // likewise

	serving     sync.WaitGroup // the listener's loop
	connections sync.WaitGroup // net/http's, from accept to close
	silent      sync.Map       // net.Conn: connections on which nothing has come yet
	endWatches  context.CancelCauseFunc
	takeovers   takeovers
}

func newFront(l *connections) *front {
	return &front{listener: l, inflight: newInflight()}
}

// serve starts the listener's loop. If the loop ends by itself, failed gets the reason, and must have room for it.
func (f *front) serve(ctx context.Context, h *handler, s *Server, certificate *tls.Certificate, failed chan<- error) {
	watches, endWatches := context.WithCancelCause(ctx)
	f.endWatches, f.takeovers.ctx, f.handler = endWatches, watches, h
	f.http = &http.Server{
		Handler:                      h,
		ReadHeaderTimeout:            cmp.Or(s.timeouts.header, headerTimeout),
		ReadTimeout:                  cmp.Or(s.timeouts.body, bodyTimeout),
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  cmp.Or(s.timeouts.idle, idleTimeout),
		MaxHeaderBytes:               maxHeaderBytes,
		ErrorLog:                     slog.NewLogLogger(h.log.Handler(), slog.LevelDebug), // TLS handshakes that failed, and the like
		BaseContext:                  func(net.Listener) context.Context { return watches },
		ConnContext:                  markClient,
		ConnState:                    f.countConnection,
		Protocols:                    new(http.Protocols),
		HTTP2:                        &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(s.HTTP2MaxStreams, DefaultHTTP2MaxStreams)},
		DisableGeneralOptionsHandler: true,
	}
	f.http.Protocols.SetHTTP1(true)
	f.http.Protocols.SetHTTP2(true)
	f.http.Protocols.SetUnencryptedHTTP2(true)
	if certificate != nil {
		f.http.TLSConfig = s.tlsConfig(certificate)
	}
	f.serving.Go(func() {
		var err error
		if certificate != nil {
			err = f.http.ServeTLS(f.listener, "", "")
		} else {
			err = f.http.Serve(f.listener)
		}
		if !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serve HTTP: %w", err)
		}
	})
}

// countConnection counts connections, so that close can wait for them: net/http's own Close doesn't. It also notes
// those on which nothing has come yet, because clients dial some in advance and Shutdown would give each of them five
// seconds.
func (f *front) countConnection(conn net.Conn, state http.ConnState) {
	if state == http.StateNew {
		f.connections.Add(1)
		f.silent.Store(conn, nil)
		return
	}
	f.silent.Delete(conn)
	if state == http.StateClosed || state == http.StateHijacked {
		f.connections.Done()
	}
}

// drain refuses new requests from now on, and waits for those under way: for at most timeout, or until failed is closed,
// because then they may never be answered.
func (f *front) drain(timeout time.Duration, failed <-chan struct{}) {
	within(timeout, func(ctx context.Context) {
		select {
		case <-f.inflight.drain(): // from here on new requests get 503
		case <-failed:
		case <-ctx.Done():
		}
	})
}

// close ends the watches and the connections, and waits for them. It tells waitingFor what it waits for.
func (f *front) close(waitingFor func(what string)) {
	f.endWatches(watchstream.ErrShutdown)
	f.silent.Range(func(conn, _ any) bool {
		conn.(net.Conn).Close()
		return true
	})
	waitingFor("connections")
	within(shutdownTimeout, func(ctx context.Context) {
		if f.http.Shutdown(ctx) != nil {
			f.http.Close() // what's left takes nothing, or has never said anything
		}
	})
	f.serving.Wait()
	f.connections.Wait()
	waitingFor("watches")
	f.takeovers.streams.Wait() // last: connections become streams
}
