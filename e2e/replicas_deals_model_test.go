package e2e

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"
)

// The model of transactions over replicas. Objects of two kinds are in groups, and a transaction, here a deal, is about one group: it says what each
// of some of the group's objects must hold, and writes its own number into some of them, or deletes them. So a value says which deal it's from, and
// groups can be checked each by itself.

const (
	dealGroups = 3
	// groupKeys is how many objects a group has, of which every other one is a widget, and the others are ConfigMaps.
	groupKeys = 4
	// untouched stands for an object that a deal doesn't write or ask about, or that a read hasn't read.
	untouched = int64(-1)
)

// group are the values of a group's objects, 0 being absence.
type group [groupKeys]int64

// nothing is a group of which nothing is touched.
var nothing = group{untouched, untouched, untouched, untouched}

// deal is a transaction, or a single write.
type deal struct {
	id       int64
	group    int
	expected group // what must be there
	written  group
	answered answered
	rv       int64 // of an answer that has one
}

// meets tells whether a group is as the deal wants it.
func (d deal) meets(now group) bool {
	for k, want := range d.expected {
		if want != untouched && now[k] != want {
			return false
		}
	}
	return true
}

// after is what the deal makes of a group.
func (d deal) after(now group) group {
	for k, value := range d.written {
		if value != untouched {
			now[k] = value
		}
	}
	return now
}

// look is a read of some of a group's objects, at one moment.
type look struct{ group int }

// seenDeal is what a watch has got of one version: of each object the value, 0 for one that was deleted.
type seenDeal struct {
	group  int
	values group
	added  [groupKeys]bool
}

// dealList is a list of all groups.
type dealList struct {
	who    string
	rv     int64
	groups [dealGroups]group
}

// book is what clients of several replicas did and were told.
type book struct {
	begin time.Time
	next  atomic.Int64 // the last number that was given out

	mu       sync.Mutex // guards all below
	history  []porcupine.Operation
	deals    map[int64]deal
	watched  map[string]map[int64]seenDeal // by who watched, and version
	lists    []dealList
	problems []string
}

func newBook() *book {
	return &book{begin: time.Now(), deals: map[int64]deal{}, watched: map[string]map[int64]seenDeal{}}
}

// now is the time since the beginning.
func (b *book) now() int64 { return time.Since(b.begin).Nanoseconds() }

// wrong notes what must not happen.
func (b *book) wrong(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) < mostProblems {
		b.problems = append(b.problems, fmt.Sprintf(format, args...))
	}
}

func (b *book) failed() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.problems) > 0
}

// dealt notes a deal.
func (b *book) dealt(client int, d deal, call int64) {
	back := b.now()
	if d.answered == unsure {
		back = forever
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deals[d.id] = d
	b.history = append(b.history, porcupine.Operation{ClientId: client, Input: d, Output: d.answered, Call: call, Return: back})
}

// looked notes a read of a group.
func (b *book) looked(client, of int, call, back int64, values group) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.history = append(b.history, porcupine.Operation{ClientId: client, Input: look{of}, Output: values, Call: call, Return: back})
}

// listed notes a list of all groups at one version, which is a read of each.
func (b *book) listed(client int, call, back int64, l dealList) {
	for of, values := range l.groups {
		b.looked(client, of, call, back, values)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lists = append(b.lists, l)
}

// saw notes what a watch got of one version.
func (b *book) saw(who string, rv int64, s seenDeal) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watched[who] == nil {
		b.watched[who] = map[int64]seenDeal{}
	}
	b.watched[who][rv] = s
}

// groupModel is the sequential model of one group: a deal is one step over several objects.
var groupModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		groups := make([][]porcupine.Operation, dealGroups)
		for _, op := range history {
			switch in := op.Input.(type) {
			case deal:
				groups[in.group] = append(groups[in.group], op)
			case look:
				groups[in.group] = append(groups[in.group], op)
			}
		}
		return groups
	},
	Init: func() any { return group{} },
	Step: func(state, input, output any) (bool, any) {
		now := state.(group)
		d, isDeal := input.(deal)
		if !isDeal {
			return (deal{expected: output.(group)}).meets(now), now
		}
		switch met := d.meets(now); output.(answered) {
		case done:
			return met, d.after(now)
		case refused:
			return !met, now
		default: // one that never happened is put after everything else, where it's seen by nobody
			if met {
				return true, d.after(now)
			}
			return true, now
		}
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %v", input, output) },
}

// check compares all that the clients were told with each other, and returns what is wrong. The clients have ended.
func (b *book) check() []string {
	all := map[int64]seenDeal{}
	for who, seen := range b.watched {
		for rv, s := range seen {
			if other, is := all[rv]; is && other != s {
				b.wrong("%s got %+v at %d, and another watch %+v", who, s, rv, other)
			}
			all[rv] = s
		}
	}
	for who, seen := range b.watched {
		for rv, s := range all {
			if _, is := seen[rv]; !is {
				b.wrong("%s hasn't got %+v at %d", who, s, rv)
			}
		}
	}
	b.replay(all)
	if len(b.problems) == 0 {
		if result := porcupine.CheckOperationsTimeout(groupModel, b.history, time.Minute); result != porcupine.Ok {
			b.wrong("the history of %d operations is %s", len(b.history), result)
		}
	}
	return b.problems
}

// replay puts what all watches got in order: each version has the whole of one deal that somebody sent, that wasn't refused, and that found what
// it expected; each acknowledged deal is among them, at the version of its answer; and lists have what was there at their version.
func (b *book) replay(all map[int64]seenDeal) {
	var now [dealGroups]group
	happened := map[int64]bool{}
	slices.SortFunc(b.lists, func(x, y dealList) int { return int(x.rv - y.rv) })
	lists := b.lists
	compare := func(before int64) {
		for ; len(lists) > 0 && lists[0].rv < before; lists = lists[1:] {
			if lists[0].groups != now {
				b.wrong("%s listed %v at %d, and there was %v", lists[0].who, lists[0].groups, lists[0].rv, now)
			}
		}
	}
	for _, rv := range slices.Sorted(maps.Keys(all)) {
		compare(rv)
		s := all[rv]
		d := b.deals[slices.Max(s.values[:])]
		switch {
		case d.id == 0:
			b.wrong("%+v at %d is nobody's", s, rv)
			return
		case s.group != d.group || s.values != d.written:
			b.wrong("at %d there is %+v of the deal %+v", rv, s, d)
		case d.answered == refused:
			b.wrong("%+v happened at %d, and was refused", d, rv)
		case d.rv != 0 && d.rv != rv:
			b.wrong("%+v is at %d", d, rv)
		case happened[d.id]:
			b.wrong("%+v happened twice, the second time at %d", d, rv)
		case !d.meets(now[d.group]):
			b.wrong("%+v happened at %d, when there was %v", d, rv, now[d.group])
		}
		for k := range groupKeys {
			if s.values[k] > 0 && s.added[k] != (now[s.group][k] == 0) {
				b.wrong("%+v at %d is of what was %v", s, rv, now[s.group])
			}
		}
		happened[d.id] = true
		now[d.group] = d.after(now[d.group])
	}
	compare(forever)
	for id, d := range b.deals {
		if d.answered == done && !happened[id] {
			b.wrong("%+v was acknowledged, and no watch has it", d)
		}
	}
}

// summary says how much happened.
func (b *book) summary() string {
	outcomes, wide := map[answered]int{}, 0
	for _, d := range b.deals {
		outcomes[d.answered]++
		if strings.Count(fmt.Sprint(d.written), fmt.Sprint(untouched)) < groupKeys-1 {
			wide++
		}
	}
	versions := map[string]int{}
	for who, seen := range b.watched {
		versions[who] = len(seen)
	}
	return fmt.Sprintf("%d operations, of which deals %v, %d of these of several objects; %d lists; watches got %v", len(b.history), outcomes, wide, len(b.lists), versions)
}
