package seal

import (
	"context"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/reload"
	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/cacher"
)

// Run mends what the caches of a store have, until ctx ends, when objects may be readable that weren't: when the file was read again, which Options say, and when a KMS
// answers again. A file that is refused, or that names a KMS that doesn't answer, is logged, and what was read before stays. Of nil Keys it
// returns at once.
func (k *Keys) Run(ctx context.Context, store storage.Store, caches *cacher.Cacher) {
	if k == nil {
		return
	}
	var both sync.WaitGroup
	defer both.Wait()
	var one sync.Mutex // one mend at a time
	mending := func(ctx context.Context) {
		one.Lock()
		defer one.Unlock()
		mend(ctx, store, caches, k.log)
	}
	both.Go(func() { k.watchKMS(ctx, mending) })
	if k.options.Reload {
		k.watchFile(ctx, mending)
	}
}

// kmsInterval is how often it's looked whether a KMS answers again.
const kmsInterval = 5 * time.Second

// watchKMS calls mend when the KMSs answer for the first time, and whenever they do after one hasn't.
func (k *Keys) watchKMS(ctx context.Context, mend func(ctx context.Context)) {
	tick := time.NewTicker(kmsInterval)
	defer tick.Stop()
	for failed := true; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := k.now.Load()
		switch {
		case now.config.KMSCloseGracePeriod == 0: // there is none
		case now.health(ctx) != nil || time.Now().UnixNano() < k.outage.Load():
			failed = true
		case failed:
			failed = false
			mend(ctx)
		}
	}
}

// watchFile reads the file again whenever it has changed.
func (k *Keys) watchFile(ctx context.Context, mend func(ctx context.Context)) {
	reload.Files{
		Paths: []string{k.options.File},
		Used:  k.used,
		Read: func(ctx context.Context) error {
			if err := k.reload(ctx); err != nil {
				return err
			}
			k.log.Info("the encryption configuration was read again", "file", k.options.File)
			mend(ctx)
			return nil
		},
		Refused: func(err error) {
			k.log.Error("the new encryption configuration is refused: the one that was read before stays", "file", k.options.File, "error", err)
		},
	}.Watch(ctx)
}

// reload reads the file, and uses it from now on.
func (k *Keys) reload(ctx context.Context) error {
	now, err := k.read()
	if err != nil {
		return err
	}
	if err := now.health(ctx); err != nil {
		now.end()
		return err
	}
	before := k.now.Swap(now)
	select { // what is under way with the keys of before has this time
	case <-ctx.Done():
	case <-time.After(before.config.KMSCloseGracePeriod):
	}
	before.end()
	return nil
}
