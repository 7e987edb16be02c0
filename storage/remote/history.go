package remote

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Changes implements storage.Store, by a watch of etcd's that begins in the past. It begins at After and not after it,
// because etcd's own rule would let a watch begin at the compacted revision plus one less than ours.
func (s *Store) Changes(ctx context.Context, st storage.Stretch) ([]storage.Change, storage.Revision, error) {
	s.reads.Add(1)
	if st.Through > 0 && st.Through <= st.After {
		return nil, st.After, nil
	}
	if st.Through == 0 {
		through, err := s.Barrier(ctx)
		if err != nil {
			return nil, 0, err
		}
		if st.Through = through; through <= st.After {
			return nil, st.After, nil
		}
	}
	if c := s.Compacted(); st.After < c {
		return nil, 0, storage.Wrap("changes", storage.Root, fmt.Errorf("%w (history begins at %d)", storage.ErrCompacted, c))
	}
	changes, upTo, err := s.history(ctx, st)
	for try := 1; errors.Is(err, errNoHistory) && try < readTries; try++ { // another member's turn
		changes, upTo, err = s.history(ctx, st)
	}
	if err != nil {
		return nil, 0, storage.Wrap("changes", storage.Root, err)
	}
	return changes, upTo, nil
}

// historyTimeout is how long a stretch may take while etcd sends nothing. etcd reads it from its disk, and serves the
// watches that lag one after the other.
const historyTimeout = 10 * time.Second

// errNoHistory is returned when no watch of the history could be opened in time.
var errNoHistory = fmt.Errorf("%w: no history within %v", storage.ErrUnavailable, readTimeout)

// history reads a stretch by one watch. etcd's client waits for a member that doesn't answer as long as the context lets
// it, so the opening has the time of a read.
func (s *Store) history(ctx context.Context, st storage.Stretch) (changes []storage.Change, upTo storage.Revision, err error) {
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watcher := s.newWatcher()
	defer watcher.Close()
	late := time.AfterFunc(readTimeout, cancel)
	responses := watcher.Watch(watch, "/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(max(1, int64(st.After))))
	if !late.Stop() && ctx.Err() == nil {
		return nil, 0, errNoHistory
	}
	quiet := time.NewTimer(historyTimeout)
	defer quiet.Stop()
	ask := time.NewTicker(progressInterval)
	defer ask.Stop()
	upTo = st.After
	for bytes := 0; upTo < st.Through; {
		select {
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		case <-quiet.C:
			return nil, 0, fmt.Errorf("%w: no history for %v", storage.ErrUnavailable, historyTimeout)
		case <-ask.C:
			within, cancel := context.WithTimeout(watch, progressInterval)
			watcher.RequestProgress(within) // an error shows in the responses
			cancel()
		case res, open := <-responses:
			quiet.Reset(historyTimeout)
			switch {
			case !open:
				return nil, 0, fmt.Errorf("%w: the stream of the history was closed", storage.ErrUnavailable)
			case res.CompactRevision > 0:
				s.compacted.Raise(storage.Revision(res.CompactRevision))
				return nil, 0, storage.ErrCompacted
			case res.Err() != nil:
				return nil, 0, res.Err()
			case res.IsProgressNotify():
				upTo = min(st.Through, max(upTo, storage.Revision(res.Header.Revision)))
			}
			var full bool
			if changes, upTo, full = s.appendHistory(changes, res.Events, st, upTo, &bytes); full {
				return changes, upTo, nil
			}
		}
	}
	return slices.Clip(changes), upTo, nil
}

// appendHistory adds those of the events that are in the stretch, and returns how far it has come, and whether it has all
// the bytes that it may have.
func (s *Store) appendHistory(changes []storage.Change, events []*clientv3.Event, st storage.Stretch, upTo storage.Revision, bytes *int) ([]storage.Change, storage.Revision, bool) {
	for _, e := range events {
		switch rev := storage.Revision(e.Kv.ModRevision); {
		case rev <= st.After:
			continue
		case rev > st.Through:
			return changes, st.Through, true
		case rev > upTo && st.MaxBytes > 0 && *bytes >= st.MaxBytes:
			return changes, upTo, true
		default:
			c := s.DecodeEvent((*mvccpb.Event)(e))
			c.Before = before(e)
			changes, upTo = append(changes, c), rev
			*bytes += len(c.Key) + len(c.Value)
		}
	}
	return changes, upTo, st.MaxBytes > 0 && *bytes >= st.MaxBytes
}

// before returns what the key of an event held before it, nil if that isn't known.
func before(e *clientv3.Event) *storage.KeyValue {
	switch {
	case e.PrevKv != nil:
		kv := storage.KeyValueOf(e.PrevKv)
		return &kv
	case e.IsCreate():
		return &storage.KeyValue{}
	}
	return nil
}
