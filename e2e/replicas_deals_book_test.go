package e2e

import (
	"strings"
	"testing"
)

// TestBook: the model of transactions over replicas finds what must not happen, and nothing else.
func TestBook(t *testing.T) {
	with := func(k int, value int64) group { g := nothing; g[k] = value; return g }
	both := func(value int64) group { return group{value, value, untouched, untouched} }
	deals := []deal{
		{id: 1, expected: both(0), written: both(1), answered: done, rv: 11},
		{id: 2, expected: both(1), written: both(2), answered: unsure},
		{id: 3, expected: both(1), written: group{3, untouched, 3, untouched}, answered: refused},
		{id: 4, expected: group{2, 2, 0, untouched}, written: group{0, 4, 4, untouched}, answered: done, rv: 13},
	}
	seen := map[int64]seenDeal{
		11: {values: both(1), added: [groupKeys]bool{true, true}},
		12: {values: both(2)},
		13: {values: group{0, 4, 4, untouched}, added: [groupKeys]bool{2: true}},
	}
	list := func(rv int64, values group) dealList {
		return dealList{who: "l", rv: rv, groups: [dealGroups]group{values}}
	}
	for _, tc := range []struct {
		name  string
		spoil func(b *book)
		want  string
	}{
		{"as it should be", func(*book) {}, ""},
		{"half of a deal", func(b *book) { b.saw("a", 12, seenDeal{values: with(0, 2)}) }, "another watch"},
		{"half of a deal, for all", func(b *book) {
			b.saw("a", 12, seenDeal{values: with(0, 2)})
			b.saw("b", 12, seenDeal{values: with(0, 2)})
		}, "of the deal"},
		{"a deal in two versions", func(b *book) {
			for _, who := range []string{"a", "b"} {
				b.saw(who, 12, seenDeal{values: with(0, 2)})
				delete(b.watched[who], 13)
				b.saw(who, 14, seenDeal{values: with(1, 2)})
			}
		}, "of the deal"},
		{"a gap", func(b *book) { delete(b.watched["a"], 12) }, "a hasn't got"},
		{"a list", func(b *book) { b.listed(9, b.now(), b.now(), list(12, group{2, 2, 0, 0})) }, "is Illegal"}, // it was asked for too late
		{"an old list that says so", func(b *book) { b.lists = append(b.lists, list(12, group{2, 2, 0, 0})) }, ""},
		{"a list of half a deal", func(b *book) { b.lists = append(b.lists, list(12, group{2, 1, 0, 0})) }, "there was"},
		{"a read", func(b *book) { b.looked(9, 0, b.now(), b.now(), group{0, 4, 4, 0}) }, ""},
		{"a read of half a deal, while it happens", func(b *book) { b.looked(9, 0, 0, b.now(), group{0, 4, 0, 0}) }, "is Illegal"},
		{"a read of a part", func(b *book) { b.looked(9, 0, b.now(), b.now(), with(1, 4)) }, ""},
		{"an old read", func(b *book) { b.looked(9, 0, b.now(), b.now(), with(1, 2)) }, "is Illegal"},
		{"a deal that was refused for no reason", func(b *book) {
			b.dealt(9, deal{id: 9, expected: with(1, 4), written: with(1, 9), answered: refused}, b.now())
		}, "is Illegal"},
		{"a deal that happened and was refused", func(b *book) {
			b.dealt(9, deal{id: 4, expected: deals[3].expected, written: deals[3].written, answered: refused}, b.now())
		}, "was refused"},
		{"an acknowledged deal that isn't there", func(b *book) {
			b.dealt(9, deal{id: 9, expected: with(1, 4), written: with(1, 9), answered: done}, b.now())
		}, "no watch has it"},
		{"a deal at another version than it was answered with", func(b *book) {
			b.dealt(9, deal{id: 9, expected: with(1, 4), written: with(1, 9), answered: done, rv: 14}, b.now())
			b.saw("a", 15, seenDeal{values: with(1, 9)})
			b.saw("b", 15, seenDeal{values: with(1, 9)})
		}, "is at 15"},
		{"a deal that didn't find what it asked for", func(b *book) {
			b.dealt(9, deal{id: 9, expected: with(1, 2), written: with(1, 9), answered: done}, b.now())
			b.saw("a", 14, seenDeal{values: with(1, 9)})
			b.saw("b", 14, seenDeal{values: with(1, 9)})
		}, "when there was"},
		{"a change that is told as a creation", func(b *book) {
			for _, who := range []string{"a", "b"} {
				b.saw(who, 12, seenDeal{values: both(2), added: [groupKeys]bool{true}})
			}
		}, "is of what was"},
		{"nobody's deal", func(b *book) { b.saw("a", 14, seenDeal{values: with(1, 77)}) }, "nobody's"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBook()
			for i, d := range deals {
				b.dealt(i, d, b.now())
			}
			for rv, s := range seen {
				b.saw("a", rv, s)
				b.saw("b", rv, s)
			}
			tc.spoil(b)
			problems := strings.Join(b.check(), "\n")
			if (problems == "") != (tc.want == "") || !strings.Contains(problems, tc.want) {
				t.Errorf("it found %q, want %q", problems, tc.want)
			}
		})
	}
}
