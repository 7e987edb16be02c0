package registry

import (
	"context"
	"net/url"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// DeleteCollection deletes what a list with the same parameters would show, and answers with that list, in
// which each object is as its deletion left it. limit bounds how many are deleted. The body is DeleteOptions or
// empty; its preconditions and options are for each object. Errors are Status errors; what was deleted before one stays
// deleted.
func (e *Endpoint) DeleteCollection(ctx context.Context, namespace string, q url.Values, body []byte) (*List, error) {
	opts, err := e.parseDeleteOptions(q, body)
	if err != nil {
		return nil, err
	}
	l, err := e.List(ctx, namespace, q)
	if err != nil {
		return nil, err
	}
	var objects []*cacher.Object
	for o, err := range l.items(ctx) {
		if err != nil {
			return nil, l.failed(err)
		}
		objects = append(objects, o)
	}
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(deletersAtOnce)
	left := make([]*cacher.Object, len(objects)) // each deletion has its place
	for i, o := range objects {
		work.Go(func() error {
			var stored *cacher.Object
			err := e.currently(working, func(e *Endpoint) (err error) {
				d := deletion{endpoint: e, ctx: working, pre: opts.Preconditions, writeOptions: e.deleting(opts)}
				stored, err = e.write(working, o.Key, o.Name(), d.dryRun, d.decide)
				return err
			})
			switch {
			case apierrors.IsNotFound(err) && !isRefusal(err): // somebody else was faster
				stored = o
			case err != nil:
				return err
			}
			left[i] = stored
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	l.page = left // not nil: an empty one is a list of nothing
	return l, nil
}
