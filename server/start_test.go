package server_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestSecondStart: a start that fails, because another server has the port or the data directory, takes nothing from it.
func TestSecondStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	urlFile, kubeconfig := filepath.Join(dir, "url"), filepath.Join(dir, "kubeconfig")
	first := servertest.New(t, func(s *server.Server) {
		s.Data.Ephemeral, s.Data.Dir, s.Serving.URLFile, s.Serving.KubeconfigFile = false, filepath.Join(dir, "data"), urlFile, kubeconfig
	})
	for name, second := range map[string]*server.Server{
		"the port":           {Serving: server.Serving{Listen: strings.TrimPrefix(first.URL, "http://")}, Data: server.Data{Ephemeral: true}},
		"the data directory": {Serving: server.Serving{Listen: "127.0.0.1:0"}, Data: server.Data{Dir: first.Data.Dir}},
	} {
		second.Serving.URLFile, second.Serving.KubeconfigFile = urlFile, kubeconfig
		if err := second.Start(t.Context()); err == nil {
			t.Errorf("%s is had twice", name)
			second.Close()
		}
		for _, file := range []string{urlFile, kubeconfig} {
			if _, err := os.Stat(file); err != nil {
				t.Errorf("after a second start over %s: %v", name, err)
			}
		}
	}
}

// TestBusySocketIsntStale: a socket whose queue is full belongs to a server that listens.
func TestBusySocketIsntStale(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	raw, err := l.(*net.UnixListener).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); err != nil { // no queue
		t.Fatal(err)
	}
	for { // until the queue is full
		c, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		defer c.Close()
	}
	s := &server.Server{Serving: server.Serving{Listen: "unix:" + path}, Data: server.Data{Ephemeral: true, Dir: t.TempDir()}}
	if err := s.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Errorf("a second server starts there with %v", err)
		s.Close()
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

// TestCloseEndsAStart: a start that waits for what doesn't come ends with Close.
func TestCloseEndsAStart(t *testing.T) {
	t.Parallel()
	s := &server.Server{Serving: server.Serving{Listen: "127.0.0.1:0"}}
	s.Etcd.Servers, s.Etcd.Timeout = []string{"http://127.0.0.1:1"}, time.Hour
	ended := make(chan error, 1)
	go func() { ended <- s.Start(context.WithoutCancel(t.Context())) }()
	until(t, "the start begins", func() bool { return s.Closed() != nil })
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the server has started")
	}
}

// TestStrangersAreToldNoCauses: who shows no credential, where one is needed, learns which check fails and not why.
func TestStrangersAreToldNoCauses(t *testing.T) {
	t.Parallel()
	s := servertest.New(t, func(s *server.Server) { s.Token = "sesame" }).Server
	const cause = "starting or shutting down"
	for _, tc := range []struct {
		token, want string
	}{{"", "[-]serving failed: reason withheld\n"}, {"sesame", "[-]serving failed: " + cause + "\n"}} {
		code, body := server.HealthWhileStopping(t, s, "/readyz", tc.token)
		if _, one := server.HealthWhileStopping(t, s, "/readyz/serving", tc.token); code != 500 || !strings.Contains(body, tc.want) || strings.Contains(one, cause) != (tc.token != "") {
			t.Errorf("with the token %q: %d %s, and of the check alone %s", tc.token, code, body, one)
		}
	}
}
