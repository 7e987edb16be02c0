package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/storage/mvcc"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/history"
)

// past keeps history within its bounds. The keeper's goroutine does that.
type past struct {
	local   *etcdserver.EtcdServer
	dir     *dataDir
	log     *slog.Logger
	cluster *cluster // nil for a store of one member without a port
	room    *room
	marks   *marks
	reader
	writeCount
	compaction compaction
	saved      time.Time // when the marks were, last
}

// reader is who reads history.
type reader struct {
	floor atomic.Pointer[func() storage.Revision] // see Server.SetFloor; nil if there's none
	tell  atomic.Pointer[func(storage.Revision)]  // see Server.SetCompacted; nil if nobody wants to know
}

// compaction says how far history is dropped.
type compaction struct {
	wanted storage.Revision // up to which history has ended
	done   storage.Revision // up to which this process has compacted; 0 before
}

func newPast(s *Server, o Options, room *room) (*past, error) {
	m, err := s.dir.loadMarks(o, s.Local.KV().Rev())
	if err != nil {
		return nil, err
	}
	p := &past{
		local: s.Local, dir: s.dir, log: o.Log, cluster: s.cluster, room: room, marks: m,
		writeCount: writeCount{writes: s.Local.Watchable().NewWatchStream(), snapshots: &s.snapshots, of: s.snapshots.Load()},
	}
	return p, p.countWrites()
}

// keepHistory counts what was written, sets marks, and compacts.
func (p *past) keepHistory(ctx context.Context) error {
	if err := p.recount(); err != nil {
		return err
	}
	marked := p.look()
	p.cutHistory(p.local.KV().Rev(), func(m *marks, now history.Mark) storage.Revision {
		marked = m.list.Note(now, m.keep) || marked
		return m.list.Cut(now, m.keep)
	})
	var err error
	if marked && !p.dir.ephemeral && p.room.state.Load().shut == nil { // on a full disk the next mark is early enough
		err = p.save()
	}
	return errors.Join(err, p.compact(ctx, false))
}

// timesInterval is how often the times of revisions are saved, if marks aren't: after a kill, times are as exact as that.
const timesInterval = time.Minute

// look notes which revision is the newest now, and tells whether that is to be saved.
func (p *past) look() (due bool) {
	before := p.marks.own.Now()
	p.marks.times.Look(storage.Revision(p.local.KV().Rev()), before, p.marks.own.Now())
	return time.Since(p.saved) >= timesInterval
}

// pin has the present be a mark.
func (p *past) pin() {
	p.cutHistory(p.local.KV().Rev(), func(m *marks, now history.Mark) storage.Revision {
		m.list.Pin(now, m.keep)
		return 0
	})
}

// cutHistory calls cut with the marks and the store's state, under the lock. cut returns the revision up to which history has
// ended, or 0; the next compaction goes as far. A cut that makes history shorter than anybody expects is logged, once
// until history is long enough again.
func (p *past) cutHistory(revision int64, cut func(m *marks, now history.Mark) storage.Revision) {
	m := p.marks
	m.mu.Lock()
	m.bytes += p.written.Swap(0)
	ended := cut(m, m.now(revision))
	age, was := m.age(), m.short
	m.short = age < m.enough() && (was || ended != 0)
	becameShort := m.short && !was
	m.mu.Unlock()
	p.compaction.wanted = max(p.compaction.wanted, ended)
	if becameShort {
		p.log.Warn("history is short: more is written than its bounds allow, so watches that were away for longer can't resume",
			"kept", age.Round(time.Second), "wanted", m.keep.Age, "max_bytes", m.keep.Bytes)
	}
}

// writeCount counts the bytes of changes.
type writeCount struct {
	writes    mvcc.WatchStream
	watch     mvcc.WatchID
	snapshots *atomic.Int64 // see Server.snapshots
	of        int64         // what they were when the watch began
	written   atomic.Int64  // bytes that the marks don't count yet
}

// countWrites counts what is written from now on, until the stream is closed. It watches all keys with a filter that
// counts each event and drops it. So no event ever waits for a reader. Reading the changes once a second instead would
// bring all of them into memory.
func (c *writeCount) countWrites() error {
	count := func(e *mvccpb.Event) bool {
		c.written.Add(int64(len(e.Kv.Key) + len(e.Kv.Value)))
		return true // drop the event
	}
	all, toTheEnd := []byte{0}, []byte{}
	var err error
	c.watch, err = c.writes.Watch(context.Background(), clientv3.AutoWatchID, all, toTheEnd, 0, count)
	return err
}

// recount begins anew if another member's snapshot has replaced the database: etcd may have ended the watch. What was
// written between the two databases isn't counted.
func (c *writeCount) recount() error {
	snapshots := c.snapshots.Load()
	if c.of == snapshots {
		return nil
	}
	c.of = snapshots
	_ = c.writes.Cancel(c.watch)
	for { // etcd's notice that the watch has ended has no other reader
		select {
		case _, open := <-c.writes.Chan():
			if open {
				continue
			}
		default:
		}
		return c.countWrites()
	}
}

// compact drops the history that has ended, but not past the floor: the rest waits for the next look. The database drops it later,
// in etcd's own time; or, with wait, before compact returns.
func (p *past) compact(ctx context.Context, wait bool) error {
	if p.cluster != nil && !p.cluster.leads() {
		return nil // the leader does it for all members
	}
	upTo := p.compaction.wanted
	if floor := p.floor.Load(); floor != nil {
		upTo = min(upTo, (*floor)())
	}
	if upTo <= p.compaction.done || p.room.state.Load().shut != nil { // a compaction rewrites pages before it frees any
		return nil
	}
	_, err := p.local.Compact(ctx, &pb.CompactionRequest{Revision: int64(upTo), Physical: wait})
	if err != nil && !errors.Is(err, mvcc.ErrCompacted) { // an earlier process compacted as far, and was killed before it saved its marks
		return fmt.Errorf("compact history up to revision %d: %w", upTo, err)
	}
	p.compaction.done = upTo
	p.marks.times.Cut(upTo)
	if tell := p.tell.Load(); tell != nil {
		(*tell)(upTo)
	}
	return nil
}

// save writes the marks to their file. It is called by one goroutine at a time: Open, then the keeper, then Close.
// A kill loses the count of what was written since: at most a sixty-fourth of the history's bytes.
func (p *past) save() error {
	p.marks.mu.Lock()
	p.marks.bytes += p.written.Swap(0)
	p.marks.mu.Unlock()
	p.look() // etcd may have stopped: its newest revision is known all the same
	p.saved = time.Now()
	return p.dir.save(p.marks)
}
