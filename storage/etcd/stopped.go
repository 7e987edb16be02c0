package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"go.etcd.io/bbolt"

	"github.com/apiserver-lite/apiserver-lite/storage/etcd/check"
	"github.com/apiserver-lite/apiserver-lite/storage/snapshot"
)

// SnapshotOfMember opens a snapshot of what the directory of a stopped member of a cluster has, which Open can't read without the other
// members. It's nil for the directory of a server that was alone. It locks the directory, and changes nothing of its content. What the other
// members have acknowledged since this one was stopped isn't in it. A directory is refused whose log has writes that its database lacks, as
// after a kill: they may have been acknowledged.
func SnapshotOfMember(ctx context.Context, path string, log *slog.Logger) (*snapshot.Snapshot, error) {
	d, err := openDir(path, log)
	if err != nil {
		return nil, err
	}
	content, err := d.memberSnapshot(ctx)
	if content == nil {
		err = errors.Join(err, d.release())
	}
	return content, err
}

// memberSnapshot is SnapshotOfMember, without the lock. It's nil for the directory of a server that was alone.
func (d *dataDir) memberSnapshot(ctx context.Context) (*snapshot.Snapshot, error) {
	state, err := d.loadCluster()
	if err != nil || !state.Shared {
		return nil, err
	}
	if err := (check.Directory{Path: d.path, ClusterID: uint64(state.Cluster), Marker: d.file(markerName)}).Applied(); err != nil {
		return nil, err
	}
	if err := check.Database(ctx, d.files().Database()); err != nil {
		return nil, fmt.Errorf("data directory %s: the database is damaged: %w", d.path, err)
	}
	db, err := bbolt.Open(d.files().Database(), 0o400, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	tx, err := db.Begin(false)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("data directory %s: %w", d.path, err), db.Close())
	}
	return snapshot.New(tx, func() error { return errors.Join(tx.Rollback(), db.Close(), d.release()) }), nil
}
