package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage/age"
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
	deciders
	historyClock
	writeCount
	alarms alarms

	mu    sync.Mutex // guards marks; nothing waits while it's held
	marks *marks     // written by the keeper's goroutine alone

	// The keeper's goroutine alone:
	compaction compaction
	relief     relief
	complaint  string // what was logged last; "" after a look at which nothing failed
}

// deciders are what others say about compaction, and who hears of it.
type deciders struct {
	floor atomic.Pointer[func() int64] // see Server.SetFloor; nil if there's none
	acts  atomic.Pointer[func() bool]  // see Server.SetActs; nil if this process always does
	tell  atomic.Pointer[func(int64)]  // see Server.SetCompacted; nil if nobody wants to know
}

// compaction says how far history is dropped.
type compaction struct {
	wanted int64 // the revision up to which history has ended
	done   int64 // the revision up to which this process has compacted; 0 before
}

func newKeeper(s *Server, o Options) (*keeper, error) {
	local, d := s.Local, s.dir
	m, base, err := d.loadMarks(o, local.KV().Rev())
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	db := newDatabase(local, &s.snapshots)
	room, err := newRoom(d, db, o.Log)
	if err != nil {
		return nil, err
	}
	k := &keeper{
		local: local, database: db, dir: d, log: o.Log, quota: o.QuotaBytes, room: room, marks: m, cluster: s.cluster,
		historyClock: historyClock{at: base, last: time.Now()},
		writeCount:   writeCount{writes: local.Watchable().NewWatchStream(), of: s.snapshots.Load()},
	}
	k.noteAlarms()
	return k, k.countWrites()
}

// historyClock counts the time that servers ran on the directory.
type historyClock struct {
	clockMu sync.Mutex // guards the rest; a leaf
	at      time.Duration
	last    time.Time // when it was at that
}

// maxClockStep is what the clock counts at most between two reads: many times diskInterval, since the keeper reads it that
// often unless a disk hangs. A pause of the machine that no clock of the process noticed is no longer than that.
const maxClockStep = time.Minute

// clock reads it. Jumps of the machine's clock don't change it (see age.Step).
func (c *historyClock) clock() time.Duration { return c.read(time.Now()) }

func (c *historyClock) read(now time.Time) time.Duration {
	c.clockMu.Lock()
	defer c.clockMu.Unlock()
	c.at, c.last = c.at+age.Step(c.last, now, maxClockStep), now
	return c.at
}

// run looks at the disk, at space and at history, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	interval := max(minKeeperInterval, min(keeperInterval, k.marks.keep/looksPerHistory))
	ticker := time.NewTicker(min(diskInterval, interval))
	defer ticker.Stop()
	next := k.clock()
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
		if at := k.clock(); at >= next {
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
	now, marked := k.local.KV().Rev(), false
	k.cutHistory(func(m *marks, at time.Duration) int64 {
		m.bytes += k.written.Swap(0)
		marked = m.due(at) && m.set(now, at)
		return m.cut(at)
	})
	var err error
	if marked && !k.dir.ephemeral && k.room.state.Load().shut == nil { // on a full disk the next mark is early enough
		err = k.save()
	}
	return errors.Join(err, k.compact(ctx))
}

// cutHistory calls cut with the marks and the clock, under the lock. cut returns the revision up to which history has
// ended, or 0; the next compaction goes as far. A cut that makes history shorter than anybody expects is logged, once
// until history is long enough again.
func (k *keeper) cutHistory(cut func(m *marks, at time.Duration) int64) {
	at := k.clock()
	k.mu.Lock()
	m := k.marks
	revision := cut(m, at)
	age, was := m.age(at), m.short
	m.short = age < m.enough() && (was || revision != 0)
	becameShort := m.short && !was
	k.mu.Unlock()
	k.compaction.wanted = max(k.compaction.wanted, revision)
	if becameShort {
		k.log.Warn("history is short: more is written than its bounds allow, so watches that were away for longer can't resume",
			"kept", age.Round(time.Second), "wanted", m.keep, "max_bytes", m.maxBytes)
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
	if acts := k.acts.Load(); acts != nil && !(*acts)() {
		return nil // whoever acts does it for all members
	}
	r.Revision = k.compaction.wanted
	if floor := k.floor.Load(); floor != nil {
		r.Revision = min(r.Revision, (*floor)())
	}
	if r.Revision <= k.compaction.done || k.room.state.Load().shut != nil { // a compaction rewrites pages before it frees any
		return nil
	}
	_, err := k.local.Compact(ctx, r)
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an earlier process compacted as far, and was killed before it saved its marks
		return fmt.Errorf("compact history up to revision %d: %w", r.Revision, err)
	}
	k.compaction.done = r.Revision
	if tell := k.tell.Load(); tell != nil {
		(*tell)(r.Revision)
	}
	return nil
}

// save writes the marks to their file. It is called by one goroutine at a time: Open, then the keeper, then Close.
// A kill loses the count of what was written since: at most a sixty-fourth of the history's bytes.
func (k *keeper) save() error {
	k.mu.Lock()
	k.marks.bytes += k.written.Swap(0)
	file := k.marks.file(k.clock())
	k.mu.Unlock()
	if err := k.dir.saveMarks(file); err != nil {
		return fmt.Errorf("save the history's marks: %w", err)
	}
	return nil
}
