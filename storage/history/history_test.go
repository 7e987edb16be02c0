package history

import (
	"slices"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

func TestCut(t *testing.T) {
	const hour = time.Hour
	list := Marks{{1, 0, 0}, {10, hour / 2, 100}, {20, hour, 200}, {30, 3 * hour / 2, 300}}
	tests := []struct {
		name     string
		at       time.Duration
		bytes    int64            // counted by then; the bound is 1000
		want     storage.Revision // to compact
		wantLeft int
	}{
		{"young", hour / 2, 300, 0, 4},
		{"the first mark is old", hour, 300, 0, 4},
		{"the second is old", 3 * hour / 2, 300, 10, 3},
		{"all are old", 5 * hour, 300, 30, 1},
		{"one byte too much", hour / 2, 1001, 10, 3},
		{"just enough", hour / 2, 1000, 0, 4},
		{"far too much", hour / 2, 9000, 30, 1},
		{"old and too much", 3 * hour / 2, 1201, 30, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m, now, keep := slices.Clone(list), Mark{40, tt.at, tt.bytes}, Bounds{hour, 1000}
			if got := m.Cut(now, keep); got != tt.want || len(m) != tt.wantLeft {
				t.Errorf("cut to %d with %d marks left, want %d and %d", got, len(m), tt.want, tt.wantLeft)
			}
			if m.Cut(now, keep) != 0 {
				t.Error("there's more to cut")
			}
		})
	}
}

func TestHalve(t *testing.T) {
	m := Marks{{1, 0, 0}, {2, 0, 200}, {3, 0, 400}, {4, 0, 600}}
	for _, want := range []storage.Revision{3, 4, 0} {
		if got := m.Halve(Mark{5, 0, 800}); got != want {
			t.Errorf("halved to %d, want %d", got, want)
		}
	}
}

// Marks are few, however long and fast is written, and history is what was asked for.
func TestMarksAreBounded(t *testing.T) {
	m, keep := Marks{{1, 0, 0}}, Bounds{time.Hour, 1 << 20}
	for second := range 5 * 3600 {
		now := Mark{storage.Revision(second) + 2, time.Duration(second) * time.Second, int64(second) * 100}
		m.Note(now, keep)
		m.Cut(now, keep)
		if len(m) > 2*parts+2 {
			t.Fatalf("%d marks", len(m))
		}
		if age := now.At - m[0].At; now.At > time.Hour && (age < time.Hour || age > time.Hour+2*time.Minute) {
			t.Fatalf("after %v history is %v", now.At, age)
		}
	}
}

// Nothing is noted of a store in which nothing was written, and before a mark is due.
func TestNote(t *testing.T) {
	keep := Bounds{time.Hour, 6400}
	for _, tt := range []struct {
		name string
		now  Mark
		want bool
	}{
		{"nothing was written", Mark{5, 2 * time.Hour, 500}, false},
		{"it's early, and little", Mark{6, 56 * time.Second, 599}, false},
		{"it's late", Mark{6, time.Minute, 500}, true},
		{"it's much", Mark{6, 0, 600}, true},
	} {
		m := Marks{{1, 0, 0}, {5, 0, 500}}
		if got := m.Note(tt.now, keep); got != tt.want || (len(m) == 3) != tt.want {
			t.Errorf("%s: %t, and %v", tt.name, got, m)
		}
	}
}

// Marks that don't rise, or are of a store that has come further, aren't this store's.
func TestValid(t *testing.T) {
	now := Mark{10, time.Hour, 100}
	for _, tt := range []struct {
		name string
		m    Marks
		want bool
	}{
		{"none", nil, false},
		{"all right", Marks{{1, 0, 0}, {10, time.Minute, 100}}, true},
		{"nothing was written between two", Marks{{1, 0, 0}, {1, time.Minute, 0}}, true},
		{"revisions fall", Marks{{2, 0, 0}, {1, time.Minute, 0}}, false},
		{"time falls", Marks{{1, 1, 0}, {2, 0, 0}}, false},
		{"bytes fall", Marks{{1, 0, 1}, {2, 0, 0}}, false},
		{"a later revision than now", Marks{{1, 0, 0}, {11, 0, 0}}, false},
		{"a later time than now", Marks{{1, 2 * time.Hour, 0}}, false},
		{"more bytes than now", Marks{{1, 0, 101}}, false},
	} {
		if got := tt.m.Valid(now); got != tt.want {
			t.Errorf("%s: %t", tt.name, got)
		}
	}
}

// Whoever pins what is, and then moves the clock, cuts exactly what was written before; marks stay few.
func TestPin(t *testing.T) {
	keep := Bounds{time.Hour, 1 << 20}
	m := Marks{{1, 0, 0}}
	m.Pin(Mark{1, 0, 0}, keep)
	if len(m) != 1 {
		t.Fatalf("nothing was written, and there are marks: %v", m)
	}
	m.Pin(Mark{7, 0, 0}, keep)
	if cut := m.Cut(Mark{9, time.Hour, 0}, keep); cut != 7 {
		t.Fatalf("cut to %d, want 7", cut)
	}
	at := time.Hour
	for revision := range storage.Revision(10_000) {
		m.Pin(Mark{10 + revision, at, 0}, keep)
		if last := m[len(m)-1]; last.Revision != 10+revision || last.At != at {
			t.Fatalf("the last is %v", last)
		}
		at += time.Second
		if len(m) > 2*2*parts+2 {
			t.Fatalf("%d marks", len(m))
		}
		if !m.Valid(Mark{10 + revision, at, 0}) {
			t.Fatalf("they don't rise: %v", m)
		}
		m.Cut(Mark{10 + revision, at, 0}, keep)
	}
	if kept := at - m[0].At; kept < time.Hour || kept > time.Hour+2*time.Hour/parts {
		t.Errorf("history of %v is kept", kept)
	}
}
