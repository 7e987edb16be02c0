package cacher

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Event is one change of one object of any resource, as a tape gives it.
type Event struct {
	Resource *Resource
	Prefix   storage.Prefix   // of the resource
	Revision storage.Revision // of the change; 0 for an object of the state that a tape begins with
	Prev     *kube.Object     // nil for a creation, and in the state
	Cur      *kube.Object     // nil for a deletion
}

// Object returns the object as it is, or as it was before its deletion.
func (e *Event) Object() *kube.Object {
	if e.Cur != nil {
		return e.Cur
	}
	return e.Prev
}

// Tape gives everything that happens in all resources, in one order, to a reader inside the process. A cursor knows one
// resource only, and two cursors have no order between them.
//
// First a tape gives what there is: the objects of all resources as of one revision. Then it gives the changes after
// that revision, in revision order. A reader that falls behind, a feed that listed everything anew, or a
// storage.Store.Replace makes Next return watchstream.ErrExpired. The Next after that begins again with the state. So a
// reader that kept what it was given then looks for what the new state no longer has: it was deleted.
//
// The feed notes the place of each event in its resource's log, and the reader takes the events from there. So a tape
// keeps no event alive. One goroutine uses a tape.
type Tape struct {
	cacher *Cacher
	news   chan struct{} // capacity 1: one pending signal is enough, the notes have the rest. Never closed

	mu    sync.Mutex       // guards notes, upTo and lost
	notes []note           // what the reader hasn't taken
	upTo  storage.Revision // notes has everything up to it
	lost  bool             // the reader can't have everything any more

	// the reader's own
	state []pastResource // what is left of the state
	from  string         // where to go on in state[0]: the last key that was given, and a byte
	taken []note         // notes that the reader has taken
	next  int            // the first of taken that wasn't given
	last  storage.Revision
	given []Event
}

// note is the place of one event.
type note struct {
	resource *Resource
	seq      uint64
}

// pastResource is a resource as it was when a tape began.
type pastResource struct {
	*Resource
	*Snapshot
}

const (
	// tapeNotes bounds the notes of a tape, 16 bytes each. At the bound the reader has to begin again. 1 MiB of notes
	// is several seconds of a fast writer, and a reader needs microseconds for an event.
	tapeNotes = 1 << 16
	// tapeBatch bounds the events of one Next: so many are looked up under one hold of a resource's lock.
	tapeBatch = maxBatchEvents
	// keptNotes is how many notes a tape has room for when its reader has taken all of them: more than a busy feed
	// hands over at once.
	keptNotes = 1024
)

// tapes are the open tapes.
type tapes struct {
	// mu guards open. The feed holds it while it applies what Follow returned, and whoever begins a tape or takes an Image while it
	// takes the state. So the state is that of one revision.
	mu   sync.Mutex
	open []*Tape
}

// Tape opens a tape. Close must be called when nobody reads it any more.
func (c *Cacher) Tape() *Tape {
	t := &Tape{cacher: c, news: make(chan struct{}, 1)}
	c.tapes.mu.Lock()
	defer c.tapes.mu.Unlock()
	c.tapes.open = append(c.tapes.open, t)
	t.beginLocked()
	return t
}

// Close makes the feed forget the tape.
func (t *Tape) Close() {
	t.cacher.tapes.mu.Lock()
	defer t.cacher.tapes.mu.Unlock()
	if i := slices.Index(t.cacher.tapes.open, t); i >= 0 {
		t.cacher.tapes.open = slices.Delete(t.cacher.tapes.open, i, i+1)
	}
}

// beginLocked takes the state, and forgets the notes of what is in it; tapes.mu must be held.
func (t *Tape) beginLocked() {
	t.state, t.from, t.taken, t.next = t.state[:0], "", nil, 0
	t.cacher.mu.RLock()
	for _, r := range t.cacher.resources {
		if s := r.Snapshot(); s.Len() > 0 {
			t.state = append(t.state, pastResource{r, s})
		}
	}
	t.cacher.mu.RUnlock()
	slices.SortFunc(t.state, func(a, b pastResource) int { return cmp.Compare(a.prefix, b.prefix) })
	t.last = t.cacher.Position()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.notes, t.upTo, t.lost = nil, t.last, false
	if len(t.state) == 0 { // a Next without events has to say that the state is complete
		t.state = append(t.state, pastResource{})
	}
}

// Next waits until there is something to give, and returns it. Every change up to upTo has then been given; it's 0 while
// the state isn't complete. Without events Next only says how far the feed is. The events belong to the tape until the next
// Next. Errors: watchstream.ErrExpired, after which Next begins again with the state; and ctx's.
func (t *Tape) Next(ctx context.Context) (events []Event, upTo storage.Revision, err error) {
	clear(t.given)
	t.given = t.given[:0]
	if err := ctx.Err(); err != nil {
		return nil, 0, err
	}
	if len(t.state) > 0 {
		upTo = t.nextState()
		return t.given, upTo, nil
	}
	for t.next == len(t.taken) {
		upTo, err := t.take()
		switch {
		case err != nil:
			return nil, 0, err
		case upTo > t.last:
			if t.last = upTo; len(t.taken) == 0 {
				return nil, upTo, nil
			}
			continue
		}
		select {
		case <-t.news:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
	if upTo, err = t.nextEvents(); err != nil {
		return nil, 0, err
	}
	return t.given, upTo, nil
}

// nextState puts a piece of the state into given, and returns Next's upTo.
func (t *Tape) nextState() (upTo storage.Revision) {
	for len(t.state) > 0 && len(t.given) < tapeBatch {
		of := t.state[0]
		done := true
		if of.Snapshot != nil {
			for o := range of.In(storage.Range{Prefix: string(of.prefix), From: t.from}) {
				if len(t.given) == tapeBatch {
					done = false
					break
				}
				t.given = append(t.given, Event{Resource: of.Resource, Prefix: of.prefix, Cur: o})
				t.from = o.Key + "\x00"
			}
		}
		if done {
			t.state[0] = pastResource{} // lets the snapshot go
			t.state, t.from = t.state[1:], ""
		}
	}
	if len(t.state) > 0 {
		return 0
	}
	t.state = nil
	return t.last
}

// take takes the notes that there are. upTo is how far they reach.
func (t *Tape) take() (upTo storage.Revision, err error) {
	spare := t.taken[:0]
	if cap(spare) > keptNotes {
		spare = nil
	}
	t.mu.Lock()
	lost := t.lost
	t.taken, t.notes, t.next, upTo = t.notes, spare, 0, t.upTo
	t.mu.Unlock()
	if lost {
		return 0, t.expire()
	}
	return upTo, nil
}

// expire makes the tape begin again.
func (t *Tape) expire() error {
	t.cacher.stats.tapesExpired.Add(1)
	t.cacher.tapes.mu.Lock()
	defer t.cacher.tapes.mu.Unlock()
	t.beginLocked()
	return watchstream.ErrExpired
}

// nextEvents puts the events of some of the notes that were taken into given, and returns Next's upTo.
func (t *Tape) nextEvents() (upTo storage.Revision, err error) {
	end := min(len(t.taken), t.next+tapeBatch)
	for t.next < end {
		r, from := t.taken[t.next].resource, t.next
		for t.next++; t.next < end && t.taken[t.next].resource == r; {
			t.next++
		}
		if !t.read(r, t.taken[from:t.next]) {
			return 0, t.expire()
		}
	}
	if t.next < len(t.taken) { // more of the last event's revision may follow
		return t.given[len(t.given)-1].Revision - 1, nil
	}
	return t.last, nil
}

// read looks up events of one resource. It returns false if the log has dropped one of them.
func (t *Tape) read(r *Resource, notes []note) bool {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, n := range notes {
		if n.seq < r.log.low {
			return false
		}
		e := r.log.at(n.seq)
		t.given = append(t.given, Event{Resource: r, Prefix: r.prefix, Revision: e.rev, Prev: e.prev, Cur: e.cur})
	}
	return true
}

// hand gives each tape the notes of what the feed has applied up to a revision; mu must be held.
func (ts *tapes) hand(notes []note, upTo storage.Revision) {
	for _, t := range ts.open {
		t.mu.Lock()
		if len(t.notes)+len(notes) > tapeNotes {
			t.notes, t.lost = nil, true
		}
		if !t.lost {
			t.notes, t.upTo = append(t.notes, notes...), upTo
		}
		t.mu.Unlock()
		t.signal()
	}
}

// expire makes the reader of each tape begin again; mu must be held.
func (ts *tapes) expire() {
	for _, t := range ts.open {
		t.mu.Lock()
		t.notes, t.lost = nil, true
		t.mu.Unlock()
		t.signal()
	}
}

func (t *Tape) signal() {
	select {
	case t.news <- struct{}{}:
	default:
	}
}
