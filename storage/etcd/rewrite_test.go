package etcd

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/schema"

	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// crowded opens a store that has reached its quota, and whose database is worth writing anew. The keeper looks only when
// restartKeeper starts it, and calls defrag for that.
func crowded(t *testing.T, o Options, defrag func(of *Server) error) *Server {
	t.Helper()
	const quota, full, free = 4 * minQuotaBytes, 66 << 20, 8 << 20
	o.QuotaBytes = quota
	s := openTest(t, o)
	s.haltKeeper()
	be := s.Local.Backend()
	fill(be, full)
	tx := be.BatchTx()
	tx.LockOutsideApply()
	for i := range uint64(free / pageBytes) {
		tx.UnsafeDelete(schema.Test, binary.BigEndian.AppendUint64(nil, i))
	}
	tx.Unlock()
	be.ForceCommit()
	if _, err := s.Client.Put(t.Context(), "k", "v"); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("a write at the quota: %v", err)
	}
	s.keeper.database.defrag = func() error { return defrag(s) }
	return s
}

// pageBytes is what a value that fill puts takes in the database.
const pageBytes = 8 << 10

// fill puts so many bytes into a database, without its log.
func fill(be backend.Backend, bytes int) {
	tx, value := be.BatchTx(), make([]byte, pageBytes-64) // with its key it fills pages
	tx.LockOutsideApply()
	tx.UnsafeCreateBucket(schema.Test)
	for i := range uint64(bytes / pageBytes) {
		tx.UnsafeSeqPut(schema.Test, binary.BigEndian.AppendUint64(nil, i), value)
	}
	tx.Unlock()
	be.ForceCommit()
}

// TestFiguresDuringRewrite: while etcd writes the database anew, which it does when the quota was reached, nobody who asks for
// the health or the figures waits.
func TestFiguresDuringRewrite(t *testing.T) {
	var ended atomic.Bool
	s := crowded(t, Options{DataDir: t.TempDir(), Ephemeral: true}, func(s *Server) error {
		defer ended.Store(true)
		return s.Local.Defragment()
	})
	s.restartKeeper(func() (diskSpace, error) { return statDisk(s.Dir()) })
	inside(t, "backend.defragdb")
	err, stats := s.Health(), s.Stats()
	if ended.Load() {
		t.Error("health and figures waited for the database, or it was written too soon for this test")
	}
	if err == nil || !strings.Contains(err.Error(), "its quota is 64 MiB") || stats.DatabaseBytes < 64<<20 {
		t.Errorf("health: %v; figures: %+v", err, stats)
	}
	soon(t, "healthy, with a smaller database", func() bool { return s.Health() == nil && s.Stats().DatabaseBytes < 64<<20 })
}

// TestLeasesDuringRewrite: a lease is renewed while etcd writes the database anew. Who leads the replicas has one, and its end is
// a write, for which a member's consistent reads would wait until the database is written.
func TestLeasesDuringRewrite(t *testing.T) {
	const ttl = 60 // seconds
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true})
	lease, err := s.Client.Grant(t.Context(), ttl)
	if err != nil {
		t.Fatal(err)
	}
	fill(s.Local.Backend(), 64<<20)
	written := make(chan error, 1)
	go func() { written <- s.Local.Defragment() }()
	inside(t, "backend.defragdb")
	renewed, err := s.Client.KeepAliveOnce(t.Context(), lease.ID)
	if err != nil || renewed.TTL != ttl {
		t.Errorf("renewed: %+v, %v", renewed, err)
	}
	select {
	case <-written:
		t.Error("the lease was renewed only when the database was written, or that was too soon for this test")
	default:
		if err := <-written; err != nil {
			t.Error(err)
		}
	}
}

// TestCloseDuringRewrite: a stop doesn't wait for a database that is being written anew, which nothing can interrupt, and is no
// failure. What was written stays, and the directory can be used once the database is written.
func TestCloseDuringRewrite(t *testing.T) {
	begun, written := make(chan struct{}), make(chan struct{})
	dir := t.TempDir()
	s := crowded(t, Options{DataDir: dir}, func(s *Server) error {
		close(begun)
		<-written
		return s.Local.Defragment()
	})
	s.restartKeeper(func() (diskSpace, error) { return statDisk(s.Dir()) })
	<-begun
	atOnce(t, "Close", func() {
		if err := s.Close(); err != nil {
			t.Errorf("closed while the database is written: %v", err)
		}
	})
	close(written)
	soon(t, "the directory is given back", func() bool {
		d, err := openDir(dir, s.log)
		return err == nil && d.release() == nil
	})
	if again := openTest(t, Options{DataDir: dir}); again.Local.Backend().Size() > 64<<20 {
		t.Error("the database wasn't written anew")
	}
}

// TestRewriteBesideSnapshot: the database isn't written anew while a snapshot is read, for which etcd and all writes would wait, and there's no
// snapshot while it is.
func TestRewriteBesideSnapshot(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true})
	s.haltKeeper()
	rewritten := 0
	s.keeper.database.defrag = func() error {
		rewritten++
		if _, err := s.Snapshot(t.Context()); !errors.Is(err, snapshot.ErrRewriting) {
			t.Errorf("a snapshot meanwhile: %v", err)
		}
		return nil
	}
	content, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.keeper.database.rewrite(); err != nil || rewritten != 0 {
		t.Errorf("beside a snapshot it's written anew %d times: %v", rewritten, err)
	}
	if err := content.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.keeper.database.rewrite(); err != nil || rewritten != 1 {
		t.Errorf("after the snapshot it's written anew %d times: %v", rewritten, err)
	}
}

// TestShortOfSpace: who reads a snapshot is cut off when the quota is reached, for which the database has to be written anew. A snapshot that
// is begun after that is whole.
func TestShortOfSpace(t *testing.T) {
	t.Parallel()
	rewritten := make(chan struct{}, 1)
	s := crowded(t, Options{DataDir: t.TempDir(), Ephemeral: true}, func(s *Server) error {
		select {
		case rewritten <- struct{}{}:
		default:
		}
		return s.Local.Defragment()
	})
	content, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	reader, writer := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := content.WriteTo(writer)
		done <- errors.Join(err, content.Close(), writer.Close())
	}()
	if _, err := io.CopyN(io.Discard, reader, 1<<20); err != nil {
		t.Fatal(err)
	}
	s.restartKeeper(func() (diskSpace, error) { return statDisk(s.Dir()) })
	soon(t, "readers are cut off", func() bool { return s.keeper.database.cuts.Load() > 0 })
	io.Copy(io.Discard, reader)
	if err := <-done; !errors.Is(err, errCutOff) {
		t.Errorf("the reader ends with %v", err)
	}
	<-rewritten
	soon(t, "healthy, with a smaller database", func() bool { return s.Health() == nil })
	again, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.WriteTo(io.Discard); errors.Join(err, again.Close()) != nil {
		t.Error(err)
	}
}

// TestSnapshotBesideTakeover: while another member's database takes the place of this one's there's no snapshot, etcd waits with that until
// one that is being opened is, and what is read of the old database isn't taken for whole.
func TestSnapshotBesideTakeover(t *testing.T) {
	t.Parallel()
	s := openTest(t, Options{DataDir: t.TempDir(), Ephemeral: true})
	note := s.Local.Logger()
	note.Info("applying snapshot")
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, snapshot.ErrRewriting) {
		t.Errorf("a snapshot meanwhile: %v", err)
	}
	note.Info("applied snapshot")
	content := s.keeper.database.open()
	if content == nil {
		t.Fatal("there's no snapshot after it")
	}
	content.of = nil // as if there were another one now
	if _, err := content.WriteTo(io.Discard); !errors.Is(err, errReplaced) {
		t.Errorf("what was read of the old database: %v", err)
	}
	if err := content.Close(); err != nil {
		t.Error(err)
	}
}
