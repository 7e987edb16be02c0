package cacher

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// state is how far a cursor has given its initial state.
type state struct {
	shared *sharedState
	piece  int    // the next one to give
	next   string // the first key that isn't given yet
}

// sharedState is one snapshot as the members of one group get it, in pieces of frames. Clients that ask for the
// same state at the same time share its encoding: whoever first comes to a piece makes it for all. The sharedState
// lives until the last of them has got its state.
type sharedState struct {
	resource     *Resource
	snapshot     atomic.Pointer[Snapshot] // nil once it has kept too much alive: the rest is read from history
	removedBytes int64                    // of the snapshot
	users        atomic.Int32             // the cursors that are giving this state; changed under Resource.mu
	bytes        atomic.Int64             // of the pieces

	mu     sync.Mutex // guards pieces, and lets one cursor encode
	pieces []piece
}

// piece is about a batch of frames. Immutable.
type piece struct {
	frames []byte
	next   string // the first key that isn't in it; "" after the last
}

// joinStateLocked returns the group's sharedState of what the resource holds now; mu must be held for writing. The
// caller gives it up with endState.
func (r *Resource) joinStateLocked(g *group) *sharedState {
	now := r.snapshotLocked()
	if g.state == nil || g.state.snapshot.Load() != now {
		g.state = &sharedState{resource: r, removedBytes: now.removedBytes}
		g.state.snapshot.Store(now)
		r.cacher.states.add(g.state)
	}
	g.state.users.Add(1)
	return g.state
}

// endState gives up the initial state. When the last cursor does, the sharedState is forgotten.
func (c *Cursor) endState() {
	if c.state == nil {
		return
	}
	s, r := c.state.shared, c.resource
	c.state = nil
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.users.Add(-1) > 0 {
		return
	}
	if c.group.state == s {
		c.group.state = nil
	}
	r.cacher.states.remove(s)
}

// nextState gives a piece of the initial state, as ADDED events. A piece has nothing else in it, so that the caller
// can put a bookmark between the state and what follows.
func (c *Cursor) nextState(ctx context.Context, dst []byte) (out []byte, err error) {
	s := c.state
	p, ok := s.shared.find(s.piece)
	snapshot := s.shared.snapshot.Load()
	switch {
	case ok:
		out = append(dst, p.frames...)
	case snapshot != nil:
		if err := c.prepareState(ctx, snapshot); err != nil {
			return dst, err
		}
		if p, ok, err = s.shared.add(c, snapshot); ok {
			out = append(dst, p.frames...)
		} else if err == nil {
			out, p.next, err = c.encode(dst, snapshot)
		}
		if err != nil {
			return dst, err
		}
	default:
		if out, p.next, err = c.encodePast(ctx, dst); err != nil {
			return dst, err
		}
	}
	c.begun = c.begun || len(out) > len(dst)
	s.piece++
	if s.next = p.next; s.next == "" {
		c.endState()
	}
	return out, nil
}

// prepareState has the view convert the objects that the next piece may show.
func (c *Cursor) prepareState(ctx context.Context, snapshot *Snapshot) error {
	if c.group.view.Conversion == nil {
		return nil
	}
	var objects []*kube.Object
	size, within := 0, c.within()
	for o := range snapshot.In(storage.Range{Prefix: within, From: c.state.next}) {
		if c.group.matches(o) {
			objects = append(objects, o)
			if size += len(o.Raw()); size > maxBatchBytes {
				break
			}
		}
	}
	return c.group.view.Prepare(ctx, objects)
}

// within is the prefix of the keys that the cursor's group selects.
func (c *Cursor) within() string {
	within := string(c.resource.prefix)
	if ns := c.group.namespace; ns != "" {
		within += ns + "/"
	}
	return within
}

// find returns a piece if somebody has made it.
func (s *sharedState) find(i int) (p piece, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < len(s.pieces) {
		return s.pieces[i], true
	}
	return piece{}, false
}

// add makes the piece that a cursor needs next, and keeps it for the others. ok is false if the piece isn't kept: the
// bounds are reached, pieces before it are missing, or no other cursor is giving this state. The error is encode's.
func (s *sharedState) add(c *Cursor, snapshot *Snapshot) (p piece, ok bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i, states := c.state.piece, &c.resource.cacher.states
	if i < len(s.pieces) { // somebody else made it meanwhile
		return s.pieces[i], true, nil
	}
	if i > len(s.pieces) || s.users.Load() == 1 || states.full(s) {
		return piece{}, false, nil
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	if *buf, p.next, err = c.encode((*buf)[:0], snapshot); err != nil {
		return piece{}, false, err
	}
	p.frames = append(make([]byte, 0, len(*buf)), *buf...)
	s.pieces = append(s.pieces, p)
	s.bytes.Add(int64(len(p.frames)))
	states.bytes.Add(int64(len(p.frames)))
	return p, true, nil
}

// buffers are where pieces are made. A piece is copied to memory of its own when its size is known.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, maxBatchBytes); return &b }}

// encode appends frames of a snapshot from the cursor's next key on, until the batch is full or an object has to be
// converted first. next is the first key that it left out, "" if there is none. The error is that of the view's Encoding.
func (c *Cursor) encode(dst []byte, snapshot *Snapshot) (out []byte, next string, err error) {
	g, within, start, view := c.group, c.within(), len(dst), c.nextView()
	for o := range snapshot.In(storage.Range{Prefix: within, From: c.state.next}) {
		if !g.matches(o) {
			continue
		}
		shown := g.view.Found(o)
		if shown == nil || overflows(len(dst)-start, o) {
			return dst, o.Key, nil
		}
		if dst, err = view.AppendState(dst, shown); err != nil {
			return dst[:start], "", fmt.Errorf("%s: %w", o.Key, err)
		}
		view = g.view
	}
	return dst, "", nil
}

// encodePast does what encode does after the snapshot was dropped: it reads the objects from etcd's history, as they
// were when the watch was opened. The error is storage.ErrCompacted if history no longer has them.
func (c *Cursor) encodePast(ctx context.Context, dst []byte) (out []byte, next string, err error) {
	within, size := c.within(), 0
	var objects []*kube.Object
	for o, err := range c.resource.Past(ctx, c.rev, storage.Range{Prefix: within, From: c.state.next}) {
		if err != nil {
			return dst, "", err
		}
		if !c.group.matches(o) {
			continue
		}
		if overflows(size, o) {
			next = o.Key
			break
		}
		objects = append(objects, o)
		size += len(o.Raw()) + kube.FrameOverhead
	}
	if err := c.group.view.Prepare(ctx, objects); err != nil {
		return dst, "", err
	}
	start, view := len(dst), c.nextView()
	for _, shown := range objects {
		if dst, err = view.AppendState(dst, shown); err != nil {
			return dst[:start], "", fmt.Errorf("%s: %w", shown.Key, err)
		}
		view = c.group.view
	}
	return dst, next, nil
}

// overflows tells whether an object is too large for a batch that has size bytes already. An empty batch takes any.
func overflows(size int, o *kube.Object) bool {
	return size > 0 && size+len(o.Raw())+kube.FrameOverhead > maxBatchBytes
}

// states are the initial states that cursors are giving.
type states struct {
	bounds *bounds
	bytes  atomic.Int64 // of the pieces of all of them

	mu   sync.Mutex // guards open; it may be taken under Resource.mu
	open map[*sharedState]struct{}
}

func (st *states) add(s *sharedState) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.open[s] = struct{}{}
}

// remove forgets a state that nobody needs any more.
func (st *states) remove(s *sharedState) {
	st.bytes.Add(-s.bytes.Load())
	st.mu.Lock()
	defer st.mu.Unlock()
	delete(st.open, s)
}

// full tells whether no further piece of a state may be kept.
func (st *states) full(s *sharedState) bool {
	return s.bytes.Load() >= st.bounds.groupStateBytes || st.bytes.Load() >= st.bounds.stateBytes
}

// retains returns how many bytes the state's snapshot keeps alive that nothing else needs.
func (s *sharedState) retains() int64 {
	if s.snapshot.Load() == nil {
		return 0
	}
	return s.resource.removedBytes.Load() - s.removedBytes
}

// retainedLocked returns how many bytes the snapshots keep alive together, and of how many resources they are. Only the
// oldest snapshot of each resource counts: it keeps alive all that the others of the resource do. mu must be held.
func (st *states) retainedLocked() (sum int64, resources int) {
	most := map[*Resource]int64{}
	for s := range st.open {
		if n := s.retains(); n > most[s.resource] {
			most[s.resource] = n
		}
	}
	for _, n := range most {
		sum += n
	}
	return sum, len(most)
}

// retained returns how many bytes the snapshots keep alive together.
func (st *states) retained() int64 {
	st.mu.Lock()
	defer st.mu.Unlock()
	sum, _ := st.retainedLocked()
	return sum
}

// trim drops snapshots when all together keep more alive than stateRetained: those that keep more than stateRetained divided
// by the number of resources. The feed calls it after each trimBytes that were replaced.
func (st *states) trim() {
	st.mu.Lock()
	defer st.mu.Unlock()
	sum, resources := st.retainedLocked()
	if sum <= st.bounds.stateRetained {
		return
	}
	for s := range st.open {
		if s.retains() > st.bounds.stateRetained/int64(resources) {
			s.snapshot.Store(nil)
		}
	}
}
