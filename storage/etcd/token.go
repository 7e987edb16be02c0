package etcd

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
)

// A joinToken lets a process join a cluster. It's one line of text: "al1.", the fingerprint of the cluster's certificate
// authority, a dot, and the secret. The fingerprint makes the joiner trust nobody else; the secret makes the cluster
// trust the joiner.
type joinToken struct {
	authority [sha256.Size]byte // SHA-256 of the authority's certificate
	secret    string
}

const (
	tokenPrefix = "al1." // a later form gets another prefix
	// maxTokenBytes bounds a token, and the file that it's in.
	maxTokenBytes = 1 << 10
	// minSecretBytes is the least that counts as a secret: rand.Text's 26 characters have 130 bits.
	minSecretBytes = 26
)

func (t joinToken) String() string {
	return tokenPrefix + hex.EncodeToString(t.authority[:]) + "." + t.secret
}

// newToken makes a token with a new secret.
func newToken(authority [sha256.Size]byte) joinToken {
	return joinToken{authority: authority, secret: rand.Text()}
}

var errNoToken = errors.New("it isn't a join token: that is one line, which begins with " + tokenPrefix + " and has three parts")

// parseToken parses a token. White space around it is ignored.
func parseToken(s string) (t joinToken, err error) {
	s, ok := strings.CutPrefix(strings.TrimSpace(s), tokenPrefix)
	fingerprint, secret, dot := strings.Cut(s, ".")
	if !ok || !dot || len(s) > maxTokenBytes || len(secret) < minSecretBytes || strings.ContainsAny(secret, ". \t\r\n") {
		return t, errNoToken
	}
	b, err := hex.DecodeString(fingerprint)
	if err != nil || len(b) != len(t.authority) {
		return t, errNoToken
	}
	copy(t.authority[:], b)
	t.secret = secret
	return t, nil
}

// readToken reads a token's file.
func readToken(path string) (joinToken, error) {
	info, err := os.Stat(path)
	if err != nil {
		return joinToken{}, err
	}
	if info.Size() > maxTokenBytes {
		return joinToken{}, fmt.Errorf("%s: %w", path, errNoToken)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return joinToken{}, err
	}
	t, err := parseToken(string(b))
	if err != nil {
		return t, fmt.Errorf("%s: %w", path, err)
	}
	return t, nil
}

// sameSecret compares in a time that tells nothing about the secret, not even its length.
func (t joinToken) sameSecret(given string) bool {
	a, b := sha256.Sum256([]byte(t.secret)), sha256.Sum256([]byte(given))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
