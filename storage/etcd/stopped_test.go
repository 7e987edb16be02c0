package etcd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// ofMember copies a directory, as that of a member.
func ofMember(t *testing.T, dir string, cluster uint64) (copied string) {
	t.Helper()
	copied = filepath.Join(t.TempDir(), "copied")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	state, err := json.Marshal(map[string]any{"cluster": cluster, "shared": true})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(copied, "cluster.json"), state, 0o600); err != nil {
		t.Fatal(err)
	}
	return copied
}

// TestSnapshotOfMember: what a stopped member has is in a snapshot of its directory. That of a killed one is refused, because its log has
// writes that its database lacks; and so is what belongs to another cluster.
func TestSnapshotOfMember(t *testing.T) {
	t.Parallel()
	log := slog.New(slog.DiscardHandler)
	dir := t.TempDir()
	s := open(t, etcd.Options{DataDir: dir})
	cluster := uint64(s.Local.Cluster().ID())
	put(t, s, "/registry/core/configmaps/default/a", `{}`)
	ctx, cancel := context.WithCancel(t.Context())
	written, done := make(chan struct{}), make(chan struct{})
	go func() { // the database is copied before the log, which goes on, and has it all
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			if i == 100 {
				close(written)
			}
			_, _ = s.Client.Put(ctx, fmt.Sprint("/registry/core/configmaps/default/", i%10), `{}`) // its error is that ctx has ended
		}
	}()
	<-written
	killed := ofMember(t, dir, cluster)
	cancel()
	<-done
	put(t, s, "/registry/core/configmaps/default/b", `{}`)
	closeServer(t, s)
	for name, tc := range map[string]struct{ dir, says string }{
		"killed":             {killed, "was killed"},
		"of another cluster": {ofMember(t, dir, cluster+1), "belongs to another cluster"},
	} {
		if content, err := etcd.SnapshotOfMember(t.Context(), tc.dir, log); err == nil || content != nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if content, err := etcd.SnapshotOfMember(t.Context(), dir, log); content != nil || err != nil {
		t.Errorf("of a server that was alone: %v, %v", content, err)
	}
	content, err := etcd.SnapshotOfMember(t.Context(), ofMember(t, dir, cluster), log)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "saved")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := content.WriteTo(f); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := snapshot.Read(t.Context(), path); err != nil || st.Objects < 2 {
		t.Errorf("it has %+v, %v", st, err)
	}
}
