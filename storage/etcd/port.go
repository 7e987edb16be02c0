package etcd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"

	"github.com/apiserver-lite/apiserver-lite/internal/loglimit"
)

const (
	joinPath   = "/apiserver-lite/join"
	statusPath = "/apiserver-lite/status"
)

const (
	// maxPortConnections bounds the connections of the port. A member has a few with each other one, of which there are at
	// most mostVoters and maxLearners; the rest is for those that reconnect.
	maxPortConnections = 1024
	// portHeaderBytes bounds a request's header: a member's has some hundred bytes.
	portHeaderBytes = 16 << 10
	// listenTimeout is how long the port's address may take to become one of this machine's: the name of a pod or of a
	// container may not resolve yet when the process starts. listenPause is between two tries: names come within seconds.
	listenTimeout = 30 * time.Second
	listenPause   = time.Second
)

// port is where the other members reach this one, and where others join. Nothing there is plain text: connections are
// TLS 1.3 with the cluster's certificates. A join is the only request that a client without a certificate may make.
type port struct {
	listener net.Listener
	log      *slog.Logger
	refusals loglimit.Limit
	http     *http.Server
	peers    atomic.Pointer[http.Handler] // etcd's; nil until etcd has started
	ctx      context.Context              // of all requests; ends with close
	cancel   context.CancelFunc

	serving sync.WaitGroup // the goroutine that accepts, and the handlers of requests
	mu      sync.Mutex     // guards closed, and that serving doesn't grow after it
	closed  bool
}

// openPort takes the address. A name that doesn't resolve yet is tried again.
func openPort(ctx context.Context, address string, log *slog.Logger) (*port, error) {
	giveUp := time.Now().Add(listenTimeout)
	for {
		l, err := transport.NewListenerWithOpts(address, "http")
		if err == nil {
			return newPort(&guests{Listener: transport.LimitListener(l, maxPortConnections)}, log), nil
		}
		var dns *net.DNSError
		if !errors.As(err, &dns) || time.Now().After(giveUp) {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(listenPause):
		}
	}
}

func newPort(l net.Listener, log *slog.Logger) *port {
	p := &port{listener: l, log: log}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// serve begins to answer: joins and the status by c, everything else by etcd.
func (p *port) serve(c *cluster, certificate tls.Certificate) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+joinPath, c.serveJoin)
	mux.Handle("GET "+statusPath, p.membersOnly(http.HandlerFunc(c.serveStatus)))
	mux.Handle("/", p.membersOnly(http.HandlerFunc(p.servePeer)))
	p.http = &http.Server{
		Handler:        p.awaited(mux),
		BaseContext:    func(net.Listener) context.Context { return p.ctx },
		ConnContext:    withGuest, // guests bounds the time, not http.Server
		MaxHeaderBytes: portHeaderBytes,
		TLSNextProto:   map[string]func(*http.Server, *tls.Conn, http.Handler){}, // no HTTP/2: etcd's streams know HTTP/1.1
		ErrorLog:       slog.NewLogLogger(c.log.Handler(), slog.LevelDebug),
		TLSConfig: &tls.Config{
			MinVersion:   tls.VersionTLS13,
			Certificates: []tls.Certificate{certificate},
			ClientAuth:   tls.VerifyClientCertIfGiven, // membersOnly insists; a joiner has none yet
			ClientCAs:    c.authority.pool(),
		},
	}
	p.serving.Go(func() { _ = p.http.ServeTLS(p.listener, "", "") }) // it ends with close
}

// awaited makes close wait for a request's handler. After close it serves none.
func (p *port) awaited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		closed := p.closed
		if !closed {
			p.serving.Add(1)
		}
		p.mu.Unlock()
		if closed {
			http.Error(w, "the member is stopping", http.StatusServiceUnavailable)
			return
		}
		defer p.serving.Done()
		next.ServeHTTP(w, r)
	})
}

// refuse answers a client that isn't let in, and closes its connection: a stranger gets one answer for each handshake that it pays
// for. Anybody can cause the lines of the log, so they're bounded.
func (p *port) refuse(w http.ResponseWriter, r *http.Request, why, answer string) {
	address, _, _ := net.SplitHostPort(r.RemoteAddr)
	if left, ok := p.refusals.Allow(time.Now(), address); ok {
		p.log.Warn("refused at the cluster's port: "+why, "client", r.RemoteAddr, "not_logged_before", left)
	}
	w.Header().Set("Connection", "close")
	http.Error(w, answer, http.StatusForbidden)
}

// membersOnly lets only those in who showed a certificate of the cluster.
func (p *port) membersOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
			p.refuse(w, r, "the client has no certificate of the cluster", "a certificate of the cluster is needed")
			return
		}
		welcome(r)
		next.ServeHTTP(w, r)
	})
}

func (p *port) servePeer(w http.ResponseWriter, r *http.Request) {
	h := p.peers.Load()
	if h == nil {
		http.Error(w, "the member is starting", http.StatusServiceUnavailable)
		return
	}
	(*h).ServeHTTP(w, r)
}

func newPeerHandler(local *etcdserver.EtcdServer) *http.Handler {
	h := etcdhttp.NewPeerHandler(local.Logger(), local)
	return &h
}

// close ends all connections and requests, and waits for their handlers and for the goroutine that accepts. A handler of
// etcd's may end only when etcd has.
func (p *port) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	if p.http != nil {
		_ = p.http.Close()
	}
	_ = p.listener.Close() // its error is that it's closed
	p.serving.Wait()
}

// peerClient makes requests to other members' ports, as a member.
type peerClient struct{ http *http.Client }

func newPeerClient(a *authority, certificate tls.Certificate) *peerClient {
	return &peerClient{&http.Client{
		Timeout: peerTimeout,
		Transport: &http.Transport{
			Proxy:           http.ProxyFromEnvironment, // as for etcd's own connections
			TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool(), Certificates: []tls.Certificate{certificate}},
			IdleConnTimeout: rafthttp.ConnReadTimeout,
		},
		CheckRedirect: noRedirect,
	}}
}

// peerTimeout is how long another member may take to say how it is. It answers from memory, so one that takes longer is gone
// or cut off.
const peerTimeout = time.Second

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (p *peerClient) close() {
	if p != nil {
		p.http.CloseIdleConnections()
	}
}

// get makes a request and decodes what is answered.
func (p *peerClient) get(ctx context.Context, url string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := p.http.Do(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return decodeAnswer(res.Body, into)
}
