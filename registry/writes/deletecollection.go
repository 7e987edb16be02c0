package writes

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/apiserver-lite/apiserver-lite/registry"
	"github.com/apiserver-lite/apiserver-lite/registry/reads"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// DeletersAtOnce is how many objects the deletion of a collection deletes at the same time, a client's or a
// controller's: etcd stores writes that come together with one fsync.
const DeletersAtOnce = 16

// DeleteCollection deletes what a list with the same parameters would show, and answers with that list, in
// which each object is as it was before. limit bounds how many are deleted. The body is DeleteOptions or
// empty; its preconditions and options are for each object. The query is List's. At most DeletersAtOnce deletions run
// at once. The first error ends the others, and what was deleted before it stays deleted. Errors are those of List and
// Delete; an object that somebody else has deleted meanwhile is none. The List shares the cacher's objects, and needn't be
// closed.
func (e Writer) DeleteCollection(ctx context.Context, r *registry.Request) (*reads.List, error) {
	opts, err := e.parseDeleteOptions(r)
	if err != nil {
		return nil, err
	}
	if ignore := opts.IgnoreStoreReadErrorWithClusterBreakingPotential; ignore != nil && *ignore {
		return nil, registry.InvalidOptions("DeleteOptions", field.ErrorList{field.Invalid(
			field.NewPath("ignoreStoreReadErrorWithClusterBreakingPotential"), true, "is not allowed with DELETECOLLECTION, try again after removing the option")})
	}
	return registry.Current(e.Res.Registry.Authored(ctx), e.Endpoint, func(ctx context.Context, e *registry.Endpoint) (*reads.List, error) {
		return Of(e).deleteListed(ctx, r, opts)
	})
}

// deleteListed lists, and deletes what is listed.
func (e Writer) deleteListed(ctx context.Context, r *registry.Request, opts *metav1.DeleteOptions) (*reads.List, error) {
	l, err := e.List(ctx, r)
	if err != nil {
		return nil, err
	}
	objects := []*kube.Object{} // not nil: an empty page is a list of nothing
	for o, err := range l.Items(ctx) {
		if err != nil {
			return nil, l.Failed(err)
		}
		objects = append(objects, o)
	}
	for batch := range slices.Chunk(slices.Clone(objects), reads.ConversionBatch) { // one by one, each deletion would ask a webhook
		if err := e.View.Prepare(ctx, batch); err != nil {
			return nil, l.Failed(err)
		}
	}
	warned := make([][]string, len(objects))
	work, working := errgroup.WithContext(ctx)
	work.SetLimit(DeletersAtOnce)
	for i, o := range objects {
		work.Go(func() error {
			_, err := registry.Current(working, e.Endpoint, func(ctx context.Context, e *registry.Endpoint) (*kube.Object, error) {
				d := Of(e).newDeletion(r, opts)
				d.targetKey, d.Target, d.listed = o.Key, registry.Target{Name: o.Name()}, true
				stored, err := d.delete(ctx)
				warned[i] = d.warnings
				return stored, err
			})
			if apierrors.IsNotFound(err) && !registry.IsHookError(err) { // somebody else was faster
				return nil
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	l.Page, l.Warnings = objects, append(l.Warnings, e.deletionWarnings(opts)...)
	for _, texts := range warned {
		for _, text := range texts {
			if len(l.Warnings) < maxListedWarnings && !slices.Contains(l.Warnings, text) {
				l.Warnings = append(l.Warnings, text)
			}
		}
	}
	return l, nil
}

// maxListedWarnings bounds what the deletion of a collection warns of: an answer has room for few more (server's maxWarnings).
const maxListedWarnings = 512
