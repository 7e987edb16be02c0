package check

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/lease"
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
)

// value is an object of usual size.
var value = bytes.Repeat([]byte("x"), 1024)

// BenchmarkWAL reads a WAL of two full files and a third.
func BenchmarkWAL(b *testing.B) {
	defer func(before int64) { wal.SegmentSizeBytes = before }(wal.SegmentSizeBytes)
	wal.SegmentSizeBytes = 8 << 20
	const entries = 18_000
	d := Directory{Path: b.TempDir()}
	if err := os.Mkdir(d.Member(), 0o700); err != nil {
		b.Fatal(err)
	}
	metadata, err := proto.Marshal(&pb.Metadata{NodeID: new(uint64(1)), ClusterID: new(uint64(2))})
	if err != nil {
		b.Fatal(err)
	}
	log, err := wal.Create(zap.NewNop(), d.WAL(), metadata)
	if err != nil {
		b.Fatal(err)
	}
	log.SetUnsafeNoFsync()
	for index := range uint64(entries) {
		index++
		state := raftpb.HardState{Term: new(uint64(1)), Commit: &index}
		entry := raftpb.Entry{Term: new(uint64(1)), Index: &index, Data: value}
		if err := log.Save(&state, []*raftpb.Entry{&entry}); err != nil {
			b.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if sum, err := readWAL(d); err != nil || sum.commit != entries {
			b.Fatal(sum, err)
		}
	}
}

// BenchmarkWalk walks a database of 100,000 objects.
func BenchmarkWalk(b *testing.B) {
	cfg := backend.DefaultBackendConfig(zap.NewNop())
	cfg.Path = filepath.Join(b.TempDir(), "db")
	cfg.UnsafeNoFsync = true
	be := backend.New(cfg)
	store := mvcc.NewStore(zap.NewNop(), be, &lease.FakeLessor{}, mvcc.StoreConfig{})
	for i := range 100_000 {
		store.Put(fmt.Appendf(nil, "/registry/example.com/widgets/default/widget-%06d", i), value, lease.NoLease)
	}
	store.Commit()
	if err := store.Close(); err != nil {
		b.Fatal(err)
	}
	if err := be.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		db, unmap, err := openDB(cfg.Path)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := db.walk(); err != nil {
			b.Fatal(err)
		}
		unmap()
	}
}
