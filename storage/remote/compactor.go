package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Compaction says what history the cluster keeps. The zero value works, for a process that is alone.
type Compaction struct {
	// History is how long changes are kept. Defaults to 1h.
	History time.Duration
	// Interval is how often older ones are removed. Defaults to DefaultCompactionInterval.
	Interval time.Duration
	// Acts says whether this process is the one that compacts. Defaults to one that always does.
	Acts func() bool
	// Floor returns the revision up to which history may be removed: what comes after it is still to be read. Defaults to
	// none, so that only History counts.
	Floor func() storage.Revision
}

func (c Compaction) withDefaults() Compaction {
	c.History = cmp.Or(c.History, defaultHistory)
	c.Interval = cmp.Or(c.Interval, DefaultCompactionInterval)
	if c.Acts == nil {
		c.Acts = func() bool { return true }
	}
	if c.Floor == nil {
		c.Floor = func() storage.Revision { return math.MaxInt64 }
	}
	return c
}

// defaultHistory is as long as the embedded etcd keeps changes by default.
const defaultHistory = time.Hour

// compactionKey holds a compactionState. All processes over the store use it, and each write of it is compared with what was
// read, so two that take themselves for the one that acts don't both compact.
const compactionKey = storage.Own + "compaction"

// compactionState is what the compactor knows, so that another process can go on with it.
type compactionState struct {
	Seen  storage.Revision `json:"seen"` // up to which history was gone, after the last compaction
	Marks []mark           `json:"marks"`
	// Others is when it was last seen that somebody else had compacted, in seconds since 1970; 0 for not within othersTime.
	Others int64 `json:"others,omitempty"`
}

// mark says which revision etcd had when.
type mark struct {
	Time     int64            `json:"time"` // in seconds since 1970
	Revision storage.Revision `json:"revision"`
}

// maxMarks bounds the marks, which are some 40 bytes each. With more of them to keep, every second one is left out; so history
// is removed at most a 64th of its time late.
const maxMarks = 128

// othersTime is for how long history is left alone after somebody else compacted. An etcd with a retention of hours compacts
// once an hour, and after a restart only when that retention is over. Jobs of people run daily or weekly; the day more is for one
// that is late.
const othersTime = 8 * 24 * time.Hour

// Compact removes old history now and then, until ctx ends. History is one for the whole cluster, and somebody else may care
// for it: where more is gone than the last compaction took, nothing is compacted for othersTime. The error is always nil: a
// compaction that fails is logged, and tried again after Interval.
func (s *Store) Compact(ctx context.Context, c Compaction) error {
	c = c.withDefaults()
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !c.Acts() {
			continue
		}
		if err := s.compactOnce(ctx, c, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("old history couldn't be removed", "error", err)
		}
	}
}

// compactOnce notes where etcd is, and compacts up to where it was History ago.
func (s *Store) compactOnce(ctx context.Context, c Compaction, now time.Time) error {
	// The state is read before the window. A compaction of another process in between has changed the state, and nothing is
	// written then.
	got, err := s.get(ctx, readTimeout, compactionKey)
	if err != nil {
		return storage.Wrap("compact", compactionKey, err)
	}
	compacted, newest, err := s.Window(ctx)
	if err != nil {
		return err
	}
	state, revision := compactionState{Seen: compacted}, int64(0)
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
		if err := json.Unmarshal(got.Kvs[0].Value, &state); err != nil {
			return fmt.Errorf("%s: %w", compactionKey, err)
		}
	}
	at, next := state.next(window{compacted, c.Floor(), newest}, now, c.History)
	value, err := json.Marshal(next)
	if err != nil {
		return err
	}
	mine := clientv3.Compare(clientv3.ModRevision(compactionKey), "=", revision)
	put, err := s.client.Txn(ctx).If(mine).Then(clientv3.OpPut(compactionKey, string(value))).Commit()
	switch {
	case err != nil:
		return storage.Wrap("compact", compactionKey, err)
	case !put.Succeeded:
		return nil // another process is at it
	}
	if next.Others != 0 && state.Others == 0 {
		s.log.Info("somebody else compacts etcd, so old history isn't removed here", "compacted", compacted, "until_none_for", othersTime)
	}
	if at == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	_, err = s.client.Compact(within, int64(at))
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("in this etcd only root may compact (--etcd-username): let etcd do it, by its --auto-compaction-retention, and start the servers with --etcd-compaction-interval=0: %w", err)
	case err != nil && !errors.Is(err, rpctypes.ErrCompacted):
		return storage.Wrap("compact", storage.Root, err)
	}
	s.compacted.Raise(at)
	return nil
}

// window is what there is of history when the compactor looks.
type window struct{ compacted, floor, newest storage.Revision }

// next returns up to which revision to compact, 0 for none, and the state to keep. Revisions that were the newest before
// the time for which history is kept may go, and none after the floor.
func (st compactionState) next(w window, now time.Time, history time.Duration) (storage.Revision, compactionState) {
	old := now.Add(-history)
	var at storage.Revision
	kept := []mark{}
	for _, m := range append(st.Marks, mark{now.Unix(), w.newest}) {
		switch {
		case m.Revision > w.newest: // of a store that this one replaced
		case m.Time <= old.Unix():
			at = max(at, m.Revision)
		default:
			kept = append(kept, m)
		}
	}
	if len(kept) > maxMarks {
		for i := range len(kept) / 2 {
			kept[i] = kept[2*i+1]
		}
		kept = kept[:len(kept)/2]
	}
	at = min(at, w.floor)
	if st.Seen > w.newest { // of a store that this one replaced
		st.Seen = w.compacted
	}
	others := min(st.Others, now.Unix()) // also if the clock went back
	switch {
	case w.compacted > st.Seen:
		others = now.Unix()
	case others+int64(othersTime/time.Second) <= now.Unix():
		others = 0
	}
	if others != 0 || at <= w.compacted {
		at = 0
	}
	// What another process has noted may not be gone yet. It stays noted: otherwise the next look would take that process's
	// compaction for somebody else's.
	return at, compactionState{Seen: max(st.Seen, w.compacted, at), Marks: kept, Others: others}
}
