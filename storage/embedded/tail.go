package embedded

import (
	"context"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// tail hands over what is being written, from memory. It needs no read of etcd's database, whose locks are held
// during every sync and defragmentation.
//
// The tail is an etcd watch over all keys. Such a watch alone can't keep up with a fast writer: its channel holds 128
// responses, and etcd feeds a watcher that filled it from a slow loop that reads everything again. So a filter drops
// the events that have no room in the channel, and Follow reads those from etcd's index of revisions.
type tail struct {
	announced storage.Watermark         // the newest revision that etcd has announced
	waiting   atomic.Int64              // bytes of keys and values in responses
	dropped   chan struct{}             // capacity 1: one pending signal is enough, the index has what was dropped
	responses <-chan mvcc.WatchResponse // etcd's; closed by stream.Close. If nobody reads, filter drops
	stream    mvcc.WatchStream
	once      sync.Once

	// snapshots is how many databases of other members had taken the place of this one's when the watch began, at least: what
	// came with those is announced. It's written with lock held.
	snapshots atomic.Int64
	// lock guards watch. Its capacity is 1: whoever has put a value in holds it. It's no mutex, so that whoever waits for it
	// can give up: it's held while a watch begins, which waits for the locks of etcd's database, and so for its disk. No lock
	// of etcd's is held when it's taken, and the filter doesn't take it.
	lock  chan struct{}
	watch mvcc.WatchID

	// The filter's own. Etcd calls it under a lock of etcd's.
	newest int64 // the revision of the last event
	full   bool  // that revision had no room

	// The reader's own.
	through storage.Revision // up to here the reader has to read the index
	ended   mvcc.WatchID     // the watch that etcd has ended, if told is set
	told    bool             // etcd has ended a watch, and the reader hasn't looked yet whether there's a new one

	current func() storage.Revision // the newest revision that can be read from the index
}

// maxTailBytes bounds what waits in the tail: the channel alone would let 128 objects of the largest size wait, which
// are 192 MiB.
const maxTailBytes = 8 << 20

// open begins to watch. What was written before is read from the index. On an error nothing stays open.
func (t *tail) open(w mvcc.Watchable, current func() storage.Revision) error {
	t.dropped = make(chan struct{}, 1)
	t.stream = w.NewWatchStream()
	t.responses = t.stream.Chan()
	t.current = current
	t.lock = make(chan struct{}, 1) // begin doesn't hold it here: nobody else has the tail yet
	if err := t.begin(); err != nil {
		t.close()
		return err
	}
	t.readIndex()
	return nil
}

// acquire takes the lock, which unlock gives back. The error is ctx's.
func (t *tail) acquire(ctx context.Context) error {
	select {
	case t.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *tail) unlock() { <-t.lock }

// begin watches from now on. What was written before is read from the index. lock must be held, except in open.
func (t *tail) begin() (err error) {
	all, toTheEnd := []byte{0}, []byte{}
	if t.watch, err = t.stream.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, t.filter); err != nil {
		return err
	}
	t.announced.Raise(t.current())
	return nil
}

// noteRestore begins to watch anew if another member's database has taken the place of etcd's since it last did; snapshots
// counts those. Such a database has writes that no watch has announced: the reader has to read them from the index. And after
// it etcd tells a watch that was there before nothing until a loop of etcd's, which runs every 100 ms, has taken it up again.
// To watch anew waits for the database's locks, which know no context. So a goroutine does that, and ctx ends only the waiting
// for it.
func (t *tail) noteRestore(ctx context.Context, snapshots int64) error {
	if t.snapshots.Load() >= snapshots {
		return nil
	}
	if err := t.acquire(ctx); err != nil {
		return err
	}
	if t.snapshots.Load() >= snapshots { // another reader was first
		t.unlock()
		return nil
	}
	done := make(chan error, 1) // capacity 1: nobody may wait any more
	go func() {
		defer t.unlock() // close waits for that
		err := t.renew()
		if err == nil {
			t.snapshots.Store(snapshots) // after announced was raised: who sees it relies on that
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// noteEnd watches anew if etcd has ended the watch. The error is ctx's, after which the next call does it, or etcd's.
func (t *tail) noteEnd(ctx context.Context) error {
	if !t.told {
		return nil
	}
	if err := t.acquire(ctx); err != nil {
		return err
	}
	defer t.unlock()
	t.told = false
	if t.ended != t.watch { // noteRestore was first
		return nil
	}
	return t.renew()
}

// renew watches anew; lock must be held.
func (t *tail) renew() error {
	_ = t.stream.Cancel(t.watch) // etcd may have ended it already
	if err := t.begin(); err != nil {
		return etcderrors.ErrStopped // the stream is closed
	}
	t.noteDrop()
	return nil
}

// noteDrop tells the reader that something is in the index alone.
func (t *tail) noteDrop() {
	select {
	case t.dropped <- struct{}{}:
	default:
	}
}

// close ends the watch, and what waits for it, and waits for who watches anew.
func (t *tail) close() {
	t.once.Do(t.stream.Close)
	_ = t.acquire(context.Background()) // this context doesn't end
	t.unlock()
}

// filter notes an event, and tells whether etcd is to drop it. All events of a revision pass, or none. It must
// not block.
func (t *tail) filter(e *mvccpb.Event) (drop bool) {
	if rev := e.Kv.ModRevision; rev != t.newest {
		t.newest = rev
		// Nobody else sends to the channel. So if there's room now, there still is when etcd sends.
		t.full = len(t.responses) == cap(t.responses) || t.waiting.Load() >= maxTailBytes
		t.announced.Raise(storage.Revision(rev)) // it may be past rev: see noteRestore
		if t.full {
			t.noteDrop()
		}
	}
	if !t.full {
		t.waiting.Add(bytesOf(e))
	}
	return t.full
}

func bytesOf(events ...*mvccpb.Event) (sum int64) {
	for _, e := range events {
		sum += int64(len(e.Kv.Key) + len(e.Kv.Value))
	}
	return sum
}

// next waits for a response. If an event was dropped instead, it returns an empty response, and through is raised. If etcd has
// ended the watch, next first watches anew.
func (t *tail) next(ctx context.Context) (w mvcc.WatchResponse, err error) {
	if err := t.noteEnd(ctx); err != nil {
		return w, kv.Wrap("follow", storage.Root, err)
	}
	w, ok, err := t.poll()
	if ok || err != nil {
		return w, err // also when an event was dropped: what is here needs no read of the index
	}
	select {
	case <-ctx.Done():
		return w, ctx.Err()
	case <-t.dropped:
		t.readIndex()
		return w, nil
	case w, ok = <-t.responses:
		return t.received(w, ok)
	}
}

// poll returns a response if one is there.
func (t *tail) poll() (w mvcc.WatchResponse, ok bool, err error) {
	select {
	case w, ok = <-t.responses:
		w, err = t.received(w, ok)
		return w, ok, err
	default:
		return w, false, nil
	}
}

func (t *tail) received(w mvcc.WatchResponse, open bool) (mvcc.WatchResponse, error) {
	if !open {
		return w, kv.Wrap("follow", storage.Root, etcderrors.ErrStopped)
	}
	t.waiting.Add(-bytesOf(w.Events...))
	if w.CompactRevision != 0 { // a snapshot has replaced the database, whose history begins after the watch's position
		t.ended, t.told = w.WatchID, true
	}
	return w, nil
}

// readIndex makes the reader read the index up to everything that has been announced.
func (t *tail) readIndex() { t.through = t.announced.At() }

// followBytes bounds how much Follow returns, unless a single revision is larger. A client that waits for its write to
// be in the caches waits until the whole batch is applied: for 1 MiB that takes a few milliseconds.
const followBytes = 1 << 20

// Follow implements storage.Store. What has just been written comes from memory, however busy etcd's database is, and older
// changes from Changes.
func (s *Store) Follow(ctx context.Context, after storage.Revision) (changes []storage.Change, upTo storage.Revision, err error) {
	t := &s.tail
	for after >= t.through {
		if err := ctx.Err(); err != nil {
			return nil, 0, err
		}
		w, err := t.next(ctx)
		if err != nil {
			return nil, 0, err
		}
		upTo = after
		for more, bytes := true, int64(0); more; {
			changes, upTo = s.appendEvents(changes, w.Events, upTo)
			if bytes += bytesOf(w.Events...); bytes >= followBytes || upTo < t.through {
				break
			}
			if w, more, err = t.poll(); err != nil {
				return nil, 0, err
			}
		}
		if upTo > after {
			return changes, upTo, nil
		}
	}
	return s.Changes(ctx, storage.Stretch{After: after, MaxBytes: followBytes})
}

// appendEvents adds the events after a revision. At a gap it stops, and makes the reader read the index.
func (s *Store) appendEvents(changes []storage.Change, events []*mvccpb.Event, after storage.Revision) (_ []storage.Change, upTo storage.Revision) {
	upTo = after
	for _, e := range events {
		rev := storage.Revision(e.Kv.ModRevision)
		if rev <= after { // it was read from the index
			continue
		}
		if rev > upTo+1 { // every revision has an event
			s.tail.readIndex()
			break
		}
		changes, upTo = append(changes, s.DecodeEvent(e)), rev
	}
	return changes, upTo
}

// announced returns the newest revision that etcd has announced to its watchers.
func (s *Store) announced() storage.Revision { return s.tail.announced.At() }

// TailBytes returns the bytes of keys and values that wait for Follow, at most about maxTailBytes.
func (s *Store) TailBytes() int64 { return s.tail.waiting.Load() }
