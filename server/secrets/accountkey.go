package secrets

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/apiserver-lite/apiserver-lite/access"
	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// accountKeyFile holds the key that signs ServiceAccounts' tokens, in the data directory.
const accountKeyFile = storage.AccountKeyFile

// sharedKey is where the key is that replicas share. It belongs to no object, so nobody is served it.
const sharedKey = storage.AccountKey

// SharedAccountKey returns the key that signs ServiceAccounts' tokens of replicas. They share one in the store, so that each knows the
// tokens of the others. It's that of the first one's data directory, if there's one from the time when it was alone.
func SharedAccountKey(store storage.Store, dir string, log *slog.Logger) (crypto.Signer, error) {
	own := func() ([]byte, error) {
		_, text, err := access.NewSigningKey()
		return text, err
	}
	if dir != "" {
		path := filepath.Join(dir, accountKeyFile)
		if err := private.Secret(path, log); err == nil {
			own = func() ([]byte, error) { return os.ReadFile(path) }
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	return keyInStore(ctx, store, own)
}

// keyTimeout bounds how long the store is asked for the key. Whoever needs it then asks again.
const keyTimeout = 5 * time.Second

// keyInStore returns the key that is in the store. If there is none, it puts there the one that own returns.
func keyInStore(ctx context.Context, store storage.Store, own func() ([]byte, error)) (crypto.Signer, error) {
	kv, err := store.Get(ctx, sharedKey)
	if errors.Is(err, storage.ErrNotFound) {
		var text []byte
		if text, err = own(); err == nil {
			_, err = access.ParseSigningKey(text)
		}
		if err != nil {
			return nil, err
		}
		if _, err = store.Create(ctx, sharedKey, text); err == nil || errors.Is(err, storage.ErrExists) { // by another replica
			kv, err = store.Get(ctx, sharedKey)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the key of ServiceAccounts' tokens: %w", err)
	}
	return access.ParseSigningKey(kv.Value)
}

// AccountKey returns the key of a server that is alone. It's the one that replicas have shared in the store, as after a restore of what they
// had, or else the one that is kept in dir. If there is none it makes it there; without a directory it's in memory only. A file that holds no
// key is an error, and stays: with another key all tokens would end.
func AccountKey(store storage.Store, dir string, log *slog.Logger) (crypto.Signer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	switch kv, err := store.Get(ctx, sharedKey); {
	case err == nil:
		return access.ParseSigningKey(kv.Value)
	case !errors.Is(err, storage.ErrNotFound):
		return nil, fmt.Errorf("the key of ServiceAccounts' tokens: %w", err)
	}
	if dir == "" {
		key, _, err := access.NewSigningKey()
		return key, err
	}
	path := filepath.Join(dir, accountKeyFile)
	err := private.Secret(path, log)
	if err == nil {
		return access.ReadSigningKey(path)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	key, text, err := access.NewSigningKey()
	if err != nil {
		return nil, err
	}
	if err := ReplaceFile(path, text); err != nil {
		return nil, fmt.Errorf("keep the key of ServiceAccounts' tokens: %w", err)
	}
	return key, nil
}
