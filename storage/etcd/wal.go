package etcd

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"golang.org/x/sync/errgroup"
)

// etcd drops what the WAL has of the time before a snapshot, and makes a snapshot after snapshotCount entries. So many
// entries of the largest size are 3 GB. On a small disk they would leave no space for the write that brings the next
// snapshot about, and the disk would stay full. So the keeper hastens the snapshot when the WAL has grown past its bound.

const (
	// maxWALFiles is how many files of the WAL there may be before the keeper hastens etcd's next snapshot: 64 MiB.
	maxWALFiles = 8
	// minWALFiles is what small disks have instead, besides walShare of the disk: the two that stay in any case, and one
	// that is being written.
	minWALFiles = keptWALFiles + 1
	walShare    = 16
	// idleAtOnce is how many of the entries that hasten a snapshot are under way at once: etcd stores entries that come
	// together with one sync.
	idleAtOnce = 64
	// nobody is an id that no member has.
	nobody = 1
)

// walBound is how many files the WAL may have on a disk.
func walBound(found *roomState) int {
	disk := found.disk
	if found.full {
		return minWALFiles
	}
	return int(min(maxWALFiles, max(minWALFiles, disk.total/walShare/segmentBytes)))
}

// keepWAL removes what the WAL doesn't need, and hastens the next snapshot if the rest is past its bound.
func (k *keeper) keepWAL(ctx context.Context, disk *roomState) error {
	bound := walBound(disk)
	if names, err := k.dir.walFiles(); err != nil || len(names) <= bound {
		return err
	}
	if err := k.dir.purgeWAL(); err != nil {
		return err
	}
	if names, err := k.dir.walFiles(); err != nil || len(names) <= bound {
		return err
	}
	return k.hastenSnapshot(ctx)
}

// hastenSnapshot writes entries that change nothing, as many as bring a snapshot about. etcd's own way to ask for one may be
// called by etcd alone.
func (k *keeper) hastenSnapshot(ctx context.Context) error {
	work, ctx := errgroup.WithContext(ctx)
	work.SetLimit(idleAtOnce)
	for range snapshotCount {
		work.Go(func() error {
			cost := k.room.cost(0)
			if err := k.room.enter(ctx, cost, deletes); err != nil {
				return err
			}
			defer k.room.leave(cost)
			_, err := k.local.Alarm(ctx, &pb.AlarmRequest{MemberID: nobody, Action: pb.AlarmRequest_DEACTIVATE, Alarm: pb.AlarmType_NOSPACE})
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return fmt.Errorf("shorten the WAL: %w", err)
	}
	return nil
}
