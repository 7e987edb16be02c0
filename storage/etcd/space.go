package etcd

import (
	"context"
	"fmt"
	"syscall"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// When a write meets a full disk, etcd can only end: it doesn't know what reached the disk. So
// writes are refused before that, by the alarm that etcd itself raises when the database reaches its
// quota: puts fail with ErrNoSpace, reads and deletions go on. The keeper raises it for the disk, makes room
// for either reason, and takes it back.

const (
	// diskReserve is the free space below which writes are refused. It holds what the fastest writer
	// can add between two looks of the keeper, the log's next two files and the database's next step.
	diskReserve = 256 << 20
	// diskReserveShare bounds the reserve on small disks: an eighth of them, but at least diskReserveMin.
	diskReserveShare = 8
	diskReserveMin   = 64 << 20
)

// defragSpare is what stays free while the database is written anew: its growth goes in steps of 16 MiB.
const defragSpare = 32 << 20

// settleLooks is for how many looks a commit is forced after a compaction: bbolt counts a page as free
// only when a later commit finds no reader on it.
const settleLooks = 4

// diskSpace is what a file system has, in bytes.
type diskSpace struct{ free, total int64 }

func statDisk(path string) (diskSpace, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return diskSpace{}, fmt.Errorf("free space of %s: %w", path, err)
	}
	return diskSpace{free: int64(st.Bavail) * int64(st.Bsize), total: int64(st.Blocks) * int64(st.Bsize)}, nil
}

func (d diskSpace) reserve() int64 {
	return max(diskReserveMin, min(diskReserve, d.total/diskReserveShare))
}

func (d diskSpace) low() bool { return d.free < d.reserve() }

// guardDisk raises the alarm when the disk is nearly full.
func (k *keeper) guardDisk(ctx context.Context) (diskSpace, error) {
	disk, err := k.disk()
	if err != nil {
		return disk, err
	}
	k.mu.Lock()
	k.lowDisk = nil
	if disk.low() {
		k.lowDisk = &disk
	}
	k.mu.Unlock()
	if !disk.low() || k.alarmed() {
		return disk, nil
	}
	k.log.Warn("the disk is nearly full: writes are refused until there's room", "dir", k.dir.path, "free", disk.free, "needed", disk.reserve())
	return disk, k.alarm(ctx, pb.AlarmRequest_ACTIVATE)
}

// keepSpace cuts history when the database nears its quota, and takes the alarm back when there's room.
func (k *keeper) keepSpace(ctx context.Context, disk diskSpace) error {
	if k.alarmed() {
		return k.makeRoom(ctx, disk)
	}
	k.reclaimed = 0
	return k.relieve(ctx)
}

// relieve cuts history by half while the database is over four fifths of its quota and history is what
// fills it: objects shall be what a quota refuses.
func (k *keeper) relieve(ctx context.Context) error {
	if k.local.Backend().SizeInUse() < k.quota/5*4 {
		return nil
	}
	k.mu.Lock()
	revision := int64(0)
	if k.history.size() > k.quota/20 {
		revision = k.history.halve()
		k.noteShort(k.clock(), revision != 0)
	}
	k.mu.Unlock()
	k.wanted = max(k.wanted, revision)
	return k.compact(ctx, true)
}

// makeRoom frees what can be freed while writes are refused, and lets them go on if that was enough.
// What is wanted is a twentieth below the quota, so that the alarm doesn't come and go.
func (k *keeper) makeRoom(ctx context.Context, disk diskSpace) error {
	be := k.local.Backend()
	enough := k.quota / 20 * 19
	if rev := k.local.KV().Rev(); be.Size() >= enough && k.reclaimed != rev {
		if err := k.dropHistory(ctx, rev); err != nil {
			return err
		}
		k.reclaimed = rev
	}
	if c := k.local.KV().FirstRev(); c != k.compacted {
		k.compacted, k.settle = c, settleLooks
	}
	if k.settle > 0 {
		be.ForceCommit()
		k.settle--
	}
	// The file only shrinks by being written anew, beside the old one. History isn't dropped for a full
	// disk, which others may have filled.
	inUse := be.SizeInUse()
	worth := be.Size() >= enough && inUse < enough || disk.low() && be.Size()-inUse >= disk.reserve()/4
	if worth && disk.free > inUse+defragSpare {
		if err := k.local.Defragment(); err != nil {
			return fmt.Errorf("defragment the database: %w", err)
		}
	}
	if disk.low() || be.Size() >= enough {
		return nil
	}
	if err := k.alarm(ctx, pb.AlarmRequest_DEACTIVATE); err != nil {
		return err
	}
	k.log.Info("there's room again: writes go on", "databaseBytes", be.Size(), "quota", k.quota)
	return nil
}

// dropHistory compacts everything up to now.
func (k *keeper) dropHistory(ctx context.Context, rev int64) error {
	k.mu.Lock()
	at := k.clock()
	k.history.set(rev, at)
	k.history.forget(len(k.history.marks) - 1)
	k.noteShort(at, true)
	k.mu.Unlock()
	k.wanted = max(k.wanted, rev)
	return k.compact(ctx, true)
}

func (k *keeper) alarmed() bool {
	for _, a := range k.local.Alarms() {
		if a.Alarm == pb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

func (k *keeper) alarm(ctx context.Context, action pb.AlarmRequest_AlarmAction) error {
	_, err := k.local.Alarm(ctx, &pb.AlarmRequest{MemberID: uint64(k.local.MemberID()), Action: action, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("%v the no-space alarm: %w", action, err)
	}
	return nil
}

// health is nil, or says why writes fail.
func (k *keeper) health() error {
	for _, a := range k.local.Alarms() {
		if a.Alarm == pb.AlarmType_CORRUPT {
			return fmt.Errorf("the store in %s is corrupt: restore it from a backup", k.dir.path)
		}
	}
	if !k.alarmed() {
		return nil
	}
	k.mu.Lock()
	disk := k.lowDisk
	k.mu.Unlock()
	if disk != nil {
		return fmt.Errorf("writes are refused: the disk of %s has %d MiB left and %d MiB are kept in reserve; free some space, and writes go on by themselves",
			k.dir.path, disk.free>>20, disk.reserve()>>20)
	}
	return fmt.Errorf("writes are refused: the database has %d MiB and its quota is %d MiB; delete objects, and writes go on by themselves",
		k.local.Backend().Size()>>20, k.quota>>20)
}
