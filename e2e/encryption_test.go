package e2e

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRewrite changes the key of a data directory: the command rewrite brings what is stored to the new one, and does nothing the second time.
// Then nothing needs the old key.
func TestRewrite(t *testing.T) {
	t.Parallel()
	dir, file := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "encryption.yaml")
	provider := func(name string) string {
		return fmt.Sprintf("  - secretbox: {keys: [{name: %s, secret: %s}]}\n", name, base64.StdEncoding.EncodeToString([]byte(strings.Repeat(name, 16))))
	}
	serve := func(providers string) *process {
		t.Helper()
		text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets, widgets.example.com]\n  providers:\n" + providers
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return start(t, "--data-dir", dir, "--encryption-provider-config", file)
	}
	const secrets = "/api/v1/namespaces/default/secrets"
	p := start(t, "--data-dir", dir)
	p.do(http.StatusCreated, "POST", secrets, `{"metadata":{"name":"plain"}}`)
	p.stop()

	p = serve(provider("k1") + "  - identity: {}\n")
	p.define()
	p.do(http.StatusCreated, "POST", secrets, `{"metadata":{"name":"a"}}`)
	p.do(http.StatusCreated, "POST", widgets, widget("b", 1))
	p.do(http.StatusOK, "GET", secrets+"/plain", "")
	p.stop()

	p = serve(provider("k2") + provider("k1") + "  - identity: {}\n")
	if said := command(t, "rewrite", "secrets", "--server", p.url); said != "stored anew: 2 of 2 objects\n" {
		t.Errorf("of Secrets it says %q", said)
	}
	if said := command(t, "rewrite", "--server", p.url); !strings.HasPrefix(said, "stored anew: 1 of ") {
		t.Errorf("of all kinds it says %q", said)
	}
	if said := command(t, "rewrite", "--server", p.url); !strings.HasPrefix(said, "stored anew: 0 of ") {
		t.Errorf("the second time it says %q", said)
	}
	p.stop()

	p = serve(provider("k2"))
	for _, path := range []string{secrets + "/plain", secrets + "/a", widgets + "/b"} {
		p.do(http.StatusOK, "GET", path, "")
	}
}
