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
	"go.etcd.io/etcd/server/v3/storage/backend"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

const (
	// keeperInterval is how often the keeper looks after history and space.
	keeperInterval = time.Second
	// minKeeperInterval is for histories of seconds, as in tests, which need a closer look.
	minKeeperInterval = 10 * time.Millisecond
	// looksPerHistory is how many looks there are at least in the time that history is kept.
	looksPerHistory = 8
	// diskInterval is how often it looks at the disk. A writer looks by itself; this is for those who ask
	// how an idle server is.
	diskInterval = 100 * time.Millisecond
)

// keeper is the one goroutine that keeps history and space within their bounds.
type keeper struct {
	local *etcdserver.EtcdServer
	be    backend.Backend // local's: only a snapshot from another member would replace it
	dir   *dataDir
	log   *slog.Logger
	quota int64
	room  *room
	floor atomic.Pointer[func() int64] // see Server.SetFloor; nil if there's none
	historyClock
	writeCount

	mu      sync.Mutex // guards what follows
	history *history   // written by the keeper's goroutine alone
	short   bool       // history is shorter than asked and than shortHistory, because of the bounds

	// The keeper's goroutine alone:
	compaction compaction
	relief     relief
	complaint  string // what was logged last; "" after a look at which nothing failed
}

// compaction is how far history is gone.
type compaction struct {
	wanted int64 // the revision up to which it has ended
	done   int64 // the revision up to which this process has compacted; 0 before
}

func newKeeper(local *etcdserver.EtcdServer, d *dataDir, o Options) (*keeper, error) {
	h, base, err := d.loadHistory(o, local.KV().Rev())
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	be := local.Backend()
	room, err := newRoom(d, be, o.Log)
	if err != nil {
		return nil, err
	}
	k := &keeper{
		local: local, be: be, dir: d, log: o.Log, quota: o.QuotaBytes, room: room, history: h,
		historyClock: historyClock{base: base, began: time.Now()},
		writeCount:   writeCount{writes: local.Watchable().NewWatchStream()},
	}
	return k, k.countWrites()
}

// historyClock is the time that servers ran on the directory.
type historyClock struct {
	base  time.Duration // when this process began
	began time.Time
}

// clock reads it. time.Since is monotonic: it knows no jumps of the machine's clock.
func (c *historyClock) clock() time.Duration { return c.base + time.Since(c.began) }

// run looks until ctx ends.
func (k *keeper) run(ctx context.Context) {
	interval := max(minKeeperInterval, min(keeperInterval, k.history.keep/looksPerHistory))
	ticker := time.NewTicker(min(diskInterval, interval))
	defer ticker.Stop()
	next := k.clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		disk := k.guardDisk()
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
		k.log.Error("the store can't be kept within its bounds; trying again", "err", err)
	}
}

// keepHistory adds what was written, sets marks, and compacts.
func (k *keeper) keepHistory(ctx context.Context) error {
	at, now := k.clock(), k.local.KV().Rev()
	k.mu.Lock()
	h := k.history
	h.bytes += k.written.Swap(0)
	marked := h.due(at) && h.set(now, at)
	revision := h.cut(at)
	k.noteShort(at, revision != 0)
	k.mu.Unlock()

	var err error
	if marked && !k.dir.ephemeral && k.room.state.Load().shut == nil { // on a full disk the next mark's turn will do
		err = k.save()
	}
	k.compaction.wanted = max(k.compaction.wanted, revision)
	return errors.Join(err, k.compact(ctx, false))
}

// noteShort logs when a cut made history shorter than anybody expects. It needs the lock.
func (k *keeper) noteShort(at time.Duration, cut bool) {
	age := k.history.age(at)
	enough := min(shortHistory, k.history.keep)
	switch {
	case age >= enough:
		k.short = false
	case cut && !k.short:
		k.short = true
		k.log.Warn("history is short: more is written than its bounds allow, so watches that were away for longer can't resume",
			"kept", age.Round(time.Second), "wanted", k.history.keep, "maxBytes", k.history.maxBytes)
	}
}

// writeCount counts the bytes of changes.
type writeCount struct {
	writes  mvcc.WatchStream
	written atomic.Int64 // not in history's count yet
}

// countWrites counts what is written from now on, until the stream is closed. It is a watcher that keeps
// no event, so that it never falls behind. Reading the changes back a second later would do as well, but
// it made all of them resident.
func (c *writeCount) countWrites() error {
	count := func(e *mvccpb.Event) bool {
		c.written.Add(int64(len(e.Kv.Key) + len(e.Kv.Value)))
		return true // drop the event
	}
	all, toTheEnd := []byte{0}, []byte{}
	_, err := c.writes.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, count)
	return err
}

// compact drops the history that has ended, as far as the floor lets it: the rest waits for the next look.
// With wait it returns when the database has dropped it too.
func (k *keeper) compact(ctx context.Context, wait bool) error {
	revision := k.compaction.wanted
	if floor := k.floor.Load(); floor != nil {
		revision = min(revision, (*floor)())
	}
	if revision <= k.compaction.done || k.room.state.Load().shut != nil { // a compaction rewrites pages before it frees any
		return nil
	}
	_, err := k.local.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: wait})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an earlier process got as far, but not to the file
		return fmt.Errorf("compact history up to revision %d: %w", revision, err)
	}
	k.compaction.done = revision
	return nil
}

// save writes the marks. A kill loses the count of what was written since: at most a sixty-fourth.
func (k *keeper) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.history.bytes += k.written.Swap(0)
	if err := k.dir.saveHistory(k.history, k.clock()); err != nil {
		return fmt.Errorf("save the history's marks: %w", err)
	}
	return nil
}
