package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"
	"go.etcd.io/etcd/server/v3/storage/schema"
)

// keeperInterval is how often the keeper looks. In a second a fast writer fills some 100 MB, which
// diskReserve allows for.
const keeperInterval = time.Second

// keeper is the one goroutine that keeps history and space within their bounds.
type keeper struct {
	local *etcdserver.EtcdServer
	dir   *dataDir
	log   *slog.Logger
	quota int64
	disk  func() (diskSpace, error) // statDisk of the directory; tests have their own

	base  time.Duration // the history's clock when this process began
	began time.Time

	mu      sync.Mutex // guards what follows
	history *history   // written by the keeper's goroutine alone
	counted int64      // the last revision whose bytes are in history
	short   bool       // history is shorter than asked and than shortHistory, because of the bounds
	lowDisk *diskSpace // set while the disk is why writes are refused

	// The keeper's goroutine alone:
	reclaimed int64 // the revision at which room was last made; 0 before
	settle    int   // looks until that shows in the database's figures
	complaint string
}

func newKeeper(local *etcdserver.EtcdServer, d *dataDir, o Options) (*keeper, error) {
	rev := local.KV().Rev()
	h, base, err := d.loadHistory(o, rev)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w", d.path, err)
	}
	return &keeper{
		local: local, dir: d, log: o.Log, quota: o.QuotaBytes,
		disk:    func() (diskSpace, error) { return statDisk(d.path) },
		base:    base,
		began:   time.Now(),
		history: h,
		// Changes since the last mark were counted by nobody, or are in history's bytes; the former are few.
		counted: rev,
	}, nil
}

// clock is the history's. time.Since is monotonic: it knows no jumps of the machine's clock.
func (k *keeper) clock() time.Duration { return k.base + time.Since(k.began) }

// run looks until ctx ends. Then, unless the server is ephemeral or broken, save leaves the marks.
func (k *keeper) run(ctx context.Context) {
	// A history of seconds, as in tests, needs a closer look.
	ticker := time.NewTicker(max(10*time.Millisecond, min(keeperInterval, k.history.keep/8)))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := errors.Join(k.keepSpace(ctx), k.keepHistory(ctx))
		if ctx.Err() == nil {
			k.complain(err)
		}
	}
}

// complain logs an error that wasn't there a look before.
func (k *keeper) complain(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.complaint {
		k.log.Error("the store can't be kept within its bounds; trying again every second", "err", err)
	}
	k.complaint = text
}

// keepHistory counts what was written, sets marks, and compacts.
func (k *keeper) keepHistory(ctx context.Context) error {
	at := k.clock()
	bytes, upTo := k.count()

	k.mu.Lock()
	h := k.history
	h.bytes += bytes
	k.counted = upTo
	marked := h.due(at) && h.set(upTo, at)
	revision := h.cut(at)
	k.noteShort(at, revision != 0)
	k.mu.Unlock()

	var err error
	if marked && !k.dir.ephemeral {
		err = k.save()
	}
	if revision != 0 {
		err = errors.Join(err, k.compact(ctx, revision, false))
	}
	return err
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

// countPage is how many changes are counted under one read of etcd's.
const countPage = 4096

// count adds up the changes that the backend shows after those counted before. etcd announces a
// revision a little before its backend shows it, so upTo is what was seen.
func (k *keeper) count() (bytes, upTo int64) {
	upTo = k.counted
	for upTo < k.local.KV().Rev() {
		from := mvcc.RevToBytes(mvcc.Revision{Main: upTo + 1}, mvcc.NewRevBytes())
		to := mvcc.RevToBytes(mvcc.Revision{Main: math.MaxInt64}, mvcc.NewRevBytes())
		tx := k.local.Backend().ConcurrentReadTx()
		tx.RLock()
		keys, values := tx.UnsafeRange(schema.Key, from, to, countPage)
		for i := range keys {
			bytes += int64(len(keys[i]) + len(values[i]))
		}
		n := len(keys)
		if n > 0 {
			upTo = mvcc.BytesToRev(keys[n-1]).Main
		}
		tx.RUnlock()
		if n < countPage {
			break
		}
	}
	return bytes, upTo
}

func (k *keeper) compact(ctx context.Context, revision int64, wait bool) error {
	_, err := k.local.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: wait})
	if errors.Is(err, mvcc.ErrCompacted) { // an earlier process got as far, but not to the file
		return nil
	}
	if err != nil {
		return fmt.Errorf("compact history up to revision %d: %w", revision, err)
	}
	return nil
}

// save writes the marks.
func (k *keeper) save() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.dir.saveHistory(k.history, k.clock()); err != nil {
		return fmt.Errorf("save the history's marks: %w", err)
	}
	return nil
}
