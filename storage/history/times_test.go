package history

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }

// looked has looks at 5 revisions: at noon, nothing new after a second, and so on.
func looked() *Times {
	t := &Times{}
	for _, look := range []struct {
		rev     storage.Revision
		seconds int
	}{{10, 0}, {10, 1}, {20, 2}, {20, 3}, {20, 60}, {30, 61}, {40, 55}, {40, 56}} { // the clock was set back after 61
		t.Look(look.rev, at(look.seconds), at(look.seconds))
	}
	return t
}

func TestTimesOf(t *testing.T) {
	for _, tt := range []struct {
		name     string
		rev      storage.Revision
		from, to int
		unknown  bool
	}{
		{"before the first look", 5, 0, 0, true},
		{"at the first look", 10, 0, 0, true},
		{"between two looks", 11, 1, 2, false},
		{"the last of a look", 20, 1, 2, false},
		{"after a while of nothing", 21, 60, 61, false},
		{"after the clock was set back", 31, 55, 55, false},
		{"after the last look", 41, 56, 57, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			from, to, ok := looked().Of(tt.rev, at(57))
			if ok == tt.unknown || ok && (!from.Equal(at(tt.from)) || !to.Equal(at(tt.to))) {
				t.Errorf("from %v to %v, %t", from, to, ok)
			}
		})
	}
	if rev, lag, _, ok := looked().At(at(1).Add(time.Second / 2)); rev != 10 || lag != time.Second/2 || !ok {
		t.Errorf("between two looks: %d, lag %v, %t", rev, lag, ok)
	}
	if _, _, ok := new(Times).Of(1, noon); ok {
		t.Error("known before any look")
	}
}

func TestTimesAt(t *testing.T) {
	for _, tt := range []struct {
		name    string
		seconds int
		want    storage.Revision // 0: unknown
		lag     time.Duration
	}{
		{"before the first look", -1, 0, 0},
		{"at the first look", 0, 10, 0},
		{"at a look that found nothing", 1, 10, 0},
		{"at a look", 2, 20, 0},
		{"in a while of nothing", 30, 20, 0},
		{"at an instant that came twice", 58, 40, 2 * time.Second},
		{"later than all", 100, 40, 44 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rev, lag, begins, ok := looked().At(at(tt.seconds))
			if rev != tt.want || ok != (tt.want > 0) || lag != tt.lag {
				t.Errorf("%d, lag %v, %t", rev, lag, ok)
			}
			if !ok && !begins.Equal(noon) {
				t.Errorf("begins at %v", begins)
			}
		})
	}
}

func TestTimesSaved(t *testing.T) {
	saved, err := json.Marshal(looked())
	if err != nil {
		t.Fatal(err)
	}
	read := looked()
	read.Look(1000, at(1000), at(1000))
	if err := json.Unmarshal(saved, read); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(read)
	if err != nil || string(again) != string(saved) {
		t.Errorf("%s became %s, %v", saved, again, err)
	}
	read.Look(50, at(3600), at(3600)) // by the next process
	if from, to, ok := read.Of(45, at(3601)); !ok || !from.Equal(at(56)) || !to.Equal(at(3600)) {
		t.Errorf("what was written between the last save and the next start: %v to %v, %t", from, to, ok)
	}
	if err := json.Unmarshal([]byte(`{"looked":5,"spans":[[3,1,2],[3,2,3]]}`), read); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := read.Of(3, noon); ok {
		t.Error("what isn't in order was taken")
	}
}

// However many looks find something, a bounded number is kept, the newest as exact as ever, and nothing contradicts.
func TestTimesBounded(t *testing.T) {
	times := &Times{}
	const looks = 5 * maxSpans
	for i := range looks {
		times.Look(storage.Revision(i+1), at(i), at(i))
	}
	if n := len(times.spans); n > maxSpans {
		t.Errorf("%d spans", n)
	}
	for rev := 2; rev <= looks; rev += 97 {
		from, to, ok := times.Of(storage.Revision(rev), at(looks))
		if written := at(rev - 1); !ok || from.After(written) || to.Before(written) {
			t.Fatalf("revision %d: from %v to %v, %t, written at %v", rev, from, to, ok, written)
		}
	}
	if from, to, _ := times.Of(looks-10, at(looks)); to.Sub(from) != time.Second {
		t.Errorf("one of the newest is known within %v", to.Sub(from))
	}
	times.Cut(looks - 5)
	if n := len(times.spans); n != 7 { // one for all that was before
		t.Errorf("%d spans are left of 6 revisions", n)
	}
	for _, rev := range []storage.Revision{1, looks / 2, looks - 6} {
		if from, to, ok := times.Of(rev, at(looks)); ok {
			t.Errorf("revision %d, which is before history: from %v to %v", rev, from, to)
		}
	}
	if from, to, ok := times.Of(looks-5, at(looks)); !ok || !from.Equal(at(looks-7)) || !to.Equal(at(looks-6)) {
		t.Errorf("the revision with which history begins: from %v to %v, %t", from, to, ok)
	}
}
