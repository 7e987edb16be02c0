package remote

import (
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// TestCompactionState: what is older than the history goes, what another compactor takes isn't ours, and marks stay few.
func TestCompactionState(t *testing.T) {
	hour := int64(3600)
	marks := []mark{{0, 10}, {hour, 20}, {2 * hour, 30}}
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	for _, c := range []struct {
		name      string
		state     compactionState
		compacted storage.Revision
		floor     storage.Revision
		before    time.Time
		want      storage.Revision
		seen      storage.Revision
	}{
		{"nothing is old", compactionState{Marks: marks}, 0, 100, at(-1), 0, 0},
		{"the first mark is old", compactionState{Marks: marks}, 0, 100, at(10), 10, 10},
		{"two are", compactionState{Marks: marks}, 0, 100, at(hour), 20, 20},
		{"it was done", compactionState{Seen: 20, Marks: marks}, 20, 100, at(hour), 0, 20},
		{"somebody else compacts", compactionState{Seen: 5, Marks: marks}, 8, 100, at(hour), 0, 8},
		{"the floor is before it", compactionState{Marks: marks}, 0, 15, at(hour), 15, 15},
		{"the floor is before what is gone", compactionState{Seen: 10, Marks: marks}, 10, 5, at(hour), 0, 10},
		{"of another store", compactionState{Marks: []mark{{0, 1000}}}, 0, 100, at(hour), 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, next := c.state.next(window{c.compacted, c.floor, 40}, at(3*hour), at(3*hour).Sub(c.before))
			if got != c.want || next.Seen != c.seen {
				t.Errorf("compact %d with %+v, want %d and %d", got, next, c.want, c.seen)
			}
		})
	}
	t.Run("somebody else goes on", func(t *testing.T) {
		state := compactionState{Seen: 5, Marks: marks}
		look := func(compacted storage.Revision, seconds int64) (at storage.Revision) {
			at, state = state.next(window{compacted, 100, 40}, time.Unix(seconds, 0), time.Hour)
			return at
		}
		other := 3 * hour
		for _, seconds := range []int64{other, other + 1, other + hour, other + 8*24*hour - 1} {
			if got := look(8, seconds); got != 0 {
				t.Errorf("%d seconds after another's compaction it compacts %d", seconds-other, got)
			}
		}
		if got := look(8, other+8*24*hour+hour); got != 40 {
			t.Errorf("after eight days it compacts %d, want 40", got)
		}
		if got := look(state.Seen+1, other+9*24*hour); got != 0 || state.Others != other+9*24*hour {
			t.Errorf("another compacts again, and it compacts %d with %+v", got, state)
		}
	})
	t.Run("another has begun to compact", func(t *testing.T) {
		state := compactionState{Seen: 20, Marks: []mark{{2 * hour, 30}}}
		if got, next := state.next(window{10, 100, 40}, at(3*hour), 2*time.Hour); got != 0 || next.Seen != 20 {
			t.Errorf("after another noted 20, and before that is gone, it compacts %d and notes %+v", got, next)
		}
	})
	t.Run("a replaced store", func(t *testing.T) {
		state := compactionState{Seen: 1000, Marks: marks}
		if _, next := state.next(window{10, 100, 40}, at(3*hour), 2*time.Hour); next.Seen > 40 {
			t.Errorf("it notes %+v", next)
		}
	})
	var state compactionState
	for i := range int64(1000) {
		if _, state = state.next(window{0, 0, storage.Revision(i + 1)}, at(i), at(i).Sub(at(-1))); len(state.Marks) > maxMarks {
			t.Fatalf("%d marks", len(state.Marks))
		}
	}
	if newest := state.Marks[len(state.Marks)-1]; newest.Time != 999 {
		t.Errorf("the newest mark is %+v", newest)
	}
}
