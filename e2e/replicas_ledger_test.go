package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// TestLedger: the model of several replicas finds what must not happen, and nothing else.
func TestLedger(t *testing.T) {
	at := func(typ, name string, value, rv int64) event {
		e := event{Type: typ}
		e.Object.Metadata.Name, e.Object.Metadata.ResourceVersion, e.Object.Spec.Size = name, fmt.Sprint(rv), value
		return e
	}
	events := []event{at("ADDED", "k", 1, 11), at("MODIFIED", "k", 2, 12), at("MODIFIED", "k", 3, 13), at("DELETED", "k", 3, 14)}
	writes := func() []*swap {
		return []*swap{
			{key: "k", written: 1, id: 1, answered: done, rv: 11},
			{key: "k", expected: 1, written: 2, id: 2, answered: done, rv: 12},
			{key: "k", expected: 2, written: 3, id: 3, answered: unsure},
			{key: "k", expected: 3, id: 4, answered: done},
			{key: "k", expected: 2, written: 5, id: 5, answered: refused},
		}
	}
	for _, tc := range []struct {
		name  string
		spoil func(l *ledger)
		want  string
	}{
		{"as it should be", func(*ledger) {}, ""},
		{"a gap", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 10, to: 14, events: []event{events[0], events[2], events[3]}})
		}, "after 1 events it got"},
		{"a repeat", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 10, to: 12, events: []event{events[0], events[0], events[1]}})
		}, "after 1 events it got"},
		{"an event too many", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 11, to: 12, events: []event{events[0], events[1]}})
		}, "after 0 events it got"},
		{"one that has come further than it was told", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 10, to: 13, events: events[:2]})
		}, "after 2 events it got"},
		{"a watch of a label", func(l *ledger) { // 3 isn't in front
			l.watchedAll(stretch{who: "w", from: 10, to: 14, front: true, events: []event{events[0], events[1], at("DELETED", "k", 2, 13)}})
		}, ""},
		{"a watch of a label that isn't told of a departure", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 10, to: 14, front: true, events: events[:2]})
		}, "after 2 events it got"},
		{"two watches differ", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 10, to: 11, events: []event{at("ADDED", "k", 7, 11)}})
		}, "another watch got"},
		{"an old list", func(l *ledger) { l.saw(seenList{"l", 12, map[string]int64{"k": 1}}) }, "listed"},
		{"a list", func(l *ledger) { l.saw(seenList{"l", 12, map[string]int64{"k": 2}}) }, ""},
		{"an old read", func(l *ledger) { l.readAll(0, l.now(), map[string]int64{"k": 2}) }, "is Illegal"},
		{"a read", func(l *ledger) { l.readAll(0, l.now(), map[string]int64{"k": 0}) }, ""},
		{"an acknowledged write that isn't there", func(l *ledger) {
			l.wrote(1, &swap{key: "j", written: 9, id: 9, answered: done, rv: 20}, l.now())
		}, "no watch has it"},
		{"a refused write that is there", func(l *ledger) {
			l.wrote(1, &swap{key: "j", written: 9, id: 9, answered: refused}, l.now())
			l.watchedAll(stretch{who: "w", from: 14, to: 15, events: []event{at("ADDED", "j", 9, 15)}})
		}, "was refused"},
		{"a write at another version than it was answered with", func(l *ledger) {
			l.wrote(1, &swap{key: "j", written: 9, id: 9, answered: done, rv: 16}, l.now())
			l.watchedAll(stretch{who: "w", from: 14, to: 15, events: []event{at("ADDED", "j", 9, 15)}})
		}, "was answered with 16"},
		{"nobody's write", func(l *ledger) {
			l.watchedAll(stretch{who: "w", from: 14, to: 15, events: []event{at("ADDED", "j", 9, 15)}})
		}, "nobody's write"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(t)
			for i, w := range writes() {
				l.wrote(i, w, l.now())
			}
			l.watchedAll(stretch{who: "all", from: 10, to: 14, events: events})
			tc.spoil(l)
			problems := strings.Join(l.check(), "\n")
			if (problems == "") != (tc.want == "") || !strings.Contains(problems, tc.want) {
				t.Errorf("it found %q, want %q", problems, tc.want)
			}
		})
	}
}
