package cacher

import (
	"sort"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// watchEvent is one change of one object, with the frames in which watchers get it. prev is nil for a creation, and cur for
// a deletion.
type watchEvent struct {
	seq       uint64 // position in the resource's log; 0 for an event that was read from history
	rev       storage.Revision
	at        time.Time // when the feed applied it
	prev, cur *kube.Object

	frames    atomic.Pointer[frame] // a list, newest first: one entry per view and type that was asked for
	mu        sync.Mutex            // lets one goroutine encode
	cost      atomic.Int64          // bytes that this event keeps alive and owner counts; dropped once drop was called
	owner     *atomic.Int64         // the sum that cost is part of; nil for an event that nothing counts
	encodings *atomic.Int64         // counts encodings, for tests
}

// frame is an event as the watchers of one view get it. Immutable.
type frame struct {
	view *kube.View
	typ  watchstream.Type
	data []byte
	next *frame
}

// eventOverhead is about how many bytes an event takes besides those of the objects.
const eventOverhead = 256

// hold adds the bytes that the event keeps alive to a sum. Those are prev's: cur is kept alive by the tree, or by a
// later event of which it's prev. Nobody else has the event yet.
func (e *watchEvent) hold(sum *atomic.Int64) {
	e.owner = sum
	cost := int64(eventOverhead)
	if e.prev != nil {
		cost += int64(len(e.prev.Raw()))
	}
	e.grow(cost)
}

// dropped is the cost of an event that drop has taken out of its sum. No real cost is negative.
const dropped = -1

// grow adds bytes to what the event keeps alive, unless it was dropped. It returns how many it added.
func (e *watchEvent) grow(bytes int64) int64 {
	for e.owner != nil {
		cost := e.cost.Load()
		if cost == dropped {
			break
		}
		if e.cost.CompareAndSwap(cost, cost+bytes) {
			e.owner.Add(bytes)
			return bytes
		}
	}
	return 0
}

// drop takes the event out of the sum that it was held by. It takes no lock: the feed calls it and must not wait for
// a reader that encodes the event.
func (e *watchEvent) drop() {
	if e.owner == nil {
		return
	}
	if cost := e.cost.Swap(dropped); cost != dropped {
		e.owner.Add(-cost)
	}
}

// unframe forgets the frames, unless a reader makes one just now.
func (e *watchEvent) unframe() {
	if e.frames.Load() == nil || !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()
	var bytes int64
	for f := e.frames.Load(); f != nil; f = f.next {
		bytes += int64(cap(f.data))
	}
	e.frames.Store(nil)
	e.grow(-bytes)
}

// frame returns the event as watchers of a view get it. It's encoded once, however many ask: the first encodes it
// under mu and the others wait. shown is what the view shows for the event's object: frame converts nothing. added is
// how many bytes the event now keeps alive that it didn't before. The error is that of the view's Encoding.
func (e *watchEvent) frame(v *kube.View, t watchstream.Type, shown *kube.Object) (data []byte, added int64, err error) {
	if f := e.findFrame(v, t); f != nil {
		return f, 0, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if f := e.findFrame(v, t); f != nil {
		return f, 0, nil
	}
	f := &frame{view: v, typ: t, next: e.frames.Load()}
	if f.data, err = v.NewFrame(t, shown, e.rev); err != nil {
		return nil, 0, err
	}
	e.frames.Store(f)
	e.encodings.Add(1)
	return f.data, e.grow(int64(cap(f.data))), nil
}

// object returns the stored object that an event of a type is about.
func (e *watchEvent) object(t watchstream.Type) *kube.Object {
	if t == watchstream.Deleted {
		return e.prev
	}
	return e.cur
}

func (e *watchEvent) findFrame(v *kube.View, t watchstream.Type) []byte {
	for f := e.frames.Load(); f != nil; f = f.next {
		if f.view == v && f.typ == t {
			return f.data
		}
	}
	return nil
}

// eventLog holds a resource's newest events: a ring by sequence number, bounded by count and by bytes. It has
// every event of the resource with a revision above base. Guarded by Resource.mu; bytes is atomic.
type eventLog struct {
	ring      []*watchEvent // holds seq at ring[seq%len]; its length is a power of two
	low, next uint64        // events with low <= seq < next are here
	base      storage.Revision
	baseIs    baseIs
	baseAt    time.Time // when the last event that isn't here any more was applied; zero for none
	bytes     atomic.Int64
	bounds    *bounds
}

// baseIs tells how many events of the resource the log's base has.
type baseIs int

const (
	unknown baseIs = iota // the log begins with a state
	single                // one, or none
	several
)

// firstLogSize is how many events a new log has room for: most resources change little. The room doubles.
const firstLogSize = 16

func (l *eventLog) at(seq uint64) *watchEvent { return l.ring[seq&uint64(len(l.ring)-1)] }

// head is the sequence number of the newest event.
func (l *eventLog) head() uint64 { return l.next - 1 }

func (l *eventLog) append(e *watchEvent) {
	for l.next > l.low && (l.next-l.low >= l.bounds.logEvents || l.bytes.Load() > l.bounds.logBytes) {
		l.evict()
	}
	if n := uint64(len(l.ring)); l.next-l.low == n {
		l.resize(max(firstLogSize, 2*n))
	}
	if framed := l.bounds.framedEvents; l.next-l.low > framed { // not the new one, which has none yet
		l.at(l.next - framed - 1).unframe()
	}
	if e.rev == l.base { // an event of the revision has been evicted already
		l.baseIs = several
	}
	e.seq = l.next
	l.next++
	l.ring[e.seq&uint64(len(l.ring)-1)] = e
	e.hold(&l.bytes)
}

// resize makes a ring for so many events: a power of two, and no fewer than the log has.
func (l *eventLog) resize(size uint64) {
	ring := make([]*watchEvent, size)
	for seq := l.low; seq < l.next; seq++ {
		ring[seq&(size-1)] = l.at(seq)
	}
	l.ring = ring
}

// shrink makes the ring smaller when the log uses a quarter of it or less.
func (l *eventLog) shrink() {
	size := uint64(len(l.ring))
	for size > firstLogSize && size >= 4*(l.next-l.low) {
		size /= 2
	}
	if size < uint64(len(l.ring)) {
		l.resize(size)
	}
}

// appliedAt is when the feed applied an event; of one that isn't here any more, when it applied the last of those. It's zero for one that
// hasn't happened.
func (l *eventLog) appliedAt(seq uint64) time.Time {
	switch {
	case seq < l.low:
		return l.baseAt
	case seq < l.next:
		return l.at(seq).at
	}
	return time.Time{}
}

// evict forgets the oldest event.
func (l *eventLog) evict() {
	slot := l.low & uint64(len(l.ring)-1)
	e := l.ring[slot]
	l.ring[slot] = nil
	l.low++
	switch {
	case e.rev == l.base, l.low < l.next && l.at(l.low).rev == e.rev:
		l.baseIs = several
	default:
		l.baseIs = single
	}
	l.base, l.baseAt = e.rev, e.at
	e.drop()
}

// reset forgets everything: the log begins anew after base. It skips one sequence number, because the log never had
// the events that the feed missed. Without the skip, a cursor that took the last event would seem to be up to date,
// and would miss those.
func (l *eventLog) reset(base storage.Revision) {
	for l.low < l.next {
		l.evict()
	}
	l.low, l.next = l.low+1, l.next+1
	l.base, l.baseIs = base, unknown
}

// seqAt returns the sequence number of the last event with a revision of at most rev, or the one before the
// log's first.
func (l *eventLog) seqAt(rev storage.Revision) uint64 {
	n := sort.Search(int(l.next-l.low), func(i int) bool { return l.at(l.low+uint64(i)).rev > rev })
	return l.low + uint64(n) - 1
}

// size is about how many bytes the event has on the wire.
func (e *watchEvent) size() int {
	if e.cur != nil {
		return len(e.cur.Raw())
	}
	return len(e.prev.Raw())
}
