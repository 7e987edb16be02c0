package cacher

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// feed brings every change of the store into the caches, in revision order. It's one goroutine.
type feed struct {
	cacher *Cacher
	log    *slog.Logger
	primed chan struct{} // closed when what the store held at start is in the caches

	pos    atomic.Int64  // every change up to this revision is in the caches of all resources
	waitMu sync.Mutex    // guards moved
	moved  chan struct{} // closed when pos has moved; nil while nobody waits

	// The goroutine's own.
	noting      bool           // a tape is open, so what is being applied is noted
	noted       []note         // the events of what is being applied, for the tapes
	untrimmed   int            // changes since the logs were last trimmed
	removed     int64          // bytes that left the trees since the snapshots were last trimmed
	undecodable storage.Change // the first of the changes being applied that couldn't be decoded
	complained  time.Time      // when such a change was last logged
}

// emptyRevision is the revision of a new etcd. No change has it.
const emptyRevision storage.Revision = 1

// run primes the caches and then applies every change until ctx ends, which isn't an error.
func (f *feed) run(ctx context.Context) error {
	err := f.follow(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("feed: %w", err)
}

func (f *feed) follow(ctx context.Context) error {
	atStart, err := f.load(ctx, behind)
	for primed := false; err == nil; {
		if !primed && f.position() >= atStart {
			close(f.primed)
			primed = true
		}
		var changes []storage.Change
		var upTo storage.Revision
		changes, upTo, err = f.cacher.store.Follow(ctx, f.position())
		switch {
		case err == nil:
			f.applyAll(changes)
			f.advance(upTo)
		case errors.Is(err, storage.ErrCompacted):
			f.cacher.stats.relisted.Add(1)
			f.log.Warn("the feed fell out of history: listing anew", "position", f.position(), "error", err)
			_, err = f.load(ctx, behind)
		case errors.Is(err, storage.ErrRewound):
			f.log.Error("the store isn't the one it was: all watches end, and the caches begin anew", "position", f.position(), "error", err)
			atStart, err = f.load(ctx, rewound)
		}
	}
	return err
}

// cause is why the feed reads the state of the store.
type cause int

const (
	behind  cause = iota // the caches lack what the store doesn't tell any more, or at start all of it
	rewound              // the store isn't the one it was: its revisions may be lower, and mean something else
)

// loadPause is between two tries to read the state from an etcd that doesn't answer. A try may list everything, so it's no
// shorter; and an etcd that restarts takes about that long.
const loadPause = time.Second

// load brings the state of the store into the caches, and tries that until etcd answers. It returns the newest revision that the
// store had then.
func (f *feed) load(ctx context.Context, why cause) (newest storage.Revision, err error) {
	for {
		newest, err = f.tryLoad(ctx, why)
		switch {
		case errors.Is(err, storage.ErrCompacted):
			f.log.Warn("history was compacted while the caches were filled: listing anew", "error", err)
			continue
		case !errors.Is(err, storage.ErrUnavailable):
			return newest, err
		}
		f.log.Warn("the caches can't be filled yet", "error", err)
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(loadPause):
		}
	}
}

// tryLoad loads the state as it was bounds.warm revisions ago, or as soon after that as history allows. The feed then
// applies what followed as it applies every change, and so fills the logs. A cursor that is below the state reads on from
// etcd's history. If compaction has taken events that the cursor needs, it's told that it has expired. Of another store it loads
// the newest state.
func (f *feed) tryLoad(ctx context.Context, why cause) (newest storage.Revision, err error) {
	compacted, newest, err := f.cacher.store.Window(ctx)
	if err != nil {
		return 0, err
	}
	at := newest
	if why == behind {
		at = max(compacted, newest-f.cacher.bounds.warm, f.position(), emptyRevision)
	}
	objects, err := f.list(ctx, at)
	if err != nil {
		return 0, err
	}
	f.begin(f.prepare(objects), at, why)
	return newest, nil
}

// begin makes what was found that of the caches, and its revision the position. Tapes begin again with it. If the store isn't the
// one it was, every open watch expires, and history begins with the state: what clients know of another store isn't part of it.
func (f *feed) begin(found map[storage.Prefix]*contents, at storage.Revision, why cause) {
	c := f.cacher
	c.tapes.mu.Lock()
	if why == rewound {
		c.replacedAt.Store(int64(at))
		c.each(func(r *Resource) { r.expire(at) })
		c.kept.drop()
		c.stretches.drop()
	}
	dirty := f.install(found, at)
	f.moveTo(at)
	if why == rewound { // until the position was the new store's, a watch of a revision of the old one may have opened on the new state
		c.each(func(r *Resource) { dirty = r.renew(at, dirty) })
	}
	c.tapes.expire()
	c.tapes.mu.Unlock()
	c.waker.wake(dirty)
}

// scanPart is how many of the objects of a list are scanned together.
const scanPart = 256

// list reads the state at a revision. While the store reads on, the objects that it has read are scanned, on as many processors as there are: the
// feed lists when everybody waits for it. An object that the caches have as it's read is theirs, so what is listed anew takes memory for what has
// changed since.
func (f *feed) list(ctx context.Context, at storage.Revision) (map[storage.Prefix][]listed, error) {
	var parts []*listPart
	var part []storage.Change
	var work errgroup.Group
	work.SetLimit(runtime.GOMAXPROCS(0)) // Go waits, so that no more is read than is being scanned
	scan := func() {
		s := &listPart{}
		parts = append(parts, s)
		changes := part
		work.Go(func() error {
			s.scan(f.cacher, changes)
			return nil
		})
		part = make([]storage.Change, 0, scanPart)
	}
	_, err := f.cacher.store.List(ctx, storage.Range{Prefix: storage.Root}, at, func(kv storage.Change) error {
		if part = append(part, kv); len(part) == scanPart {
			scan()
		}
		return nil
	})
	scan()
	work.Wait()
	if err != nil {
		return nil, err
	}
	objects := map[storage.Prefix][]listed{}
	for _, s := range parts {
		for i, o := range s.objects {
			objects[s.of[i]] = append(objects[s.of[i]], o)
		}
	}
	return objects, nil
}

// listPart is some objects of a list, and the resource that each is of.
type listPart struct {
	of      []storage.Prefix
	objects []listed
}

// scan makes the objects of what was read.
func (s *listPart) scan(c *Cacher, changes []storage.Change) {
	s.of, s.objects = make([]storage.Prefix, 0, len(changes)), make([]listed, 0, len(changes))
	var known lastSeen
	for _, kv := range changes {
		p, _, _, ok := storage.SplitKey(kv.Key)
		if !ok {
			continue
		}
		o := listed{known.find(c, p, kv), true}
		if o.Object == nil {
			o = listed{kube.Changed(kv), false}
		}
		s.of, s.objects = append(s.of, p), append(s.objects, o)
	}
}

// listed is an object of a list.
type listed struct {
	*kube.Object
	known bool // the caches have it, so others read it
}

// lastSeen is what the caches hold of the resource whose keys are being listed.
type lastSeen struct {
	prefix storage.Prefix
	*Snapshot
	key kube.Object // what is looked for
}

// find returns the object that the caches have for what was read, nil if they have another one or none.
func (l *lastSeen) find(c *Cacher, p storage.Prefix, kv storage.Change) *kube.Object {
	if l.prefix != p || l.Snapshot == nil {
		l.prefix, l.Snapshot = p, c.Resource(p).Snapshot()
	}
	if l.Len() == 0 {
		return nil
	}
	l.key.Key = kv.Key
	o, _ := l.tree.Get(&l.key)
	if o == nil || o.Err != nil || kv.Err != nil || o.Revision != kv.Revision || !bytes.Equal(o.Raw(), kv.Value) {
		return nil // another store may have another object of the same revision
	}
	return o
}

// prepare makes the trees of what was listed. No lock is held meanwhile.
func (f *feed) prepare(objects map[storage.Prefix][]listed) map[storage.Prefix]*contents {
	found := make(map[storage.Prefix]*contents, len(objects))
	for p, list := range objects {
		found[p] = f.cacher.Resource(p).prepare(list)
	}
	return found
}

// install replaces all that the caches hold by what was found, and returns the cohorts to wake.
func (f *feed) install(found map[storage.Prefix]*contents, at storage.Revision) (dirty []*cohort) {
	for _, r := range f.cacher.rebase(at) {
		c := found[r.prefix]
		if c == nil {
			c = r.prepare(nil)
		}
		dirty = r.install(c, at, dirty)
	}
	return dirty
}

// advance moves to a revision up to which there are no changes but those that were applied.
func (f *feed) advance(upTo storage.Revision) {
	if upTo <= f.position() {
		return
	}
	f.cacher.tapes.mu.Lock()
	defer f.cacher.tapes.mu.Unlock()
	f.moveTo(upTo)
	f.cacher.tapes.hand(nil, upTo)
}

// applyAll applies changes revision by revision, and then wakes the watchers that they concern.
func (f *feed) applyAll(changes []storage.Change) {
	dirty := f.applyNoted(changes)
	f.complain()
	f.cacher.waker.wake(dirty)
	if f.untrimmed += len(changes); f.untrimmed >= trimInterval {
		f.untrimmed = 0
		f.cacher.trimLogs()
		if c := f.cacher; c.asked.bytes.Load() > c.bounds.demandBytes {
			c.trimDemands(time.Now())
		}
	}
}

// applyNoted applies changes revision by revision, and hands each tape the places of the events.
func (f *feed) applyNoted(changes []storage.Change) (dirty []*cohort) {
	f.cacher.tapes.mu.Lock()
	defer f.cacher.tapes.mu.Unlock()
	f.noting = len(f.cacher.tapes.open) > 0
	for from := 0; from < len(changes); {
		to := from + 1
		for to < len(changes) && changes[to].Revision == changes[from].Revision {
			to++
		}
		dirty = f.applyRevision(changes[from:to], dirty)
		f.moveTo(changes[from].Revision)
		if f.removed >= trimBytes {
			f.removed = 0
			f.cacher.kept.trim()
			f.cacher.states.trim()
		}
		from = to
	}
	if f.noting {
		f.cacher.tapes.hand(f.noted, f.position())
		clear(f.noted)
		f.noted = f.noted[:0]
	}
	return dirty
}

// applyRevision brings one revision into all the resources that it changed.
func (f *feed) applyRevision(changes []storage.Change, dirty []*cohort) []*cohort {
	if changes[len(changes)-1].Key == storage.ReplacedKey {
		return f.applyReplace(changes, dirty)
	}
	for len(changes) > 0 {
		p, _, _, ok := storage.SplitKey(changes[0].Key)
		n, rest := 1, []storage.Change(nil)
		if len(changes) > 1 { // a transaction that isn't ours: each of ours that is no Replace changes one object
			changes, rest = partition(changes, p)
			n = len(changes)
		}
		if ok {
			dirty = f.cacher.Resource(p).apply(changes[:n], dirty)
		} else {
			f.ignore(changes)
		}
		changes = rest
	}
	return dirty
}

// applyReplace applies the revision of a storage.Store.Replace: no watch is told what it changed. Every open watch expires,
// as does every tape, history begins at the revision, and no list from before goes on. tapes.mu must be held.
func (f *feed) applyReplace(changes []storage.Change, dirty []*cohort) []*cohort {
	c, at := f.cacher, changes[0].Revision
	of := map[storage.Prefix][]storage.Change{}
	for _, ch := range changes {
		if p, _, _, ok := storage.SplitKey(ch.Key); ok {
			of[p] = append(of[p], ch)
		} else if ch.Key != storage.ReplacedKey {
			f.ignore([]storage.Change{ch})
		}
	}
	for p := range of {
		c.Resource(p)
	}
	c.replacedAt.Store(int64(at))
	for _, r := range c.rebase(at) { // also those that it leaves as they are
		dirty = r.replace(of[r.prefix], at, dirty)
	}
	c.kept.drop()
	c.tapes.expire()
	return dirty
}

// ignore leaves out changes of keys that belong to no object. It counts those that couldn't be decoded, which have no key
// at all.
func (f *feed) ignore(changes []storage.Change) {
	for _, c := range changes {
		if c.Err == nil {
			continue
		}
		f.cacher.stats.undecodable.Add(1)
		if f.undecodable.Err == nil {
			f.undecodable = c
		}
	}
}

// complaintInterval bounds how often changes that can't be decoded are logged, because there may be many.
const complaintInterval = time.Minute

// complain logs the first of the changes that couldn't be decoded.
func (f *feed) complain() {
	c := f.undecodable
	if f.undecodable = (storage.Change{}); c.Err == nil || time.Since(f.complained) < complaintInterval {
		return
	}
	f.complained = time.Now()
	f.log.Error("a change in the store can't be decoded: reads and watches don't have it",
		"revision", c.Revision, "total", f.cacher.stats.undecodable.Load(), "error", c.Err)
}

// partition splits changes into those of the prefix and the others, in order.
func partition(changes []storage.Change, of storage.Prefix) (in, out []storage.Change) {
	for _, ch := range changes {
		if p, _, _, _ := storage.SplitKey(ch.Key); p == of {
			in = append(in, ch)
		} else {
			out = append(out, ch)
		}
	}
	return in, out
}

// position returns the revision up to which every change is in the caches.
func (f *feed) position() storage.Revision { return storage.Revision(f.pos.Load()) }

func (f *feed) moveTo(rev storage.Revision) {
	f.pos.Store(int64(rev))
	f.waitMu.Lock()
	defer f.waitMu.Unlock()
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// waitFor returns when the feed's position is at least rev, or with ctx's error.
func (f *feed) waitFor(ctx context.Context, rev storage.Revision) error {
	for {
		if f.position() >= rev {
			return nil
		}
		f.waitMu.Lock()
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.waitMu.Unlock()
		if f.position() >= rev { // it may have moved before the channel was there
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for revision %d (at %d): %w", rev, f.position(), ctx.Err())
		case <-moved:
		}
	}
}
