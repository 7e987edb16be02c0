package e2e

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// ledger is what the clients of several replicas did and were told. Every value is written once at most, so that a value
// says which write it's from. All versions are revisions of one etcd, so they can be compared whoever said them.
type ledger struct {
	t     testing.TB
	begin time.Time
	acked atomic.Int64 // the highest version that a write was answered with
	next  atomic.Int64 // the last value that was given out

	mu       sync.Mutex // guards all below
	history  []porcupine.Operation
	writes   map[int64]*swap // by the value written; deletions by a value of their own
	events   map[int64]event // by version: what watches of everything got
	lists    []seenList
	watched  []stretch
	problems []string
}

// swap is a write: it replaces one value of a key by another, 0 being absence.
type swap struct {
	key               string
	expected, written int64
	id                int64
	answered          answered
	rv                int64 // of an answer that has one
}

// answered is what is known of a write.
type answered int

const (
	unsure answered = iota // it may have happened, or may yet
	done
	refused // the key had another value
)

func (a answered) String() string { return [...]string{"unknown", "done", "refused"}[a] }

// read is a read of a key that must be linearizable.
type read struct{ key string }

// seenList is a list that somebody got.
type seenList struct {
	who   string
	rv    int64
	items map[string]int64
}

// stretch is what one watch got between two versions: everything after from, up to to.
type stretch struct {
	who      string
	from, to int64
	front    bool // it selects tier=front
	events   []event
}

func newLedger(t testing.TB) *ledger {
	return &ledger{t: t, begin: time.Now(), writes: map[int64]*swap{}, events: map[int64]event{}}
}

// mostProblems is how many problems are told: one mistake has many.
const mostProblems = 20

// wrong notes what must not happen.
func (l *ledger) wrong(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wrongLocked(format, args...)
}

// wrongLocked is wrong with mu held.
func (l *ledger) wrongLocked(format string, args ...any) {
	if len(l.problems) < mostProblems {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

// failed tells whether something was wrong.
func (l *ledger) failed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.problems) > 0
}

// tierOf is the label that a value goes with.
func tierOf(value int64) string {
	if value%3 == 0 {
		return "back"
	}
	return "front"
}

// now is the time since the beginning.
func (l *ledger) now() int64 { return time.Since(l.begin).Nanoseconds() }

// forever is when operations end of which nobody was told that they ended.
const forever = int64(1) << 62

// wrote notes a write.
func (l *ledger) wrote(client int, s *swap, call int64) {
	back := l.now()
	if s.answered == unsure {
		back = forever
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes[s.id] = s
	l.history = append(l.history, porcupine.Operation{ClientId: client, Input: *s, Output: s.answered, Call: call, Return: back})
	if s.rv > l.acked.Load() {
		l.acked.Store(s.rv)
	}
}

// readAll notes a consistent read of keys.
func (l *ledger) readAll(client int, call int64, values map[string]int64) {
	back := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, value := range values {
		l.history = append(l.history, porcupine.Operation{ClientId: client, Input: read{key}, Output: value, Call: call, Return: back})
	}
}

// saw notes a list.
func (l *ledger) saw(s seenList) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lists = append(l.lists, s)
}

// watchedAll notes what a watch got.
func (l *ledger) watchedAll(s stretch) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched = append(l.watched, s)
	if s.front {
		return
	}
	for _, e := range s.events {
		rv := e.Object.rv(l.t)
		if other, ok := l.events[rv]; ok && (other.Type != e.Type || other.Object.Metadata.Name != e.Object.Metadata.Name || other.Object.Spec.Size != e.Object.Spec.Size) {
			l.wrongLocked("%s got %s %s=%d at %d; another watch got %s %s=%d", s.who, e.Type, e.Object.Metadata.Name, e.Object.Spec.Size, rv, other.Type, other.Object.Metadata.Name, other.Object.Spec.Size)
		}
		l.events[rv] = e
	}
}

// cell is the sequential model of one key.
var cell = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			switch in := op.Input.(type) {
			case swap:
				byKey[in.key] = append(byKey[in.key], op)
			case read:
				byKey[in.key] = append(byKey[in.key], op)
			}
		}
		return slices.Collect(maps.Values(byKey))
	},
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		now := state.(int64)
		in, isSwap := input.(swap)
		if !isSwap {
			return output.(int64) == now, now
		}
		switch output.(answered) {
		case done:
			return now == in.expected, in.written
		case refused:
			return now != in.expected, now
		}
		// One that never happened is put after everything else, where it's seen by nobody.
		if now == in.expected {
			return true, in.written
		}
		return true, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
}

// check compares all that the clients were told with each other, and returns what is wrong. The clients have ended.
func (l *ledger) check() []string {
	states := l.replay()
	if len(l.problems) > 0 {
		return l.problems
	}
	for _, s := range l.watched {
		l.checkStretch(s)
	}
	for _, s := range l.lists {
		if want := states.at(s.rv); !maps.Equal(want, s.items) {
			l.wrong("%s listed %v at %d, and there was %v", s.who, s.items, s.rv, want)
		}
	}
	if result := porcupine.CheckOperationsTimeout(cell, l.history, time.Minute); result != porcupine.Ok {
		l.wrong("the history of %d operations is %s", len(l.history), result)
	}
	return l.problems
}

// summary says how much happened.
func (l *ledger) summary() string {
	outcomes := map[answered]int{}
	for _, s := range l.writes {
		outcomes[s.answered]++
	}
	return fmt.Sprintf("%d operations, of which writes %v; %d events, %d lists, %d stretches of watches", len(l.history), outcomes, len(l.events), len(l.lists), len(l.watched))
}

// states are the objects after each version at which something changed.
type states struct {
	versions []int64
	objects  []map[string]int64
}

// at returns the state at a version.
func (s *states) at(rv int64) map[string]int64 {
	i, found := slices.BinarySearch(s.versions, rv)
	if found {
		return s.objects[i]
	}
	if i == 0 {
		return map[string]int64{}
	}
	return s.objects[i-1]
}

// replay puts the events of all watches in order: each must be a write that somebody sent and that wasn't refused, made
// of what was there before, and each acknowledged write must be among them once, at the version of its answer.
func (l *ledger) replay() *states {
	byDeletion := map[string]*swap{} // deletions by key and what they delete
	for _, s := range l.writes {
		if s.written == 0 && s.answered != refused {
			at := fmt.Sprint(s.key, " ", s.expected)
			if other := byDeletion[at]; other == nil || other.answered != done {
				byDeletion[at] = s
			}
		}
	}
	all, now, happened := &states{}, map[string]int64{}, map[int64]bool{}
	for _, rv := range slices.Sorted(maps.Keys(l.events)) {
		e := l.events[rv]
		key, value := e.Object.Metadata.Name, e.Object.Spec.Size
		s := l.writes[value]
		if e.Type == "DELETED" {
			if value != now[key] {
				l.wrong("%s is deleted at %d with the value %d, and had %d", key, rv, value, now[key])
			}
			s, value = byDeletion[fmt.Sprint(key, " ", now[key])], 0
		}
		switch {
		case s == nil:
			l.wrong("%s %s=%d at %d is nobody's write", e.Type, key, value, rv)
			return all
		case s.answered == refused:
			l.wrong("%s %s=%d happened at %d, and was refused", e.Type, key, value, rv)
		case s.expected != now[key]:
			l.wrong("%s %s=%d at %d was to replace %d, and replaced %d", e.Type, key, value, rv, s.expected, now[key])
		case s.rv != 0 && s.rv != rv:
			l.wrong("%s %s=%d is at %d, and was answered with %d", e.Type, key, value, rv, s.rv)
		case happened[s.id]:
			l.wrong("%s %s=%d happened twice, the second time at %d", e.Type, key, value, rv)
		case (e.Type == "ADDED") != (s.expected == 0):
			l.wrong("%s %s=%d at %d replaced %d", e.Type, key, value, rv, s.expected)
		}
		happened[s.id] = true
		if now = maps.Clone(now); value == 0 {
			delete(now, key)
		} else {
			now[key] = value
		}
		all.versions, all.objects = append(all.versions, rv), append(all.objects, now)
	}
	for id, s := range l.writes {
		if s.answered == done && !happened[id] {
			l.wrong("%s: %d for %d was acknowledged at %d, and no watch has it", s.key, s.written, s.expected, s.rv)
		}
	}
	return all
}

// checkStretch: a watch got what all watches together got between its versions, in order, and nothing twice.
func (l *ledger) checkStretch(s stretch) {
	var want []string
	before := map[string]bool{} // what it has been shown, by the value before
	last := map[string]int64{}
	for _, rv := range slices.Sorted(maps.Keys(l.events)) {
		if rv > s.to {
			break
		}
		e := l.events[rv]
		name, is := e.Object.Metadata.Name, e.Type != "DELETED" && (!s.front || tierOf(e.Object.Spec.Size) == "front")
		was, value, typ := before[name], e.Object.Spec.Size, "MODIFIED"
		switch {
		case !was && !is:
			typ = ""
		case !was:
			typ = "ADDED"
		case !is:
			typ, value = "DELETED", last[name]
		}
		before[name], last[name] = is, e.Object.Spec.Size
		if typ != "" && rv > s.from {
			want = append(want, fmt.Sprintf("%s %s=%d at %d", typ, name, value, rv))
		}
	}
	var got []string
	for _, e := range s.events {
		got = append(got, fmt.Sprintf("%s %s=%d at %d", e.Type, e.Object.Metadata.Name, e.Object.Spec.Size, e.Object.rv(l.t)))
	}
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			show := func(from []string) []string { return from[min(i, len(from)):min(i+3, len(from))] }
			l.wrong("%s from %d to %d: after %d events it got %q, want %q", s.who, s.from, s.to, i, show(got), show(want))
			return
		}
	}
}
