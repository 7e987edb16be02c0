package server

import (
	"crypto"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/apiserver-lite/apiserver-lite/access"
)

// accountKeyFile holds the key that signs ServiceAccounts' tokens, in the data directory.
const accountKeyFile = "service-account.key"

// accountKey returns the key that is kept in dir, and makes it if there is none. An ephemeral server's key is in memory
// only. A file that holds no key is an error, and stays: with another key all tokens would end.
func (s *Server) accountKey(dir string) (crypto.Signer, error) {
	if s.Ephemeral {
		key, _, err := access.NewSigningKey()
		return key, err
	}
	path := filepath.Join(dir, accountKeyFile)
	err := s.checkPrivate(path)
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
	if !s.Access.On() || s.KubeconfigFile == "" || len(all) > 0 {
		return all, ""
	}
	token := rand.Text()
	return append(all, hashToken(token)), token
}
