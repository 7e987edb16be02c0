package seal

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
	"github.com/apiserver-lite/apiserver-lite/storage/kube"
)

// mend writes objects anew that the caches couldn't read and the store now can. The value stays what it is. The write is an event, so the caches of
// all replicas get the object in its turn. An object that somebody else has written meanwhile is left alone.
func mend(ctx context.Context, store storage.Store, caches *cacher.Cacher, log *slog.Logger) {
	if _, err := caches.Barrier(ctx); err != nil { // what was read with the keys of before may be on its way to the caches
		return
	}
	caches.ForgetHistory()
	unreadable := caches.Unreadable()
	mended, failed := 0, 0
	var first error
	for _, o := range unreadable {
		now, err := store.Get(ctx, o.Key)
		if err == nil { // a cipher that authenticates nothing may make anything of a wrong key
			err = kube.NewObject(o.Key, now.Value, now.Revision).Err
		}
		if err == nil {
			_, err = store.Update(ctx, o.Key, now.Value, now.Revision)
		}
		switch {
		case err == nil:
			mended++
		case ctx.Err() != nil:
			return
		case errors.Is(err, storage.ErrConflict), errors.Is(err, storage.ErrNotFound):
		default:
			failed++
			first = cmp.Or(first, err)
		}
	}
	if mended > 0 {
		log.Info("objects that couldn't be read before are written anew", "objects", mended)
	}
	if failed > 0 {
		log.Error("objects still can't be read", "objects", failed, "first", first)
	}
}

// Report logs how many objects can't be read, a line for each resource, with the first of them.
func Report(unreadable []*kube.Object, log *slog.Logger) {
	counts, first := map[storage.Prefix]int{}, []*kube.Object{}
	for _, o := range unreadable {
		p, _, _, _ := storage.SplitKey(o.Key)
		if counts[p]++; counts[p] == 1 {
			first = append(first, o)
		}
	}
	for _, o := range first {
		p, _, _, _ := storage.SplitKey(o.Key)
		log.Error("stored objects can't be read, and are left out of lists and watches", "group", p.Group(), "resource", p.Resource(), "objects", counts[p],
			"first", o.Key, "error", o.Err)
	}
}
