package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// follower is one watch of the whole prefix, and what it has brought that Follow hasn't taken. etcd's client would keep
// without a bound what nobody takes, so a goroutine takes it.
type follower struct {
	store  *Store
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when the goroutine has ended
	news   chan struct{} // capacity 1: one pending signal is enough, the fields have the rest

	mu      sync.Mutex // guards the rest
	changes []storage.Change
	bytes   int64              // that changes take
	upTo    storage.Revision   // everything up to it is in changes, or was taken
	taken   storage.Revision   // Follow has returned everything up to it
	arrived bool               // it was less than maxLag behind
	err     error              // why it ended; nil while it runs
	watcher clientv3.Watcher   // of the watch that is open, for progress requests; nil if none is
	owed    time.Time          // since when the watch owes an answer that brings something; zero if it owes none
	again   context.CancelFunc // ends the watch, so that run begins another; of none while watcher is nil
}

const (
	// maxTailBytes bounds what waits for Follow: as much as the logs of two busy resources. At the bound the feed lists anew.
	maxTailBytes = 64 << 20
	// changeBytes is what a change takes besides its key and value: deletions of short keys take little else.
	changeBytes = int64(unsafe.Sizeof(storage.Change{}))
	// maxLag is how many revisions a follower that was there may fall behind, until its next watch begins. etcd reads all of
	// them again and again for a watch that begins far behind, under a lock of its store, so beyond that a list costs less.
	// A follower that hasn't been there has no such bound: its reader has just listed, and the next list would take as long
	// and be as far behind.
	maxLag storage.Revision = 50_000
	// watchPause is between two watches: a member that refuses them isn't asked too often, and a watch that breaks delays
	// reads by no more.
	watchPause = 200 * time.Millisecond
)

// Follow implements storage.Store.
func (s *Store) Follow(ctx context.Context, after storage.Revision) ([]storage.Change, storage.Revision, error) {
	f, err := s.following(after)
	if err != nil {
		return nil, 0, err
	}
	for {
		if err := cmp.Or(ctx.Err(), s.known.tell()); err != nil {
			return nil, 0, err
		}
		changes, upTo, err := f.take()
		if errors.Is(err, storage.ErrRewound) {
			_ = s.known.tell() // once is enough
		}
		if err != nil || upTo > after {
			return changes, upTo, err
		}
		select {
		case <-ctx.Done():
		case <-f.news:
		}
	}
}

// following returns the follower that goes on after a revision. It begins one if there is none. Whoever calls it again after
// ErrRewound has what the store is now.
func (s *Store) following(after storage.Revision) (*follower, error) {
	s.followMu.Lock()
	defer s.followMu.Unlock()
	switch err := s.known.tell(); {
	case s.ctx.Err() != nil:
		return nil, kv.Wrap("follow", storage.Root, fmt.Errorf("%w: the store was closed", storage.ErrUnavailable))
	case err != nil:
		return nil, err
	}
	// After a rewind the revision may be the same, but the follower watches the store as it was.
	if f := s.follower; f != nil && f.at() == after && s.known.now().rewound == nil {
		return f, nil
	}
	if s.follower != nil {
		s.follower.stop()
	}
	s.known.begin()
	f := &follower{store: s, upTo: after, taken: after, done: make(chan struct{}), news: make(chan struct{}, 1)}
	f.ctx, f.cancel = context.WithCancel(s.ctx)
	s.follower = f
	go f.run()
	return f, nil
}

// stop ends the follower and waits for its goroutine.
func (f *follower) stop() {
	f.cancel()
	<-f.done
}

func (f *follower) at() storage.Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken
}

func (f *follower) waiting() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bytes
}

// take returns what waits. Its error comes when nothing does.
func (f *follower) take() (changes []storage.Change, upTo storage.Revision, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil && f.upTo == f.taken {
		f.taken = -1 // the next Follow begins again
		return nil, 0, f.err
	}
	changes, f.changes, f.bytes, f.taken = f.changes, nil, 0, f.upTo
	return changes, f.upTo, nil
}

// end says why the follower ends.
func (f *follower) end(err error) {
	f.mu.Lock()
	if f.err == nil {
		f.err = err
	}
	f.mu.Unlock()
	f.signal()
}

func (f *follower) signal() {
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// run watches until the follower is stopped, or can't go on from where it is.
func (f *follower) run() {
	defer close(f.done)
	for f.ctx.Err() == nil {
		err := f.check()
		if err == nil {
			err = f.watch()
		}
		if errors.Is(err, storage.ErrRewound) || errors.Is(err, storage.ErrCompacted) {
			f.end(kv.Wrap("follow", storage.Root, err))
			return
		}
		f.store.log.Debug("the watch ended and begins again", "error", err)
		select {
		case <-f.ctx.Done():
		case <-time.After(watchPause):
		}
	}
	f.end(kv.Wrap("follow", storage.Root, fmt.Errorf("%w: the store was closed", storage.ErrUnavailable)))
}

// check looks, before a watch begins, whether the store is the one it was, and whether the follower has fallen too
// far behind.
func (f *follower) check() error {
	l := f.store.look()
	select {
	case <-f.ctx.Done():
		return f.ctx.Err()
	case <-l.done:
	}
	if err := f.store.known.now().rewound; err != nil {
		return err
	}
	if l.err != nil {
		return l.err
	}
	return f.lag(l.revision)
}

// lag returns an error if the follower has fallen too far behind a revision.
func (f *follower) lag(newest storage.Revision) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	behind := newest - f.upTo
	if behind <= maxLag {
		f.arrived = true
	}
	if behind > maxLag && f.arrived {
		return fmt.Errorf("%w: the watch is %d revisions behind, more than %d", storage.ErrCompacted, behind, maxLag)
	}
	return nil
}

// watch reads one watch of etcd's until it ends.
func (f *follower) watch() error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(f.ctx))
	defer cancel()
	watcher := f.store.newWatcher()
	defer watcher.Close()
	f.mu.Lock()
	// One revision that it has already: until 3.5.16 etcd's compaction removed the deletions of the revision at which history
	// begins then, and let a watch begin there (etcd's issue 18089). decode drops what isn't new.
	from := max(1, f.upTo)
	f.watcher, f.again, f.owed = watcher, cancel, time.Time{}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		f.watcher = nil
		f.mu.Unlock()
	}()
	for res := range watcher.Watch(ctx, "/", clientv3.WithPrefix(), clientv3.WithRev(int64(from)), clientv3.WithProgressNotify()) {
		if res.CompactRevision > 0 {
			f.store.compacted.Raise(storage.Revision(res.CompactRevision))
			return storage.ErrCompacted
		}
		if err := res.Err(); err != nil {
			return err
		}
		if err := f.store.known.seeHeader(res.Header); err != nil {
			return err
		}
		if err := f.receive(res); err != nil {
			return err
		}
	}
	return errors.New("the stream was closed")
}

// receive takes what a response has. The header of one with events may be of a later revision than they are. Only a response
// that brings the follower further pays what the watch owes.
func (f *follower) receive(res clientv3.WatchResponse) error {
	changes := f.decode(res.Events)
	f.mu.Lock()
	defer f.mu.Unlock()
	before := f.upTo
	for _, c := range changes {
		f.bytes += changeBytes + int64(len(c.Key)+len(c.Value))
		f.upTo = c.Revision
	}
	f.changes = append(f.changes, changes...)
	if res.IsProgressNotify() {
		f.upTo = max(f.upTo, storage.Revision(res.Header.Revision))
	}
	if f.bytes > maxTailBytes {
		f.changes, f.bytes, f.upTo = nil, 0, f.taken
		return fmt.Errorf("%w: more than %d bytes of changes wait", storage.ErrCompacted, int64(maxTailBytes))
	}
	f.arrived = f.arrived || f.store.known.now().revision-f.upTo <= maxLag
	if f.upTo > before {
		f.owed = time.Time{} // a member that lags answers, too, but brings nothing
		f.store.known.seeChange(f.upTo)
		f.store.known.seeWrite(newestWrite(changes))
		f.signal()
	}
	return nil
}

// newestWrite returns the last of the changes that isn't a deletion. Without one its revision is 0.
func newestWrite(changes []storage.Change) write {
	for _, c := range slices.Backward(changes) {
		if !c.Deleted && c.Key != "" {
			return write{c.Key, c.Revision}
		}
	}
	return write{}
}

// decode returns the changes that the follower hasn't had: a watch that etcd's client resumed may repeat some. It runs
// without the lock, because it calls the Transformer.
func (f *follower) decode(events []*clientv3.Event) (changes []storage.Change) {
	f.mu.Lock()
	upTo := f.upTo
	f.mu.Unlock()
	for _, e := range events {
		if storage.Revision(e.Kv.ModRevision) > upTo {
			changes = append(changes, f.store.DecodeEvent((*mvccpb.Event)(e)))
		}
	}
	return changes
}

// newWatcher returns a watcher for one watch, because on a stream that watches share, etcd answers a progress request only
// when all of them have everything. Its Close ends the stream, also one that only a progress request has opened: etcd's
// client opens one where the watch has just ended.
func (s *Store) newWatcher() clientv3.Watcher {
	return namespace.NewWatcher(clientv3.NewWatcher(s.client), s.prefix)
}

// ringFollower lets Follow tell that the store isn't the one it was.
func (s *Store) ringFollower() {
	s.followMu.Lock()
	f := s.follower
	s.followMu.Unlock()
	if f != nil {
		f.signal()
	}
}
