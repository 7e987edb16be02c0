package etcd

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

// TestPortWaitsForHandlers: close ends the requests that are under way, and returns when their handlers have.
func TestPortWaitsForHandlers(t *testing.T) {
	leaks := goleak.IgnoreCurrent()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	a, err := newAuthority()
	if err != nil {
		t.Fatal(err)
	}
	chain, key, err := a.issue("127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := newPort(&guests{Listener: l}, log)
	begun, told, release := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	var handler http.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
		close(told)
		<-release
		ended.Store(true)
	})
	p.peers.Store(&handler)
	p.serve(&cluster{authority: a, log: log}, pair)
	client := newPeerClient(a, pair)
	client.http.Timeout = 0 // close ends the request
	asked := make(chan error, 1)
	go func() { asked <- client.get(context.Background(), "https://"+l.Addr().String()+"/raft", nil) }()
	<-begun
	closed := make(chan struct{})
	go func() {
		p.close()
		close(closed)
	}()
	<-told
	select {
	case <-closed:
		t.Error("close returned before the handler")
	default:
	}
	close(release)
	<-closed
	if !ended.Load() {
		t.Error("close returned before the handler")
	}
	if err := <-asked; err == nil {
		t.Error("a request that was ended has an answer")
	}
	client.close()
	goleak.VerifyNone(t, leaks)
}
