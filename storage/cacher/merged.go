package cacher

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// Merged is one watch of several resources, in the order of their revisions. It's a cursor of each, which are members of
// the groups that a watch of one resource is a member of, so that an event is encoded once for both. It implements
// watchstream.Source. One goroutine uses it, except for Reports.
//
// A revision has several events only where another program writes to etcd in transactions. They come in one batch, in the
// order of the resources, and as server-sent events only the last of them has an id.
type Merged struct {
	cacher  *Cacher
	cursors []*Cursor
	sleeper

	rev     storage.Revision // everything up to it has been given
	stating int              // the cursor that gives its initial state; len(cursors) when all have
	// settled is when the state is whole. The resources' states may differ in age: what has happened to one of them until the youngest
	// is given before the end of the state is told.
	settled storage.Revision
	// again is the revision after which the client wants to go on. If it has several events, the client may have got only
	// some of them, so all come again. 0 when that's behind.
	again storage.Revision
	close sync.Once
}

// Part is a resource, and what a Merged watches of it.
type Part struct {
	*Resource
	WatchOptions
}

// OpenMerged starts one watch of several resources. Start and After must be the same for all. Errors are those of Open, and
// storage.ErrCompacted also when history begins with After: it's not known then whether the client has got all events of that
// revision.
func (c *Cacher) OpenMerged(ctx context.Context, parts []Part) (*Merged, error) {
	start, after := parts[0].Start, parts[0].After
	m := &Merged{cacher: c, sleeper: sleeper{cohort: newCohort(nil)}}
	switch {
	case start == StartNow || start == StartState && after == 0:
		now, err := c.Barrier(ctx)
		if err != nil {
			return nil, err
		}
		if start == StartNow {
			start, after = StartAfter, now
		}
	default:
		if err := c.reach(ctx, after); err != nil {
			return nil, err
		}
		if start == StartAfter {
			m.again, after = after, after-1
		}
	}
	for _, p := range parts {
		p.Start, p.After = start, after
		if err := m.add(p); err != nil {
			m.Close()
			return nil, err
		}
	}
	m.rev = m.cursors[0].rev
	for _, c := range m.cursors {
		m.rev = min(m.rev, c.rev)
		m.settled = max(m.settled, c.rev)
	}
	if start != StartState {
		m.stating, m.settled = len(m.cursors), 0
	}
	return m, nil
}

// add opens a cursor of one resource.
func (m *Merged) add(p Part) error {
	key := p.groupKey()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.refuseLocked(p.WatchOptions); err != nil {
		return err
	}
	c, err := p.openLocked(p.WatchOptions, key, m.cohort)
	if err == nil {
		m.cursors = append(m.cursors, c)
	}
	return err
}

// Next does what Cursor's does. The initial states come one after the other.
func (m *Merged) Next(ctx context.Context, dst []byte) (out []byte, wait <-chan struct{}, err error) {
	m.awake()
	if m.stating < len(m.cursors) {
		c := m.cursors[m.stating]
		if c.epoch.expired.Load() {
			return dst, nil, watchstream.ErrExpired
		}
		out, err = c.nextState(ctx, dst)
		if c.Synced() {
			m.stating++
		}
		return out, nil, expired(err)
	}
	defer m.publish()
	for {
		pos, until := m.cacher.Position(), m.cohort.news.Load() // as in Cursor.Next
		if err := ctx.Err(); err != nil {
			return dst, nil, err
		}
		got, r, err := m.take(ctx, pos)
		if err == nil {
			out, err = m.give(ctx, dst, got.all, r.through)
		}
		putMerged(got)
		switch {
		case err != nil:
			return dst, nil, expired(err)
		case len(out) > len(dst):
			return out, nil, nil
		case r.end <= m.rev:
			return dst, nil, io.EOF
		case r.through < pos:
			continue
		case r.next < endless || m.rev < m.settled: // the feed is applying that revision: its last events aren't in the rings yet
			if err := m.cacher.WaitFor(ctx, max(m.settled, pos+1)); err != nil { // one after pos is under way
				return dst, nil, err
			}
		default:
			m.sleep(until, &m.cacher.waker)
			return dst, until.come, nil
		}
	}
}

// mergedDelivery is a delivery of one of the cursors. Its type is None for an event that doesn't concern the cursor's group.
type mergedDelivery struct {
	delivery
	cursor *Cursor
}

// mergedBatch is what was taken of all cursors, with room for what is taken of one.
type mergedBatch struct {
	all        []mergedDelivery
	deliveries []delivery
	events     []*watchEvent
}

var mergedPool = sync.Pool{New: func() any {
	return &mergedBatch{make([]mergedDelivery, 0, 2*maxBatchEvents), make([]delivery, 0, maxBatchEvents), make([]*watchEvent, 0, maxBatchEvents)}
}}

func putMerged(got *mergedBatch) {
	clear(got.all)
	got.all = got.all[:0]
	mergedPool.Put(got)
}

// take returns what comes next, by revision, and up to which revision that is all there is: at most the feed's position. The
// caller gives it back by putMerged.
func (m *Merged) take(ctx context.Context, pos storage.Revision) (*mergedBatch, portion, error) {
	got := mergedPool.Get().(*mergedBatch)
	all := portion{through: pos, next: endless, end: endless}
	b := share(len(m.cursors))
	for _, c := range m.cursors {
		if c.epoch.expired.Load() {
			return got, all, watchstream.ErrExpired
		}
		p, err := c.takeFor(ctx, got, b, pos)
		if err != nil {
			return got, all, err
		}
		all.through, all.end = min(all.through, p.through), min(all.end, p.end)
		if p.next > pos {
			all.next = min(all.next, p.next)
		}
	}
	slices.SortStableFunc(got.all, func(a, b mergedDelivery) int { return cmp.Compare(a.event.rev, b.event.rev) })
	all.through = fits(got.all, all.through)
	return got, all, nil
}

// fits returns the revision up to which deliveries make a batch: at most through, and the first revision in any case.
func fits(got []mergedDelivery, through storage.Revision) storage.Revision {
	size := 0
	for i, d := range got {
		if size += d.event.size(); size > maxBatchBytes && d.event.rev > got[0].event.rev && d.event.rev > got[i-1].event.rev {
			return min(through, got[i-1].event.rev)
		}
	}
	return through
}

// takeFor appends what the cursor has for its Merged up to the feed's position. The cursor stays where it is.
func (c *Cursor) takeFor(ctx context.Context, got *mergedBatch, b budget, pos storage.Revision) (portion, error) {
	to := limits{feed: pos, last: pos}
	defer func() {
		clear(got.deliveries)
		clear(got.events)
	}()
	for {
		var p portion
		var err error
		if c.reads == live {
			got.deliveries, p = c.takeLive(got.deliveries[:0], b, to)
			if p.step == moved {
				continue
			}
			for _, d := range got.deliveries {
				got.all = append(got.all, mergedDelivery{d, c})
			}
			return p, nil
		}
		if got.events, p, err = c.takeBehind(ctx, got.events[:0], b, to); err != nil {
			return p, err
		}
		if c.reads == live {
			continue
		}
		for _, e := range got.events {
			got.all = append(got.all, mergedDelivery{deliver(e, c.group.transition(e)), c})
		}
		return p, nil
	}
}

// give appends the frames of what was taken up to a revision, and moves the cursors there. On an error it appends none, and
// they stay where they were.
func (m *Merged) give(ctx context.Context, dst []byte, got []mergedDelivery, through storage.Revision) ([]byte, error) {
	n, _ := slices.BinarySearchFunc(got, through+1, func(d mergedDelivery, rev storage.Revision) int { return cmp.Compare(d.event.rev, rev) })
	got = got[:n]
	m.leaveOut(got)
	if err := m.prepare(ctx, got); err != nil {
		return dst, err
	}
	var added int64
	var first []*Cursor // those that give their first event
	out := dst
	for i, d := range got {
		if d.typ == watchstream.None {
			continue
		}
		view := d.cursor.nextView()
		if slices.Contains(first, d.cursor) {
			view = d.cursor.group.view
		} else if !d.cursor.begun {
			first = append(first, d.cursor)
		}
		frame, more, err := d.event.frame(view, d.typ, d.shown)
		if err != nil {
			return dst, fmt.Errorf("%s: %w", d.shown.Key, err)
		}
		if added += more; view.ServerSent && followed(got[i:]) {
			frame = watchstream.ServerSentWithoutID(frame)
		}
		out = append(out, frame...)
	}
	m.cacher.addFrames(added)
	for _, c := range first {
		c.begun = true
	}
	m.moveTo(got, through)
	return out, nil
}

// moveTo notes that everything up to a revision has been given, and what of it there was.
func (m *Merged) moveTo(got []mergedDelivery, through storage.Revision) {
	for _, d := range got {
		d.cursor.seq = d.event.seq
	}
	for _, c := range m.cursors {
		c.rev = max(c.rev, through)
	}
	if m.rev = max(m.rev, through); m.rev >= m.again {
		m.again = 0
	}
}

// leaveOut leaves out the event of the revision after which the client goes on, if it's the only one: then the client has it.
func (m *Merged) leaveOut(got []mergedDelivery) {
	var of *mergedDelivery
	for i := range got {
		if d := &got[i]; d.event.rev == m.again && d.typ != watchstream.None {
			if of != nil {
				return
			}
			of = d
		}
	}
	if of != nil {
		of.typ = watchstream.None
	}
}

// followed tells whether the first of deliveries is followed by another of its revision.
func followed(got []mergedDelivery) bool {
	for _, d := range got[1:] {
		if d.event.rev != got[0].event.rev {
			return false
		}
		if d.typ != watchstream.None {
			return true
		}
	}
	return false
}

// prepare has the views convert what they can't show as it's stored.
func (m *Merged) prepare(ctx context.Context, got []mergedDelivery) error {
	for _, c := range m.cursors {
		if c.group.view.Conversion == nil {
			continue
		}
		var own []delivery
		for _, d := range got {
			if d.cursor == c && d.typ != watchstream.None {
				own = append(own, d.delivery)
			}
		}
		if err := c.prepare(ctx, own); err != nil {
			return err
		}
		for i := range got {
			if d := &got[i]; d.cursor == c && d.typ != watchstream.None {
				d.delivery, own = own[0], own[1:]
			}
		}
	}
	return nil
}

// Synced tells whether the initial states have been given, and are of one revision.
func (m *Merged) Synced() bool { return m.stating == len(m.cursors) && m.rev >= m.settled }

// Revision returns the revision up to which every matching change of all resources has been given.
func (m *Merged) Revision() int64 { return int64(m.rev) }

// mergedView is the view of what is about all resources: a bookmark has to be of some kind, and this one has metadata alone.
var mergedView = &kube.View{APIVersion: metav1.SchemeGroupVersion.String(), Kind: "PartialObjectMetadata"}

var mergedServerSent = mergedView.AsServerSent()

func (m *Merged) view() *kube.View {
	if m.cursors[0].group.view.ServerSent {
		return mergedServerSent
	}
	return mergedView
}

// AppendBookmark appends a BOOKMARK event about all resources: a PartialObjectMetadata with the revision.
func (m *Merged) AppendBookmark(dst []byte) []byte { return m.view().AppendBookmark(dst, m.rev, "") }

// AppendInitialEnd appends the BOOKMARK event that tells the client that the initial states are complete.
func (m *Merged) AppendInitialEnd(dst []byte) []byte {
	return m.view().AppendBookmark(dst, m.rev, watchstream.InitialEventsEnd)
}

// AppendError appends the ERROR event that tells the client of an error of Next.
func (m *Merged) AppendError(dst []byte, err error) []byte {
	return m.view().AppendError(dst, watchstream.FailureOf(err))
}

// publish copies the cursors' positions for Reports.
func (m *Merged) publish() {
	for _, c := range m.cursors {
		c.publish()
	}
}

// Reports tells where it is in each resource, in the order of the parts. Any goroutine may call it.
func (m *Merged) Reports(now time.Time) []Report {
	all := make([]Report, len(m.cursors))
	for i, c := range m.cursors {
		all[i] = c.Report(now)
	}
	return all
}

// Close takes the cursors out of their groups. It's idempotent.
func (m *Merged) Close() {
	m.close.Do(func() {
		m.awake()
		m.done(&m.cacher.waker)
		for _, c := range m.cursors {
			c.Close()
		}
	})
}
