package migrate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/internal/commandline"
	"github.com/apiserver-lite/apiserver-lite/migrate"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
)

// cluster is a prefix in an etcd of one member that listens.
type cluster struct {
	url, prefix string
	client      *clientv3.Client // of the prefix
	all         *clientv3.Client
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ListenClientUrls = []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenPeerUrls = nil
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	cfg.TickMs, cfg.ElectionMs = 10, 100 // it elects itself sooner
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		t.Fatal("etcd doesn't get ready")
	}
	c := &cluster{url: "http://" + e.Clients[0].Addr().String()}
	c.all = c.connect(t)
	return c.below(t, "/lite")
}

func (c *cluster) connect(t *testing.T) *clientv3.Client {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{c.url}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

// below returns another prefix of the cluster.
func (c *cluster) below(t *testing.T, prefix string) *cluster {
	t.Helper()
	b := &cluster{url: c.url, prefix: prefix, all: c.all, client: c.connect(t)}
	b.client.KV = namespace.NewKV(b.client.KV, prefix)
	return b
}

// raise raises the cluster's revision, as what else it's used for does.
func (c *cluster) raise(t *testing.T, to int64) {
	t.Helper()
	for {
		res, err := c.all.Put(t.Context(), "/elsewhere", "")
		if err != nil {
			t.Fatal(err)
		}
		if res.Header.Revision > to {
			return
		}
	}
}

// content returns a store's objects, and the least revision and the current one.
func content(t *testing.T, client *clientv3.Client) (objects map[string]string, least, now int64) {
	t.Helper()
	res, err := client.Get(t.Context(), storage.Root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	objects = map[string]string{}
	for _, kv := range res.Kvs {
		objects[string(kv.Key)] = string(kv.Value)
		if least == 0 || kv.ModRevision < least {
			least = kv.ModRevision
		}
	}
	return objects, least, res.Header.Revision
}

// object is the n-th object of a test. Each hundredth is large, so that reads and transactions reach their bounds.
func object(n int) (key, value string) {
	size := 10
	if n%100 == 99 {
		size = 600 << 10
	}
	return fmt.Sprintf("%sexample.com/lamps/default/lamp-%05d", storage.Root, n), fmt.Sprintf(`{"metadata":{"uid":"%d"},"x":"%s"}`, n, strings.Repeat("x", size))
}

// inDirectory calls fn with the client of a data directory's etcd, and closes it.
func inDirectory(t *testing.T, dir string, fn func(*clientv3.Client)) {
	t.Helper()
	s, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	fn(s.Client)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// fill makes a data directory with so many objects, and some that were deleted, and returns what's in it and its revision.
func fill(t *testing.T, count int) (dir string, objects map[string]string, now int64) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	inDirectory(t, dir, func(client *clientv3.Client) {
		for n := range count {
			key, value := object(n)
			put(t, client, key, value)
		}
		put(t, client, storage.Root+"example.com/lamps/default/gone", "{}")
		if _, err := client.Delete(t.Context(), storage.Root+"example.com/lamps/default/gone"); err != nil {
			t.Fatal(err)
		}
		put(t, client, storage.ReplacedKey, "")
		objects, _, now = content(t, client)
	})
	return dir, objects, now
}

func put(t *testing.T, client *clientv3.Client, key, value string, options ...clientv3.OpOption) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, value, options...); err != nil {
		t.Fatal(err)
	}
}

// invoke runs the command with the cluster's flags.
func (c *cluster) invoke(t *testing.T, ctx context.Context, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	both := io.MultiWriter(&errs, t.Output())
	code = commandline.Run(ctx, commandline.Root(migrate.Command(&out, both)), append([]string{"migrate", "--etcd-servers", c.url, "--etcd-prefix", c.prefix}, args...), &out, both)
	return code, out.String(), errs.String()
}

func (c *cluster) mustMove(t *testing.T, args ...string) {
	t.Helper()
	if code, stdout, stderr := c.invoke(t, t.Context(), args...); code != 0 || !strings.HasPrefix(stdout, "moved ") {
		t.Fatalf("migrate %q: exit code %d, %q, %q; want it done", args, code, stdout, stderr)
	}
}

func (c *cluster) get(t *testing.T, key string) *mvccpb.KeyValue {
	t.Helper()
	res, err := c.client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Kvs) == 0 {
		return nil
	}
	return res.Kvs[0]
}

// TestThereAndBack: a directory's objects are in the cluster with their keys and bytes, and so in the directory that the
// cluster is moved back to; each time at higher revisions than the source had.
func TestThereAndBack(t *testing.T) {
	c := startCluster(t)
	dir, objects, now := fill(t, 333)
	const accountKey = "the key of ServiceAccounts' tokens"
	if err := os.WriteFile(filepath.Join(dir, storage.AccountKeyFile), []byte(accountKey), 0o600); err != nil {
		t.Fatal(err)
	}
	c.raise(t, now)
	c.mustMove(t, "--from", dir)
	if kv := c.get(t, storage.AccountKey); kv == nil || string(kv.Value) != accountKey {
		t.Errorf("the cluster has %v as the key of ServiceAccounts' tokens", kv)
	}

	moved, least, clusterNow := content(t, c.client)
	if !maps.Equal(moved, objects) {
		t.Errorf("the cluster has %d objects, and not those of the directory, which has %d", len(moved), len(objects))
	}
	if least <= now {
		t.Errorf("an object in the cluster has revision %d, want all above the directory's %d", least, now)
	}
	marker := c.get(t, storage.MarkerKey)
	if marker == nil || marker.ModRevision != clusterNow {
		t.Errorf("the marker is %v, want it written last, at %d", marker, clusterNow)
	} else if _, err := storage.ParseMarker(marker.Value); err != nil {
		t.Error(err)
	}
	for _, key := range []string{storage.MigrationKey, storage.ReplacedKey} {
		if kv := c.get(t, key); kv != nil {
			t.Errorf("the cluster has %s", kv)
		}
	}

	back := filepath.Join(t.TempDir(), "back")
	c.mustMove(t, "--to", back)
	if text, err := os.ReadFile(filepath.Join(back, storage.AccountKeyFile)); err != nil || string(text) != accountKey {
		t.Errorf("the directory has %q as the key of ServiceAccounts' tokens, %v", text, err)
	}
	inDirectory(t, back, func(client *clientv3.Client) {
		returned, least, _ := content(t, client)
		if !maps.Equal(returned, objects) {
			t.Errorf("the directory has %d objects, and not those of the cluster, which has %d", len(returned), len(objects))
		}
		if least <= clusterNow {
			t.Errorf("an object in the directory has revision %d, want all above the cluster's %d", least, clusterNow)
		}
		own, err := client.Get(t.Context(), storage.Own, clientv3.WithPrefix())
		if err != nil || len(own.Kvs) > 0 {
			t.Errorf("the directory has %v (%v), want nothing of the migration's", own, err)
		}
	})
	inDirectory(t, dir, func(client *clientv3.Client) {
		if stays, _, _ := content(t, client); !maps.Equal(stays, objects) {
			t.Error("the first directory has changed")
		}
	})
}

// TestRevisionIsRaisedWhenAsked: a new cluster's revision is raised only if that's asked for, and then objects get revisions above the source's.
func TestRevisionIsRaisedWhenAsked(t *testing.T) {
	c := startCluster(t)
	dir, objects, now := fill(t, 150)
	code, _, stderr := c.invoke(t, t.Context(), "--from", dir)
	for _, want := range []string{"isn't above the source's", "--raise-revision", "--bump-revision"} {
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %q; want it refused with %q", code, stderr, want)
		}
	}
	if left, _, revision := content(t, c.client); len(left) > 0 || revision != 1 {
		t.Errorf("the refused migration left %d objects and revision %d", len(left), revision)
	}
	c.mustMove(t, "--from", dir, "--raise-revision")
	moved, least, _ := content(t, c.client)
	if !maps.Equal(moved, objects) || least <= now {
		t.Errorf("the cluster has %d objects at %d and more, want those %d above %d", len(moved), least, len(objects), now)
	}
	if res, err := c.client.Get(t.Context(), storage.Own, clientv3.WithPrefix()); err != nil || len(res.Kvs) != 1 {
		t.Errorf("the cluster has %v (%v), want the marker only", res, err)
	}
}

func TestWrongSourcesAndTargetsAreRefused(t *testing.T) {
	dir, _, now := fill(t, 1)
	with := func(keys ...string) func(*testing.T, *cluster) {
		return func(t *testing.T, c *cluster) {
			for _, key := range keys {
				put(t, c.client, key, "{}")
			}
		}
	}
	marker := func(t *testing.T, c *cluster) {
		put(t, c.client, storage.MarkerKey, string(storage.NewMarker().Bytes()))
	}
	used := t.TempDir()
	inDirectory(t, used, func(client *clientv3.Client) { put(t, client, storage.Root+"core/configmaps/default/a", "{}") })
	keyed := t.TempDir()
	inDirectory(t, keyed, func(*clientv3.Client) {})
	if err := os.WriteFile(filepath.Join(keyed, storage.AccountKeyFile), []byte("a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name    string
		prepare func(*testing.T, *cluster)
		args    []string
		code    int
		want    string
	}{
		{"no direction", nil, nil, 2, "either --from or --to"},
		{"two directions", nil, []string{"--from", dir, "--to", dir}, 2, "either --from or --to"},
		{"argument", nil, []string{"--from", dir, "x"}, 2, `unexpected argument "x"`},
		{"unknown flag", nil, []string{"--frob"}, 2, "--frob"},
		{"raise a directory", nil, []string{"--to", dir, "--raise-revision"}, 2, "--raise-revision needs --from"},
		{"no directory", nil, []string{"--from", dir + "x"}, 1, "no such file"},
		{"a directory of something else", nil, []string{"--from", foreign}, 1, "holds something else"},
		{"objects in the cluster", with(storage.Root + "core/configmaps/default/a"), []string{"--from", dir}, 1, "isn't empty"},
		{"a server's cluster", marker, []string{"--from", dir}, 1, "isn't empty"},
		{"something of a newer version", with(storage.Own+"a", storage.Own+"b"), []string{"--from", dir}, 1, "isn't empty"},
		{"another migration's cluster", func(t *testing.T, c *cluster) { put(t, c.client, storage.MigrationKey, `{"source":"abc"}`) }, []string{"--from", dir}, 1, "from another source"},
		{"a cluster that isn't ours", with(storage.Root + "core/configmaps/default/a"), []string{"--to", t.TempDir()}, 1, "isn't this program's"},
		{"a cluster without anything", nil, []string{"--to", t.TempDir()}, 1, "isn't this program's"},
		{"a cluster that is filled by half", func(t *testing.T, c *cluster) { marker(t, c); put(t, c.client, storage.MigrationKey, "{}") }, []string{"--to", t.TempDir()}, 1, "that isn't finished"},
		{"a cluster that servers use", func(t *testing.T, c *cluster) {
			marker(t, c)
			lease, err := c.all.Grant(t.Context(), 600)
			if err != nil {
				t.Fatal(err)
			}
			put(t, c.client, storage.Own+"election/1", "", clientv3.WithLease(lease.ID))
		}, []string{"--to", t.TempDir()}, 1, "stop all replicas first"},
		{"a directory with objects", marker, []string{"--to", used}, 1, "isn't empty"},
		{"a directory with another key of tokens", func(t *testing.T, c *cluster) { marker(t, c); put(t, c.client, storage.AccountKey, "another key") }, []string{"--to", keyed}, 1, "is another key than that of"},
		{"the address of a target", nil, []string{"--to", used, "--cluster-listen", "127.0.0.1:7001"}, 2, "--cluster-listen needs --from"},
	}
	whole := startCluster(t)
	whole.raise(t, now)
	for n, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := whole.below(t, fmt.Sprintf("/case-%d", n))
			if test.prepare != nil {
				test.prepare(t, c)
			}
			code, stdout, stderr := c.invoke(t, t.Context(), test.args...)
			if code != test.code || !strings.Contains(stderr, test.want) || stdout != "" {
				t.Errorf("exit code %d, %q, %q; want %d with %q", code, stdout, stderr, test.code, test.want)
			}
			if strings.Count(stderr, "\n") != 1 {
				t.Errorf("%q isn't one line", stderr)
			}
		})
	}
}

// TestAccountKeyRefused: a directory that can't be the target gets no key of ServiceAccounts' tokens, and keeps its own one.
func TestAccountKeyRefused(t *testing.T) {
	c := startCluster(t)
	put(t, c.client, storage.MarkerKey, string(storage.NewMarker().Bytes()))
	put(t, c.client, storage.AccountKey, "the cluster's key")
	used := t.TempDir()
	inDirectory(t, used, func(client *clientv3.Client) { put(t, client, storage.Root+"core/configmaps/default/a", "{}") })
	code, _, stderr := c.invoke(t, t.Context(), "--to", used)
	if code != 1 || !strings.Contains(stderr, "isn't empty") {
		t.Errorf("exit code %d, %q; want it refused", code, stderr)
	}
	key := filepath.Join(used, storage.AccountKeyFile)
	if text, err := os.ReadFile(key); !os.IsNotExist(err) {
		t.Errorf("the refused migration left the key %q (%v)", text, err)
	}
	other := t.TempDir()
	key = filepath.Join(other, storage.AccountKeyFile)
	inDirectory(t, other, func(*clientv3.Client) {})
	if err := os.WriteFile(key, []byte("its own"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, stderr = c.invoke(t, t.Context(), "--to", other)
	if code != 1 || !strings.Contains(stderr, "move it away") {
		t.Errorf("exit code %d, %q; want it refused", code, stderr)
	}
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	c.mustMove(t, "--to", other)
}

// TestDirectoryOfKilledServerIsMoved: a directory whose server was killed has what that held while it ran, and can be moved.
func TestDirectoryOfKilledServerIsMoved(t *testing.T) {
	c := startCluster(t)
	dir, objects, now := fill(t, 1)
	inDirectory(t, dir, func(client *clientv3.Client) {
		lease, err := client.Grant(t.Context(), 600)
		if err != nil {
			t.Fatal(err)
		}
		put(t, client, storage.Own+"leader/1", "", clientv3.WithLease(lease.ID))
	})
	c.raise(t, now+10)
	c.mustMove(t, "--from", dir)
	if moved, _, _ := content(t, c.client); !maps.Equal(moved, objects) {
		t.Errorf("the cluster has %d objects, want %d", len(moved), len(objects))
	}
}

// TestOnlyMemberIsMoved: a member's directory is moved when it's the only one, and the refusals before that say what to do.
func TestOnlyMemberIsMoved(t *testing.T) {
	c := startCluster(t)
	var listen [2]string
	for i := range listen {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listen[i] = l.Addr().String()
		l.Close()
	}
	dir, objects, now := fill(t, 1)
	start := func(dir string, o etcd.ClusterOptions) *etcd.Server {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		s, err := etcd.Open(ctx, etcd.Options{DataDir: dir, Cluster: o, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	refused := func(want string, args ...string) {
		t.Helper()
		code, _, stderr := c.invoke(t, t.Context(), append([]string{"--from", dir}, args...)...)
		if code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, %q; want it refused with %q", code, stderr, want)
		}
	}
	first := start(dir, etcd.ClusterOptions{Listen: listen[0]})
	second := start(filepath.Join(t.TempDir(), "second"), etcd.ClusterOptions{Listen: listen[1], Join: listen[0], JoinTokenFile: filepath.Join(dir, "join-token")})
	for _, s := range []*etcd.Server{second, first} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	refused("--cluster-listen")
	refused("apiserver-lite member remove", "--cluster-listen", listen[0])

	first = start(dir, etcd.ClusterOptions{Listen: listen[0]})
	if err := first.RemoveMember(t.Context(), listen[1]); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c.raise(t, now+100)
	c.mustMove(t, "--from", dir, "--cluster-listen", listen[0])
	if moved, _, _ := content(t, c.client); !maps.Equal(moved, objects) {
		t.Errorf("the cluster has %d objects, want %d", len(moved), len(objects))
	}
}

// TestLockedDirectoryIsRefused: a directory that a server runs on isn't read.
func TestLockedDirectoryIsRefused(t *testing.T) {
	c := startCluster(t)
	dir, _, now := fill(t, 1)
	c.raise(t, now)
	inDirectory(t, dir, func(*clientv3.Client) {
		code, _, stderr := c.invoke(t, t.Context(), "--from", dir)
		if code != 1 || !strings.Contains(stderr, "is locked") {
			t.Errorf("exit code %d, %q; want it refused", code, stderr)
		}
	})
}
