package seal

import (
	"context"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/reload"
)

// Run returns at once unless Options say that the file may change, also of nil Keys. It reads the file again whenever it has changed, until ctx
// ends, and then calls changed. A file that is refused, or that names a KMS that doesn't answer, is logged, and what was read before stays.
func (k *Keys) Run(ctx context.Context, changed func(ctx context.Context)) {
	if k == nil || !k.options.Reload {
		return
	}
	reload.Files{
		Paths: []string{k.options.File},
		Read: func(ctx context.Context) error {
			if err := k.reload(ctx); err != nil {
				return err
			}
			k.log.Info("the encryption configuration was read again", "file", k.options.File)
			changed(ctx)
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
