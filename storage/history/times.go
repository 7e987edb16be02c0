package history

import (
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Times say when revisions were written, by the clock on the wall: for each look at which something had been written since the last one.
// They're as exact as the looks are frequent. The zero value has yet to look. It's safe for concurrent use.
type Times struct {
	mu     sync.Mutex // guards the rest; a leaf
	spans  []span     // by revision
	looked time.Time  // when the last look was; zero before
}

// span says that the revisions after the one of the span before it, through this one, were written between two instants.
type span struct {
	through  storage.Revision
	from, to time.Time // from is zero where the first look found what was there, and of what was cut
}

// maxSpans bounds the memory of Times, and what a process saves of them: an hour has 3,600 seconds. Where more looks have found something, the
// older half gets half as exact.
const maxSpans = 8192

// Look notes that a revision was the newest at a moment between two instants. A clock that was set back makes an instant that lies before others.
func (t *Times) Look(newest storage.Revision, before, after time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	begun := before.Round(0).Truncate(time.Millisecond)
	ended := after.Round(0).Add(time.Millisecond - 1).Truncate(time.Millisecond) // both as they're saved, and without the monotonic clock
	from := t.looked
	if from.After(begun) {
		from = begun
	}
	if n := len(t.spans); n == 0 || newest > t.spans[n-1].through {
		t.spans = append(t.spans, span{newest, from, ended})
	}
	t.looked = begun
	if len(t.spans) > maxSpans {
		t.thinLocked()
	}
}

// thinLocked makes one span of each two of the older half. The first stays: nobody knows when it began.
func (t *Times) thinLocked() {
	old := t.spans[1 : 1+len(t.spans)/4*2]
	for i := 0; i < len(old); i += 2 {
		old[i/2] = span{old[i+1].through, old[i].from, old[i+1].to}
	}
	t.spans = slices.Delete(t.spans, 1+len(old)/2, 1+len(old))
}

// Cut forgets when revisions were written that history doesn't have any more, but for the one itself: that's the state with which history begins.
// What is older and still there is known to be older.
func (t *Times) Cut(compacted storage.Revision) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.IndexFunc(t.spans, func(s span) bool { return s.through >= compacted }); i > 0 {
		t.spans = slices.Delete(t.spans, 0, i-1)
		t.spans[0].from = time.Time{}
	}
}

// Of returns between which instants a revision was written, by now: not before from, and not after to. ok is false where nobody knows.
func (t *Times) Of(rev storage.Revision, now time.Time) (from, to time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, _ := slices.BinarySearchFunc(t.spans, rev, func(s span, rev storage.Revision) int { return int(s.through - rev) })
	if i == len(t.spans) {
		return t.looked, now.Round(0), !t.looked.IsZero()
	}
	s := t.spans[i]
	return s.from, s.to, !s.from.IsZero()
}

// At returns the newest revision of which it's certain that it was written by an instant. Later ones may have been written up to lag before the
// instant. ok is false for an instant before the first look, which is begins.
func (t *Times) At(instant time.Time) (rev storage.Revision, lag time.Duration, begins time.Time, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := len(t.spans) - 1; i >= 0; i-- {
		if s := t.spans[i]; !s.to.After(instant) {
			next := t.looked
			if i+1 < len(t.spans) {
				next = t.spans[i+1].from
			}
			return s.through, max(0, instant.Sub(next)), t.spans[0].to, true
		}
	}
	if len(t.spans) > 0 {
		begins = t.spans[0].to
	}
	return 0, 0, begins, false
}

// saved is Times as JSON: compact, as there may be thousands.
type saved struct {
	Looked int64      `json:"looked"` // in Unix milliseconds, as all of them; 0 for never
	Spans  [][3]int64 `json:"spans,omitempty"`
}

// MarshalJSON returns what UnmarshalJSON takes.
func (t *Times) MarshalJSON() ([]byte, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := saved{Looked: milli(t.looked), Spans: make([][3]int64, len(t.spans))}
	for i, each := range t.spans {
		s.Spans[i] = [3]int64{int64(each.through), milli(each.from), milli(each.to)}
	}
	return json.Marshal(s)
}

// UnmarshalJSON takes the place of what was known. What isn't in order is none.
func (t *Times) UnmarshalJSON(b []byte) error {
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	spans := make([]span, len(s.Spans))
	for i, each := range s.Spans {
		spans[i] = span{storage.Revision(each[0]), instant(each[1]), instant(each[2])}
		if i > 0 && spans[i].through <= spans[i-1].through {
			spans, s.Looked = nil, 0
			break
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.spans, t.looked = spans, instant(s.Looked)
	return nil
}

func milli(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

func instant(milli int64) time.Time {
	if milli == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milli)
}
