package etcd

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/pkg/v3/types"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

// Space ends for one of two reasons. The disk is full: then room refuses writes. Or the database has reached its quota:
// then etcd raises an alarm, and puts fail with ErrNoSpace while reads and deletions go on. The keeper makes room in
// both cases, and takes the alarm back.

const (
	// diskReserve is the free space below which puts are refused. It is for the small files that aren't allocated
	// ahead (etcd's snapshots, and ours), and for the disk's other users.
	diskReserve = 256 << 20
	// diskReserveShare bounds the reserve on small disks: to an eighth of the disk.
	diskReserveShare = 8
	// returnShare says how much must be free beyond the reserve before puts go on: an eighth of the reserve. Without
	// that they would be refused and let in by turns.
	returnShare = 8
	// minFree is the free space below which not even deletions are let in, so that etcd's next snapshot has space: some
	// kilobytes after each snapshotCount entries.
	minFree = 1 << 20
)

// Shares of the quota.
const (
	// quotaShares is how many shares make the quota.
	quotaShares = 20
	// relieveShares is how much of the quota may be in use before history is cut: a fifth is left for what is written
	// until the database has been compacted and rewritten.
	relieveShares = 16
	// enoughShares is how large the database may be for puts to go on after the quota was reached. It is a share less
	// than the quota, so that the alarm isn't raised again at once.
	enoughShares = 19
	// historyShares is the share of the quota that history must exceed to be cut: a twentieth. Less isn't what fills the
	// database.
	historyShares = 1
)

// worthShare is for a full disk: the database is rewritten for it only if that gives back at least a quarter of the
// reserve.
const worthShare = 4

// defragSpare is what must stay free besides the new file while the database is rewritten: the file grows in steps of
// 16 MiB.
const defragSpare = 32 << 20

// settleTime is how long each look forces a commit after a compaction. bbolt counts a page as free only when a later
// commit finds that nobody reads it; on an idle server there would be no later commit.
const settleTime = 4 * time.Second

const (
	// settleWait is how long a rewrite waits for the reader of history. That lacks some milliseconds of writes.
	settleWait = time.Second
	settlePoll = time.Millisecond
)

// diskSpace is what a file system has, in bytes.
type diskSpace struct{ free, total int64 }

func statDisk(path string) (diskSpace, error) {
	free, total, err := disk.Space(path)
	if err != nil {
		return diskSpace{}, fmt.Errorf("free space of %s: %w", path, err)
	}
	return diskSpace{free: free, total: total}, nil
}

func (d diskSpace) reserve() int64 { return min(diskReserve, d.total/diskReserveShare) }

// low reports whether puts have to be refused.
func (d diskSpace) low() bool { return d.free < d.reserve() }

// stillLow is low after a refusal, when more must be free.
func (d diskSpace) stillLow() bool { return d.free < d.enough() }

// enough is what must be free for puts to go on after a refusal.
func (d diskSpace) enough() int64 { return d.reserve() + d.reserve()/returnShare }

// space keeps the database, and what etcd has on disk, within their bounds. The keeper's goroutine does that.
type space struct {
	*past
	database *database
	quota    int64
	alarms   alarms
	relief   relief
}

// guardDisk looks at the disk, and allocates the next chunk when half of this one is used, so that writers seldom have
// to do it. The error is ctx's.
func (s *space) guardDisk(ctx context.Context) (*roomState, error) {
	found, err := s.room.look(ctx, s.room.chunk/2)
	if err == nil {
		s.room.tell(found)
	}
	return found, err
}

// keepSpace makes room if writes are refused. Otherwise it cuts history if the database is near its quota.
func (s *space) keepSpace(ctx context.Context, disk *roomState) error {
	s.noteAlarms()
	if disk.shut != nil {
		return nil // making room begins with writes
	}
	if err := s.keepWAL(ctx, disk); err != nil {
		return err
	}
	switch {
	case disk.full || s.alarms.noSpace.Load():
		return s.makeRoom(ctx, disk)
	}
	s.relief.reclaimed, s.relief.short = 0, false
	return s.relieve(ctx)
}

// relieve halves history if the database is near its quota and history is what fills it: only live objects, never
// history, should exhaust the quota.
func (s *space) relieve(ctx context.Context) error {
	if s.database.look().inUse < s.quota/quotaShares*relieveShares {
		return nil
	}
	s.cutHistory(0, func(m *marks, now history.Mark) storage.Revision {
		if m.size() <= s.quota/quotaShares*historyShares {
			return 0
		}
		return m.list.Halve(now)
	})
	return s.compact(ctx, true)
}

// relief is what the keeper has done to make room.
type relief struct {
	reclaimed   int64         // the revision up to which history was dropped for room; 0 before
	compacted   int64         // the compacted revision at the last look
	commitUntil time.Duration // until then each look forces a commit: see settleTime
	short       bool          // there was something to make room for at the last look
}

// makeRoom frees what can be freed while writes are refused, and takes the alarm back if that was enough for the quota.
// For a full disk history isn't dropped: something else may have filled the disk.
func (s *space) makeRoom(ctx context.Context, disk *roomState) error {
	if !s.relief.short {
		s.relief.short = true
		s.cutReaders()
	}
	if disk.full {
		if err := s.dir.purgeWAL(); err != nil {
			return err
		}
	}
	enough := s.quota / quotaShares * enoughShares
	if rev := s.local.KV().Rev(); s.database.look().file >= enough && s.relief.reclaimed != rev {
		if err := s.dropHistory(ctx, rev); err != nil {
			return err
		}
		s.relief.reclaimed = rev
	}
	if c := s.local.KV().FirstRev(); c != s.relief.compacted {
		s.relief.compacted, s.relief.commitUntil = c, s.marks.clock()+settleTime
	}
	if s.marks.clock() < s.relief.commitUntil {
		s.database.commit()
	}
	if worth := s.worthRewriting(disk, enough); worth && s.database.read() {
		s.cutReaders()
	} else if worth {
		if err := s.rewrite(ctx); err != nil {
			return err
		}
	}
	if !s.alarms.noSpace.Load() {
		return nil
	}
	return s.takeBackAlarms(ctx, enough)
}

// cutReaders cuts those off who read a Snapshot, when space runs short while they read, or the database can't be written anew beside them. Who
// begins while space is short may read otherwise, because a backup is wanted most then.
func (s *space) cutReaders() {
	if s.database.read() {
		s.log.Warn("snapshots that are being read are cut off: they keep space that the store needs", "dir", s.dir.path)
		s.database.cut()
	}
}

// rewrite writes the database anew. Nothing reads it meanwhile, so first the reader of history gets what it would have to
// read there: then consistent reads, which wait for that reader, go on (see settle).
func (s *space) rewrite(ctx context.Context) error {
	return s.room.rewrite(ctx, func() error {
		s.settle(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		return s.database.rewrite()
	})
}

// settle returns when everything that raft has committed is applied and the reader of history has it, or after settleWait:
// with other members that write there's always more. This member lets no writes in meanwhile.
func (s *space) settle(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, settleWait)
	defer cancel()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	floor := s.floor.Load()
	for s.local.AppliedIndex() < s.local.CommittedIndex() || floor != nil && int64((*floor)()) < s.local.KV().Rev() {
		select {
		case <-bounded.Done():
			return
		case <-tick.C:
		}
	}
}

// takeBackAlarms takes this member's alarm back if its database is smaller than enough, and the alarms of members that have
// been removed. The others do that themselves.
func (s *space) takeBackAlarms(ctx context.Context, enough int64) error {
	bounded, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	for _, a := range s.database.alarms(s.cluster != nil) {
		id := types.ID(a.MemberID)
		mine := id == s.local.MemberID() && s.database.look().file < enough
		if a.Alarm != pb.AlarmType_NOSPACE || !mine && s.local.Cluster().Member(id) != nil {
			continue
		}
		if err := s.alarm(bounded, id, pb.AlarmRequest_DEACTIVATE); err != nil {
			return err
		}
	}
	if s.noteAlarms(); !s.alarms.noSpace.Load() {
		s.log.Info("the database is below its quota again: writes go on", "database_bytes", s.database.size().file, "quota", s.quota)
	}
	return nil
}

// worthRewriting reports whether rewriting the database would give enough space back, and the new file has space next
// to the old one. The database's file shrinks only by that.
func (s *space) worthRewriting(disk *roomState, enough int64) bool {
	size, d := s.database.look(), disk.disk
	unused := size.file - size.inUse
	forQuota := size.file >= enough && size.inUse < enough
	forDisk := disk.full && (unused >= d.reserve()/worthShare || d.free < d.enough() && d.free+unused >= d.enough())
	return (forQuota || forDisk) && d.free > size.inUse+defragSpare
}

// dropHistory compacts everything up to rev, the current revision.
func (s *space) dropHistory(ctx context.Context, rev int64) error {
	s.cutHistory(rev, func(m *marks, now history.Mark) storage.Revision {
		m.list = history.Marks{now}
		return now.Revision
	})
	return s.compact(ctx, true)
}

// alarms are those of etcd's alarms that were raised at the keeper's last look. Health reads them here: etcd holds its
// own list's lock while it writes an alarm to the database, which takes as long as the disk does.
type alarms struct {
	noSpace atomic.Bool // the quota is reached
	corrupt atomic.Bool
}

// noteAlarms reads what is raised. It may wait for the disk.
func (s *space) noteAlarms() {
	var noSpace, corrupt bool
	for _, a := range s.database.alarms(s.cluster != nil) {
		noSpace = noSpace || a.Alarm == pb.AlarmType_NOSPACE
		corrupt = corrupt || a.Alarm == pb.AlarmType_CORRUPT
	}
	s.alarms.noSpace.Store(noSpace)
	s.alarms.corrupt.Store(corrupt)
}

func (s *space) alarm(ctx context.Context, of types.ID, action pb.AlarmRequest_AlarmAction) error {
	_, err := s.local.Alarm(ctx, &pb.AlarmRequest{MemberID: uint64(of), Action: action, Alarm: pb.AlarmType_NOSPACE})
	if err != nil {
		return fmt.Errorf("%v the no-space alarm of member %v: %w", action, of, err)
	}
	return nil
}

// health is nil, or says why writes fail. It waits for nothing: it reads what was published.
func (s *space) health() error {
	if s.alarms.corrupt.Load() {
		return fmt.Errorf("the store in %s is corrupt: restore it from a backup", s.dir.path)
	}
	if err := s.room.health(); err != nil {
		return fmt.Errorf("writes are refused: %w", err)
	}
	if s.alarms.noSpace.Load() {
		return fmt.Errorf("writes are refused: the database has %d MiB and its quota is %d MiB; delete objects, and writes go on by themselves",
			s.database.size().file>>20, s.quota>>20)
	}
	return nil
}
