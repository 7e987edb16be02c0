package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/apiserver-lite/apiserver-lite/internal/private"
)

// tokens are the hashes of the bearer tokens that are let in; empty means that none is asked for.
// Hashes are compared, so that neither the time of a comparison nor a dump of memory tells about
// a token.
type tokens [][sha256.Size]byte

// tokens reads what Token and TokenFile hold.
func (s *Server) tokens() (tokens, error) {
	var all tokens
	if s.Token != "" {
		if err := checkToken(s.Token); err != nil {
			return nil, fmt.Errorf("the token %w", err)
		}
		all = append(all, hashToken(s.Token))
	}
	if s.TokenFile == "" {
		return all, nil
	}
	inFile, err := s.readTokenFile()
	for _, token := range inFile {
		all = append(all, hashToken(token))
	}
	return all, err
}

// readTokenFile returns the tokens of TokenFile, at least one.
func (s *Server) readTokenFile() (all []string, err error) {
	if err := private.Secret(s.TokenFile, s.log()); err != nil {
		return nil, fmt.Errorf("--token-file: %w", err)
	}
	data, err := os.ReadFile(s.TokenFile)
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
			return nil, fmt.Errorf("--token-file: %s, line %d: the token %w", s.TokenFile, n, err)
		}
		all = append(all, token)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("--token-file: %s holds no token", s.TokenFile)
	}
	return all, nil
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

// has reports whether a token is one of them.
func (t tokens) has(token string) bool {
	hash := hashToken(token)
	found := 0
	for i := range t {
		found |= subtle.ConstantTimeCompare(hash[:], t[i][:])
	}
	return found == 1
}

func hashToken(token string) [sha256.Size]byte { return sha256.Sum256([]byte(token)) }
