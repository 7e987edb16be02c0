package registry

import (
	"context"
	"time"

	"github.com/apiserver-lite/apiserver-lite/storage"
)

// freshnessWait bounds how long a read waits for a version that the server doesn't have yet. It's kube-apiserver's number.
const freshnessWait = 3 * time.Second

// Freshen waits until the caches are as new as the moment of the call.
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
