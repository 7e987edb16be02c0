package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

const (
	// keeperInterval is how often the keeper looks after history and space. In a second a fast writer adds some ten
	// megabytes, which is little of the quota.
	keeperInterval = time.Second
	// minKeeperInterval bounds how often it looks when history is kept for seconds only, as in tests.
	minKeeperInterval = 10 * time.Millisecond
	// looksPerHistory is how often it looks, at least, in the time that history is kept: so history of a few seconds is kept
	// at most an eighth longer than asked.
	looksPerHistory = 8
	// diskInterval is how often it looks at the disk, so that Health is right on an idle server. Writers look at the
	// disk by themselves.
	diskInterval = 100 * time.Millisecond
)

// keeper keeps history and space within their bounds. Its work is done by one goroutine: see run.
type keeper struct {
	local    *etcdserver.EtcdServer
	database *database
	dir      *dataDir
	log      *slog.Logger
	quota    int64
	room     *room
	cluster  *cluster // nil for a store of one member without a port
	marks    *marks
	reader
	writeCount
	alarms alarms

	// The keeper's goroutine alone:
	compaction compaction
	relief     relief
	complaint  string // what was logged last; "" after a look at which nothing failed
}

// reader is who reads history.
type reader struct {
	floor atomic.Pointer[func() storage.Revision] // see Server.SetFloor; nil if there's none
	tell  atomic.Pointer[func(storage.Revision)]  // see Server.SetCompacted; nil if nobody wants to know
}

// compaction says how far history is dropped.
type compaction struct {
	wanted storage.Revision // up to which history has ended
	done   storage.Revision // up to which this process has compacted; 0 before
}

func newKeeper(s *Server, o Options) (*keeper, error) {
	local, d := s.Local, s.dir
	m, err := d.loadMarks(o, local.KV().Rev())
	if err != nil {
		return nil, err
	}
	db := newDatabase(local, &s.snapshots)
	room, err := newRoom(d, db, o.Log)
	if err != nil {
		return nil, err
	}
	k := &keeper{
		local: local, database: db, dir: d, log: o.Log, quota: o.QuotaBytes, room: room, marks: m, cluster: s.cluster,
		writeCount: writeCount{writes: local.Watchable().NewWatchStream(), of: s.snapshots.Load()},
	}
	k.noteAlarms()
	return k, k.countWrites()
}

// run looks at the disk, at space and at history, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	interval := max(minKeeperInterval, min(keeperInterval, k.marks.keep.Age/looksPerHistory))
	ticker := time.NewTicker(min(diskInterval, interval))
	defer ticker.Stop()
	next := k.marks.clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		k.database.look()
		disk, err := k.guardDisk(ctx)
		if err != nil {
			return // ctx has ended
		}
		if at := k.marks.clock(); at >= next {
			next = at + interval
			err := errors.Join(k.keepSpace(ctx, disk), k.keepHistory(ctx))
			if ctx.Err() == nil {
				k.complain(err)
			}
		}
	}
}

// complain logs an error, unless the last look had the same one.
func (k *keeper) complain(err error) {
	if err == nil {
		k.complaint = ""
		return
	}
	if text := err.Error(); text != k.complaint {
		k.complaint = text
		k.log.Error("the store can't be kept within its bounds; trying again", "error", err)
	}
}

// keepHistory counts what was written, sets marks, and compacts.
func (k *keeper) keepHistory(ctx context.Context) error {
	if err := k.recount(k.database.snapshots.Load()); err != nil {
		return err
	}
	marked := false
	k.cutHistory(k.local.KV().Rev(), func(m *marks, now history.Mark) storage.Revision {
		marked = m.list.Note(now, m.keep)
		return m.list.Cut(now, m.keep)
	})
	var err error
	if marked && !k.dir.ephemeral && k.room.state.Load().shut == nil { // on a full disk the next mark is early enough
		err = k.save()
	}
	return errors.Join(err, k.compact(ctx))
}

// cutHistory calls cut with the marks and the store's state, under the lock. cut returns the revision up to which history has
// ended, or 0; the next compaction goes as far. A cut that makes history shorter than anybody expects is logged, once
// until history is long enough again.
func (k *keeper) cutHistory(revision int64, cut func(m *marks, now history.Mark) storage.Revision) {
	m := k.marks
	m.mu.Lock()
	m.bytes += k.written.Swap(0)
	ended := cut(m, m.now(revision))
	age, was := m.age(), m.short
	m.short = age < m.enough() && (was || ended != 0)
	becameShort := m.short && !was
	m.mu.Unlock()
	k.compaction.wanted = max(k.compaction.wanted, ended)
	if becameShort {
		k.log.Warn("history is short: more is written than its bounds allow, so watches that were away for longer can't resume",
			"kept", age.Round(time.Second), "wanted", m.keep.Age, "max_bytes", m.keep.Bytes)
	}
}

// writeCount counts the bytes of changes.
type writeCount struct {
	writes  mvcc.WatchStream
	watch   mvcc.WatchID
	of      int64        // Server.snapshots when the watch began
	written atomic.Int64 // bytes that the marks don't count yet
}

// countWrites counts what is written from now on, until the stream is closed. It watches all keys with a filter that
// counts each event and drops it. So no event ever waits for a reader. Reading the changes once a second instead would
// bring all of them into memory.
func (c *writeCount) countWrites() error {
	count := func(e *mvccpb.Event) bool {
		c.written.Add(int64(len(e.Kv.Key) + len(e.Kv.Value)))
		return true // drop the event
	}
	all, toTheEnd := []byte{0}, []byte{}
	var err error
	c.watch, err = c.writes.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, count)
	return err
}

// recount begins anew if another member's snapshot has replaced the database: etcd may have ended the watch. What was
// written between the two databases isn't counted.
func (c *writeCount) recount(snapshots int64) error {
	if c.of == snapshots {
		return nil
	}
	c.of = snapshots
	_ = c.writes.Cancel(c.watch)
	for { // etcd's notice that the watch has ended has no other reader
		select {
		case _, open := <-c.writes.Chan():
			if open {
				continue
			}
		default:
		}
		return c.countWrites()
	}
}

// compact drops the history that has ended, but not past the floor: the rest waits for the next look. The database
// drops it later, in etcd's own time.
func (k *keeper) compact(ctx context.Context) error {
	return k.requestCompaction(ctx, &pb.CompactionRequest{})
}

// compactAndWait does what compact does, and returns when the database has dropped that history too.
func (k *keeper) compactAndWait(ctx context.Context) error {
	return k.requestCompaction(ctx, &pb.CompactionRequest{Physical: true})
}

func (k *keeper) requestCompaction(ctx context.Context, r *pb.CompactionRequest) error {
	if k.cluster != nil && !k.cluster.leads() {
		return nil // the leader does it for all members
	}
	upTo := k.compaction.wanted
	if floor := k.floor.Load(); floor != nil {
		upTo = min(upTo, (*floor)())
	}
	if upTo <= k.compaction.done || k.room.state.Load().shut != nil { // a compaction rewrites pages before it frees any
		return nil
	}
	r.Revision = int64(upTo)
	_, err := k.local.Compact(ctx, r)
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an earlier process compacted as far, and was killed before it saved its marks
		return fmt.Errorf("compact history up to revision %d: %w", upTo, err)
	}
	k.compaction.done = upTo
	if tell := k.tell.Load(); tell != nil {
		(*tell)(upTo)
	}
	return nil
}

// save writes the marks to their file. It is called by one goroutine at a time: Open, then the keeper, then Close.
// A kill loses the count of what was written since: at most a sixty-fourth of the history's bytes.
func (k *keeper) save() error {
	k.marks.mu.Lock()
	k.marks.bytes += k.written.Swap(0)
	k.marks.mu.Unlock()
	return k.dir.save(k.marks)
}
