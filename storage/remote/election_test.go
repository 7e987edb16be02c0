package remote_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage/election"
)

// joinElection has a process take part through a client until the test's end.
func joinElection(ctx context.Context, t *testing.T, client *clientv3.Client) *election.Election {
	e := election.New(client, election.Options{Name: "us", Log: slog.New(slog.DiscardHandler)})
	newTask(ctx, t, func(ctx context.Context) {
		e.Run(ctx, func(ctx context.Context) error { <-ctx.Done(); return nil })
	})
	return e
}

func leads(e *election.Election) func() bool {
	return func() bool { _, leads := e.Leading(); return leads }
}

// older is the key of a process that took part before.
func older(n int) string { return fmt.Sprint(election.Prefix, "older-", n) }

var watchersMetric = regexp.MustCompile(`(?m)^etcd_debugging_mvcc_watcher_total ([1-9].*)$`)

// watched tells whether a member has a watch.
func watched(t *testing.T, url string) bool {
	t.Helper()
	res, err := http.Get(url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return watchersMetric.Match(text)
}

// TestElectionAtIsolatedMember: a process waits for its turn by a watch at a member that is cut off from the others. It leads all the same
// when its turn comes.
func TestElectionAtIsolatedMember(t *testing.T) {
	ctx := bounded(t)
	c := startCluster(t)
	if _, err := c.client(t, c.urls...).Put(ctx, older(0), ""); err != nil {
		t.Fatal(err)
	}
	e := joinElection(ctx, t, c.client(t, c.urls...))
	at := -1
	eventually(ctx, t, "it waits for its turn", func() bool {
		at = slices.IndexFunc(c.urls, func(url string) bool { return watched(t, url) })
		return at >= 0
	})
	c.members[at].tell(t, cutOff)
	others := c.client(t, slices.Delete(slices.Clone(c.urls), at, at+1)...)
	eventually(ctx, t, "the others remove the older key", func() bool {
		within, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, err := others.Delete(within, older(0))
		return err == nil
	})
	eventually(ctx, t, "it leads", leads(e))
}

// watchRecorder notes which keys were watched.
type watchRecorder struct {
	clientv3.Watcher
	mu   sync.Mutex // guards keys
	keys map[string]bool
}

func (w *watchRecorder) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.mu.Lock()
	w.keys[key] = true
	w.mu.Unlock()
	return w.Watcher.Watch(ctx, key, opts...)
}

func (w *watchRecorder) watched(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.keys[key]
}

// TestElectionAfterRestore: a process waits for its turn when etcd's volume is brought back to a copy, so that its watch is of a revision
// that comes much later. It leads all the same when its turn comes.
func TestElectionAfterRestore(t *testing.T) {
	ctx := bounded(t)
	start := startOld(buildEtcd(t)) // its stop is quick enough for leases to live on
	dir := t.TempDir()
	volume, backup := filepath.Join(dir, "volume"), filepath.Join(dir, "backup")
	url, stop := start(t, volume, anyAddress, etcdToken)
	address := strings.TrimPrefix(url, "http://")
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	watches := &watchRecorder{Watcher: client.Watcher, keys: map[string]bool{}}
	client.Watcher = watches
	does := func(what string, try func(context.Context) error) {
		t.Helper()
		eventually(ctx, t, what, func() bool {
			within, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return try(within) == nil
		})
	}
	put := func(ctx context.Context, key string) error { _, err := client.Put(ctx, key, ""); return err }
	remove := func(ctx context.Context, key string) error { _, err := client.Delete(ctx, key); return err }
	for i := range 2 {
		does("an older key", func(ctx context.Context) error { return put(ctx, older(i)) })
	}
	e := joinElection(ctx, t, client)
	eventually(ctx, t, "it waits for its turn", func() bool { return watches.watched(older(0)) })

	stop()
	if err := os.CopyFS(backup, os.DirFS(volume)); err != nil {
		t.Fatal(err)
	}
	_, stop = start(t, volume, address, etcdToken)
	for range 100 {
		does("a write after the copy", func(ctx context.Context) error { return put(ctx, "/elsewhere") })
	}
	does("a removal", func(ctx context.Context) error { return remove(ctx, older(0)) })
	eventually(ctx, t, "it waits for the next older one", func() bool { return watches.watched(older(1)) })

	stop()
	start(t, backup, address, etcdToken)
	for i := range 2 {
		does("the older ones leave", func(ctx context.Context) error { return remove(ctx, older(i)) })
	}
	eventually(ctx, t, "it leads", leads(e))
}
