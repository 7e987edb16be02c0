package cacher

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Cursor is a watcher: a position, without a buffer. Every matching event with a sequence number up to seq or a
// revision up to rev has been taken. A cursor implements watchstream.Source. One goroutine uses it, except for
// Report.
type Cursor struct {
	resource *Resource
	group    *group
	epoch    *epoch

	seq       uint64 // means nothing while reads is fromHistory
	rev       storage.Revision
	reads     reads
	again     storage.Revision // while it's above rev: its events come only if it has several; see goBackLocked
	published position         // what Report reads
	sleeper

	begun bool   // the first event has been given
	state *state // what is left of the initial state; nil when all of it has been given
	close sync.Once
}

// reads is where a cursor takes its next events from.
type reads int

const (
	fromHistory reads = iota // etcd's history: the log no longer has them
	fromLog                  // the resource's log: the group's ring no longer has them
	live                     // the group's ring
)

// Bounds of one Next.
const (
	// maxBatchEvents bounds how long Resource.mu is held for reading: some microseconds, during which the feed waits.
	maxBatchEvents = 128
	// maxBatchBytes bounds a batch, unless a single event is larger.
	maxBatchBytes = watchstream.MaxBatch
)

// Next appends whole frames to dst: as many as are ready, or as fit into a batch. When there is nothing to
// append it returns a channel that's closed when there may be something; or none, at the end of an initial state, and then
// it's asked again.
//
// Errors: io.EOF when the resource's watches have ended and the cursor has given everything up to their end;
// watchstream.ErrExpired when compaction took events that the cursor needs, or everything was replaced (see
// storage.Store.Replace); ctx's error; and what etcd, or the view's Conversion or Encoding, fails with. After an error
// other than io.EOF and ErrExpired, Next may be called again: no event was lost.
func (c *Cursor) Next(ctx context.Context, dst []byte) (out []byte, wait <-chan struct{}, err error) {
	c.awake()
	if c.epoch.expired.Load() {
		return dst, nil, watchstream.ErrExpired
	}
	if c.state != nil {
		out, err = c.nextState(ctx, dst)
		return out, nil, expired(err)
	}
	defer c.publish()
	for {
		// Both are read before the entries. Everything up to the position is in the ring by now, so a bookmark
		// at the position can't overtake an entry. Whatever is added after this line closes the channel.
		pos, until := c.resource.cacher.Position(), c.cohort.news.Load()
		var came step
		if err := ctx.Err(); err != nil {
			return dst, nil, err
		}
		if c.reads == live {
			out, came, err = c.nextLive(ctx, dst)
		} else {
			out, came, err = c.nextBehind(ctx, dst, pos)
		}
		if err != nil {
			return dst, nil, expired(err)
		}
		if len(out) > len(dst) {
			return out, nil, nil
		}
		switch {
		case came == moved:
			continue
		case c.epoch.expired.Load():
			return dst, nil, watchstream.ErrExpired
		case came == ended:
			return dst, nil, io.EOF
		}
		c.rev = max(c.rev, pos)
		c.sleep(until, &c.resource.cacher.waker)
		return dst, until.come, nil
	}
}

// expired turns storage.ErrCompacted into watchstream.ErrExpired, which also wraps it. Other errors stay.
func expired(err error) error {
	if errors.Is(err, storage.ErrCompacted) {
		return fmt.Errorf("%w: %w", watchstream.ErrExpired, err)
	}
	return err
}

// step is the outcome of an attempt to read that gave no frames.
type step int

const (
	idle  step = iota // nothing is there
	moved             // the cursor moved or changed its state: try again
	ended             // nothing is left before the end of the cursor's epoch
)

// Synced tells whether the initial state has been given, or none was asked for.
func (c *Cursor) Synced() bool { return c.state == nil }

// delivery is an event, and how the cursor's client gets it.
type delivery struct {
	event *watchEvent
	typ   watchstream.Type
	shown *kube.Object // what the view shows for the event's object: the stored one, until prepare
}

func deliver(e *watchEvent, t watchstream.Type) delivery { return delivery{e, t, e.object(t)} }

// budget is what one Next may still take. A used one takes only further events of its last revision, because a client
// resumes after the last revision that it saw, and would miss the rest of that one.
type budget struct {
	events, bytes int
	rev           storage.Revision
}

// share returns the budget of one of so many cursors that give a batch together.
func share(cursors int) budget {
	return budget{events: max(maxBatchEvents/cursors, 1), bytes: max(maxBatchBytes/cursors, 1)}
}

func (b *budget) takes(e *watchEvent) bool {
	if (b.events <= 0 || b.bytes <= 0) && e.rev != b.rev {
		return false
	}
	b.events--
	b.bytes -= e.size()
	b.rev = e.rev
	return true
}

// The arrays of a batch are pooled. On the stack they would enlarge the stack of each idle watcher.
var (
	deliveryPool = sync.Pool{New: func() any { b := make([]delivery, 0, maxBatchEvents); return &b }}
	eventPool    = sync.Pool{New: func() any { b := make([]*watchEvent, 0, maxBatchEvents); return &b }}
)

// nextLive gives entries of the group's ring.
func (c *Cursor) nextLive(ctx context.Context, dst []byte) (out []byte, s step, err error) {
	pooled := deliveryPool.Get().(*[]delivery)
	got, p := c.takeLive((*pooled)[:0], share(1), limits{feed: endless, last: endless})
	defer func() { clear(got); *pooled = got; deliveryPool.Put(pooled) }()
	if len(got) == 0 {
		return dst, p.step, nil
	}
	out, err = c.give(ctx, dst, got)
	return out, idle, err
}

// nextBehind gives events that the group's ring no longer has: from the log, or from history if the log has dropped
// them too.
func (c *Cursor) nextBehind(ctx context.Context, dst []byte, pos storage.Revision) ([]byte, step, error) {
	pooled := eventPool.Get().(*[]*watchEvent)
	got, p, err := c.takeBehind(ctx, (*pooled)[:0], share(1), limits{feed: pos, last: endless})
	defer func() { clear(got); *pooled = got; eventPool.Put(pooled) }()
	if err != nil || p.step == ended {
		return dst, p.step, err
	}
	out, err := c.match(ctx, dst, got)
	if err == nil {
		c.rev = max(c.rev, p.through)
	}
	return out, moved, err
}

// limits are the revisions up to which a cursor may take events.
type limits struct {
	feed storage.Revision // the feed's position: up to it, history is complete
	last storage.Revision // the last that the caller wants
}

// portion says what was taken, besides the events.
type portion struct {
	step
	through storage.Revision // everything up to it was taken
	next    storage.Revision // of the first event that was left; endless if none was seen
	end     storage.Revision // of the cursor's epoch
}

// takeLive appends entries of the group's ring, as many as the budget takes.
func (c *Cursor) takeLive(got []delivery, b budget, to limits) ([]delivery, portion) {
	r, g := c.resource, c.group
	r.mu.RLock()
	defer r.mu.RUnlock()
	p := portion{next: endless, end: c.epoch.end}
	p.through = min(to.feed, to.last, p.end)
	lost := c.seq < g.floor
	for i := g.after(c.seq); !lost && i < g.next; i++ {
		n := g.ring[i%uint64(len(g.ring))]
		if lost = n.seq < r.log.low; lost { // the log has dropped the event
			break
		}
		e := r.log.at(n.seq)
		if e.rev > min(to.last, p.end) {
			p.next = e.rev
			break
		}
		if !b.takes(e) {
			p.next, p.through = e.rev, b.rev
			break
		}
		got = append(got, deliver(e, n.typ))
	}
	switch {
	case lost: // none was taken: the oldest entries are the first to be lost
		c.reads = fromLog
		p.step, p.through = moved, c.rev
	case len(got) == 0 && p.end != endless:
		p.step = ended
	}
	return got, p
}

// takeBehind appends events that the group's ring no longer has, whether they concern the group or not, as many as the
// budget takes.
func (c *Cursor) takeBehind(ctx context.Context, got []*watchEvent, b budget, to limits) ([]*watchEvent, portion, error) {
	r, g := c.resource, c.group
	r.mu.RLock()
	p := portion{step: moved, through: c.rev, next: endless, end: c.epoch.end}
	if c.rev < r.log.base {
		r.mu.RUnlock()
		c.reads = fromHistory
		return c.takePast(ctx, got, b, to, p)
	}
	defer r.mu.RUnlock()
	if c.reads == fromHistory || c.seq+1 < r.log.low { // the seq of a cursor that was idle may be old; its rev is always true
		c.reads, c.seq = fromLog, r.log.seqAt(c.rev)
	}
	if c.seq >= g.floor {
		c.reads = live
		return got, p, nil
	}
	for seq := c.seq + 1; seq < r.log.next; seq++ {
		e := r.log.at(seq)
		if e.rev > min(to.last, p.end) {
			p.next, p.through = e.rev, max(p.through, min(to.feed, p.end))
			break
		}
		if !b.takes(e) {
			p.next = e.rev
			break
		}
		got, p.through = append(got, e), e.rev
	}
	if len(got) == 0 && p.next > p.end { // there are events, but after the end
		p.step = ended
	}
	return got, p, nil
}

// takePast is takeBehind for events of etcd's history; p has no more than where the cursor is.
func (c *Cursor) takePast(ctx context.Context, got []*watchEvent, b budget, to limits, p portion) ([]*watchEvent, portion, error) {
	switch {
	case c.rev >= p.end:
		p.step = ended
		return got, p, nil
	case c.rev >= to.feed: // the log has dropped even more since the position was read
		p.next = to.feed + 1 // which has come by now
		return got, p, nil
	}
	past, err := c.resource.cacher.stretches.seek(ctx, c.resource, storage.Stretch{After: c.rev, Through: to.feed})
	if errors.Is(err, storage.ErrCompacted) && c.again > c.rev {
		if err := c.singleRevision(ctx); err != nil {
			return got, p, err
		}
		c.rev, p.through = c.again, c.again
		return got, p, nil
	}
	if err != nil {
		return got, p, err
	}
	last := min(to.last, p.end)
	p.through = min(past.upTo, last)
	events := past.within(storage.Stretch{After: c.rev, Through: last})
	if c.again > c.rev && len(events) > 0 && events[0].rev == c.again && (len(events) == 1 || events[1].rev != c.again) {
		events = events[1:]
	}
	for _, e := range events {
		if !b.takes(e) {
			p.next, p.through = e.rev, b.rev
			break
		}
		got = append(got, e)
	}
	return got, p, nil
}

// singleRevision returns nil if the revision after which the client wants to go on, and with which history begins, was no transaction, and
// ErrCompacted if it may have been: then the client may lack some of its events.
func (c *Cursor) singleRevision(ctx context.Context) error {
	last, err := c.resource.cacher.store.GetAt(ctx, storage.TransactionKey, 0)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case last.Revision >= c.again:
		return fmt.Errorf("revision %d may be a transaction's, of which the client may not have got everything: %w", c.again, storage.ErrCompacted)
	}
	return nil
}

// match appends the frames of those events that concern the cursor's group.
func (c *Cursor) match(ctx context.Context, dst []byte, events []*watchEvent) ([]byte, error) {
	if len(events) == 0 {
		return dst, nil
	}
	pooled := deliveryPool.Get().(*[]delivery)
	got := (*pooled)[:0]
	defer func() { clear(got); *pooled = got; deliveryPool.Put(pooled) }()
	for _, e := range events {
		if t := c.group.transition(e); t != watchstream.None {
			got = append(got, deliver(e, t))
		}
	}
	dst, err := c.give(ctx, dst, got)
	if err == nil {
		last := events[len(events)-1]
		c.seq, c.rev = last.seq, last.rev
	}
	return dst, err
}

// give appends the frames of events that were taken. On an error it appends none, and the cursor stays where it was.
func (c *Cursor) give(ctx context.Context, dst []byte, got []delivery) ([]byte, error) {
	if len(got) == 0 {
		return dst, nil
	}
	if err := c.prepare(ctx, got); err != nil {
		return dst, err
	}
	var added int64
	start, view := len(dst), c.nextView()
	for i, d := range got {
		frame, more, err := d.event.frame(view, d.typ, d.shown)
		if err != nil {
			return dst[:start], fmt.Errorf("%s: %w", d.shown.Key, err)
		}
		if view.ServerSent && i+1 < len(got) && got[i+1].event.rev == d.event.rev {
			frame = watchstream.ServerSentWithoutID(frame)
		}
		dst, added, view = append(dst, frame...), added+more, c.group.view
	}
	c.resource.cacher.addFrames(added)
	last := got[len(got)-1].event
	c.seq, c.rev, c.begun = last.seq, last.rev, true
	return dst, nil
}

// prepare has the view convert the objects that it can't show as they are stored. No lock is held meanwhile.
func (c *Cursor) prepare(ctx context.Context, got []delivery) error {
	v := c.group.view
	if v.Conversion == nil {
		return nil
	}
	objects := make([]*kube.Object, len(got))
	for i, d := range got {
		objects[i] = d.shown
	}
	if err := v.Prepare(ctx, objects); err != nil {
		return err
	}
	for i, o := range objects {
		got[i].shown = o
	}
	return nil
}

// Revision returns the revision up to which every matching change has been given. A bookmark says it, after Next had
// nothing to give.
func (c *Cursor) Revision() int64 { return int64(c.rev) }

// AppendBookmark appends a BOOKMARK event at the cursor's revision.
func (c *Cursor) AppendBookmark(dst []byte) []byte {
	return c.appendBookmark(dst, "")
}

// AppendInitialEnd appends the BOOKMARK event that tells the client that the initial state is complete (KEP-3157).
func (c *Cursor) AppendInitialEnd(dst []byte) []byte {
	return c.appendBookmark(dst, watchstream.InitialEventsEnd)
}

func (c *Cursor) appendBookmark(dst []byte, annotation string) []byte {
	v := c.nextView()
	c.begun = !v.ServerSent || c.begun // one of those is no event
	return v.AppendBookmark(dst, c.rev, annotation)
}

// AppendError appends the ERROR event that tells the client of an error of Next.
func (c *Cursor) AppendError(dst []byte, err error) []byte {
	return c.group.view.AppendError(dst, watchstream.FailureOf(err))
}

// nextView returns the view of the next event that the cursor gives. Those that follow it have the group's.
func (c *Cursor) nextView() *kube.View {
	if v := c.group.view; c.begun || v.First == nil {
		return v
	}
	return c.group.view.First
}

// Close takes the cursor out of its group. It's idempotent.
func (c *Cursor) Close() {
	c.close.Do(func() {
		c.awake()
		c.done(&c.resource.cacher.waker)
		c.endState()
		c.resource.leave(c.group, c.cohort)
	})
}
