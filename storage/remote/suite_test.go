package remote_test

import (
	"net/url"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

const (
	anyAddress = "127.0.0.1:0" // lets etcd choose a port
	etcdToken  = "etcd-cluster"
)

// starter runs an etcd in a directory, at an address, and returns its URL and what ends it.
type starter func(t testing.TB, dir, address, token string) (url string, stop func())

// testStore has a store over an etcd of its own pass the tests.
func testStore(t *testing.T, start starter) {
	at, _ := start(t, t.TempDir(), anyAddress, etcdToken)
	n := 0
	storagetest.Run(t, func(t testing.TB) storage.Store {
		n++
		return open(t, remote.Options{Servers: []string{at}, Prefix: "/test/" + strings.Repeat("x", n)})
	})
}

// testShared has stores over one etcd pass the tests.
func testShared(t *testing.T, start starter) {
	runShared(t, func(t testing.TB) *sharedEtcd {
		dir := t.TempDir()
		at, stop := start(t, dir, anyAddress, etcdToken)
		again := func(t testing.TB, dir, token string) {
			stop()
			_, stop = start(t, dir, strings.TrimPrefix(at, "http://"), token)
		}
		return &sharedEtcd{
			Open: func(t testing.TB) storage.Store { return open(t, remote.Options{Servers: []string{at}}) },
			Client: func(t testing.TB) *clientv3.Client {
				c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			},
			Restart: func(t testing.TB) { again(t, dir, etcdToken) },
			Replace: func(t testing.TB) { again(t, t.TempDir(), "another") },
		}
	})
}

// startNew is the starter of the etcd that is linked.
func startNew(t testing.TB, dir, address, token string) (string, func()) {
	t.Helper()
	at, e := startEtcd(t, dir, func(c *embed.Config) {
		c.ListenClientUrls = []url.URL{{Scheme: "http", Host: address}}
		c.InitialClusterToken = token
	})
	return at, e.stop
}

func TestStorage(t *testing.T) { testStore(t, startNew) }

func TestStorageShared(t *testing.T) { testShared(t, startNew) }
