package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// A reset brings everything that is stored back to an earlier State, in one revision. It's for tests, and needs a store
// that may be replaced (see storage.Store.AllowReplace).
//
// A write that is under way falls wholly after the reset, or wholly before it: its context is pinned before it looks at
// anything, so once the store is replaced it fails, and current runs it again. A read that is under way may have looked up
// an endpoint of the old state and then list the objects of the new one; steady runs it again. Nobody is asked: finalizers,
// hooks and webhooks have no say.

// resetTimeout bounds a reset, which takes milliseconds unless etcd has failed.
const resetTimeout = 30 * time.Second

// State is everything that a server stores at one moment, definitions too. It never changes. It keeps in memory what has
// been replaced or deleted since.
type State struct {
	image *cacher.Image
	since map[storage.Prefix]storage.Revision // of custom resources: see custom
}

// Revision returns a revision at which the state was.
func (s *State) Revision() storage.Revision { return s.image.Revision }

// Size returns how many objects the state has, and about how many bytes they take.
func (s *State) Size() (objects int, bytes int64) { return s.image.Size() }

// State returns the present state. It has every write that was acknowledged before the call. Errors are Status errors, 503
// and 504 from storage, or failures of the server.
func (r *Registry) State(ctx context.Context) (*State, error) {
	s, err := r.state(ctx)
	return s, r.Definitions.res.Storage.Fail("", err)
}

func (r *Registry) state(ctx context.Context) (*State, error) {
	end, err := r.Definitions.begin(ctx) // so that no definition changes before the image is taken
	if err != nil {
		return nil, err
	}
	defer end()
	if _, err := r.Cacher.Barrier(ctx); err != nil {
		return nil, err
	}
	r.Definitions.Sync()
	return &State{image: r.Cacher.Image(), since: r.Definitions.ages()}, nil
}

// Reset brings back a state, and returns the revision from which on it's there. What differs from the state is written, in
// one revision: these objects get new resourceVersions, and have the uids and everything else that they had. Every open
// watch ends with watchstream.ErrExpired, and no watch or list reaches back before the reset. When Reset returns, reads,
// watches and the catalog have the state. Resets wait for each other. Errors are Status errors: 413 if too much
// differs, 503, 504 and 507 from storage, or failures of the server. After 503 and 504 the reset may have
// happened.
func (r *Registry) Reset(ctx context.Context, to *State) (storage.Revision, error) {
	rev, err := r.reset(ctx, to)
	if errors.Is(err, storage.ErrTooLarge) {
		return 0, apierrors.NewRequestEntityTooLargeError("too much has changed for one reset: start a new server instead")
	}
	return rev, r.Definitions.res.Storage.Fail("", err)
}

func (r *Registry) reset(ctx context.Context, to *State) (storage.Revision, error) {
	end, err := r.Definitions.begin(ctx)
	if err != nil {
		return 0, err
	}
	defer end()
	// From here on a client that leaves changes nothing: what is written has to be served as well.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resetTimeout)
	defer cancel()
	r.Resets.Add(1)
	defer r.Resets.Add(1)
	var batch storage.Replacement
	rev, err := r.Store.Replace(ctx, func() (storage.Replacement, error) {
		if _, err := r.Cacher.Barrier(ctx); err != nil {
			return storage.Replacement{}, err
		}
		batch = to.image.Since(r.Cacher.Image())
		return batch, nil
	})
	if err != nil {
		return 0, err
	}
	if err := r.Cacher.WaitFor(ctx, rev); err != nil {
		return 0, fmt.Errorf("wait for the reset: %w", err)
	}
	r.Definitions.restore(to, batch.Puts, rev)
	return rev, nil
}

// Pin returns a context with which writes fail with storage.ErrReplaced once a reset has happened: see storage.Store.Pin.
// What the caches had before the last reset isn't in them any more when it returns.
func (r *Registry) Pin(ctx context.Context) context.Context {
	pinned, mine := r.Store.Pin(ctx)
	if mine {
		_, _ = r.Cacher.Barrier(ctx) // fails only when ctx ends or etcd stops, and then so do writes
	}
	return pinned
}

// Steady runs a read. If a reset is under way, the read waits for its end, and is then run on the endpoint that is served.
// If a reset comes meanwhile, the read runs again.
func Steady[T any](ctx context.Context, e *Endpoint, read func(e *Endpoint) (T, error)) (T, error) {
	r := e.Res.Registry
	for {
		resets, served, err := r.BetweenResets(ctx, e)
		if err != nil {
			var none T
			return none, err
		}
		res, err := read(served)
		if r.Resets.Load() == resets {
			return res, err
		}
	}
}

// BetweenResets returns how often resets have begun and ended, when none is under way, and the endpoint that is
// then served in the place of e.
func (r *Registry) BetweenResets(ctx context.Context, e *Endpoint) (resets int64, now *Endpoint, err error) {
	if r.Resets.Load() == 0 {
		return 0, e, nil
	}
	for {
		if resets = r.Resets.Load(); resets%2 == 0 {
			now, err = r.Lookup(ctx, e.Path())
			return resets, now, err
		}
		end, err := r.Definitions.begin(ctx) // a reset holds this
		if err != nil {
			return 0, nil, e.Fail("", err)
		}
		end()
	}
}

// ages returns, for each custom resource, the revision up to which objects may be in another form than that of its
// definition.
func (d *definitions) ages() map[storage.Prefix]storage.Revision {
	d.mu.Lock()
	defer d.mu.Unlock()
	ages := make(map[storage.Prefix]storage.Revision, len(d.known))
	for _, def := range d.known {
		ages[def.res.Prefix] = def.res.since
	}
	return ages
}

// restore serves the definitions of a state that was brought back at a revision. An object that was older than its
// definition in that state may still be in an old form, and its new revision doesn't tell.
func (d *definitions) restore(s *State, puts []storage.KeyValue, at storage.Revision) {
	d.mu.Lock()
	for _, kv := range puts {
		if p, _, _, ok := storage.SplitKey(kv.Key); ok && kv.Revision <= s.since[p] {
			d.restored[p] = at
		}
	}
	d.mu.Unlock()
	d.Sync()
}
