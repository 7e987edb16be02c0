package remote_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

func open(t testing.TB, o remote.Options) *remote.Store {
	t.Helper()
	s, err := remote.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const key = "/registry/example.com/widgets/default/a"

// TestTwoStores: what one writes the other sees, and what somebody else writes moves both.
func TestTwoStores(t *testing.T) {
	url, e := startEtcd(t, t.TempDir(), nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := open(t, remote.Options{Servers: []string{url}}), open(t, remote.Options{Servers: []string{url}})
	_, at, err := b.Window(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rev, err := a.Create(ctx, key, []byte("one"))
	if err != nil {
		t.Fatal(err)
	}
	if seen, err := b.Barrier(ctx); err != nil || seen < rev {
		t.Errorf("barrier at %d after a write at %d, %v", seen, rev, err)
	}
	changes, upTo, err := b.Follow(ctx, at)
	if err != nil || upTo != rev || len(changes) != 1 || changes[0].Key != key {
		t.Fatalf("%+v up to %d, %v", changes, upTo, err)
	}
	if _, err := e.Server.Put(ctx, putOf("/elsewhere", "x")); err != nil {
		t.Fatal(err)
	}
	rev, err = b.Barrier(ctx)
	if err != nil || rev <= upTo {
		t.Fatalf("barrier at %d after %d, %v", rev, upTo, err)
	}
	changes, then, err := b.Follow(ctx, upTo)
	if err != nil || then != rev || len(changes) != 0 {
		t.Fatalf("%+v up to %d, want %d, %v", changes, then, rev, err)
	}
	var _ storage.Store = a
}

func putOf(key, value string) *pb.PutRequest {
	return &pb.PutRequest{Key: []byte(key), Value: []byte(value)}
}

// TestBarriersWhileClosing: whoever asks while the store is closed gets an answer or ErrUnavailable, and the process lives.
func TestBarriersWhileClosing(t *testing.T) {
	url, _ := startEtcd(t, t.TempDir(), nil)
	for range 20 {
		s := open(t, remote.Options{Servers: []string{url}})
		var asking sync.WaitGroup
		for range 8 {
			asking.Go(func() {
				for {
					if _, err := s.Barrier(t.Context()); err != nil {
						if !errors.Is(err, storage.ErrUnavailable) && !errors.Is(err, context.Canceled) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		s.Close()
		asking.Wait()
	}
}
