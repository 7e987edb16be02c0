package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

const (
	// DefaultMaxConnections is how many connections may be open where the limit of descriptors allows more. Each
	// costs 4 to 30 KiB, with the kernel's part: this many take about 1 GiB.
	DefaultMaxConnections = 1 << 16

	// reservedDescriptors are never given to connections that stay: etcd's files (about 20, and some more for a moment
	// when it cuts its log or purges snapshots), our own, calls of webhooks (a definition's has at most 16 at once, one of
	// admission 32; where many are called so often, --max-connections must leave them more), and the lobby. etcd takes a
	// file that it can't open for a failed disk and ends the process.
	reservedDescriptors = 128 + lobbySeats

	// lobbySeats is how many connections beyond the bound may be told so at once.
	lobbySeats = 64
	// lobbyTime is how long one of them may stay: enough for a request, its answer and a TLS handshake.
	lobbyTime = 2 * time.Second
	// seatTime is the least time for which a seat is taken, which bounds refusals to a thousand a second. Otherwise
	// the TLS handshakes of clients that come again and again would take the processor from those that are served.
	seatTime = lobbySeats * time.Millisecond

	// addressShare is the part of the connections that one client's address leaves to others: a quarter. One
	// address may have up to three quarters, because a proxy's stands for many clients.
	addressShare = 4

	// fullLogInterval is how often the log says that connections are refused.
	fullLogInterval = 30 * time.Second

	// maxDescriptors is taken for the limit of descriptors where it's more or there is none. The number fits into
	// an int of 32 bits.
	maxDescriptors = 1 << 30
)

// maxConnections is how many connections may be open: what is asked for (0 for the default), unless the process's
// limit of descriptors leaves less.
func maxConnections(asked int, log *slog.Logger) int {
	most := DefaultMaxConnections
	if asked > 0 {
		most = asked
	}
	files, limited := disk.MaxOpenFiles()
	if !limited {
		return most
	}
	left := leftForConnections(files)
	if asked > left {
		log.Warn("--max-connections is more than the limit of open files leaves: raise the limit (ulimit -n)", "max_connections", asked, "open_files", files, "used_instead", left)
	}
	return min(most, left)
}

// leftForConnections is how many of the process's descriptors connections may have: a quarter where the reserve would
// leave less.
func leftForConnections(descriptors uint64) int {
	d := int(min(descriptors, maxDescriptors))
	return max(d-reservedDescriptors, d/4, 1)
}

// listener bounds the connections that are open. One beyond the bound has a seat in the lobby
// instead: it's served for a moment, which is enough to ask how the server is or to be told to come back. When the
// lobby is full as well, a connection of an address that has its part is closed at once while places are free. When none is,
// the next ones wait in the kernel's queue.
type listener struct {
	net.Listener
	most       int
	perAddress int  // most of one address; loopback and unix sockets have no such bound, because all share one there
	secure     bool // TLS is spoken
	log        *slog.Logger

	freed     chan struct{} // capacity 1: something was given back since Accept looked; never closed
	closed    chan struct{} // closed by Close
	closeOnce sync.Once
	refused   atomic.Int64

	mu        sync.Mutex // guards the following
	open      int
	lobby     int
	byAddress map[netip.Prefix]int
	complaint time.Time // when the log last said that connections are refused, or fail
}

func newListener(l net.Listener, most int, secure bool, log *slog.Logger) *listener {
	return &listener{
		Listener: l, most: most, perAddress: most - most/addressShare, secure: secure, log: log,
		freed: make(chan struct{}, 1), closed: make(chan struct{}), byAddress: map[netip.Prefix]int{},
	}
}

// Accept returns the next connection, in its place or in the lobby. An error of the system, such as too many open
// files, is one after which net/http waits for up to a second and tries again.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.next()
	if err != nil {
		return nil, err
	}
	if c.lobby {
		l.refused.Add(1)
		l.complain("connections are refused: as many as may be are open", "max_connections", l.most, "refused", l.refused.Load())
		c.since = time.Now()
		c.leave = time.AfterFunc(lobbyTime, func() { c.end() })
	}
	return c, nil
}

// next waits for a connection that has its place or seat.
func (l *listener) next() (*connection, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.complain("a connection can't be accepted", "error", err)
			}
			return nil, err
		}
		c := &connection{Conn: conn, list: l, address: addressOf(conn.RemoteAddr()), opening: opening{over: l.secure}}
		taken, surplus := l.take(c)
		for !taken && !surplus {
			select {
			case <-l.freed:
			case <-l.closed:
				conn.Close()
				return nil, net.ErrClosed
			}
			taken, surplus = l.take(c)
		}
		if taken {
			return c, nil
		}
		conn.Close()
		l.refused.Add(1)
		l.complain("connections of one address are closed: it has all that one may have", "address", c.address, "refused", l.refused.Load())
	}
}

// take gives a connection its place or a seat in the lobby, if there is one. Without either it's surplus if places are free,
// and only its address has no more of them: it mustn't wait, because whoever waits for it may have a place.
func (l *listener) take(c *connection) (taken, surplus bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open < l.most && (!c.address.IsValid() || l.byAddress[c.address] < l.perAddress):
		l.open++
		if c.address.IsValid() {
			l.byAddress[c.address]++
		}
	case l.lobby < lobbySeats:
		l.lobby++
		c.lobby = true
	default:
		return false, l.open < l.most
	}
	return true, false
}

// give makes a connection's place or seat free again.
func (l *listener) give(c *connection) {
	l.mu.Lock()
	if c.lobby {
		l.lobby--
	} else {
		l.open--
		if l.byAddress[c.address]--; l.byAddress[c.address] <= 0 {
			delete(l.byAddress, c.address)
		}
	}
	l.mu.Unlock()
	select {
	case l.freed <- struct{}{}:
	default: // told already
	}
}

// complain logs a warning, unless it did so a moment ago.
func (l *listener) complain(message string, args ...any) {
	l.mu.Lock()
	now := time.Now()
	told := now.Sub(l.complaint) < fullLogInterval
	if !told {
		l.complaint = now
	}
	l.mu.Unlock()
	if !told {
		l.log.Warn(message, args...)
	}
}

// Close ends Accept. Connections stay as they are.
func (l *listener) Close() error {
	l.closeOnce.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// taken returns how many places and seats are taken.
func (l *listener) taken() (places, seats int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open, l.lobby
}

func (l *listener) now() int {
	places, _ := l.taken()
	return places
}

// collect registers the metrics of connections.
func (l *listener) collect(r *prometheus.Registry) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_lite_connections",
			Help: "Open connections, without those that are being refused.",
		}, func() float64 { return float64(l.now()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "apiserver_lite_connections_max",
			Help: "How many connections may be open.",
		}, func() float64 { return float64(l.most) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "apiserver_lite_connections_refused_total",
			Help: "Connections beyond the bound, whose requests were answered 503.",
		}, func() float64 { return float64(l.refused.Load()) }),
	)
}

// addressOf says which client a connection belongs to: an IPv4 address, or an IPv6 network, of which a client has a
// whole one. It's not valid where the address doesn't tell clients apart.
func addressOf(a net.Addr) netip.Prefix {
	if tcp, ok := a.(*net.TCPAddr); ok && tcp.IP.IsLoopback() {
		return netip.Prefix{}
	}
	return clientAddress(a)
}

// clientAddress is addressOf that tells apart the addresses of the loopback, too. It's not valid for a unix socket.
func clientAddress(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	bits := 32
	if ip.Is6() {
		bits = 64
	}
	p, _ := ip.Prefix(bits) // the number fits
	return p
}

// connection is one that gives its place back when it's closed.
type connection struct {
	net.Conn
	list    *listener
	address netip.Prefix
	lobby   bool
	since   time.Time   // in the lobby
	leave   *time.Timer // ends its stay there
	done    atomic.Bool
	opening
}

// NetConn returns what is wrapped, as that of a TLS connection does.
func (c *connection) NetConn() net.Conn { return c.Conn }

func (c *connection) Close() error {
	if c.leave != nil {
		c.leave.Stop()
	}
	return c.end()
}

func (c *connection) end() error {
	err := c.Conn.Close()
	if c.done.Swap(true) {
		return err
	}
	// A seat that was held for seatTime, as most are, needs no timer.
	if left := seatTime - time.Since(c.since); c.lobby && left > 0 {
		time.AfterFunc(left, func() { c.list.give(c) })
	} else {
		c.list.give(c)
	}
	return err
}

// lobbyKey marks the contexts of connections in the lobby.
type lobbyKey struct{}

// clientKey marks the contexts of connections with the address of their client.
type clientKey struct{}

// markClient is the server's ConnContext.
func markClient(ctx context.Context, conn net.Conn) context.Context {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	if client := clientAddress(conn.RemoteAddr()); client.IsValid() {
		ctx = context.WithValue(ctx, clientKey{}, client.String())
	}
	if c, ok := conn.(*connection); ok && c.lobby {
		return context.WithValue(ctx, lobbyKey{}, true)
	}
	return ctx
}

// InLobby tells by a request's context whether its connection is beyond the bound, and there for a moment only.
func InLobby(ctx context.Context) bool { return ctx.Value(lobbyKey{}) != nil }

// ClientOf returns the address that a request comes from, "" over a unix socket.
func ClientOf(r *http.Request) string {
	client, _ := r.Context().Value(clientKey{}).(string)
	return client
}

// Read is the connection's, after a look at what comes first.
func (c *connection) Read(p []byte) (int, error) { return c.opening.read(c.Conn, p) }
