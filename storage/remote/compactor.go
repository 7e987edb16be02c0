package remote

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
	"github.com/apiserver-lite/apiserver-lite/storage/kv"
)

// Compaction says what history the cluster keeps. All of it is needed.
type Compaction struct {
	History  time.Duration // how long changes are kept
	Interval time.Duration // how often older ones are removed
	// Floor returns the revision up to which history may be removed: what comes after it is still to be read.
	Floor func() storage.Revision
}

// compactionKey holds a compactionState. All processes over the store use it, and each write of it is compared with what was
// read, so no two of them compact at once.
const compactionKey = storage.Own + "compaction"

// compactionState is what the compactor knows, so that another process can go on with it. An earlier version had marks with
// times of day, under another name: neither takes the other's marks for its own.
type compactionState struct {
	Seen storage.Revision `json:"seen"` // up to which history was gone, after the last compaction
	// Clock is the time that was counted so far. Only processes that look at the store count it, and it only grows: no
	// clock that jumps, and no other process's, makes history older than it is.
	Clock time.Duration `json:"clock"`
	Marks history.Marks `json:"history"`
	// Foreign is when it was last seen that somebody else had compacted, and Others when that had happened again within
	// repeatTime: then somebody does it regularly. 0 for never, or long ago.
	Foreign time.Duration `json:"foreign,omitempty"`
	Others  time.Duration `json:"regular,omitempty"`
	// Times are a history.Times, to which each look adds.
	Times json.RawMessage `json:"times,omitempty"`
}

const (
	// othersTime is for how long history is left alone after somebody else has compacted regularly. An etcd with a retention
	// of hours compacts once an hour, and after a restart only when that retention is over, which is a week at most.
	othersTime = 8 * 24 * time.Hour
	// repeatTime is within which time somebody else has to compact twice until that counts as regular: once a day is, and
	// an operator's single etcdctl compact isn't. The hour more is for a daily job that is late.
	repeatTime = 25 * time.Hour
)

// Compact removes old history now and then, until ctx ends. Each process over the store calls it. All look at the same state
// every Interval, and the one that finds it as it was at its own look before removes history and writes the state anew. So one
// process does that for all, and another one goes on when that one is gone.
//
// History is one for the whole cluster, and somebody else may care for it: who compacts twice within repeatTime is left to it,
// for othersTime. Where etcd has no space left, and so takes no write of the state, history is compacted all the same.
//
// The error is always nil: a compaction that fails is logged, and tried again after Interval.
func (s *Store) Compact(ctx context.Context, c Compaction) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	for k := (compactor{store: s, Compaction: c}); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.look(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.log.Warn("old history couldn't be removed", "error", err)
		}
	}
}

// compactor is one process's part in the compaction. One goroutine uses it.
type compactor struct {
	store *Store
	Compaction

	looked   bool            // the rest is set
	at       time.Time       // of the last look
	revision int64           // of the state's key then; 0 for none
	state    compactionState // as it was then, or what couldn't be written for want of space
	noSpace  bool            // it couldn't be
}

// look notes where etcd is, and compacts up to where it was History ago. It does neither if another process has done so since
// the last look, or if it's the first one: how old that process's state is can't be known.
func (k *compactor) look(ctx context.Context, now time.Time) error {
	s, begun := k.store, time.Now()
	// The state is read before the window. A compaction of another process in between has changed the state, and nothing is
	// written then.
	got, err := s.get(ctx, readTimeout, compactionKey)
	if err != nil {
		return kv.Wrap("compact", compactionKey, err)
	}
	compacted, newest, err := s.Window(ctx)
	if err != nil {
		return err
	}
	mine, err := k.recognize(got, compacted, now)
	if err != nil || !mine {
		return err
	}
	w := window{compacted: compacted, floor: k.Floor(), newest: newest}
	before := k.state
	before.Clock += history.Step(k.at, now, k.longest())
	if k.noSpace { // whoever compacted since did it for space
		before.Seen = max(before.Seen, compacted)
	}
	at, next := before.next(w, k.old())
	s.times.Look(newest, now, now.Add(time.Since(begun)))
	s.times.Cut(max(compacted, at))
	if next.Times, err = json.Marshal(&s.times); err != nil {
		return err
	}
	k.at = now
	put, err := k.save(ctx, next)
	switch {
	case errors.Is(err, storage.ErrNoSpace):
		// Nobody can note anything now. What is old goes all the same, whoever else compacts.
		before.Others, before.Foreign, before.Seen = 0, 0, max(before.Seen, compacted)
		at, next = before.next(w, k.old())
		next.Others, next.Foreign = k.state.Others, k.state.Foreign
		k.state, k.noSpace = next, true
		return errors.Join(err, s.compact(ctx, at))
	case err != nil:
		return err
	case !put: // another process is at it
		k.looked = false
		return nil
	}
	if next.Others != 0 && before.Others == 0 {
		s.log.Info("somebody else compacts etcd regularly, so old history isn't removed here", "compacted", compacted, "until_none_for", othersTime)
	}
	k.state, k.noSpace = next, false
	return s.compact(ctx, at)
}

// longest is what one look can add to the state's clock, however much later than the last one it comes: an eighth more than
// the time between two.
func (k *compactor) longest() time.Duration { return k.Interval + k.Interval/8 }

// old is the age at which a revision may go. Looks don't come to the millisecond: without the small part of an interval, what
// is to be kept for one interval would be kept for one or for two, by chance.
func (k *compactor) old() time.Duration { return k.History - k.Interval/64 }

// recognize tells whether the state is as this process knows it. If it isn't, the process knows it from now on.
func (k *compactor) recognize(got *clientv3.GetResponse, compacted storage.Revision, now time.Time) (mine bool, err error) {
	state, revision := compactionState{Seen: compacted}, int64(0)
	if len(got.Kvs) > 0 {
		revision = got.Kvs[0].ModRevision
		if err := json.Unmarshal(got.Kvs[0].Value, &state); err != nil {
			return false, fmt.Errorf("%s: %w", compactionKey, err)
		}
	}
	if k.looked && k.revision == revision {
		return true, nil
	}
	k.looked, k.at, k.revision, k.state, k.noSpace = true, now, revision, state, false
	times := cmp.Or(string(state.Times), "{}") // nobody has looked, or a process that knew nothing of times
	if err := json.Unmarshal([]byte(times), &k.store.times); err != nil {
		return false, fmt.Errorf("%s: times: %w", compactionKey, err)
	}
	return false, nil
}

// save writes the state, unless another process has written one since it was read.
func (k *compactor) save(ctx context.Context, state compactionState) (done bool, err error) {
	value, err := json.Marshal(state)
	if err != nil {
		return false, err
	}
	same := clientv3.Compare(clientv3.ModRevision(compactionKey), "=", k.revision)
	put, err := k.store.client.Txn(ctx).If(same).Then(clientv3.OpPut(compactionKey, string(value))).Commit()
	if err != nil {
		return false, kv.Wrap("compact", compactionKey, err)
	}
	if put.Succeeded {
		k.revision = put.Header.Revision
	}
	return put.Succeeded, nil
}

// compact removes history up to a revision; 0 for none.
func (s *Store) compact(ctx context.Context, at storage.Revision) error {
	if at == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	_, err := s.client.Compact(within, int64(at))
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("in this etcd only root may compact (--etcd-username): let etcd do it, by its --auto-compaction-retention, and start the servers with --etcd-compaction-interval=0: %w", err)
	case err != nil && !errors.Is(err, rpctypes.ErrCompacted):
		return kv.Wrap("compact", storage.Root, err)
	}
	s.compacted.Raise(at)
	return nil
}

// window is what there is of history when the compactor looks.
type window struct{ compacted, floor, newest storage.Revision }

// next returns up to which revision to compact, 0 for none, and the state to keep. Revisions that were the newest before
// an age may go, and none after the floor.
func (st compactionState) next(w window, old time.Duration) (storage.Revision, compactionState) {
	now := st.Clock
	marks, at := st.cut(w, history.Mark{Revision: w.newest, At: now}, history.Bounds{Age: old, Bytes: math.MaxInt64})
	at = min(at, w.floor)
	if st.Seen > w.newest { // of a store that this one replaced
		st.Seen = w.compacted
	}
	foreign, others := st.Foreign, st.Others
	if foreign != 0 && now-foreign > repeatTime {
		foreign = 0
	}
	if others != 0 && now-others >= othersTime {
		others = 0
	}
	if w.compacted > st.Seen {
		if foreign != 0 || others != 0 {
			others = max(now, 1)
		}
		foreign = max(now, 1)
	}
	if others != 0 || at <= w.compacted {
		at = 0
	}
	// What another process has noted may not be gone yet. It stays noted: otherwise the next look would take that process's
	// compaction for somebody else's.
	return at, compactionState{Seen: max(st.Seen, w.compacted, at), Clock: now, Marks: marks, Foreign: foreign, Others: others}
}

// cut returns the marks that are left, and the revision up to which history has ended.
func (st compactionState) cut(w window, now history.Mark, keep history.Bounds) (history.Marks, storage.Revision) {
	marks := slices.Clone(st.Marks)
	if !marks.Valid(now) { // there are none, or they're of a store that this one replaced
		marks = history.Marks{now}
	}
	if first := marks[0]; first.Revision > w.compacted { // it waited for the floor, or nobody has compacted yet
		marks = slices.Insert(marks, 0, history.Mark{Revision: w.compacted, At: first.At})
	}
	marks.Note(now, keep)
	ended := marks.Cut(now, keep)
	return marks, ended
}
