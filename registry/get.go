package registry

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/apiserver-lite/apiserver-lite/registry/form"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// freshnessWait is how long a read waits for a version that the server doesn't have yet; kube-apiserver's.
const freshnessWait = 3 * time.Second

// Get returns an object. Its status subresource is the same object. Errors are Status errors.
func (e *Endpoint) Get(ctx context.Context, namespace, name, subresource string, q url.Values) (*Result, error) {
	key, err := e.key(namespace, name)
	if err != nil {
		return nil, err
	}
	if subresource == finalize {
		return nil, e.methodNotAllowed("get")
	}
	if subresource != main && !e.has(subresource) {
		return nil, errNotServed()
	}
	params := query{values: q}
	rev, given := params.revision()
	if params.err != nil {
		return nil, params.err
	}
	if err := e.freshen(ctx, rev, given); err != nil {
		return nil, err
	}
	o := e.res.cache.Get(key)
	if o == nil {
		return nil, e.fail(name, storage.ErrNotFound)
	}
	if o.Err != nil {
		return nil, e.unreadable(name, o.Err)
	}
	if subresource == scale {
		return e.scaleOf(ctx, o, &Result{})
	}
	return e.result(ctx, o, &Result{Tag: e.tag(o)})
}

// tag names the object's state and its form. A form.Table has none: it shows ages.
func (e *Endpoint) tag(o *cacher.Object) string {
	tag := o.Revision.String()
	if c := e.view.Conversion; c != nil && c.Needed(o) { // what is shown depends on the definition
		tag += "-" + strconv.FormatInt(c.Generation, 10)
	}
	switch e.shown.Key.Kind {
	case form.Whole:
		return tag
	case form.MetadataOnly:
		return tag + "-" + string(form.MetadataOnly) + e.shown.Key.Version
	}
	return ""
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
