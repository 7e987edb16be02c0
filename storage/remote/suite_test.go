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

func TestStorage(t *testing.T) {
	at, _ := startEtcd(t, t.TempDir(), nil)
	n := 0
	storagetest.Run(t, func(t testing.TB) storage.Store {
		n++
		return open(t, remote.Options{Servers: []string{at}, Prefix: "/test/" + strings.Repeat("x", n)})
	})
}

func TestStorageShared(t *testing.T) {
	storagetest.RunShared(t, func(t testing.TB) *storagetest.Etcd {
		dir := t.TempDir()
		at, e := startEtcd(t, dir, nil)
		again := func(t testing.TB, dir, token string) {
			e.stop()
			_, e = startEtcd(t, dir, func(c *embed.Config) {
				c.ListenClientUrls = []url.URL{{Scheme: "http", Host: strings.TrimPrefix(at, "http://")}}
				c.InitialClusterToken = token
			})
		}
		return &storagetest.Etcd{
			Open: func(t testing.TB) storage.Store { return open(t, remote.Options{Servers: []string{at}}) },
			Client: func(t testing.TB) *clientv3.Client {
				c, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, Logger: zap.NewNop()})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { c.Close() })
				return c
			},
			Restart: func(t testing.TB) { again(t, dir, "etcd-cluster") },
			Replace: func(t testing.TB) { again(t, t.TempDir(), "another") },
		}
	})
}
