package access

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	signing "github.com/golang-jwt/jwt/v5"
	"gopkg.in/go-jose/go-jose.v2"
)

// maxToken is how long a bearer token may be, in bytes, before anything of it is decoded. Those of ServiceAccounts have
// about a thousand; those of OIDC with many groups have more.
const maxToken = 64 << 10

// jwt is a JSON Web Token that was taken apart. Nothing of it is proven until a key has verified it.
type jwt struct {
	signed    string // header and claims, as they were signed
	header    jwtHeader
	claims    []byte // JSON
	signature []byte
}

type jwtHeader struct {
	Algorithm string `json:"alg"`
	Key       string `json:"kid,omitempty"`
}

var errNoJWT = errors.New("it is no JSON Web Token")

// parseJWT takes a token apart.
func parseJWT(token string) (*jwt, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(token) > maxToken {
		return nil, errNoJWT
	}
	var decoded [3][]byte
	for i, part := range parts {
		var err error
		if decoded[i], err = base64.RawURLEncoding.Strict().DecodeString(part); err != nil {
			return nil, errNoJWT
		}
	}
	t := &jwt{signed: token[:len(token)-len(parts[2])-1], claims: decoded[1], signature: decoded[2]}
	if json.Unmarshal(decoded[0], &t.header) != nil || !json.Valid(t.claims) {
		return nil, errNoJWT
	}
	return t, nil
}

// issuer returns who the token claims to come from, "" if it doesn't say.
func (t *jwt) issuer() string {
	var c struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(t.claims, &c) != nil {
		return ""
	}
	return c.Issuer
}

// publicKey verifies tokens.
type publicKey struct {
	id     string                // as a token's kid: the hash of the key
	method signing.SigningMethod // the only one that is believed with this key
	key    crypto.PublicKey      // *rsa.PublicKey or *ecdsa.PublicKey
}

// newPublicKey takes RSA keys, for RS256, and ECDSA keys on the curves that have an algorithm.
func newPublicKey(key crypto.PublicKey) (*publicKey, error) {
	p := &publicKey{key: key}
	switch k := key.(type) {
	case *rsa.PublicKey:
		p.method = signing.SigningMethodRS256
	case *ecdsa.PublicKey:
		switch k.Curve {
		case elliptic.P256():
			p.method = signing.SigningMethodES256
		case elliptic.P384():
			p.method = signing.SigningMethodES384
		case elliptic.P521():
			p.method = signing.SigningMethodES512
		default:
			return nil, errors.New("an ECDSA key must be on the curve P-256, P-384 or P-521")
		}
	default:
		return nil, fmt.Errorf("a key must be an RSA or ECDSA key, not %T", key)
	}
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(der)
	p.id = encode64(sum[:])
	return p, nil
}

// verifies tells whether the key has signed the token. The algorithm is the key's, whatever the token says: one that says
// something else is not verified.
func (p *publicKey) verifies(t *jwt) bool {
	return t.header.Algorithm == p.method.Alg() && p.method.Verify(t.signed, t.signature, p.key) == nil
}

func encode64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// keys are what signs tokens, and what they may be signed with.
type keys struct {
	signer  crypto.Signer
	signing *publicKey   // the signer's
	trusted []*publicKey // with the signing one, if that's trusted
}

// newKeys makes keys of a signer and those in files, if there are any. Without files the signer's is trusted.
func newKeys(signer crypto.Signer, files []string) (*keys, error) {
	signing, err := newPublicKey(signer.Public())
	if err != nil {
		return nil, err
	}
	k := &keys{signer: signer, signing: signing}
	if len(files) == 0 {
		k.trusted = []*publicKey{signing}
		return k, nil
	}
	for _, file := range files {
		trusted, err := readPublicKeys(file)
		if err != nil {
			return nil, fmt.Errorf("--service-account-key-file: %w", err)
		}
		for _, key := range trusted {
			if !slices.ContainsFunc(k.trusted, func(other *publicKey) bool { return other.id == key.id }) {
				k.trusted = append(k.trusted, key)
			}
		}
	}
	return k, nil
}

// sign makes a token of claims.
func (k *keys) sign(claims any) (string, error) {
	header, err := json.Marshal(jwtHeader{Algorithm: k.signing.method.Alg(), Key: k.signing.id})
	if err != nil {
		return "", err
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode64(header) + "." + encode64(body)
	signature, err := k.signing.method.Sign(text, k.signer)
	return text + "." + encode64(signature), err
}

// verify tells whether one of the trusted keys has signed the token: the one that it names, if it names one.
func (k *keys) verify(t *jwt) bool {
	return slices.ContainsFunc(k.trusted, func(p *publicKey) bool {
		return (t.header.Key == "" || t.header.Key == p.id) && p.verifies(t)
	})
}

// set returns the trusted keys as a JSON Web Key Set.
func (k *keys) set() ([]byte, error) {
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, p := range k.trusted {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: p.key, KeyID: p.id, Algorithm: p.method.Alg(), Use: "sig"})
	}
	return json.Marshal(set)
}

// NewSigningKey makes a key that can sign ServiceAccounts' tokens, and its PEM.
func NewSigningKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return key, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// ReadSigningKey reads the first private key of a PEM file.
func ReadSigningKey(file string) (crypto.Signer, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	key, err := ParseSigningKey(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// ParseSigningKey returns the first private key of a PEM text.
func ParseSigningKey(text []byte) (crypto.Signer, error) {
	for block := range blocks(text) {
		if key, err := parsePrivateKey(block.Bytes); err == nil {
			return key, nil
		}
	}
	return nil, errors.New("there is no RSA or ECDSA private key as PEM")
}

// parsePrivateKey reads DER in any of the forms that there are.
func parsePrivateKey(der []byte) (crypto.Signer, error) {
	if key, err := x509.ParseECPrivateKey(der); err == nil {
		return key, nil
	}
	if key, err := x509.ParsePKCS1PrivateKey(der); err == nil {
		return key, nil
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, errors.New("the key can't sign")
	}
	return signer, nil
}

// readPublicKeys reads all keys of a PEM file: public ones, those of certificates, and those that belong to private ones.
func readPublicKeys(file string) (all []*publicKey, err error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	for block := range blocks(data) {
		key := parsePublicKey(block.Bytes)
		if key == nil {
			continue
		}
		p, err := newPublicKey(key)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no RSA or ECDSA key as PEM", file)
	}
	return all, nil
}

// parsePublicKey returns nil for what is no key.
func parsePublicKey(der []byte) crypto.PublicKey {
	if key, err := x509.ParsePKIXPublicKey(der); err == nil {
		return key
	}
	if key, err := x509.ParsePKCS1PublicKey(der); err == nil {
		return key
	}
	if cert, err := x509.ParseCertificate(der); err == nil {
		return cert.PublicKey
	}
	if key, err := parsePrivateKey(der); err == nil {
		return key.Public()
	}
	return nil
}

// blocks yields the blocks of a PEM file.
func blocks(data []byte) func(yield func(*pem.Block) bool) {
	return func(yield func(*pem.Block) bool) {
		for block, rest := pem.Decode(bytes.TrimSpace(data)); block != nil && yield(block); block, rest = pem.Decode(rest) {
		}
	}
}
