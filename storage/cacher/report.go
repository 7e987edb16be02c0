package cacher

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// Report says of one watcher what it watches and how far behind it is.
type Report struct {
	Namespace, Name        string // what it selects, "" for all
	Labels, Fields, Shards string // canonical selectors
	Members                int    // of its group: the watchers that ask for the same
	Group                  any    // equal for the members of one group
	Revision               storage.Revision
	// LagEvents is how many events the watcher has still to take. For a watcher that has fallen behind its group's
	// ring it's the most that can be: all events of the log, or all revisions of history, whether they concern the
	// watcher or not.
	LagEvents int
	// Lag is the age of the oldest of them; of a watcher that is further back than the log, the age of the event before the log's first.
	Lag time.Duration
}

// position is a copy of where a cursor is, for others to read.
type position struct {
	rev atomic.Int64
	seq atomic.Uint64 // one more than the cursor's; 0 while it reads history
}

// publish copies the cursor's position for Report. The cursor's own goroutine calls it.
func (c *Cursor) publish() {
	seq := c.seq + 1
	if c.reads == fromHistory {
		seq = 0
	}
	c.published.seq.Store(seq)
	c.published.rev.Store(int64(c.rev))
}

// Reports returns the Report of the one resource.
func (c *Cursor) Reports(now time.Time) []Report { return []Report{c.Report(now)} }

// Report tells where the cursor is. Any goroutine may call it.
func (c *Cursor) Report(now time.Time) Report {
	g, r := c.group, c.resource
	after, rev := c.published.seq.Load(), storage.Revision(c.published.rev.Load())
	seq := max(after, 1) - 1
	rep := Report{Namespace: g.namespace, Name: g.name, Labels: g.labels, Group: g, Revision: rev}
	rep.Fields, rep.Shards = g.selection.Parts()
	rep.Fields = cmp.Or(rep.Fields, g.fields)
	r.mu.RLock()
	defer r.mu.RUnlock()
	rep.Members = g.members
	oldest := r.log.next // of what it has still to take
	switch {
	case after == 0 && rev < r.log.base:
		rep.LagEvents, oldest = int(r.cacher.Position()-rev), 0
	case after == 0 || seq < g.floor:
		oldest = max(seq+1, r.log.seqAt(rev)+1)
		rep.LagEvents = int(r.log.next - max(oldest, r.log.low))
	default:
		i := g.after(seq)
		if rep.LagEvents = int(g.next - i); i < g.next {
			oldest = g.ring[i%uint64(len(g.ring))].seq
		}
	}
	if at := r.log.appliedAt(oldest); !at.IsZero() {
		rep.Lag = now.Sub(at)
	}
	return rep
}
