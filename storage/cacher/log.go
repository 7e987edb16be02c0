package cacher

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// event is one change of one object: prev is nil for a creation, cur for a deletion.
type event struct {
	seq       uint64 // position in the resource's log; 0 for one read from history
	rev       storage.Revision
	at        time.Time // when the feed applied it
	prev, cur *Object

	frames  atomic.Pointer[frame] // a list, newest first: one entry per view and type that was asked for
	mu      sync.Mutex            // guards cost and owner, and lets one goroutine encode
	cost    int64                 // bytes that this event keeps alive
	owner   *atomic.Int64         // the sum that cost is part of; nil once the event has been dropped
	encoded *atomic.Int64         // counts encodings, for metrics and tests
}

// frame is the event as some watchers get it. Immutable.
type frame struct {
	view *View
	typ  watchstream.Type
	data []byte
	next *frame
}

// eventOverhead is about what an event weighs besides the objects' bytes.
const eventOverhead = 256

// hold makes the event part of a sum of bytes. What it keeps alive is prev: cur is in the tree, or is
// the next event's prev.
func (e *event) hold(sum *atomic.Int64) {
	e.cost, e.owner = eventOverhead, sum
	if e.prev != nil {
		e.cost += int64(len(e.prev.raw))
	}
	sum.Add(e.cost)
}

// drop takes the event out of the sum it was held by.
func (e *event) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.owner != nil {
		e.owner.Add(-e.cost)
		e.owner = nil
	}
}

// frame returns the event as watchers of a view get it. It's encoded once, however many ask. shown is what the
// view shows for the event's object: nothing is converted here, where a lock is held. added is how many bytes the
// event keeps alive that it didn't before.
func (e *event) frame(v *View, t watchstream.Type, shown *Object) (data []byte, added int64) {
	if f := e.findFrame(v, t); f != nil {
		return f, 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.findFrame(v, t); f != nil {
		return f, 0
	}
	size := len(shown.raw) + len(v.APIVersion) + frameOverhead
	f := &frame{view: v, typ: t, data: v.appendFrame(make([]byte, 0, size), t, shown, e.rev), next: e.frames.Load()}
	e.frames.Store(f)
	if e.encoded != nil {
		e.encoded.Add(1)
	}
	if e.owner != nil {
		added = int64(cap(f.data))
		e.cost += added
		e.owner.Add(added)
	}
	return f.data, added
}

// object returns the stored object that an event of a type is about.
func (e *event) object(t watchstream.Type) *Object {
	if t == watchstream.Deleted {
		return e.prev
	}
	return e.cur
}

// frameOverhead is room for what a frame adds to the stored bytes: the envelope and the resourceVersion.
const frameOverhead = 96

func (e *event) findFrame(v *View, t watchstream.Type) []byte {
	for f := e.frames.Load(); f != nil; f = f.next {
		if f.view == v && f.typ == t {
			return f.data
		}
	}
	return nil
}

// eventLog is a window over a resource's newest events: a ring by sequence number, bounded by count
// and by bytes. It is complete after base: every event of the resource with a larger revision is here.
type eventLog struct {
	ring      []*event // holds seq at ring[seq%len]; its length is a power of two
	low, next uint64   // events with low <= seq < next are here
	base      storage.Revision
	bytes     atomic.Int64
	bounds    *bounds
}

// firstLogSize is how many events a new log has room for.
const firstLogSize = 16

func (l *eventLog) at(seq uint64) *event { return l.ring[seq&uint64(len(l.ring)-1)] }

// head is the sequence number of the newest event.
func (l *eventLog) head() uint64 { return l.next - 1 }

func (l *eventLog) append(e *event) {
	for l.next > l.low && (l.next-l.low >= l.bounds.logEvents || l.bytes.Load() > l.bounds.logBytes) {
		l.evict()
	}
	if n := uint64(len(l.ring)); l.next-l.low == n {
		l.resize(max(firstLogSize, 2*n))
	}
	e.seq = l.next
	l.next++
	l.ring[e.seq&uint64(len(l.ring)-1)] = e
	e.hold(&l.bytes)
}

// resize gives the log room for so many events: a power of two, and no fewer than it has.
func (l *eventLog) resize(size uint64) {
	ring := make([]*event, size)
	for seq := l.low; seq < l.next; seq++ {
		ring[seq&(size-1)] = l.at(seq)
	}
	l.ring = ring
}

// shrink gives up room that most of the log's events have left.
func (l *eventLog) shrink() {
	size := uint64(len(l.ring))
	for size > firstLogSize && size >= 4*(l.next-l.low) {
		size /= 2
	}
	if size < uint64(len(l.ring)) {
		l.resize(size)
	}
}

// evict forgets the oldest event.
func (l *eventLog) evict() {
	slot := l.low & uint64(len(l.ring)-1)
	e := l.ring[slot]
	l.ring[slot] = nil
	l.low++
	l.base = e.rev
	e.drop()
}

// reset forgets everything: the log begins anew after base. It skips one sequence number. Otherwise a cursor that
// took the last event would be mistaken for one that is up to date, and miss what the log never had.
func (l *eventLog) reset(base storage.Revision) {
	for l.low < l.next {
		l.evict()
	}
	l.low, l.next = l.low+1, l.next+1
	l.base = base
}

// seqAt returns the sequence number of the last event with a revision of at most rev, or the one before the
// log's first.
func (l *eventLog) seqAt(rev storage.Revision) uint64 {
	n := sort.Search(int(l.next-l.low), func(i int) bool { return l.at(l.low+uint64(i)).rev > rev })
	return l.low + uint64(n) - 1
}
