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
