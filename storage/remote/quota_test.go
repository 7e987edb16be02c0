package remote_test

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// TestBatchAtTheQuota: another replica makes the change that a batch begins with, and then etcd is full. The batch isn't done, and nobody
// is told that it was.
func TestBatchAtTheQuota(t *testing.T) {
	ctx := bounded(t)
	url, e := startEtcd(t, t.TempDir(), func(c *embed.Config) { c.QuotaBackendBytes = 4 << 20 })
	a, b := open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})
	first := create(ctx, t, a, key, "one")
	if _, err := b.Update(ctx, key, []byte("two"), first); err != nil {
		t.Fatal(err)
	}
	value := strings.Repeat("x", 1<<20)
	for i, full := 0, false; !full; i++ {
		if i > 100 {
			t.Fatal("etcd takes more than its quota")
		}
		_, err := e.Server.Put(ctx, putOf("/elsewhere/"+strings.Repeat("y", i), value))
		full = err != nil
	}
	rev, broken, err := a.Commit(ctx, storage.Batch{
		Conditions: []storage.Condition{{Key: key, Revision: first}, {Key: key + "-b"}},
		Writes:     []storage.Write{{Key: key, Value: []byte("two")}, {Key: key + "-b", Value: []byte("new")}},
	})
	if !errors.Is(err, storage.ErrNoSpace) || errors.Is(err, storage.ErrUnknownOutcome) {
		t.Errorf("the batch was done at %d, %v, %v; its second key was never written", rev, broken, err)
	}
}
