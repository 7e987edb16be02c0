// Package history says how much history a store keeps: by age, by bytes, and by which clock. Both stores ask it. storage/etcd has
// its marks in the data directory, and storage/remote in etcd, for all processes over it. Who compacts is theirs to say.
//
// It has no goroutines and no locks: whoever has Marks guards them.
package history

import (
	"slices"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Step returns how much older history is at a look than it was at the look before: never less than nothing, and at most a
// bound, which is somewhat more than what lies between two looks. Between two values of time.Now it's monotonic, so a machine's
// clock that is set counts for nothing. The bound is for a clock that jumps all the same, as a virtual machine's does when it
// goes on after a pause. So a jump of any clock removes no history.
func Step(last, now time.Time, most time.Duration) time.Duration {
	return min(max(0, now.Sub(last)), most)
}

// Bounds say how much is kept.
type Bounds struct {
	Age   time.Duration
	Bytes int64 // keys and values of the changes
}

// parts is into about how many parts marks divide what is kept by age, and into as many by bytes. So history is kept up to a 64th
// longer and larger than asked.
const parts = 64

// Mark says that every change after Revision happened after At, by a clock that Step counts, and that Bytes had been counted by
// then. One of now says where the store is.
type Mark struct {
	Revision storage.Revision `json:"revision"`
	At       time.Duration    `json:"at"`
	Bytes    int64            `json:"bytes,omitempty"`
}

// Marks divide the history, by revision: they say which revision was current when, and so which one may be compacted. The first is
// what has been compacted, or the oldest that is known: there always is one.
type Marks []Mark

// Valid reports whether there are marks, which rise and end no later than now. If not, they are damaged or another store's.
func (m Marks) Valid(now Mark) bool {
	last := Mark{Revision: -1}
	for _, each := range append(m[:len(m):len(m)], now) {
		if each.Revision < last.Revision || each.At < last.At || each.Bytes < last.Bytes {
			return false
		}
		last = each
	}
	return len(m) > 0
}

// Note adds now if a mark is due and something was written since the last one. It reports whether it did.
func (m *Marks) Note(now Mark, keep Bounds) bool {
	last := (*m)[len(*m)-1]
	due := now.At-last.At >= keep.Age/parts || now.Bytes-last.Bytes >= keep.Bytes/parts
	if !due || now.Revision <= last.Revision {
		return false
	}
	*m = append(*m, now)
	return true
}

// Pin has now be a mark, though none may be due, so that a clock that is about to be moved tells what was written before from what is written after. A mark
// that is hardly older goes: there are no more of them than Note makes, by twice.
func (m *Marks) Pin(now Mark, keep Bounds) {
	last := len(*m) - 1
	switch {
	case m.Note(now, keep) || now.Revision <= (*m)[last].Revision:
	case last > 0 && now.At-(*m)[last-1].At < keep.Age/parts && now.Bytes-(*m)[last-1].Bytes < keep.Bytes/parts:
		(*m)[last] = now
	default:
		*m = append(*m, now)
	}
}

// Cut forgets the marks of changes that are too old or too many. It returns the revision up to which to compact, or 0 if there's
// nothing to compact.
func (m *Marks) Cut(now Mark, keep Bounds) storage.Revision {
	first := 0
	for i, each := range *m {
		if now.At-each.At >= keep.Age || i > 0 && now.Bytes-(*m)[i-1].Bytes > keep.Bytes {
			first = i
		}
	}
	return m.forget(first)
}

// Halve forgets the older half of the history's bytes, and returns what Cut returns.
func (m *Marks) Halve(now Mark) storage.Revision {
	if len(*m) < 2 {
		return 0
	}
	goal := now.Bytes - (now.Bytes-(*m)[0].Bytes)/2
	i := slices.IndexFunc((*m)[1:], func(each Mark) bool { return each.Bytes >= goal })
	if i < 0 {
		i = len(*m) - 2
	}
	return m.forget(i + 1)
}

// forget drops the first n marks, and returns what Cut returns.
func (m *Marks) forget(n int) storage.Revision {
	if n == 0 {
		return 0
	}
	*m = slices.Delete(*m, 0, n)
	return (*m)[0].Revision
}
