package election_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/election"
	"github.com/apiserver-lite/apiserver-lite/storage/embedded"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// patience bounds what a test waits for, on a machine that does much else.
const patience = 2 * time.Minute

func open(t *testing.T) *etcd.Server {
	t.Helper()
	leaks := goleak.IgnoreCurrent()
	e, err := etcd.Open(t.Context(), etcd.Options{Ephemeral: true, DataDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, leaks)
	})
	return e
}

// candidate is one process that takes part.
type candidate struct {
	*election.Election
	terms chan context.Context // of each term
	leave func()               // ends its part, and waits
}

func join(t *testing.T, e *etcd.Server, name string) *candidate {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &candidate{Election: election.New(e.Client, election.Options{Name: name, Log: slog.New(slog.DiscardHandler)}), terms: make(chan context.Context)}
	ended := make(chan error, 1)
	go func() {
		ended <- c.Run(ctx, func(ctx context.Context) error {
			select {
			case c.terms <- ctx:
			case <-ctx.Done():
			}
			<-ctx.Done()
			return nil
		})
	}()
	c.leave = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(c.leave)
	return c
}

// leads waits until a candidate leads, and returns the context of its term.
func (c *candidate) leads(t *testing.T) context.Context {
	t.Helper()
	select {
	case ctx := <-c.terms:
		return ctx
	case <-time.After(patience):
		t.Fatal("it doesn't lead")
		return nil
	}
}

func (c *candidate) fence(t *testing.T) storage.Condition {
	t.Helper()
	fence, leads := c.Leading()
	if !leads {
		t.Fatal("it doesn't lead")
	}
	return fence
}

// TestOneLeads: one leads at a time, the next one takes over when it leaves, and who wants to lead first leads first.
func TestOneLeads(t *testing.T) {
	e := open(t)
	var all []*candidate
	for i := range 3 {
		all = append(all, join(t, e, fmt.Sprint("replica ", i)))
		if i == 0 {
			all[0].leads(t)
		}
	}
	left := map[int]bool{}
	for leader := 0; ; {
		for i, c := range all {
			if _, leads := c.Leading(); leads != (i == leader) {
				t.Errorf("%d leads: %v, while %d leads", i, leads, leader)
			}
		}
		all[leader].leave()
		if left[leader] = true; len(left) == len(all) {
			return
		}
		select {
		case <-all[1].terms:
			leader = 1
		case <-all[2].terms:
			leader = 2
		case <-time.After(patience):
			t.Fatal("nobody takes over")
		}
	}
}

// TestLostLease: a process whose lease has ended, as that of a stopped one does, leads no more, and its writes fail from
// then on. It takes part again with another lease.
func TestLostLease(t *testing.T) {
	e := open(t)
	store, err := embedded.New(e.Client, e.Local)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	old := join(t, e, "old")
	term := old.leads(t)
	next := join(t, e, "next")
	first, err := store.Create(term, "/registry/core/configmaps/a/b", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}

	lease, err := e.Client.Get(t.Context(), old.fence(t).Key)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Client.Delete(t.Context(), old.fence(t).Key); err != nil {
		t.Fatal(err)
	}
	// What the old one is in the middle of doesn't hear of it: its context goes on here.
	asleep := context.WithoutCancel(term)
	for what, write := range map[string]func() error{
		"create":                  func() error { _, err := store.Create(asleep, "/registry/core/configmaps/a/c", nil); return err },
		"create of what is there": func() error { _, err := store.Create(asleep, "/registry/core/configmaps/a/b", nil); return err },
		"update":                  func() error { _, err := store.Update(asleep, "/registry/core/configmaps/a/b", nil, first); return err },
		"update of another revision": func() error {
			_, err := store.Update(asleep, "/registry/core/configmaps/a/b", nil, first+100)
			return err
		},
		"delete": func() error { _, err := store.Delete(asleep, "/registry/core/configmaps/a/b", first); return err },
	} {
		if err := write(); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("%s: %v, want %v", what, err, storage.ErrFenced)
		}
	}
	if kv, err := store.Get(t.Context(), "/registry/core/configmaps/a/b"); err != nil || kv.Revision != first {
		t.Errorf("there is %+v, %v; want it as it was written", kv, err)
	}

	successor := next.leads(t)
	select {
	case <-term.Done():
	case <-time.After(patience):
		t.Error("the old one goes on")
	}
	if _, err := store.Delete(successor, "/registry/core/configmaps/a/b", first); err != nil {
		t.Error(err)
	}
	next.leave()
	old.leads(t)
	if again := old.fence(t); len(lease.Kvs) != 1 || again.Key == string(lease.Kvs[0].Key) {
		t.Errorf("it leads again with %v, which it had before (%v)", again, lease.Kvs)
	}
}

// TestEndsByItself: what runs during a term and ends is reported, and ends the part in the election.
func TestEndsByItself(t *testing.T) {
	e := open(t)
	c := election.New(e.Client, election.Options{Log: slog.New(slog.DiscardHandler)})
	if err := c.Run(t.Context(), func(context.Context) error { return io.ErrUnexpectedEOF }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Run returned %v", err)
	}
	if _, leads := c.Leading(); leads {
		t.Error("it still leads")
	}
	if keys, err := e.Client.Get(t.Context(), election.Prefix, clientv3.WithPrefix()); err != nil || len(keys.Kvs) > 0 {
		t.Errorf("it left %v, %v", keys, err)
	}
}

// refusingLease grants none, as an etcd at its quota does.
type refusingLease struct {
	clientv3.Lease
	asked int
}

func (l *refusingLease) Grant(context.Context, int64) (*clientv3.LeaseGrantResponse, error) {
	l.asked++
	return nil, rpctypes.ErrNoSpace
}

// TestNobodyCanLead: the log says why no lease is granted, once a minute at most.
func TestNobodyCanLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minutes = 10
		ctx, cancel := context.WithTimeout(t.Context(), minutes*time.Minute-time.Second)
		defer cancel()
		var log bytes.Buffer
		lease := &refusingLease{}
		client := clientv3.NewCtxClient(ctx)
		client.Lease = lease
		e := election.New(client, election.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err := e.Run(ctx, nil); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "database space exceeded"); n != minutes || lease.asked < 10*minutes {
			t.Errorf("%d lines in %d minutes and %d tries:\n%s", n, minutes, lease.asked, &log)
		}
	})
}
