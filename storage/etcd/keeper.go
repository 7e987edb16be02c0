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
)

const (
	// keeperInterval is how often the keeper looks after history and space.
	keeperInterval = time.Second
	// diskInterval is how often it looks at the disk alone: a fast writer fills 100 MB in a second.
	diskInterval = 100 * time.Millisecond
)

// keeper is the one goroutine that keeps history and space within their bounds.
type keeper struct {
	local *etcdserver.EtcdServer
	dir   *dataDir
	log   *slog.Logger
	quota int64
	disk  func() (diskSpace, error) // statDisk of the directory; tests have their own
	floor atomic.Pointer[func() int64]

	base  time.Duration // the history's clock when this process began
	began time.Time

	writes  mvcc.WatchStream
	written atomic.Int64 // bytes of changes that aren't in history's count yet

	mu      sync.Mutex // guards what follows
	history *history   // written by the keeper's goroutine alone
	short   bool       // history is shorter than asked and than shortHistory, because of the bounds
	lowDisk *diskSpace // set while the disk is why writes are refused

	// The keeper's goroutine alone:
	wanted    int64 // the revision up to which history has ended, and is to be compacted
	dropped   int64 // the revision up to which this process has compacted; 0 before
	reclaimed int64 // the revision up to which history was dropped for room; 0 before
	compacted int64 // the compacted revision at the last look for room
	settle    int   // looks until that shows in the database's figures
	complaint string
}

func newKeeper(local *etcdserver.EtcdServer, d *dataDir, o Options) (*keeper, error) {
	h, base, err := d.loadHistory(o, local.KV().Rev())
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	k := &keeper{
		local: local, dir: d, log: o.Log, quota: o.QuotaBytes,
		disk:    func() (diskSpace, error) { return statDisk(d.path) },
		base:    base,
		began:   time.Now(),
		writes:  local.Watchable().NewWatchStream(),
		history: h,
	}
	return k, k.countWrites()
}

// clock is the history's. time.Since is monotonic: it knows no jumps of the machine's clock.
func (k *keeper) clock() time.Duration { return k.base + time.Since(k.began) }

// run looks until ctx ends.
func (k *keeper) run(ctx context.Context) {
	// A history of seconds, as in tests, needs a closer look.
	interval := max(10*time.Millisecond, min(keeperInterval, k.history.keep/8))
	ticker := time.NewTicker(min(diskInterval, interval))
	defer ticker.Stop()
	next := k.clock()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		disk, err := k.guardDisk(ctx)
		if at := k.clock(); at >= next && err == nil {
			next = at + interval
			err = errors.Join(k.keepSpace(ctx, disk), k.keepHistory(ctx))
		}
		if ctx.Err() == nil && err != nil {
			k.complain(err)
		}
	}
}

// complain logs an error that isn't the last one again.
func (k *keeper) complain(err error) {
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
	if marked && !k.dir.ephemeral {
		err = k.save()
	}
	k.wanted = max(k.wanted, revision)
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

// countWrites counts what is written from now on, until the stream is closed. It is a watcher that keeps
// no event, so that it never falls behind. Reading the changes back a second later would do as well, but
// it made all of them resident.
func (k *keeper) countWrites() error {
	count := func(e *mvccpb.Event) bool {
		k.written.Add(int64(len(e.Kv.Key) + len(e.Kv.Value)))
		return true // drop the event
	}
	all, toTheEnd := []byte{0}, []byte{}
	_, err := k.writes.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, count)
	return err
}

// compact drops the history that has ended, as far as the floor lets it: the rest waits for the next look.
// With wait it returns when the database has dropped it too.
func (k *keeper) compact(ctx context.Context, wait bool) error {
	revision := k.wanted
	if floor := k.floor.Load(); floor != nil {
		revision = min(revision, (*floor)())
	}
	if revision <= k.dropped {
		return nil
	}
	_, err := k.local.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: wait})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an earlier process got as far, but not to the file
		return fmt.Errorf("compact history up to revision %d: %w", revision, err)
	}
	k.dropped = revision
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
