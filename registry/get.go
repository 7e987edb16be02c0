package registry

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// freshnessWait is how long a read waits for a version that the server doesn't have yet; kube-apiserver's.
const freshnessWait = 3 * time.Second

// Get returns an object. Its status subresource is the same object. Errors are Status errors, or the server's own
// failures.
func (e *Endpoint) Get(ctx context.Context, r *Request) (Result, error) {
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
	params := query{values: r.Query}
	rev, given := params.revision()
	if params.err != nil {
		return Result{}, params.err
	}
	if err := e.freshen(ctx, rev, given); err != nil {
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
	raw, err := e.show(ctx, shown.Single, o)
	if err != nil {
		return Result{}, err
	}
	return Result{Object: raw, Tag: tag(o, shown.Key, raw)}, nil
}

// tag names what a client was shown of an object. The revision alone wouldn't do: after a restore another state can have
// it. A Table has no tag, because it shows ages.
func tag(o *cacher.Object, k form.Key, raw []byte) string {
	if k.Kind == form.Table {
		return ""
	}
	const room = 64 // for both parts
	sum := sha256.Sum256(raw)
	text := strconv.AppendInt(make([]byte, 0, room), int64(o.Revision), 10)
	return string(hex.AppendEncode(append(text, '-'), sum[:8]))
}

// freshen waits until the caches are as new as a read asks for: without a version, as new as the moment
// of the call; at "0", as they are; else at least that version.
func (e *Endpoint) freshen(ctx context.Context, rev storage.Revision, given bool) error {
	if !given {
		var err error
		if rev, err = e.res.registry.store.Barrier(ctx); err != nil {
			return e.fail("", err)
		}
	}
	return e.waitFor(ctx, rev)
}

// waitFor waits a little until the caches have a version.
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
