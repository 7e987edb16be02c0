package remote

import (
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

// TestCompactionState: what is older than the history goes, what another compactor takes isn't ours, and marks stay few.
func TestCompactionState(t *testing.T) {
	marks := history.Marks{{Revision: 10}, {Revision: 20, At: time.Hour}, {Revision: 30, At: 2 * time.Hour}}
	const now = 3 * time.Hour
	for _, c := range []struct {
		name      string
		state     compactionState
		compacted storage.Revision
		floor     storage.Revision
		history   time.Duration
		want      storage.Revision
		seen      storage.Revision
	}{
		{"nothing is old", compactionState{Marks: marks}, 0, 100, now + 1, 0, 0},
		{"the first mark is old", compactionState{Marks: marks}, 0, 100, now - time.Second, 10, 10},
		{"two are", compactionState{Marks: marks}, 0, 100, now - time.Hour, 20, 20},
		{"it was done", compactionState{Seen: 20, Marks: marks}, 20, 100, now - time.Hour, 0, 20},
		{"somebody compacted once", compactionState{Seen: 5, Marks: marks}, 8, 100, now - time.Hour, 20, 20},
		{"somebody compacted again", compactionState{Seen: 5, Marks: marks, Foreign: time.Hour}, 8, 100, now - time.Hour, 0, 8},
		{"the floor is before it", compactionState{Marks: marks}, 0, 15, now - time.Hour, 15, 15},
		{"the floor is before what is gone", compactionState{Seen: 10, Marks: marks}, 10, 5, now - time.Hour, 0, 10},
		{"of another store", compactionState{Marks: history.Marks{{Revision: 1000}}}, 0, 100, now - time.Hour, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.state.Clock = now
			got, next := c.state.next(window{c.compacted, c.floor, 40}, c.history)
			if got != c.want || next.Seen != c.seen {
				t.Errorf("compact %d with %+v, want %d and %d", got, next, c.want, c.seen)
			}
		})
	}
	t.Run("somebody else compacts regularly", func(t *testing.T) {
		state := compactionState{Marks: marks}
		look := func(compacted storage.Revision, clock time.Duration) (at storage.Revision) {
			state.Clock = clock
			at, state = state.next(window{compacted, 31, 100}, time.Hour)
			return at
		}
		first := 10 * time.Hour
		if got := look(15, first); got != 30 {
			t.Error("one compaction of somebody else's ends ours")
		}
		if got := look(41, first+2*repeatTime); got != 0 || state.Others != 0 {
			t.Errorf("another one days later: it compacts %d with %+v", got, state)
		}
		again := first + 2*repeatTime + 24*time.Hour
		for _, since := range []time.Duration{0, time.Second, time.Hour, othersTime - 1} {
			if got := look(42, again+since); got != 0 || state.Others != again {
				t.Errorf("%v after two in a row it compacts %d with %+v", since, got, state)
			}
		}
		if look(42, again+othersTime); state.Others != 0 {
			t.Errorf("after eight days: %+v", state)
		}
	})
	t.Run("another has begun to compact", func(t *testing.T) {
		state := compactionState{Seen: 20, Clock: now, Marks: history.Marks{{Revision: 30, At: 2 * time.Hour}}}
		if got, next := state.next(window{10, 100, 40}, 2*time.Hour); got != 0 || next.Seen != 20 {
			t.Errorf("after another noted 20, and before that is gone, it compacts %d and notes %+v", got, next)
		}
	})
	t.Run("a replaced store", func(t *testing.T) {
		state := compactionState{Seen: 1000, Clock: now, Marks: marks}
		if _, next := state.next(window{10, 100, 40}, 2*time.Hour); next.Seen > 40 {
			t.Errorf("it notes %+v", next)
		}
	})
	var state compactionState
	for i := range 1000 {
		state.Clock = time.Duration(i) * time.Minute
		if _, state = state.next(window{0, 0, storage.Revision(i + 1)}, 10*time.Hour); len(state.Marks) > 70 {
			t.Fatalf("%d marks", len(state.Marks))
		}
	}
	if newest := state.Marks[len(state.Marks)-1]; newest.At < 999*time.Minute-10*time.Hour/60 {
		t.Errorf("the newest mark is %+v", newest)
	}
}
