package remote_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// silencer passes connections on to an etcd, until it's silent: then it takes what comes, and says nothing.
type silencer struct {
	url    string
	silent atomic.Bool
	cut    func() // closes the connections
}

// newSilencer stands before the etcd with a URL. It ends with the test.
func newSilencer(t *testing.T, url string) *silencer {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silencer{url: "http://" + l.Addr().String()}
	var mu sync.Mutex // guards open
	var open []net.Conn
	var wg sync.WaitGroup
	pass := func(to, from net.Conn) {
		defer to.Close()
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			if s.silent.Load() {
				continue
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			if err != nil {
				in.Close()
				continue
			}
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			wg.Go(func() { pass(in, out) })
			wg.Go(func() { pass(out, in) })
		}
	})
	s.cut = func() {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range open {
			c.Close()
		}
	}
	t.Cleanup(func() {
		l.Close()
		s.cut()
		wg.Wait()
	})
	return s
}

// TestHistoryOfSilentEtcd: history that doesn't come is given up.
func TestHistoryOfSilentEtcd(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	before := newSilencer(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := open(t, remote.Options{Servers: []string{before.url}})
	_, at, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	through, err := s.Create(ctx, key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	before.silent.Store(true)
	if _, _, err := s.Changes(ctx, storage.Stretch{After: at, Through: through}); !errors.Is(err, storage.ErrUnavailable) {
		t.Errorf("error is %v, want %v", err, storage.ErrUnavailable)
	}
}

// TestLostEtcd: once etcd is known not to answer, nobody waits for it, and nothing is sent. It's found again.
func TestLostEtcd(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	before := newSilencer(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	s := open(t, remote.Options{Servers: []string{before.url}})
	rev, err := s.Create(ctx, key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	before.silent.Store(true)
	all := storage.Range{Prefix: storage.Root}
	for what, try := range map[string]func(context.Context) error{
		"a read":    func(ctx context.Context) error { _, err := s.Get(ctx, key); return err },
		"a count":   func(ctx context.Context) error { _, err := s.Count(ctx, all, 0); return err },
		"a barrier": func(ctx context.Context) error { _, err := s.Barrier(ctx); return err },
		"a list":    func(ctx context.Context) error { _, err := s.List(ctx, all, 0, nil); return err },
		"a stretch": func(ctx context.Context) error { _, _, err := s.Changes(ctx, storage.Stretch{}); return err },
		"a write":   func(ctx context.Context) error { _, err := s.Update(ctx, key, []byte("w"), rev); return err },
	} {
		var err error
		eventually(ctx, t, what, func() bool { err = try(ctx); return errors.Is(err, storage.ErrNoMajority) })
		if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrUnknownOutcome) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := s.Health(); err == nil || !strings.Contains(err.Error(), "since 20") {
		t.Errorf("health is %v", err)
	}
	before.silent.Store(false)
	before.cut()
	eventually(ctx, t, "a write afterwards", func() bool {
		_, err := s.Update(ctx, key, []byte("w"), rev)
		return err == nil || errors.Is(err, storage.ErrConflict) // by a try whose answer was lost
	})
}

// eventually waits until something holds. Nothing announces that, and holds may ask an etcd that has just come back: without
// the pause it would be asked all the time.
func eventually(ctx context.Context, t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s: not within the time", what)
		}
	}
}

// TestLowerTerm: a member that caught up by a snapshot has an old term, and the store is the same all the same. With a
// write that is gone it isn't.
func TestLowerTerm(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := open(t, remote.Options{Servers: []string{url}})
	s.RaiseTerm()
	if _, err := s.Barrier(ctx); err != nil {
		t.Errorf("no write is known: %v", err)
	}
	_, at, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := s.Create(ctx, key, []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	for ; at < rev && err == nil; _, at, err = s.Follow(ctx, at) {
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Barrier(ctx); err != nil {
		t.Errorf("the write that is known is there: %v", err)
	}
	other, err := s.Create(ctx, key+"b", []byte("v"))
	if err != nil {
		t.Fatal(err)
	}
	s.Misremember(key, other)
	if _, err := s.Barrier(ctx); !errors.Is(err, storage.ErrRewound) {
		t.Errorf("another key was written at the revision: %v", err)
	}
}

// TestStreamsOfWatches: a request for the progress of a watch that has just ended leaves no stream.
func TestStreamsOfWatches(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := open(t, remote.Options{Servers: []string{url}})
	_, at, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	following, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.Follow(following, at)
	}()
	defer func() { <-ended }()
	defer stop()
	eventually(ctx, t, "somebody follows", s.Following)
	for range 5 {
		if err := s.AskEndedWatch(ctx); err != nil {
			t.Fatal(err)
		}
	}
	stacks := make([]byte, 4<<20)
	eventually(ctx, t, "one stream for one watch", func() bool {
		stacks := stacks[:runtime.Stack(stacks, true)]
		return strings.Count(string(stacks), "(*watchGRPCStream).run(") <= 1
	})
}

// TestOnReadUnlocked: a Transformer may ask the store.
func TestOnReadUnlocked(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	read := make(chan string, 1)
	var s *remote.Store
	s = open(t, remote.Options{Servers: []string{url}, Transformer: storagetest.OnRead(func(got string) error {
		if got == key {
			s.TailBytes()
			read <- got
		}
		return nil
	})})
	_, at, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	go s.Follow(ctx, at)
	if _, err := s.Create(ctx, key, []byte("v")); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-read:
		if got != key {
			t.Errorf("read %q", got)
		}
	case <-ctx.Done():
		t.Error("nothing was read")
	}
}

// TestTransformed: see storagetest.Transformed.
func TestTransformed(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	s := open(t, remote.Options{Servers: []string{url}, Transformer: storagetest.Turned{}})
	storagetest.Transformed(t, s, func(key string) []byte {
		res, err := s.Client().Get(t.Context(), key)
		if err != nil || len(res.Kvs) == 0 {
			t.Fatal(res, err)
		}
		return res.Kvs[0].Value
	})
}
