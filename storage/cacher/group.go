package cacher

import (
	"sort"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/selectors"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// groupKey is what watchers must have in common to share a group.
type groupKey struct {
	namespace, name string
	labels, fields  string // canonical
	where           string // likewise
	view            *kube.View
}

// groupKey returns the key of the group that watches what the options say. It builds the selectors' strings, so it's
// called before any lock is taken.
func (o WatchOptions) groupKey() groupKey {
	return groupKey{o.Namespace, o.Name, o.Labels.String(), o.Fields.String(), o.Where.String(), o.View}
}

// group is all watchers that ask for the same. The feed decides once per event whether it concerns them, and notes
// that in the group's ring. Each watcher is a position in the ring.
type group struct {
	groupKey
	labelSelector selectors.LabelSelector
	fieldSelector selectors.FieldSelector
	selection     *kube.Where
	ringBytes     *atomic.Int64 // the sum of all groups' rings

	// guarded by Resource.mu, all below
	members int
	ring    []entry // entries i with first <= i < next are at ring[i%len]
	first   uint64
	next    uint64
	floor   uint64       // seq of the newest entry overwritten; at creation the log's head
	touched uint64       // seq of the last event that route looked at: the index may find a group twice for one event
	state   *sharedState // the initial state that members are being given, if any
	cohorts []*cohort    // the members in the parts in which they're woken; whoever joins gets into the last one
	merged  int          // of the cohorts those of a Merged

	// awake says that a cohort may not be in the waker's queue, or not know its pace: the waker sets it when it takes one out, before that one's
	// members can look for events. While it isn't set an event costs nothing for each cohort. It says nothing of the cohorts of a Merged.
	awake atomic.Bool
}

// entry is an event that concerns a group.
type entry struct {
	seq uint64
	typ watchstream.Type
}

// firstGroupEntries is how many entries a new group has room for: most groups watch one object and never need more. The
// room doubles.
const firstGroupEntries = 4

// entryBytes is what an entry takes.
const entryBytes = 16

func newGroup(k groupKey, o WatchOptions, ringBytes *atomic.Int64) *group {
	return &group{groupKey: k, labelSelector: o.Labels, fieldSelector: o.Fields, selection: o.Where, ringBytes: ringBytes}
}

// matches tells whether an object's state is what the group's watchers want to see.
func (g *group) matches(o *kube.Object) bool {
	return o != nil && o.Err == nil &&
		(g.name == "" || g.name == o.Name()) &&
		(g.namespace == "" || g.namespace == o.Namespace()) &&
		g.labelSelector.Matches(o.Labels) &&
		g.fieldSelector.Matches(o) &&
		g.selection.Matches(o)
}

// transition is what the group's watchers are told about an event.
func (g *group) transition(e *watchEvent) watchstream.Type {
	t := watchstream.Transition(watchstream.Matches{Before: g.matches(e.prev), Now: g.matches(e.cur)})
	if t == watchstream.Modified && g.view.Unchanged(e.prev, e.cur) {
		return watchstream.None
	}
	return t
}

// push adds an entry to the ring, which holds at most so many; Resource.mu must be held for writing.
func (g *group) push(n entry, most uint64) {
	if size := uint64(len(g.ring)); g.next-g.first == size {
		if size < most {
			g.grow()
		} else {
			g.floor = g.ring[g.first%size].seq
			g.first++
		}
	}
	g.ring[g.next%uint64(len(g.ring))] = n
	g.next++
}

// grow doubles the ring; Resource.mu must be held for writing.
func (g *group) grow() {
	bigger := make([]entry, max(firstGroupEntries, 2*len(g.ring)))
	for i := g.first; i < g.next; i++ {
		bigger[i%uint64(len(bigger))] = g.ring[i%uint64(len(g.ring))]
	}
	g.ringBytes.Add(entryBytes * int64(len(bigger)-len(g.ring)))
	g.ring = bigger
}

// after returns the index of the first entry with a larger sequence number; Resource.mu must be
// held. Most watchers lack an entry or two, so after searches from the end.
func (g *group) after(seq uint64) uint64 {
	i := g.next
	for step := uint64(1); i > g.first; step *= 2 {
		back := max(g.first, i-min(step, i))
		if g.ring[back%uint64(len(g.ring))].seq <= seq {
			newer := func(k int) bool { return g.ring[(back+1+uint64(k))%uint64(len(g.ring))].seq > seq }
			return back + 1 + uint64(sort.Search(int(i-back-1), newer))
		}
		i = back
	}
	return i
}
