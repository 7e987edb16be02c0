package controllers

import (
	heaps "container/heap" // heap is a function of the tests
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/clock"
	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// deadlines are those of the objects that expire, in their order. One takes about 110 bytes besides the object's key. An object that
// doesn't expire has none.
type deadlines struct {
	clock timeline

	// the reader's own
	annotated bool // the annotation counts
	typed     map[storage.Prefix]registry.Lifetime

	mu    sync.Mutex // guards what follows
	known map[string]*deadline
	order dueOrder
	round uint32 // how often begin was called
}

// deadline is when an object expires.
type deadline struct {
	key   string           // of the object
	rev   storage.Revision // at which it was observed
	born  time.Duration    // when it was created, by the steady clock: negative if that was before this process
	at    time.Duration    // when it's due, by the steady clock
	place int32            // in order; nowhere once it was taken
	round uint32           // in which it was observed last
}

// nowhere is the place of a deadline that isn't in order.
const nowhere = -1

func newDeadlines(wall func() time.Time, own *clock.Clock) deadlines {
	return deadlines{clock: timeline{own: own, wall: wall, began: wall().Round(0), start: own.Now()}, known: map[string]*deadline{}}
}

// begin says that a state follows.
func (d *deadlines) begin(annotated bool, typed map[storage.Prefix]registry.Lifetime) {
	d.annotated, d.typed = annotated, typed
	d.mu.Lock()
	defer d.mu.Unlock()
	d.round++
}

// complete forgets what the state didn't have.
func (d *deadlines) complete() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, one := range d.known {
		if one.round != d.round {
			d.forgetLocked(key)
		}
	}
}

// forget forgets all objects.
func (d *deadlines) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known, d.order = map[string]*deadline{}, nil
}

// observe notes when an object is due. sooner tells that none before it is due earlier.
func (d *deadlines) observe(e *cacher.Event) (sooner bool) {
	if e.Prev == nil && e.Revision > 0 && e.Cur != nil {
		d.clock.compare(d.clock.steady()) // a new object: its creationTimestamp is of now
	}
	is, was := d.expires(e.Prefix, e.Cur), d.expires(e.Prefix, e.Prev)
	if !is && !was {
		return false
	}
	now := d.clock.steady()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !is {
		d.forgetLocked(e.Object().Key)
		return false
	}
	o := e.Cur
	one := d.known[o.Key]
	if one != nil && one.rev == o.Revision { // in the state, again; what was done about it may have been for nothing
		one.round = d.round
		return d.placeLocked(one)
	}
	life := o.Life()
	born := d.clock.at(now, life.Created)
	switch {
	case e.Revision == 0: // in the state
	case e.Prev == nil && !d.clock.own.Stands(): // one that stands may have been moved since
		born = now
	case one != nil:
		born = one.born
	}
	at, ok := d.end(e, life, born, now)
	if !ok {
		d.forgetLocked(o.Key)
		return false
	}
	if one == nil {
		one = &deadline{key: o.Key, place: nowhere}
		d.known[o.Key] = one
	}
	one.rev, one.born, one.at, one.round = o.Revision, born, at, d.round
	return d.placeLocked(one)
}

// placeLocked gives a deadline its place in the order, and tells whether that's the first.
func (d *deadlines) placeLocked(one *deadline) (first bool) {
	if one.place == nowhere {
		heaps.Push(&d.order, one)
	} else {
		heaps.Fix(&d.order, int(one.place))
	}
	return d.order[0] == one
}

// expires tells whether an object may be one that expires.
func (d *deadlines) expires(p storage.Prefix, o *kube.Object) bool {
	if o == nil || o.Err != nil || beingDeleted(o) {
		return false
	}
	if d.annotated && o.HasTTL() {
		return true
	}
	return len(d.typed) > 0 && d.typed[p].TTL > 0
}

// end returns when an object is due: the earlier of the two if both its annotation and its type say so.
func (d *deadlines) end(e *cacher.Event, life kube.Life, born, now time.Duration) (at time.Duration, ok bool) {
	if d.annotated && e.Cur.HasTTL() {
		if ttl, err := registry.ParseTTL(life.TTL); err == nil { // older versions took any value
			at, ok = born+ttl, true
		}
	}
	if typed := d.typed[e.Prefix]; typed.TTL > 0 {
		written := now
		if e.Revision == 0 {
			written = born
			for _, field := range typed.Times {
				if text := e.Cur.Field(field); text != "" {
					written = max(written, d.clock.at(now, text))
				}
			}
		}
		if !ok || written+typed.TTL < at {
			at, ok = written+typed.TTL, true
		}
	}
	return at, ok
}

// forgetLocked forgets an object, if it's known.
func (d *deadlines) forgetLocked(key string) {
	one := d.known[key]
	if one == nil {
		return
	}
	if one.place != nowhere {
		heaps.Remove(&d.order, int(one.place))
	}
	delete(d.known, key)
}

// dueAtOnce bounds how many objects takeDue takes under one hold of the lock, which the reader needs for its next event.
const dueAtOnce = 100

// takeDue calls take for some of the objects that are due, at most dueAtOnce, each once, and returns how long it is until the next
// one is: 0 if it's due already. any is false if there is none. take is called under the lock, so that whoever asks anyDue finds
// each object there or where take has put it.
func (d *deadlines) takeDue(take func(key string)) (next time.Duration, any bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.steady()
	for taken := 0; len(d.order) > 0; taken++ {
		if wait := d.order[0].at - now; wait > 0 || taken == dueAtOnce {
			return max(wait, 0), true
		}
		take(heaps.Pop(&d.order).(*deadline).key)
	}
	return 0, false
}

// anyDue tells whether an object is due that takeDue hasn't taken.
func (d *deadlines) anyDue() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.order) > 0 && d.order[0].at <= d.clock.steady()
}

// untaken returns the keys of objects that are due and that takeDue hasn't taken, at most so many.
func (d *deadlines) untaken(most int) (keys []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.steady()
	var visit func(place int)
	visit = func(place int) { // below what isn't due nothing is, as it's a heap
		if place < len(d.order) && d.order[place].at <= now && len(keys) < most {
			keys = append(keys, d.order[place].key)
			visit(2*place + 1)
			visit(2*place + 2)
		}
	}
	visit(0)
	return keys
}

// due tells whether an object is due, and at which revision it was observed.
func (d *deadlines) due(key string) (rev storage.Revision, due bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.known[key]
	if one == nil || one.at > d.clock.steady() {
		return 0, false
	}
	return one.rev, true
}

// dueOrder is a heap by the time at which objects are due.
type dueOrder []*deadline

func (d dueOrder) Len() int           { return len(d) }
func (d dueOrder) Less(i, j int) bool { return d[i].at < d[j].at }
func (d dueOrder) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = int32(i), int32(j)
}

func (d *dueOrder) Push(one any) {
	one.(*deadline).place = int32(len(*d))
	*d = append(*d, one.(*deadline))
}

func (d *dueOrder) Pop() any {
	last := len(*d) - 1
	one := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	one.place = nowhere
	return one
}

// timeline is the time of this process, which never jumps, and its relation to the times that objects have. Those are of the
// machine's clock, which may jump.
type timeline struct {
	own    *clock.Clock     // by which it goes
	wall   func() time.Time // the same, or the machine's clock in tests, which let it jump
	began  time.Time        // what it said at the start, without a monotonic reading, which wouldn't jump
	start  time.Time        // the start, with the reading of the monotonic clock if there is one
	behind time.Duration    // how far it was ever behind what it would have said without jumps; the reader's own
}

// steady is the time since the start.
func (c *timeline) steady() time.Duration { return c.own.Since(c.start) }

// stampGrain is how much later than a time in an object the thing may have happened: creationTimestamp has whole seconds.
const stampGrain = time.Second

// at returns when a time in an object was, by the steady clock, or some time after that. Nobody knows how far the machine's
// clock was off when the time was written. If it was ever set back, it may have been then. So an object may expire too late
// by as much as the clock has jumped, and never too early.
func (c *timeline) at(now time.Duration, text string) time.Duration {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return now
	}
	c.compare(now)
	return min(now, t.Sub(c.began)+c.behind+stampGrain)
}

// compare notes how far the machine's clock is behind.
func (c *timeline) compare(now time.Duration) {
	c.behind = max(c.behind, now-c.wall().Round(0).Sub(c.began))
}
