package remote_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/apiserver-lite/apiserver-lite/internal/credentials"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/election"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

// TestUserOverTLS: a user who may read and write what begins with the prefix and a slash, and nothing else, can do all that a
// store does, over TLS with client certificates: also be told of the progress of a watch, and lead. Compaction
// needs root, and whoever isn't is told so.
func TestUserOverTLS(t *testing.T) {
	ours := credentials.NewAuthority(t, "authority")
	serverCert, serverKey := issueFor(t, ours, "etcd")
	clientCert, clientKey := issueFor(t, ours, "client")
	url, _ := startEtcd(t, t.TempDir(), func(c *embed.Config) {
		c.ListenClientUrls[0].Scheme = "https"
		c.ClientTLSInfo.CertFile, c.ClientTLSInfo.KeyFile = serverCert, serverKey
		c.ClientTLSInfo.TrustedCAFile, c.ClientTLSInfo.ClientCertAuth = ours.File, true
	})
	prefix := func(n int) string { return fmt.Sprint("/lite", n) }
	var granted []string
	for n := range 20 {
		granted = append(granted, prefix(n)+"/")
	}
	user := withUsers(t, remote.Options{Servers: []string{url}, CAFile: ours.File, CertFile: clientCert, KeyFile: clientKey}, granted...)
	n := 0
	next := func() remote.Options {
		o := user
		o.Prefix = prefix(n)
		n++
		return o
	}
	storagetest.Run(t, func(t testing.TB) storage.Store { return open(t, next()) })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	o, lines := next(), make(logLines, 100)
	o.Log = lines.logger()
	s := open(t, o)
	_, at, err := s.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("progress", func(t *testing.T) {
		rootUser := user
		rootUser.Username, rootUser.PasswordFile = "root", file(t, "r", 0o600)
		put, err := connect(t, rootUser).Put(ctx, "/elsewhere", "")
		if err != nil {
			t.Fatal(err)
		}
		rev, err := s.Barrier(ctx)
		if err != nil || rev < storage.Revision(put.Header.Revision) {
			t.Fatalf("barrier at %d after a write at %d, %v", rev, put.Header.Revision, err)
		}
		for at < rev {
			var changes []storage.Change
			if changes, at, err = s.Follow(ctx, at); err != nil || len(changes) != 0 {
				t.Fatalf("%+v up to %d, %v", changes, at, err)
			}
		}
	})
	t.Run("compaction", func(t *testing.T) {
		root := user
		root.Username, root.PasswordFile, root.Prefix = "root", file(t, "r", 0o600), o.Prefix
		ended := make(chan error, 1)
		compact := func(s *remote.Store) (stop func()) {
			running, cancel := context.WithCancel(ctx)
			go func() {
				ended <- s.Compact(running, remote.Compaction{History: time.Nanosecond, Interval: 50 * time.Millisecond, Floor: func() storage.Revision { return at }})
			}()
			return func() {
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
			}
		}
		stop := compact(s)
		eventually(ctx, t, "the log says who may compact", func() bool { return strings.Contains(<-lines, "only root may compact") })
		stop() // beside it, a compaction by root that takes longer than an interval could count as somebody else's
		stop = compact(open(t, root))
		eventually(ctx, t, "old history is gone", func() bool {
			compacted, _, err := s.Window(ctx)
			if err != nil {
				t.Fatal(err)
			}
			return compacted == at
		})
		stop()
	})
	t.Run("election", func(t *testing.T) {
		running, stop := context.WithCancel(ctx)
		defer stop()
		first, second := make(chan struct{}), make(chan struct{})
		lead := func(ctx context.Context, name string, leads chan<- struct{}) {
			election.New(s.Client(), election.Options{Name: name}).Run(ctx, func(ctx context.Context) error {
				close(leads)
				<-ctx.Done()
				return nil
			})
		}
		ended := make(chan struct{}, 2)
		leading, resign := context.WithCancel(running)
		go func() { lead(leading, "first", first); ended <- struct{}{} }()
		await(ctx, t, "the first leads", first)
		go func() { lead(running, "second", second); ended <- struct{}{} }()
		resign()
		await(ctx, t, "the first has given up its lease", ended)
		await(ctx, t, "the second leads", second)
		stop()
		await(ctx, t, "the second has given up its lease", ended)
		if left, err := s.Client().Get(ctx, election.Prefix, clientv3.WithPrefix()); err != nil || len(left.Kvs) != 0 {
			t.Errorf("%v is left, %v", left, err)
		}
	})
}

// logLines gets what is logged, as long as there's room.
type logLines chan string

func (l logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l logLines) Write(line []byte) (int, error) {
	select {
	case l <- string(line):
	default:
	}
	return len(line), nil
}

func await(ctx context.Context, t testing.TB, what string, happens <-chan struct{}) {
	t.Helper()
	select {
	case <-happens:
	case <-ctx.Done():
		t.Fatalf("%s: not within the time", what)
	}
}
