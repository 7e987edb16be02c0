package cacher

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/watchstream"
)

// state is an initial state that a cursor is giving.
type state struct {
	shared *sharedState
	piece  int    // the next one
	next   string // the first key that isn't given yet
}

// sharedState is one snapshot as the members of one group get it, in pieces of frames. Fifty clients that ask
// for the same state at once share its encoding, and whoever comes first to a piece makes it. It lives
// while one of them is on its way.
type sharedState struct {
	objects *Snapshot
	users   atomic.Int32 // changed under Resource.mu

	mu     sync.Mutex // guards all below
	pieces []piece
	bytes  int
}

// piece is about a batch of frames. Immutable.
type piece struct {
	frames []byte
	next   string // the first key that isn't in it; "" after the last
}

// maxSharedState bounds the encoded state that is kept for a group. What comes after that in key order each
// client encodes for itself.
const maxSharedState = 32 << 20

// shareLocked returns the group's shared form of a snapshot; Resource.mu must be held for writing.
func (g *group) shareLocked(s *Snapshot) *sharedState {
	if g.shared == nil || g.shared.objects != s {
		g.shared = &sharedState{objects: s}
	}
	g.shared.users.Add(1)
	return g.shared
}

// releaseLocked forgets the shared state when nobody needs it any more; Resource.mu must be held for writing.
func (g *group) releaseLocked(s *sharedState) {
	if s.users.Add(-1) == 0 && g.shared == s {
		g.shared = nil
	}
}

// nextState gives a piece of the initial state, as ADDED events. A piece never has anything else in it,
// so that the caller can put a bookmark between the state and what follows.
func (c *Cursor) nextState(ctx context.Context, dst []byte) ([]byte, error) {
	s := c.state
	if err := c.prepareState(ctx); err != nil {
		return dst, err
	}
	p, ok := s.shared.get(s.piece, s.next, c)
	if ok {
		dst = append(dst, p.frames...)
	} else {
		start := len(dst)
		dst, p.next = s.shared.encode(dst, s.next, c)
		p.frames = dst[start:]
	}
	c.begun = c.begun || len(p.frames) > 0
	s.piece++
	if s.next = p.next; s.next == "" {
		c.endState()
	}
	return dst, nil
}

// prepareState has the view convert what the next piece may show.
func (c *Cursor) prepareState(ctx context.Context) error {
	if c.group.view.Conversion == nil {
		return nil
	}
	var objects []*Object
	size, within := 0, c.within()
	for o := range c.state.shared.objects.From(max(c.state.next, within), within) {
		if c.group.matches(o) {
			objects = append(objects, o)
			if size += len(o.raw); size > maxBatchBytes {
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

// endState gives up what is left of the initial state.
func (c *Cursor) endState() {
	if c.state == nil {
		return
	}
	c.resource.mu.Lock()
	c.group.releaseLocked(c.state.shared)
	c.resource.mu.Unlock()
	c.state = nil
}

// get returns a piece, made now if it's the next to be kept. ok is false beyond the bound, and for who
// is alone: that one needs no copy.
func (s *sharedState) get(i int, next string, c *Cursor) (p piece, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i < len(s.pieces) {
		return s.pieces[i], true
	}
	if i > len(s.pieces) || s.bytes > maxSharedState || s.users.Load() == 1 {
		return piece{}, false
	}
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	*buf, p.next = s.encode((*buf)[:0], next, c)
	p.frames = append(make([]byte, 0, len(*buf)), *buf...)
	s.pieces = append(s.pieces, p)
	s.bytes += len(p.frames)
	return p, true
}

// buffers are where pieces are made, before it's known how large they are.
var buffers = sync.Pool{New: func() any { b := make([]byte, 0, maxBatchBytes); return &b }}

// encode appends frames from a key on, until the batch is full.
func (s *sharedState) encode(dst []byte, next string, c *Cursor) (out []byte, from string) {
	g, within := c.group, c.within()
	start, view := len(dst), g.view
	if next == "" {
		next = within
		if view.First != nil && !c.begun {
			view = view.First
		}
	}
	for o := range s.objects.From(max(next, within), within) {
		if !g.matches(o) {
			continue
		}
		full := len(dst) > start && len(dst)-start+len(o.raw)+frameOverhead > maxBatchBytes
		shown := view.found(o)
		if full || shown == nil {
			return dst, o.Key
		}
		dst = view.appendFrame(dst, watchstream.Added, shown, o.Revision)
		view = g.view
	}
	return dst, ""
}
