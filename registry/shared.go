package registry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// What a registry does besides when other processes write to its store, too (Options.Shared): replicas, which are all one to
// a client. A client that was answered by one of them may ask any other next. So before a request is judged, the caches get
// everything that was acknowledged by then on any replica: definitions and namespaces, rights, webhooks, policies, quotas. A
// request waits for that once (Fresh), and what it reads afterwards needn't wait again. A write of one object may go without
// that: it presumes that no rule has changed, and its transaction finds out (Presume, judged).

// freshKey is the key under which a context says that the caches are as new as the request.
type freshKey struct{}

// Fresh waits until the caches have everything that was acknowledged before the call, on whichever replica, and serves what
// the definitions say by then. Consistent reads with the context that it returns don't wait again. In a registry that isn't
// shared it does nothing, because there every write waits for what others depend on (Awaited, and written of definitions). The
// error is a Status: 503 if the store can't say what was acknowledged, 504 if the caches don't get there in time.
func (r *Registry) Fresh(ctx context.Context) (context.Context, error) {
	if !r.Shared {
		return ctx, nil
	}
	rev, err := r.barrier(ctx)
	e := r.Namespaces.Res.Storage // of any resource: all errors are about storage
	if err != nil {
		return nil, e.Fail("", err)
	}
	if err := e.WaitFor(ctx, rev); err != nil {
		return nil, err
	}
	r.Definitions.CatchUp()
	if r.rules.unknown.Load() && time.Now().UnixNano() >= r.rules.pause.Load() {
		r.readRules(ctx)
	}
	if Presumes(ctx) {
		ctx = context.WithValue(ctx, presumed{}, nil) // nothing is, any more
	}
	return context.WithValue(ctx, freshKey{}, true), nil
}

// rulesKey is written by each write of what others are judged by: namespaces, definitions, and the kinds that say so
// (Type.Awaited). So its revision is that of the last such write.
const rulesKey = storage.Own + "rules"

// rulesPause is for how long nothing is presumed after a presumption was wrong. Where rules are written all the
// time, most would be wrong, and each costs a transaction: so at most ten a second are lost, and after the last
// rule writes are slow for no longer than a person notices.
const rulesPause = 100 * time.Millisecond

// rules is how far the caches have what others are judged by.
type rules struct {
	unknown  atomic.Bool       // nothing may be presumed: at is to be read
	pause    atomic.Int64      // in nanoseconds since 1970: not before that
	at       storage.Watermark // rulesKey's revision, which the caches have reached
	replaced storage.Watermark // the cacher's Replaced when at was read: if it's another one now, at is another store's
}

// lose notes that where the rules are isn't known any more.
func (r *rules) lose() {
	r.pause.Store(time.Now().Add(rulesPause).UnixNano())
	r.unknown.Store(true)
}

// readRules reads where the rules are, and waits until the caches are there. If it can't, on a full disk for
// example, nothing is presumed, and the request that asked goes on.
func (r *Registry) readRules(ctx context.Context) {
	r.rules.unknown.Store(false) // whoever finds out meanwhile that it's wrong sets it again
	r.rules.replaced.Reset(r.Cacher.Replaced())
	kv, err := r.Store.GetAt(ctx, rulesKey, 0)
	if errors.Is(err, storage.ErrNotFound) { // a store that has the key can be told from one that was emptied
		if kv.Revision, err = r.Store.Create(ctx, rulesKey, nil); errors.Is(err, storage.ErrExists) {
			kv, err = r.Store.Get(ctx, rulesKey)
		}
	}
	if err == nil {
		err = r.Namespaces.Res.Storage.WaitFor(ctx, kv.Revision)
	}
	if err != nil {
		r.rules.lose()
		return
	}
	r.rules.at.Reset(kv.Revision)
}

// isRule tells whether objects of other resources are judged by those of this one, in a registry that is shared.
func (r *Resource) isRule() bool {
	all, t := r.Registry, r.Storage.Typed
	return all.Shared && (r == all.Namespaces.Res || r == all.Definitions.res || t != nil && t.Awaited)
}

// Noting returns a context with which the resource is written: if others are judged by it, its writes break what
// they presume.
func (r *Resource) Noting(ctx context.Context) context.Context {
	if !r.isRule() {
		return ctx
	}
	return storage.WithNote(ctx, rulesKey)
}

// Noted notes that the resource was written. When the caches are there, they have all rules that were written before.
func (r *Resource) Noted(rev storage.Revision) {
	if r.isRule() {
		r.Registry.rules.at.Raise(rev)
	}
}

// presumed is the key under which a context has the revision of the rules by which a write presumes that it's judged.
type presumed struct{}

// Presume returns a context for a client's write that is judged by what the caches have now, without waiting (see
// Fresh). Its transaction finds out whether a rule has changed since. The caller has judged the user's rights. It
// tells whether the write may be judged so; then the context is for Create, Update, Patch and Delete only, which
// call Fresh by themselves where they have to.
func (r *Registry) Presume(ctx context.Context) (_ context.Context, may bool) {
	if !r.Shared || r.rules.unknown.Load() {
		return ctx, false
	}
	at := r.rules.at.At()
	if r.rules.replaced.At() != r.Cacher.Replaced() {
		r.rules.unknown.Store(true)
		return ctx, false
	}
	if at == 0 || r.Cacher.Position() < at {
		return ctx, false
	}
	r.Definitions.CatchUp()
	return context.WithValue(ctx, presumed{}, at), true
}

// Presumes tells whether a context is Presume's, and Fresh hasn't been called since.
func Presumes(ctx context.Context) bool { return ctx.Value(presumed{}) != nil }

// ErrJudged means that a write presumed, but has to be judged by more than the rules: by a hook, or by a
// namespace that has to be made. No client sees it.
var ErrJudged = errors.New("the write is judged by what may be old")

// Judged runs a client's write. One that presumes, and whose presumption doesn't lead to a write, runs again when
// the caches are as new as the request.
func Judged(ctx context.Context, e *Endpoint, r *Request, run func(ctx context.Context, e *Endpoint) (Result, error)) (Result, error) {
	registry := e.Res.Registry
	if ctx = registry.Authored(ctx); !Presumes(ctx) {
		return Current(ctx, e, run)
	}
	if at, _ := ctx.Value(presumed{}).(storage.Revision); e.mayPresume(r) {
		premise := &storage.Premise{Condition: storage.Condition{Key: rulesKey, Revision: at}}
		res, err := Current(storage.WithPremise(ctx, premise), e, run)
		if premise.Decided() {
			return res, err
		}
		if err := ctx.Err(); err != nil {
			return Result{}, e.Fail("", err)
		}
		if premise.Broken() {
			registry.rules.lose()
		}
	}
	ctx, err := registry.Fresh(ctx)
	if err != nil {
		return Result{}, err
	}
	if e, err = registry.Lookup(ctx, e.Path()); err != nil {
		return Result{}, err
	}
	return Current(ctx, e, run)
}

// mayPresume tells whether a write may be judged by the rules alone. What a subresource does, and what may be
// among the rules, may depend on any object. So may what a type claims, begins or forbids (Claim, begin,
// MayWrite): those functions look at other objects in the caches.
func (e *Endpoint) mayPresume(r *Request) bool {
	t := e.Res.Storage.Typed
	return !e.Res.Answered && !e.Res.isRule() && (r.Subresource == Whole || r.Subresource == AtStatus) &&
		(t == nil || t.Guard.Claim == nil && t.Guard.begin == nil && t.Guard.MayWrite == nil)
}

// barrier is storage.Store.Barrier, which in a shared store may wait for a majority that isn't there: for at most
// freshnessWait.
func (r *Registry) barrier(ctx context.Context) (storage.Revision, error) {
	if !r.Shared {
		return r.Store.Barrier(ctx)
	}
	wait, cancel := context.WithTimeout(ctx, freshnessWait)
	defer cancel()
	rev, err := r.Store.Barrier(wait)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("barrier: no answer within %v: %w: %w", freshnessWait, storage.ErrUnavailable, storage.ErrNoMajority)
	}
	return rev, err
}

// IsFresh tells whether Fresh has waited for the request of a context.
func IsFresh(ctx context.Context) bool { return ctx.Value(freshKey{}) != nil }

// CatchUp serves what the cached definitions say if one has changed since the last time.
func (d *definitions) CatchUp() {
	if d.res.Cache.Changed() != storage.Revision(d.synced.Load()) {
		d.Sync()
	}
}

// followPause is how long follow waits before it watches again, after a watch that couldn't begin: short, because
// definitions of other processes, for example, aren't served meanwhile.
const followPause = 100 * time.Millisecond

// follow serves what other processes write to definitions, and ends the watches that depend on it, until ctx ends.
func (d *definitions) follow(ctx context.Context) { d.res.follow(ctx, d.CatchUp) }

// Follow calls changed at the beginning, and whenever objects with a prefix have changed, until ctx ends. Changes that come
// close together may be one call. A prefix that no resource has never changes.
func (r *Registry) Follow(ctx context.Context, p storage.Prefix, changed func()) {
	if e := r.Catalog().Prefix(p); e != nil {
		e.Res.follow(ctx, changed)
		return
	}
	changed()
	<-ctx.Done()
}

// follow is Follow for the objects of the resource. Its stored version mustn't change meanwhile.
func (r *Resource) follow(ctx context.Context, changed func()) {
	view, frames := r.Storage.View, []byte(nil)
	for ctx.Err() == nil {
		cursor, err := r.Cache.Open(ctx, cacher.WatchOptions{View: view, Start: cacher.StartAfter, After: r.Registry.Cacher.Position()})
		if err != nil { // all that was there was replaced just now
			select {
			case <-time.After(followPause):
			case <-ctx.Done():
			}
			continue
		}
		for err == nil {
			var news <-chan struct{}
			changed()
			if frames, news, err = cursor.Next(ctx, frames[:0]); err == nil && news != nil {
				select {
				case <-news:
				case <-ctx.Done():
				}
			}
		}
		cursor.Close()
	}
}

// freshnessWait bounds how long a read waits for a version that the server doesn't have yet. It's kube-apiserver's number.
const freshnessWait = 3 * time.Second

// Freshen waits until the caches have everything that was written before the call. The error is a Status: 503 if the store
// doesn't answer, 504 if the caches need longer than freshnessWait.
func (e *Endpoint) Freshen(ctx context.Context) error {
	r := e.Res.Registry
	if r.Shared && IsFresh(ctx) {
		return nil
	}
	rev, err := r.barrier(ctx)
	if err != nil {
		return e.Fail("", err)
	}
	return e.WaitFor(ctx, rev)
}

// WaitFor waits until the caches have a version, at most freshnessWait. Any state has 0.
func (e *Endpoint) WaitFor(ctx context.Context, rev storage.Revision) error {
	c := e.Res.Registry.Cacher
	if rev <= c.Position() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, freshnessWait)
	defer cancel()
	err := c.WaitFor(wait, rev)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return tooNew(rev, c.Position())
	}
	return e.Fail("", err)
}
