package etcd

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/internal/loglimit"
	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
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

// TestRefusalsAreBounded: a stranger at the cluster's port gets one answer for each connection, and the log has some lines about
// all of them together.
func TestRefusalsAreBounded(t *testing.T) {
	var lines atomic.Int64
	log := slog.New(slog.NewTextHandler(countingWriter{&lines}, nil))
	s := openTest(t, Options{DataDir: t.TempDir(), Log: log, Cluster: ClusterOptions{Listen: loopback.Address(t)}})
	stranger := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer stranger.CloseIdleConnections()
	began, requests := time.Now(), 5*loglimit.Lines
	for i := range requests {
		method, path := http.MethodGet, statusPath
		if i%2 == 0 {
			method, path = http.MethodPost, joinPath
		}
		r, err := http.NewRequestWithContext(t.Context(), method, urlAt(s.cluster.o.Listen)+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		res, err := stranger.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != http.StatusForbidden || !res.Close {
			t.Fatalf("%s %s: %s, and the connection is closed: %t", method, path, res.Status, res.Close)
		}
	}
	seconds := int(time.Since(began)/time.Second) + 2 // begun ones
	if lines := int(lines.Load()); lines == 0 || lines > seconds*loglimit.Lines {
		t.Errorf("%d lines about %d requests in %d seconds", lines, requests, seconds)
	}
}

// countingWriter counts the lines of a log that are about refusals.
type countingWriter struct{ lines *atomic.Int64 }

func (w countingWriter) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "refused at the cluster's port") {
		w.lines.Add(1)
	}
	return len(line), nil
}
