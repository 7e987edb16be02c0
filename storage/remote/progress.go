package remote

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// progress asks etcd for its progress while somebody waits for a revision that the watch hasn't brought.
type progress struct {
	wanted chan struct{} // capacity 1: one pending signal is enough, upTo has the rest

	mu   sync.Mutex // guards upTo
	upTo storage.Revision
}

const (
	// progressInterval is how often progress is asked for, while somebody waits: etcd may answer an earlier request with an
	// earlier revision. A read that needs the second request waits for that long.
	progressInterval = 50 * time.Millisecond
	// silence is after which time a watch that owes an answer begins again, mostly at another member: many times what an
	// answer takes, and less than a client waits for a consistent read. A member whose disk hangs goes on answering, with the
	// revision that it had, so an answer counts only if it brings the watch further.
	silence = 2 * time.Second
)

// want sees to it that Follow gets to a revision.
func (s *Store) want(rev storage.Revision) {
	s.progress.mu.Lock()
	s.progress.upTo = rev // also a lower one, after a rewind
	s.progress.mu.Unlock()
	select {
	case s.progress.wanted <- struct{}{}:
	default:
	}
}

// request asks for progress until the store is closed.
func (s *Store) request() {
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-s.progress.wanted:
		}
		for s.requestOnce() {
			select {
			case <-s.ctx.Done():
				return
			case <-time.After(progressInterval):
			}
		}
	}
}

// requestOnce asks for progress if the watch isn't where somebody wants it, and returns whether it isn't.
func (s *Store) requestOnce() bool {
	s.progress.mu.Lock()
	wanted := s.progress.upTo
	s.progress.mu.Unlock()
	s.followMu.Lock()
	f := s.follower
	s.followMu.Unlock()
	if f == nil {
		return false
	}
	watcher, step := f.next(wanted, time.Now())
	if step != askProgress {
		return step == waitMore
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(s.ctx), progressInterval)
	defer cancel()
	if err := watcher.RequestProgress(ctx); err != nil {
		s.log.Debug("progress couldn't be asked for", "error", err)
	}
	return true
}

// step is what is done so that a watch gets to a revision.
type step int

const (
	isThere     step = iota // nothing
	waitMore                // nothing now: the watch is being opened
	askProgress             // ask for its progress
)

// next returns what to do now so that the watch gets to a revision, and the watcher to ask. A watch that has owed an answer
// for too long begins again: it was asked for a later revision, and hasn't come any further since. One that was merely idle
// owes none.
func (f *follower) next(wanted storage.Revision, now time.Time) (clientv3.Watcher, step) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.upTo >= wanted:
		return nil, isThere
	case f.watcher == nil:
		return nil, waitMore
	case f.owed.IsZero():
		f.owed = now
	case now.Sub(f.owed) > silence:
		f.again()
		return nil, waitMore
	}
	return f.watcher, askProgress
}
