package remote_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdsnapshot "go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

const inSnapshot = "/registry/core/configmaps/default/"

// described is what etcd says of keys.
func described(kvs []*mvccpb.KeyValue) (all []string) {
	for _, kv := range kvs {
		all = append(all, fmt.Sprintf("%s created at %d, version %d of %d: %s", kv.Key, kv.CreateRevision, kv.Version, kv.ModRevision, kv.Value))
	}
	return all
}

// saved writes a snapshot of a store into a file.
func saved(t *testing.T, s *remote.Store) (path string) {
	t.Helper()
	dir := t.TempDir()
	content, err := s.Snapshot(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("while it's read there is %v, which a kill would leave", left)
	}
	path = filepath.Join(t.TempDir(), "snapshot.db")
	err = snapshot.Save(path, func(to io.Writer) error {
		n, err := content.WriteTo(to)
		if n != content.Size {
			t.Errorf("%d bytes are said to be %d", n, content.Size)
		}
		return err
	}, func(part string) error {
		_, err := snapshot.Sum(t.Context(), part)
		return err
	})
	if err := errors.Join(err, content.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSnapshot: a snapshot has what is below the prefix and nothing else, as it is at one revision, with the versions that etcd says; etcd's
// own reader takes it, and what is restored from it refuses clients of before.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	at, _ := startNew(t, t.TempDir(), anyAddress, etcdToken)
	s := open(t, remote.Options{Servers: []string{at}, Prefix: "/ours"})
	other, err := clientv3.New(clientv3.Config{Endpoints: []string{at}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { other.Close() })
	lease, err := other.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	put := func(c *clientv3.Client, key, value string, o ...clientv3.OpOption) {
		t.Helper()
		if _, err := c.Put(t.Context(), key, value, o...); err != nil {
			t.Fatal(err)
		}
	}
	ours := s.Client()
	put(other, "/registry/secrets/kube-system/theirs", "k8s\x00")
	put(ours, storage.AccountKey, "a key")
	put(ours, storage.Own+"replicas/one", "here", clientv3.WithLease(lease.ID))
	for i := range 300 { // more than the first pages
		put(ours, fmt.Sprint(inSnapshot, "n", i), `{"n":1}`)
	}
	put(ours, inSnapshot+"gone", `{}`)
	put(ours, inSnapshot+"n7", `{"n":2}`)
	if _, err := ours.Delete(t.Context(), inSnapshot+"gone"); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Txn(t.Context()).Then(clientv3.OpPut(inSnapshot+"n9", `{"t":1}`), clientv3.OpPut(inSnapshot+"n8", `{"t":1}`), clientv3.OpPut(inSnapshot+"new", `{"t":1}`)).Commit(); err != nil {
		t.Fatal(err)
	}
	put(other, "/ours-too", "theirs")
	want, err := ours.Get(t.Context(), storage.Root, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	path := saved(t, s)

	st, err := snapshot.Read(t.Context(), path)
	if err != nil || st.Objects != 301 || int64(st.Revision) != want.Header.Revision {
		t.Fatalf("it holds %+v, %v, want 301 objects of revision %d", st, err, want.Header.Revision)
	}
	if st, err := etcdsnapshot.NewV3(zap.NewNop()).Status(path); err != nil || st.Revision != want.Header.Revision || st.TotalKey != 301+2 { // the key, and the empty one
		t.Errorf("etcd's own reader says %+v, %v", st, err)
	}
	dir := t.TempDir()
	if _, err := etcd.Restore(t.Context(), path, dir, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		restored, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := restored.Client.Get(t.Context(), storage.Root, clientv3.WithPrefix())
		if err != nil || !slices.Equal(described(got.Kvs), described(want.Kvs)) {
			t.Errorf("it has %q, %v, want %q", described(got.Kvs), err, described(want.Kvs))
		}
		if _, err := restored.Client.Get(t.Context(), "a", clientv3.WithRev(want.Header.Revision)); err == nil {
			t.Error("a revision of before can be read")
		}
		if all, err := restored.Client.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || all.Count != 302 {
			t.Errorf("it has %d keys, %v", all.Count, err)
		}
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSnapshotWhileWritten: a snapshot is of one revision, whatever is written while it's read.
func TestSnapshotWhileWritten(t *testing.T) {
	t.Parallel()
	at, _ := startNew(t, t.TempDir(), anyAddress, etcdToken)
	s := open(t, remote.Options{Servers: []string{at}})
	write := func(key string, n int) {
		if _, err := s.Client().Put(t.Context(), inSnapshot+key, fmt.Sprintf(`{"n":%d}`, n)); err != nil {
			t.Error(err)
		}
	}
	for i := range 2000 { // several pages
		write(fmt.Sprint("n", i), 0)
	}
	write("a-first", 0)
	write("z-second", 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 1; ctx.Err() == nil; n++ {
			write("a-first", n)
			write("z-second", n)
		}
	}()
	for range 3 {
		dir := t.TempDir()
		if _, err := etcd.Restore(t.Context(), saved(t, s), dir, slog.New(slog.DiscardHandler)); err != nil {
			t.Fatal(err)
		}
		restored, err := etcd.Open(t.Context(), etcd.Options{DataDir: dir, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		var first, second int
		for key, to := range map[string]*int{"a-first": &first, "z-second": &second} {
			got, err := restored.Client.Get(t.Context(), inSnapshot+key)
			if err != nil || len(got.Kvs) != 1 {
				t.Fatal(got, err)
			}
			fmt.Sscanf(string(got.Kvs[0].Value), `{"n":%d}`, to)
		}
		if second > first || first > second+1 {
			t.Errorf("the first key was written %d times, and the second %d", first, second)
		}
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	<-done
}
