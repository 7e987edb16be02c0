package secrets

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

// Tokens are the hashes of the bearer tokens that are let in; empty means that none is asked for.
// Hashes are compared, so that neither the time of a comparison nor a dump of memory tells about
// a token.
type Tokens [][sha256.Size]byte

// ReadTokens reads what --token-file holds, and adds one that's given besides, if it is.
func ReadTokens(token, file string, log *slog.Logger) (Tokens, error) {
	var all Tokens
	if token != "" {
		if err := checkToken(token); err != nil {
			return nil, fmt.Errorf("the token %w", err)
		}
		all = append(all, hashToken(token))
	}
	if file == "" {
		return all, nil
	}
	inFile, err := readTokenFile(file, log)
	for _, token := range inFile {
		all = append(all, hashToken(token))
	}
	return all, err
}

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

// Add returns the tokens and another one, which is made.
func (t Tokens) Add() (all Tokens, token string) {
	token = rand.Text()
	return append(t, hashToken(token)), token
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
func (t Tokens) Has(token string) bool {
	hash := hashToken(token)
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(hash[:], t[i][:])
	}
	return found == 1
}

func hashToken(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }
