package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// freshnessWait bounds how long a read waits for a version that the server doesn't have yet. It's kube-apiserver's number.
const freshnessWait = 3 * time.Second

// Get returns the object that Target names. With the subresource status it's the same object; with scale it's the object's
// Scale. Of the query it reads resourceVersion, and for Tables includeObject: without a version the answer is as new as the
// moment of the call, with "0" it's what the cache has, and with another version at least that.
//
// Errors are Status errors: 400 for parameters that can't be read, 404 for a missing object, 405 for finalize, 500 for a
// stored value that nobody can read, 503 from storage, 504 for a version that doesn't come within freshnessWait. Others are
// failures of the server, which it logs. The caller owns the Result's bytes.
func (e *Endpoint) Get(ctx context.Context, r *Request) (Result, error) {
	return steady(ctx, e, func(e *Endpoint) (Result, error) { return e.get(ctx, r) })
}

func (e *Endpoint) get(ctx context.Context, r *Request) (Result, error) {
	key, err := e.key(r.Namespace, r.Name)
	if err != nil {
		return Result{}, err
	}
	if r.Subresource == finalize {
		return Result{}, e.methodNotAllowed("get")
	}
	if r.Subresource != whole && !e.has(r.Subresource) {
		return Result{}, errNotServed()
	}
	shown, err := e.shown(r)
	if err != nil {
		return Result{}, err
	}
	if e.unstored() {
		return e.getShown(ctx, r.Name, shown)
	}
	params := query{values: r.Query}
	rev, given := params.revision()
	if params.err != nil {
		if s := e.strategy(); s != nil && s.Uncached {
			return Result{}, badRequest("invalid resource version: %s", params.err)
		}
		return Result{}, params.err
	}
	if err := e.freshenTo(ctx, rev, given); err != nil {
		return Result{}, err
	}
	o := e.res.cache.Get(key)
	if o == nil {
		return Result{}, e.fail(r.Name, storage.ErrNotFound)
	}
	if r.Subresource == scale {
		raw, err := e.showScale(ctx, shown, o)
		return Result{Object: raw}, err
	}
	if err := e.readable(ctx, shown.Single, o); err != nil {
		return Result{}, err
	}
	raw, err := e.show(ctx, shown.Single, o)
	if err != nil {
		return Result{}, err
	}
	return Result{Object: raw, Tag: tag(o, shown.Key, raw)}, nil
}

// tag returns the ETag of what a client was shown of an object. The revision alone isn't enough: after a restore, another
// state can have it. A Table has no tag, because it shows ages.
func tag(o *kube.Object, k form.Key, raw []byte) string {
	if k.Kind == form.Table {
		return ""
	}
	const room = 64 // for both parts
	sum := sha256.Sum256(raw)
	text := strconv.AppendInt(make([]byte, 0, room), int64(o.Revision), 10)
	return string(hex.AppendEncode(append(text, '-'), sum[:8]))
}

// freshenTo waits until the caches are as new as a read asks for: as the version that was given, or else as the moment of
// the call.
func (e *Endpoint) freshenTo(ctx context.Context, rev storage.Revision, given bool) error {
	if given {
		return e.waitFor(ctx, rev)
	}
	return e.freshen(ctx)
}

// freshen waits until the caches are as new as the moment of the call.
func (e *Endpoint) freshen(ctx context.Context) error {
	r := e.res.registry
	if r.shared && isFresh(ctx) {
		return nil
	}
	rev, err := r.barrier(ctx)
	if err != nil {
		return e.fail("", err)
	}
	return e.waitFor(ctx, rev)
}

// waitFor waits until the caches have a version, at most freshnessWait. Any state has 0.
func (e *Endpoint) waitFor(ctx context.Context, rev storage.Revision) error {
	c := e.res.registry.cacher
	if rev <= c.Position() {
		return nil
	}
	wait, cancel := context.WithTimeout(ctx, freshnessWait)
	defer cancel()
	err := c.WaitFor(wait, rev)
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		return tooNew(rev, c.Position())
	}
	return e.fail("", err)
}
