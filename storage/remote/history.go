package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
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
		return nil, 0, kv.Wrap("changes", storage.Root, fmt.Errorf("%w (history begins at %d)", storage.ErrCompacted, c))
	}
	changes, upTo, err := s.historyOf(ctx, st, "/", clientv3.WithPrefix(), clientv3.WithPrevKV())
	if err != nil {
		return nil, 0, kv.Wrap("changes", storage.Root, err)
	}
	return changes, upTo, nil
}

// historyOf is history, tried again if no member could be asked.
func (s *Store) historyOf(ctx context.Context, st storage.Stretch, key string, options ...clientv3.OpOption) (changes []storage.Change, upTo storage.Revision, err error) {
	changes, upTo, err = s.history(ctx, st, key, options)
	for try := 1; errors.Is(err, errNoHistory) && try < readTries; try++ { // another member's turn
		changes, upTo, err = s.history(ctx, st, key, options)
	}
	return changes, upTo, err
}

// historyTimeout is how long a stretch may take while etcd sends nothing of it. etcd reads it from its disk, and serves the
// watches that lag one after the other.
const historyTimeout = 10 * time.Second

// errNoHistory is returned when no watch of the history could be opened in time.
var errNoHistory = fmt.Errorf("%w: no history within %v", storage.ErrUnavailable, readTimeout)

// history reads a stretch of what the options select by one watch. etcd's client waits for a member that doesn't answer as long as the context lets
// it, so the opening has the time of a read.
func (s *Store) history(ctx context.Context, st storage.Stretch, key string, options []clientv3.OpOption) (_ []storage.Change, upTo storage.Revision, err error) {
	watch, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	watcher := s.newWatcher()
	defer watcher.Close()
	late := time.AfterFunc(readTimeout, cancel)
	responses := watcher.Watch(watch, key, append(options, clientv3.WithRev(max(1, int64(st.After))))...)
	if !late.Stop() && ctx.Err() == nil {
		return nil, 0, errNoHistory
	}
	quiet := time.NewTimer(historyTimeout)
	defer quiet.Stop()
	ask := time.NewTicker(progressInterval)
	defer ask.Stop()
	r := reading{Stretch: st, store: s, upTo: st.After}
	for !r.complete() {
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
			before := r.upTo
			switch {
			case !open: // perhaps because ctx has ended
				return nil, 0, cmp.Or(ctx.Err(), fmt.Errorf("%w: the stream of the history was closed", storage.ErrUnavailable))
			case res.CompactRevision > 0:
				s.compacted.Raise(storage.Revision(res.CompactRevision))
				return nil, 0, storage.ErrCompacted
			case res.Err() != nil:
				return nil, 0, res.Err()
			case res.IsProgressNotify():
				r.upTo = min(st.Through, max(r.upTo, storage.Revision(res.Header.Revision)))
			}
			r.take(res.Events)
			if r.upTo > before { // other answers tell only that the member lags
				quiet.Reset(historyTimeout)
			}
		}
	}
	return slices.Clip(r.changes), r.upTo, nil
}

// reading is a stretch of history while it's read.
type reading struct {
	storage.Stretch
	store   *Store
	changes []storage.Change
	bytes   int              // of keys and values in changes
	upTo    storage.Revision // everything up to it is in changes
}

// full tells whether the reading has all the bytes that it may have.
func (r *reading) full() bool { return r.MaxBytes > 0 && r.bytes >= r.MaxBytes }

// complete tells whether nothing more is to be read.
func (r *reading) complete() bool { return r.upTo >= r.Through || r.full() }

// take adds those of the events that are in the stretch. It stops at the end of the revision that fills the reading.
func (r *reading) take(events []*clientv3.Event) {
	for _, e := range events {
		switch rev := storage.Revision(e.Kv.ModRevision); {
		case rev <= r.After:
			continue
		case rev > r.Through:
			r.upTo = r.Through
			return
		case rev > r.upTo && r.full():
			return
		default:
			c := r.store.DecodeEvent((*mvccpb.Event)(e))
			c.Before = r.store.before(e)
			r.changes, r.upTo = append(r.changes, c), rev
			r.bytes += len(c.Key) + len(c.Value)
		}
	}
}

// before returns what the key of an event held before it, nil if that isn't known or can't be read: GetAt then says why.
func (s *Store) before(e *clientv3.Event) *storage.KeyValue {
	switch {
	case e.PrevKv != nil:
		was := s.Decode(e.PrevKv)
		if was.Err != nil {
			return nil
		}
		return &was.KeyValue
	case e.IsCreate():
		return &storage.KeyValue{}
	}
	return nil
}
