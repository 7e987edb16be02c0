package etcd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

const (
	// maxGuests is how many connections may be open whose client hasn't shown yet that it belongs to the cluster. One more
	// closes the oldest of them: who means well needs milliseconds.
	maxGuests = 256
	// guestTimeout is how long such a connection may stay open: TLS's handshake, and a request with its body.
	guestTimeout = 5 * time.Second
)

// guests is a listener that bounds the connections of clients that nobody knows. A client is known when it has shown a
// certificate of the cluster, or the token. The other clients can keep neither members nor joiners out.
type guests struct {
	net.Listener

	mu   sync.Mutex // guards open
	open []*guest   // the oldest comes first
}

// guest is a connection. A known client's reads and writes have etcd's timeouts, and no other bound: a member that writes a
// stream for days never reads. A deadline that net/http sets is replaced by the next read or write.
type guest struct {
	net.Conn
	of  *guests
	end time.Time // when it's closed, unless the client is known by then

	mu    sync.Mutex // guards known, and keeps a deadline from being set by what known was before; taken before guests.mu
	known bool
}

func (l *guests) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	g := &guest{Conn: c, of: l, end: time.Now().Add(guestTimeout)}
	if oldest := l.add(g); oldest != nil {
		_ = oldest.Conn.Close() // its owner finds out, and closes it, too
	}
	return g, nil
}

// add notes a connection, and returns the one that it takes the place of.
func (l *guests) add(g *guest) (oldest *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) == maxGuests {
		oldest = l.open[0]
		l.open = slices.Delete(l.open, 0, 1)
	}
	l.open = append(l.open, g)
	return oldest
}

// forget takes a connection out of those that are counted.
func (l *guests) forget(g *guest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.open, g); i >= 0 {
		l.open = slices.Delete(l.open, i, i+1)
	}
}

func (g *guest) Close() error {
	g.of.forget(g)
	return g.Conn.Close()
}

// welcome says that the client is known.
func (g *guest) welcome() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.known {
		g.known = true
		g.of.forget(g)
	}
}

// bound sets a deadline in a while, or at the connection's end if that comes first.
func (g *guest) bound(set func(time.Time) error, while time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := time.Now().Add(while)
	if !g.known && g.end.Before(at) {
		at = g.end
	}
	return set(at)
}

func (g *guest) Read(b []byte) (int, error) {
	if err := g.bound(g.SetReadDeadline, rafthttp.ConnReadTimeout); err != nil {
		return 0, err
	}
	return g.Conn.Read(b)
}

func (g *guest) Write(b []byte) (int, error) {
	if err := g.bound(g.SetWriteDeadline, rafthttp.ConnWriteTimeout); err != nil {
		return 0, err
	}
	return g.Conn.Write(b)
}

// guestKey is the key of a request's connection in the request's context.
type guestKey struct{}

// withGuest is http.Server's ConnContext.
func withGuest(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, guestKey{}, c.(*tls.Conn).NetConn())
}

// welcome says that a request's client is known.
func welcome(r *http.Request) { r.Context().Value(guestKey{}).(*guest).welcome() }
