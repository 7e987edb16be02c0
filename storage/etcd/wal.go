package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/fileutil"
	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/storage/kv"
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
	// hastenTime is how long the keeper hastens a snapshot before it looks at the disk again.
	hastenTime = 5 * time.Second
	// nobody is an id that no member has: etcd's are hashes, and raft keeps 0 for none.
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
func (s *space) keepWAL(ctx context.Context, disk *roomState) error {
	bound := walBound(disk)
	if names, err := s.dir.walFiles(); err != nil || len(names) <= bound {
		return err
	}
	if err := s.dir.purgeWAL(); err != nil {
		return err
	}
	if names, err := s.dir.walFiles(); err != nil || len(names) <= bound {
		return err
	}
	return s.hastenSnapshot(ctx)
}

// hastenSnapshot writes entries that change nothing, as many as are missing until etcd makes a snapshot. etcd's own way to
// ask for one may be called by etcd alone. In a cluster everybody's entries count for everybody: members that do this at
// once share the work. What isn't done within hastenTime is left to the next look, and so is everything while nobody leads.
func (s *space) hastenSnapshot(ctx context.Context) error {
	last, err := s.dir.lastSnapshot()
	for giveUp := time.Now().Add(hastenTime); err == nil && s.local.AppliedIndex() <= last+snapshotCount; {
		if s.cluster != nil && !s.cluster.led() || time.Now().After(giveUp) {
			return nil
		}
		err = s.idle(ctx)
	}
	if err != nil {
		return fmt.Errorf("shorten the WAL: %w", err)
	}
	return nil
}

// idle writes idleAtOnce entries that change nothing. Its error comes within answerTimeout.
func (s *space) idle(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	work, bounded := errgroup.WithContext(bounded)
	for range idleAtOnce {
		work.Go(func() error {
			cost := s.room.cost(0)
			if err := s.room.enter(bounded, cost, kv.Deletes); err != nil {
				return err
			}
			defer s.room.leave(cost)
			return s.alarm(bounded, nobody, pb.AlarmRequest_DEACTIVATE)
		})
	}
	return work.Wait()
}

// lastSnapshot returns the index of the last snapshot, the last entry that's in it, or 0.
func (d *dataDir) lastSnapshot() (last uint64, err error) {
	names, err := d.files().SnapshotFiles()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		var term, index uint64
		if _, err := fmt.Sscanf(filepath.Base(name), "%016x-%016x.snap", &term, &index); err != nil {
			return 0, fmt.Errorf("%s has no snapshot's name: %w", name, err)
		}
		last = max(last, index)
	}
	return last, nil
}

// allocateWAL allocates the WAL's last file and the next two. etcd writes a batch of entries whole before it begins
// the next file, so each file has space for a chunk past its end.
func (r *room) allocateWAL() error {
	names, err := r.dir.walFiles()
	if err != nil {
		return err
	}
	for _, path := range append(r.dir.nextWALFiles(), names[len(names)-1]) {
		if err := allocatePath(path, segmentBytes+r.chunk); err != nil {
			return err
		}
	}
	return nil
}

// walFiles returns the paths of the WAL's files, oldest first.
func (d *dataDir) walFiles() ([]string, error) {
	names, err := d.files().WALFiles()
	if err == nil && len(names) == 0 {
		err = &fs.PathError{Op: "open", Path: filepath.Join(d.files().WAL(), "*.wal"), Err: fs.ErrNotExist}
	}
	return names, err
}

// nextWALFiles returns the paths that etcd gives, in turn, to the files that it makes ahead for its WAL.
func (d *dataDir) nextWALFiles() []string {
	return []string{filepath.Join(d.files().WAL(), "0.tmp"), filepath.Join(d.files().WAL(), "1.tmp")}
}

// orderWAL renames the file that an earlier process made ahead, so that a start on a full disk has it: a new etcd
// process uses the first of the two names first.
func (d *dataDir) orderWAL() error {
	next := d.nextWALFiles()
	if exists(next[0]) || !exists(next[1]) {
		return nil
	}
	return os.Rename(next[1], next[0])
}

// purgeWAL removes the files of the WAL that etcd doesn't need any more. etcd does so itself twice a minute, which is
// late for a full disk. etcd locks the files that it uses, and doesn't come back to one that it has unlocked.
func (d *dataDir) purgeWAL() error {
	names, err := d.walFiles()
	if err != nil {
		return err
	}
	for len(names) > keptWALFiles {
		f, err := fileutil.TryLockFile(names[0], os.O_WRONLY, fileutil.PrivateFileMode)
		if err != nil {
			return nil // etcd uses it, or has just removed it
		}
		if err := errors.Join(os.Remove(names[0]), f.Close()); err != nil {
			return fmt.Errorf("remove what the WAL doesn't need: %w", err)
		}
		names = names[1:]
	}
	return nil
}
