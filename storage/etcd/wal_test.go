package etcd

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/loopback"
)

// TestWALBound: the WAL of few but large writes is shortened, though etcd would make no snapshot yet, and what was written is
// there after a restart.
func TestWALBound(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, Options{DataDir: dir})
	value := strings.Repeat("x", 1<<20)
	const writes = 2 * maxWALFiles * segmentBytes >> 20
	for i := range writes {
		if _, err := s.Client.Put(t.Context(), "k", fmt.Sprint(i, value)); err != nil {
			t.Fatal(err)
		}
	}
	soon(t, "the WAL has no more files than its bound", func() bool {
		names, err := s.dir.walFiles()
		if err != nil {
			t.Fatal(err)
		}
		return len(names) <= maxWALFiles
	})
	if rev := s.Local.KV().Rev(); rev != 1+writes {
		t.Errorf("the revision is %d after %d writes", rev, writes)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openTest(t, Options{DataDir: dir})
	res, err := s.Client.Get(t.Context(), "k")
	if err != nil || string(res.Kvs[0].Value) != fmt.Sprint(writes-1, value) {
		t.Errorf("after a restart the last write isn't there: %v", err)
	}
}

// openTwo starts a member and a learner, whose keepers rest.
func openTwo(t *testing.T) (voter, learner *Server) {
	t.Helper()
	var all [2]Options
	for i := range all {
		all[i] = Options{DataDir: filepath.Join(t.TempDir(), "data"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Cluster: ClusterOptions{Listen: loopback.Address(t)}}
	}
	voter = openTest(t, all[0])
	voter.haltKeeper()
	all[1].Cluster.Join, all[1].Cluster.JoinTokenFile = all[0].Cluster.Listen, filepath.Join(all[0].DataDir, joinTokenName)
	learner, err := Open(t.Context(), all[1])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = learner.Close() }) // it may have been removed
	learner.haltKeeper()
	return voter, learner
}

// TestHastenSnapshotOfMembers: members that hasten a snapshot at the same time write as many entries as one of them would. A
// member that has no leader leaves it at that.
func TestHastenSnapshotOfMembers(t *testing.T) {
	voter, learner := openTwo(t)
	var both sync.WaitGroup
	for _, s := range []*Server{voter, learner} {
		both.Go(func() {
			for s.Local.AppliedIndex() <= snapshotCount && t.Context().Err() == nil {
				if err := s.keeper.hastenSnapshot(t.Context()); err != nil { // what is forwarded to a leader may be lost
					t.Log(err)
				}
			}
		})
	}
	both.Wait()
	for _, s := range []*Server{voter, learner} {
		soon(t, "there's a snapshot", func() bool {
			last, err := s.dir.lastSnapshot()
			if err != nil {
				t.Fatal(err)
			}
			return last > 0
		})
	}
	const most = 3 * snapshotCount / 2 // with those that were under way when it was enough, or lost
	if got := voter.Local.AppliedIndex(); got > most {
		t.Errorf("there are %d entries, and %d are enough", got, most)
	}
	if err := voter.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	learner.background.Go(func() { learner.cluster.probe(ctx) })
	soon(t, "nobody leads", func() bool { return !learner.cluster.led() })
	cancel()
	if err := learner.keeper.hastenSnapshot(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestWALBoundOfDisk(t *testing.T) {
	for _, c := range []struct {
		disk int64
		full bool
		want int
	}{{64 << 20, false, minWALFiles}, {640 << 20, false, 5}, {1 << 40, false, maxWALFiles}, {1 << 40, true, minWALFiles}} {
		if got := walBound(&roomState{disk: diskSpace{total: c.disk}, full: c.full}); got != c.want {
			t.Errorf("on a disk of %d MiB the WAL may have %d files, want %d", c.disk>>20, got, c.want)
		}
	}
}

// TestDirectoryNamedLikePattern: a directory may have any name. Nothing is done to another one that the name would match if it were a
// pattern, also when files are removed for a full disk.
func TestDirectoryNamedLikePattern(t *testing.T) {
	base := t.TempDir()
	other := filepath.Join(base, "x1", "member", "wal")
	if err := os.MkdirAll(other, 0o700); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * keptWALFiles {
		if err := os.WriteFile(filepath.Join(other, fmt.Sprintf("%016x-%016x.wal", i, i)), []byte("somebody else's"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"x[1]", "x?", "x*", `x\1`} {
		dir := filepath.Join(base, name)
		s := openTest(t, Options{DataDir: dir})
		if _, err := s.Client.Put(t.Context(), "k", "v"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s.restartKeeper(func() (diskSpace, error) { return diskSpace{free: 10 << 20, total: 10 << 30}, nil })
		soon(t, "the disk is full", func() bool { return s.Health() != nil })
		if err := s.dir.purgeWAL(); err != nil { // as the keeper does
			t.Error(err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		s = openTest(t, Options{DataDir: dir})
		if res, err := s.Client.Get(t.Context(), "k"); err != nil || res.Count != 1 {
			t.Errorf("%s: after a restart: %v, %v", name, res, err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		left, err := os.ReadDir(other)
		if err != nil || len(left) != 2*keptWALFiles {
			t.Fatalf("%s: of the other directory %d files are left: %v", name, len(left), err)
		}
		for _, f := range left {
			if info, err := f.Info(); err != nil || info.Size() != int64(len("somebody else's")) {
				t.Errorf("%s: %s of the other directory was changed: %v", name, f.Name(), err)
			}
		}
	}
}
