package etcd

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"go.etcd.io/etcd/server/v3/etcdserver"
)

// While something of a failed server may still write, nobody else gets its directory.
func TestHungKeeperKeepsTheLock(t *testing.T) {
	o := Options{DataDir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	hang, hung := make(chan struct{}), make(chan struct{})
	s.background.Go(func() { // as the keeper does when the disk doesn't answer
		defer close(hung)
		<-hang
	})
	broken := errors.New("the disk is gone")
	s.fail(broken)
	if err := s.Close(); !errors.Is(err, broken) {
		t.Errorf("Close: %v", err)
	}
	if again, err := Open(t.Context(), o); err == nil {
		again.Close()
		t.Error("another server got the directory")
	} else if !strings.Contains(err.Error(), "is locked by") {
		t.Error(err)
	}
	close(hang)
	<-hung
}

// An etcd that doesn't start, and was told to stop, is given up. That isn't the end of a start that stopped as it was told.
func TestStartHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{log: slog.New(slog.DiscardHandler), failed: make(chan struct{})}
		s.fail = func(err error) {
			s.err = err
			close(s.failed)
		}
		hang := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := s.startEtcd(ctx, func() (*etcdserver.EtcdServer, error) {
			<-hang
			return nil, errors.New("there's no etcd in this test")
		})
		if err == nil || errors.Is(err, context.Canceled) || !s.hung {
			t.Errorf("startEtcd: %v, hung %t", err, s.hung)
		}
		close(hang)
	})
}

// An etcd that starts after Open has given up is stopped.
func TestLateStart(t *testing.T) {
	d, err := openEphemeral(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{dir: d, log: slog.New(slog.DiscardHandler), failed: make(chan struct{})}
	s.fail = func(err error) {
		s.err = err
		close(s.failed)
	}
	o, err := Options{Log: s.log}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := etcdConfig(d, o, func(error) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	began, slow, ran := make(chan struct{}), make(chan struct{}), make(chan struct{})
	started := make(chan error, 1)
	go func() {
		started <- s.startEtcd(t.Context(), func() (*etcdserver.EtcdServer, error) {
			defer close(ran)
			close(began)
			<-slow
			return runEtcd(cfg)
		})
	}()
	<-began
	late := errors.New("too late")
	s.fail(late)
	if err := <-started; !errors.Is(err, late) || !s.hung {
		t.Errorf("startEtcd: %v, hung %t", err, s.hung)
	}
	close(slow)
	<-ran // before, etcd has no goroutine yet
	stacks := make([]byte, 1<<20)
	soon(t, "no goroutine of etcd's", func() bool {
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "etcd/server/v3")
	})
	if err := d.release(); err != nil {
		t.Error(err)
	}
}
