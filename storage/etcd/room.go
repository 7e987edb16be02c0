package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

const (
	// roomChunk is how many bytes of writes are let in between two allocations, and how many may be under way. Only
	// the WAL's next file is sure to be there, so a chunk must not need two: it is half of segmentBytes. On a disk
	// below smallDisk a chunk is smallChunk, which still holds the largest write.
	roomChunk  = segmentBytes / 2
	smallChunk = 2 << 20
	smallDisk  = 1 << 30
	// databaseChunks is how many chunks are allocated past the database's end: one for what is let in next, one for
	// what is under way, and two for the pages that a commit writes besides the values': those on the path from the
	// root, and neighbours, as a page has at least two keys.
	databaseChunks = 4
	// writeOverhead is what a write takes besides its key and value: framing, comparisons, its share of a page.
	writeOverhead = 512
	// pageOverhead is the most that one value leaves unused in the database's pages. A value smaller than that leaves
	// no more than its own size.
	pageOverhead = 8 << 10
	// lookInterval is how old the last look at the disk may be when a write is let in: a look takes some microseconds.
	// In that time a fast disk takes some ten megabytes. What is let in has its space already, so the reserve may be
	// touched by as much. For an ephemeral store nothing is allocated, and its disk may be memory: it looks more often.
	lookInterval          = 10 * time.Millisecond
	lookIntervalEphemeral = time.Millisecond
	// commitInterval is the longest time between two of etcd's commits: its own 100 ms, and a slow disk's time to
	// sync. Writes that were let in longer ago are in the database's size.
	commitInterval = 500 * time.Millisecond
)

// room decides which writes are let in: those whose space is already allocated, in the files that they'll go to. A
// write that meets a full disk ends etcd, as etcd can't know what reached the disk. So a write that was let in must
// never meet one, however fast others fill the disk.
//
// Space is allocated for one chunk of writes at a time: in the database, in the WAL's last file, and in its next two
// (etcd makes one of them ahead; room makes the other, and etcd then uses what it finds). The writer that finds the
// chunk used up allocates the next one, so no allocation can be late. The keeper does the same, so that an idle server
// notices a full disk.
//
// For an ephemeral store nothing is allocated, as that would take memory where temporary files are kept in memory.
// There, only the disk's free space counts.
type room struct {
	dir   *dataDir
	db    *database
	log   *slog.Logger
	disk  func() (diskSpace, error) // statDisk of the directory; tests have their own
	chunk int64
	every time.Duration // lookInterval, or an ephemeral store's

	underWay *semaphore.Weighted // chunk bytes: writes that etcd hasn't answered yet

	left   atomic.Int64 // bytes that may be let in before the next allocation
	looked atomic.Int64 // nanoseconds from began to the last look at the disk
	began  time.Time
	state  atomic.Pointer[roomState]

	// lock lets one goroutine look, allocate or rewrite at a time, and guards allocation. Whoever needs the next chunk
	// has to wait for the disk. It's a semaphore and no mutex, so that such a writer can give up.
	lock       *semaphore.Weighted
	allocation allocation

	told bool // the keeper's own: the log says that writes are refused
}

// allocation is what is allocated for the chunk of which writes are let in now. It stays zero for an ephemeral store.
type allocation struct {
	began time.Time   // when the chunk began
	known int64       // the database's size at that time: below it, everything is allocated
	file  os.FileInfo // the database's: defragmentation replaces the file
}

// roomState is what the last look found. It is never changed: the next look publishes another one.
type roomState struct {
	disk diskSpace
	full bool  // free space is below the reserve: nothing is let in that adds
	shut error // set if not even deletions can be let in
}

func newRoom(d *dataDir, db *database, log *slog.Logger) (*room, error) {
	r := &room{dir: d, db: db, log: log, chunk: roomChunk, every: lookInterval, began: time.Now(), lock: semaphore.NewWeighted(1)}
	if d.ephemeral {
		r.every = lookIntervalEphemeral
	}
	r.disk = func() (diskSpace, error) { return statDisk(d.path) }
	disk, err := r.disk()
	if err != nil {
		return nil, err
	}
	if disk.total < smallDisk {
		r.chunk = smallChunk
	}
	r.underWay = semaphore.NewWeighted(r.chunk)
	r.state.Store(&roomState{disk: disk}) // left is 0, so the first write looks and allocates
	return r, nil
}

// layer lets calls through for whose writes there's space. One that isn't let in fails with kv.Full.
func (r *room) layer(ctx context.Context, c kv.Call) error {
	if c.Kind == kv.Reads {
		return c.Send(ctx)
	}
	cost := r.cost(c.Bytes)
	if err := r.enter(ctx, cost, c.Kind); err != nil {
		return err
	}
	defer r.leave(cost)
	return c.Send(ctx)
}

// cost is the most that a write takes of the WAL, and the most that it takes of the database. bytes is the size of its
// keys and values.
func (r *room) cost(bytes int64) int64 {
	return min(bytes+min(bytes, pageOverhead)+writeOverhead, r.chunk)
}

// enter lets a write in, or says that there's no space for it. It waits while too much is under way, and while the next
// chunk is allocated, until ctx ends. When a write that was let in has been answered, leave must be called with the same
// cost.
func (r *room) enter(ctx context.Context, cost int64, kind kv.Kind) error {
	if err := r.underWay.Acquire(ctx, cost); err != nil {
		return err
	}
	for {
		s := r.state.Load()
		if s.refused() || r.stale() || r.left.Load() < cost {
			var err error
			if s, err = r.look(ctx, cost); err != nil {
				r.underWay.Release(cost)
				return err
			}
		}
		if err := s.refusal(kind); err != nil {
			r.underWay.Release(cost)
			return kv.Full{Reason: err}
		}
		if r.take(cost) {
			return nil
		}
	}
}

// take takes what a write costs from what may be let in. It's false if so much isn't left, because others were first.
func (r *room) take(cost int64) bool {
	for left := r.left.Load(); left >= cost; left = r.left.Load() {
		if r.left.CompareAndSwap(left, left-cost) {
			return true
		}
	}
	return false
}

func (r *room) leave(cost int64) { r.underWay.Release(cost) }

// stale reports whether the last look at the disk is too old to let a write in.
func (r *room) stale() bool { return int64(time.Since(r.began))-r.looked.Load() > int64(r.every) }

func (s *roomState) refused() bool { return s.full || s.shut != nil }

// refusal is why a write isn't let in; nil if it is.
//
// Clients get it, so it doesn't say where the server keeps its data: the log does (see tell).
func (s *roomState) refusal(kind kv.Kind) error {
	switch {
	case s.shut != nil:
		return fmt.Errorf("the server's disk is full, and not even deletions are safe (%w); free some space, and writes go on by themselves", ofSystem(s.shut))
	case s.full && kind == kv.Puts:
		return fmt.Errorf("the server's disk has %d MiB left and %d MiB are kept in reserve; free some space, and writes go on by themselves",
			s.disk.free>>20, s.disk.reserve()>>20)
	}
	return nil
}

// spaceLeft is a free space, in bytes, that is too little for anything.
type spaceLeft int64

func (s spaceLeft) Error() string { return fmt.Sprintf("%d KiB are left", int64(s)>>10) }

// ofSystem returns what the system says of a failure, or spaceLeft, and nothing of what was wrapped around that: it has names of
// files.
func ofSystem(err error) error {
	var system syscall.Errno
	var left spaceLeft
	switch {
	case errors.As(err, &left):
		return left
	case errors.As(err, &system):
		return system
	}
	return errors.New("the server's log says why")
}

// health is why writes are refused; nil if they aren't.
func (r *room) health() error { return r.state.Load().refusal(kv.Puts) }

// look looks at the disk, and allocates the next chunk if less than want bytes are left of this one. It publishes and
// returns what it found. The error is ctx's.
func (r *room) look(ctx context.Context, want int64) (*roomState, error) {
	if err := r.lock.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer r.lock.Release(1)
	before, now := r.state.Load(), &roomState{}
	now.disk, now.shut = r.disk()
	r.looked.Store(int64(time.Since(r.began)))
	if now.shut == nil {
		now.full = now.disk.low() || before.full && now.disk.stillLow()
		if r.left.Load() < want || before.shut != nil || r.dir.spent.Load() {
			now.shut = r.allocate()
		}
	}
	if now.shut == nil && now.disk.free < minFree {
		now.shut = spaceLeft(now.disk.free)
	}
	r.state.Store(now)
	return now, nil
}

// rewrite calls f, which replaces the database's file, and allocates the next chunk in the new one. Writes wait for
// it. The error is f's, or ctx's, and then f wasn't called.
func (r *room) rewrite(ctx context.Context, f func() error) error {
	if err := r.lock.Acquire(ctx, 1); err != nil {
		return err
	}
	defer r.lock.Release(1)
	r.left.Store(0)
	err := f()
	now := *r.state.Load()
	now.shut = r.allocate()
	r.state.Store(&now)
	return err
}

// allocate allocates the next chunk in the files that it will go to; lock must be held.
func (r *room) allocate() error {
	if !r.dir.ephemeral {
		if time.Since(r.allocation.began) < commitInterval {
			r.db.commit() // without it, the database's size lacks the writes that were let in last
		}
		if err := r.allocateDatabase(); err != nil {
			return err
		}
		if err := r.allocateWAL(); err != nil {
			return err
		}
		if err := r.dir.makeSpare(); err != nil {
			return err
		}
		r.allocation.began = time.Now()
	}
	r.left.Store(r.chunk)
	return nil
}

// allocateDatabase allocates what lies between the size that is known to be allocated and databaseChunks past the
// database's end; lock must be held.
func (r *room) allocateDatabase() error {
	f, err := os.OpenFile(r.dir.files().Database(), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(info, r.allocation.file) {
		r.allocation.file, r.allocation.known = info, 0
	}
	end := r.db.look().file + databaseChunks*r.chunk
	if err := allocate(f, r.allocation.known, end); err != nil {
		return err
	}
	r.allocation.known = min(end, info.Size()) // what is allocated past a file's end may be lost when it grows
	return nil
}

// allocatePath allocates a file's first bytes, and makes the file if it's missing.
func allocatePath(path string, bytes int64) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|disk.NoFollow, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(allocate(f, 0, bytes), f.Close())
}

// tell logs when writes have begun to be refused since it was last called, and when they are let in again. The keeper
// calls it after each of its looks, so that no writer waits for the log.
func (r *room) tell(found *roomState) {
	if r.told == found.refused() {
		return
	}
	r.told = found.refused()
	if r.told {
		r.log.Warn("writes are refused until there's space", "dir", r.dir.path, "error", found.refusal(kv.Puts), "cause", found.shut)
	} else {
		r.log.Info("there's space again: writes go on", "dir", r.dir.path, "free", found.disk.free)
	}
}
