package access

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestKeys: tokens of each kind of key are verified by its file, in whatever form, and by no other key or algorithm.
func TestKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	signers := map[string]crypto.Signer{"RS256": rsaKey}
	for name, curve := range map[string]elliptic.Curve{"ES256": elliptic.P256(), "ES384": elliptic.P384(), "ES512": elliptic.P521()} {
		if signers[name], err = ecdsa.GenerateKey(curve, rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	stranger, _ := newTestKeys(t)
	for name, signer := range signers {
		t.Run(name, func(t *testing.T) {
			private, err := x509.MarshalPKCS8PrivateKey(signer)
			if err != nil {
				t.Fatal(err)
			}
			public, err := x509.MarshalPKIXPublicKey(signer.Public())
			if err != nil {
				t.Fatal(err)
			}
			for form, der := range map[string][]byte{"PRIVATE KEY": private, "PUBLIC KEY": public} {
				file := filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: form, Bytes: der}), 0o600); err != nil {
					t.Fatal(err)
				}
				k, err := newKeys(signer, []string{file, file})
				if err != nil || len(k.trusted) != 1 {
					t.Fatalf("%s: %d keys, %v", form, len(k.trusted), err)
				}
				token, err := k.sign(map[string]string{"iss": "me"})
				if err != nil {
					t.Fatal(err)
				}
				parsed, err := parseJWT(token)
				if err != nil || parsed.header.Algorithm != name || !k.verify(parsed) || stranger.verify(parsed) {
					t.Errorf("%s: %+v, %v", form, parsed.header, err)
				}
				parsed.header.Key = "" // a token that names no key
				if !k.verify(parsed) {
					t.Errorf("%s: without a kid it isn't verified", form)
				}
				for _, algorithm := range []string{"none", "HS256", "RS256", "ES256", "ES384", "PS256", ""} {
					if parsed.header.Algorithm = algorithm; algorithm != name && k.verify(parsed) {
						t.Errorf("%s: verified as %q", form, algorithm)
					}
				}
				set, err := k.set()
				var keys struct{ Keys []map[string]string }
				if err := json.Unmarshal(set, &keys); err != nil || len(keys.Keys) != 1 || keys.Keys[0]["alg"] != name || keys.Keys[0]["kid"] != k.signing.id {
					t.Errorf("the set is %s", set)
				}
				if err != nil || strings.Contains(string(set), `"d"`) {
					t.Errorf("the set is %s, %v", set, err)
				}
			}
		})
	}
}

// TestMemoIsBounded: it forgets when it's full, and knows what it was told last.
func TestMemoIsBounded(t *testing.T) {
	var m memo[int]
	for i := range 3 * maxVerified {
		var hash [sha256.Size]byte
		binary.BigEndian.PutUint64(hash[:], uint64(i))
		m.put(hash, i)
		if got, ok := m.get(hash); !ok || got != i {
			t.Fatalf("%d is %d, %v", i, got, ok)
		}
	}
	if len(m.known) != maxVerified {
		t.Errorf("it knows %d", len(m.known))
	}
}

// TestAudiences: a token's audience may be a text or a list.
func TestAudiences(t *testing.T) {
	for text, want := range map[string]int{`"a"`: 1, `["a","b"]`: 2, `[]`: 0, `7`: -1, `{}`: -1} {
		var a audiences
		err := json.Unmarshal([]byte(text), &a)
		if want < 0 && err == nil || want >= 0 && (err != nil || len(a) != want) {
			t.Errorf("%s is %q, %v", text, a, err)
		}
	}
}
