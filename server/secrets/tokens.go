package secrets

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
	"github.com/apiserver-lite/apiserver-lite/internal/reload"
)

// Tokens are the hashes of the bearer tokens that are let in; if there are none, none is asked for.
// Hashes are compared, so that neither the time of a comparison nor a dump of memory tells about
// a token.
type Tokens struct {
	given []tokenHash // besides the file
	file  string      // "" for none
	used  reload.Sum  // of the file, before it was read
	log   *slog.Logger

	inFile atomic.Pointer[[]tokenHash] // nil without a file
}

type tokenHash [sha256.Size]byte

// ReadTokens reads what --token-file holds, and adds one that's given besides, if it is.
func ReadTokens(token, file string, log *slog.Logger) (*Tokens, error) {
	t := &Tokens{file: file, log: log}
	if token != "" {
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("the token %w", err)
		}
		t.given = append(t.given, hashToken(token))
	}
	if file == "" {
		return t, nil
	}
	t.used, _ = reload.SumOf(file)
	return t, t.read()
}

// read has what the file holds take effect.
func (t *Tokens) read() error {
	all, err := readTokenFile(t.file, t.log)
	if err != nil {
		return err
	}
	hashes := make([]tokenHash, len(all))
	for i, token := range all {
		hashes[i] = hashToken(token)
	}
	t.inFile.Store(&hashes)
	return nil
}

// Watch reads the file again when it changes, until ctx ends. What can't be used is logged, and what it held before stays.
func (t *Tokens) Watch(ctx context.Context) {
	if t.file == "" {
		return
	}
	reload.Files{
		Paths: []string{t.file}, Used: t.used,
		Read: func(context.Context) error {
			err := t.read()
			if err == nil {
				t.log.Info("the file of --token-file has changed, and is in effect", "file", t.file)
			}
			return err
		},
		Refused: func(err error) {
			t.log.Error("the file of --token-file can't be used; the tokens that it held before stay", "error", err)
		},
	}.Watch(ctx)
}

// Any tells whether there are tokens.
func (t *Tokens) Any() bool { return len(t.given) > 0 || t.inFile.Load() != nil }

// readTokenFile returns the tokens of a file, at least one.
func readTokenFile(file string, log *slog.Logger) (all []string, err error) {
	if err := private.Secret(file, log); err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	n := 0
	for line := range strings.Lines(string(data)) {
		n++
		token := strings.TrimSpace(line)
		if token == "" || token[0] == '#' {
			continue
		}
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("--token-file: %s, line %d: the token %w", file, n, err)
		}
		all = append(all, token)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--token-file: %s holds no token", file)
	}
	return all, nil
}

// FirstToken returns a token that ReadTokens takes, or "" if there's none.
func FirstToken(token, file string, log *slog.Logger) (string, error) {
	if token != "" || file == "" {
		return token, nil
	}
	all, err := readTokenFile(file, log)
	return cmp.Or(all...), err
}

// Add makes another token, and returns it. It's for the program's start.
func (t *Tokens) Add() (token string) {
	token = rand.Text()
	t.given = append(t.given, hashToken(token))
	return token
}

// checkToken refuses what no client could send (RFC 6750, section 2.1).
func checkToken(token string) error {
	for _, c := range []byte(token) {
		if c <= ' ' || c >= 0x7f {
			return errors.New("has a character that a header can't carry")
		}
	}
	return nil
}

// Has reports whether a token is one of them.
func (t *Tokens) Has(token string) bool {
	hash := hashToken(token)
	found := 0
	all := [2][]tokenHash{t.given}
	if inFile := t.inFile.Load(); inFile != nil {
		all[1] = *inFile
	}
	for _, some := range all {
		for i := range some {
			found |= subtle.ConstantTimeCompare(hash[:], some[i][:])
		}
	}
	return found == 1
}

func hashToken(token string) tokenHash { return sha256.Sum256([]byte(token)) }
