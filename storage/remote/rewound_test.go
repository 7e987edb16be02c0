package remote_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/remote"
)

// TestRewoundBehindItsBack: etcd's volume is brought back to a copy while a store can't reach it. Others write, until it's further than the
// store knew. The store notices all the same.
func TestRewoundBehindItsBack(t *testing.T) {
	ctx := bounded(t)
	dir := t.TempDir()
	volume, backup := filepath.Join(dir, "volume"), filepath.Join(dir, "backup")
	at, stop := startNew(t, volume, anyAddress, etcdToken)
	address := strings.TrimPrefix(at, "http://")
	before := newSilencer(t, at)
	s := open(t, remote.Options{Servers: []string{before.url}})
	position := newest(ctx, t, s)
	rev := create(ctx, t, s, key, "v")
	followTo(ctx, t, s, position, rev)
	stop()
	if err := os.CopyFS(backup, os.DirFS(volume)); err != nil {
		t.Fatal(err)
	}
	_, stop = startNew(t, volume, address, etcdToken)
	succeeds(ctx, t, "a barrier before", func() error { _, err := s.Barrier(ctx); return err })
	position = rev
	for i := range 5 {
		rev = create(ctx, t, s, fmt.Sprint(key, "-lost-", i), "v")
	}
	followTo(ctx, t, s, position, rev)

	before.silent.Store(true)
	stop()
	startNew(t, backup, address, etcdToken)
	other := open(t, remote.Options{Servers: []string{at}})
	for last, i := storage.Revision(0), 0; last <= rev; i++ {
		last = create(ctx, t, other, fmt.Sprint(key, "-new-", i), "v")
	}
	eventually(ctx, t, "the store knows that etcd doesn't answer", func() bool { return s.Health() != nil })
	before.silent.Store(false)
	before.cut()
	var err error
	eventually(ctx, t, "an answer", func() bool {
		_, err = s.Barrier(ctx)
		return err == nil || errors.Is(err, storage.ErrRewound)
	})
	if !errors.Is(err, storage.ErrRewound) {
		t.Error("the store took what others wrote after the copy for what comes after its own position")
	}
}
