package seal

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/value"

	"github.com/apiserver-lite/apiserver-lite/storage"
	"github.com/apiserver-lite/apiserver-lite/storage/storagetest"
)

const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"

// secret is a key of n bytes as the file has it.
func secret(n int) string { return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("k"), n)) }

// file writes a configuration and returns its path.
func file(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, text string) *Keys {
	t.Helper()
	k, err := Open(Options{File: file(t, text)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// TestOpenRefuses: a file that can't be right is refused with the line, where a field is wrong.
func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, says string }{
		"nothing":          {"", "is empty"},
		"no YAML":          {"a: [", "error decoding"},
		"another kind":     {"apiVersion: v1\nkind: Secret\n", "no kind \"Secret\""},
		"an unknown field": {header + "resources:\n- resources: [secrets]\n  providers: [{identity: {}}]\n  frob: 1\n", `unknown field "resources[0].frob"`},
		"no providers":     {header + "resources:\n- resources: [secrets]\n", "encryption.yaml, line 4: "},
		"no resources":     {header + "resources: []\n", "at least one resources is required"},
		"a short key":      {header + "resources:\n- resources: [secrets]\n  providers:\n  - identity: {}\n  - secretbox:\n      keys:\n      - name: a\n        secret: " + secret(31) + "\n", "encryption.yaml, line 10: "},
		"a key of 20":      {header + "resources:\n- resources: [secrets]\n  providers:\n  - aesgcm: {keys: [{name: a, secret: " + secret(20) + "}]}\n", "encryption.yaml, line 6: "},
		"no base64":        {header + "resources:\n- resources: [secrets]\n  providers:\n  - aescbc: {keys: [{name: a, secret: '%'}]}\n", "line 6: "},
		"a resource twice": {header + "resources:\n- resources: [secrets, secrets]\n  providers: [{identity: {}}]\n", "line 4: "},
		"one after all":    {header + "resources:\n- resources: ['*.*']\n  providers: [{identity: {}}]\n- resources: [secrets]\n  providers: [{identity: {}}]\n", `resource "secrets" is masked by earlier rule "*.*"`},
		"a KMS name twice": {header + "resources:\n- resources: [secrets]\n  providers:\n  - kms: {apiVersion: v2, name: a, endpoint: 'unix:///x'}\n  - kms: {apiVersion: v2, name: a, endpoint: 'unix:///y'}\n", "line 7: "},
		"a KMS elsewhere":  {header + "resources:\n- resources: [secrets]\n  providers:\n  - kms: {apiVersion: v2, name: a, endpoint: 'tcp://x'}\n", "line 6: "},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := Open(Options{File: file(t, c.text), Reload: true}, slog.New(slog.DiscardHandler))
			if err == nil {
				k.Close()
				t.Fatal("it's taken")
			}
			if text := err.Error(); !strings.Contains(text, c.says) || !strings.HasPrefix(text, "--encryption-provider-config: ") {
				t.Errorf("it says %q, and should say %q", text, c.says)
			}
		})
	}
	if _, err := Open(Options{File: filepath.Join(t.TempDir(), "none")}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("of a missing file it says %v", err)
	}
}

// TestWildcards: the resource that is named counts before its group, and its group before all.
func TestWildcards(t *testing.T) {
	one := func(name string) string {
		return "  providers: [{secretbox: {keys: [{name: " + name + ", secret: " + secret(32) + "}]}}]\n"
	}
	k := open(t, header+"resources:\n- resources: [secrets]\n"+one("named")+"- resources: ['*.apps']\n"+one("group")+"- resources: ['*.*']\n"+one("all"))
	for key, want := range map[string]string{
		"/registry/core/secrets/default/a":         "k8s:enc:secretbox:v1:named:",
		"/registry/apps/deployments/default/a":     "k8s:enc:secretbox:v1:group:",
		"/registry/example.com/widgets/default/a":  "k8s:enc:secretbox:v1:all:",
		"/registry/core/namespaces/a":              "k8s:enc:secretbox:v1:all:",
		"/apiserver-lite/somebody's/own/key/of/us": "plain",
	} {
		stored, err := k.ToStorage(t.Context(), key, []byte("plain"))
		if err != nil || !strings.HasPrefix(string(stored), want) {
			t.Errorf("%s is stored as %q, %v, want %s", key, stored, err, want)
		}
		if plain, stale, err := k.FromStorage(t.Context(), key, stored); string(plain) != "plain" || stale || err != nil {
			t.Errorf("%s is read as %q, %t, %v", key, plain, stale, err)
		}
	}
}

// TestAsUpstream: what upstream's own loader makes of the same file reads what is stored here, and the other way round.
func TestAsUpstream(t *testing.T) {
	for name, provider := range map[string]string{
		"secretbox": "secretbox: {keys: [{name: a, secret: " + secret(32) + "}]}", "aescbc": "aescbc: {keys: [{name: a, secret: " + secret(32) + "}]}",
		"aesgcm": "aesgcm: {keys: [{name: a, secret: " + secret(16) + "}]}", "identity": "identity: {}",
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, header+"resources:\n- resources: [secrets]\n  providers: [{"+provider+"}]\n")
			config, err := encryptionconfig.LoadEncryptionConfig(t.Context(), path, false, "kube-apiserver")
			if err != nil {
				t.Fatal(err)
			}
			theirs := encryptionconfig.StaticTransformers(config.Transformers).TransformerForResource(schema.GroupResource{Resource: "secrets"})
			ours, err := Open(Options{File: path}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer ours.Close()
			const key = "/registry/core/secrets/default/a"
			stored, err := ours.ToStorage(t.Context(), key, []byte("ours"))
			if err != nil {
				t.Fatal(err)
			}
			if plain, _, err := theirs.TransformFromStorage(t.Context(), stored, value.DefaultContext(key)); string(plain) != "ours" {
				t.Errorf("upstream reads %q, %v", plain, err)
			}
			if stored, err = theirs.TransformToStorage(t.Context(), []byte("theirs"), value.DefaultContext(key)); err != nil {
				t.Fatal(err)
			}
			if plain, stale, err := ours.FromStorage(t.Context(), key, stored); string(plain) != "theirs" || stale {
				t.Errorf("ours is %q, %t, %v", plain, stale, err)
			}
		})
	}
}

// TestNone: without a file there are no keys, and nothing to wait for.
func TestNone(t *testing.T) {
	k, err := Open(Options{}, nil)
	if k != nil || err != nil {
		t.Errorf("there are %v, %v", k, err)
	}
	k.Run(t.Context(), nil, nil)
	k.Close()
	if err := (&Options{Reload: true}).Validate(); err == nil {
		t.Error("a reload of nothing is taken")
	}
}

// BenchmarkSecretbox is what a value of 1 KB costs on its way to etcd and back.
func BenchmarkSecretbox(b *testing.B) {
	k := open(b, header+"resources:\n- resources: [secrets]\n  providers: [{secretbox: {keys: [{name: a, secret: "+secret(32)+"}]}}]\n")
	const key = "/registry/core/secrets/default/a"
	plain := bytes.Repeat([]byte("v"), 1024)
	stored, err := k.ToStorage(b.Context(), key, plain)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("to", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := k.ToStorage(b.Context(), key, plain); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("from", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := k.FromStorage(b.Context(), key, stored); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkListSecretbox lists 10,000 values of 1 KB, as a start does, without and with secretbox.
func BenchmarkListSecretbox(b *testing.B) {
	const values = 10_000
	plain := bytes.Repeat([]byte("v"), 1024)
	for name, text := range map[string]string{"plain": "", "secretbox": header + "resources:\n- resources: [secrets]\n  providers: [{secretbox: {keys: [{name: a, secret: " + secret(32) + "}]}}]\n"} {
		b.Run(name, func(b *testing.B) {
			s, _ := storagetest.Embedded(b)
			if text != "" {
				s.SetTransformer(open(b, text))
			}
			for i := range values {
				if _, err := s.Create(b.Context(), fmt.Sprintf("/registry/core/secrets/default/s%d", i), plain); err != nil {
					b.Fatal(err)
				}
			}
			for b.Loop() {
				n := 0
				if _, err := s.List(b.Context(), storage.Range{Prefix: storage.Root}, 0, func(c storage.Change) error {
					n++
					return c.Err
				}); err != nil || n < values {
					b.Fatal(n, err)
				}
			}
		})
	}
}
