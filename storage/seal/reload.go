package seal

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
)

// reloadInterval is how often the file is looked at. Replicas that share a store should have the same keys soon.
const reloadInterval = time.Second

// Run returns at once unless Options say that the file may change, also of nil Keys. It reads the file again whenever it has changed, until ctx ends, and then calls changed. A file that is refused, or that names a KMS that
// doesn't answer, is logged once, and what was read before stays; a KMS is asked again.
func (k *Keys) Run(ctx context.Context, changed func(ctx context.Context)) {
	if k == nil || !k.options.Reload {
		return
	}
	tick := time.NewTicker(reloadInterval)
	defer tick.Stop()
	refused := "" // the reason that was logged last
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch is, err := k.reload(ctx); {
		case err != nil && err.Error() != refused:
			refused = err.Error()
			k.log.Error("the new encryption configuration is refused: the one that was read before stays", "file", k.options.File, "error", err)
		case is:
			refused = ""
			k.log.Info("the encryption configuration was read again", "file", k.options.File)
			changed(ctx)
		}
	}
}

// reload reads the file if it has changed, and tells whether that's so.
func (k *Keys) reload(ctx context.Context) (is bool, err error) {
	before := k.now.Load()
	hash, err := encryptionconfig.GetEncryptionConfigHash(k.options.File)
	if err != nil || hash == before.config.EncryptionFileContentHash {
		return false, err
	}
	now, err := k.read()
	if err != nil {
		return false, err
	}
	if err := now.health(ctx); err != nil {
		now.end()
		return false, err
	}
	k.now.Store(now)
	select { // what is under way with the keys of before has this time
	case <-ctx.Done():
	case <-time.After(before.config.KMSCloseGracePeriod):
	}
	before.end()
	return true, nil
}
