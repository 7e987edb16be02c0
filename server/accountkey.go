package server

import (
	"context"
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
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

// accountKey returns the key that signs ServiceAccounts' tokens. Replicas share one in the store, so that each knows the
// tokens of the others. It's that of the first one's data directory, if there's one from the time when it was alone.
func (in *instance) accountKey(s *Server) (crypto.Signer, error) {
	if in.replica.election == nil {
		return s.accountKey(in.backing.dataDir)
	}
	own := func() ([]byte, error) {
		_, text, err := access.NewSigningKey()
		return text, err
	}
	if dir := in.backing.dataDir; dir != "" {
		path := filepath.Join(dir, accountKeyFile)
		if err := private.Secret(path, s.log()); err == nil {
			own = func() ([]byte, error) { return os.ReadFile(path) }
		} else if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), keyTimeout)
	defer cancel()
	return keyInStore(ctx, in.backing.store, own)
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

// accountKey returns the key that is kept in dir, and makes it if there is none. An ephemeral server's key is in memory
// only. A file that holds no key is an error, and stays: with another key all tokens would end.
func (s *Server) accountKey(dir string) (crypto.Signer, error) {
	if s.Data.Ephemeral {
		key, _, err := access.NewSigningKey()
		return key, err
	}
	path := filepath.Join(dir, accountKeyFile)
	err := private.Secret(path, s.log())
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
	if err := replaceFile(path, text); err != nil {
		return nil, fmt.Errorf("keep the key of ServiceAccounts' tokens: %w", err)
	}
	return key, nil
}

// addAdministrator adds a token for the kubeconfig to the tokens, if users are told apart and there's no other token that
// its holder could use, and returns it. It lives as long as the process.
func (s *Server) addAdministrator(all tokens) (tokens, string) {
	if !s.Access.On() || s.Serving.KubeconfigFile == "" || len(all) > 0 {
		return all, ""
	}
	token := rand.Text()
	return append(all, hashToken(token)), token
}
