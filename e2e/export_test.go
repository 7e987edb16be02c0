package e2e

import (
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestExport: the commands export and import of docs/operations.md, through the program: what one server had another one has, and what it
// exports is the same, byte for byte.
func TestExport(t *testing.T) {
	t.Parallel()
	first, second := start(t, "--ephemeral", "--builtin=all"), start(t, "--ephemeral", "--builtin=all")
	defer first.stop()
	defer second.stop()
	pipe(t, "", "import", "../backup/text/testdata/shop.yaml", "--server", first.url)
	first.do(http.StatusCreated, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"own"},"data":{"a":"b\nc"}}`)
	whole := pipe(t, "", "export", "--secrets", "--server", first.url)
	pipe(t, whole, "import", "-", "--server", second.url)
	if again := pipe(t, "", "export", "--secrets", "--server", second.url); again != whole || !strings.Contains(whole, "name: own") {
		t.Errorf("the second server has\n%s\nwant\n%s", again, whole)
	}
}

// TestManifests: what a directory has is applied, and what it has no more goes, also when that was changed while the server was stopped.
func TestManifests(t *testing.T) {
	t.Parallel()
	dir, data := t.TempDir(), filepath.Join(t.TempDir(), "data")
	for _, name := range []string{"a", "b"} {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+"}\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	answers := func(p *process, name string, code int) {
		t.Helper()
		eventually(t, name+" is answered as it should be", func() bool {
			res, err := http.Get(p.url + "/api/v1/namespaces/default/configmaps/" + name)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			return res.StatusCode == code
		})
	}
	args := []string{"--data-dir", data, "--manifests", dir, "--manifests-prune"}
	p := start(t, args...)
	answers(p, "a", http.StatusOK)
	answers(p, "b", http.StatusOK)
	p.stop()
	if err := os.Remove(filepath.Join(dir, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	p = start(t, args...)
	answers(p, "b", http.StatusNotFound)
	answers(p, "a", http.StatusOK)
	p.stop()
}

// pipe runs a command of the program with an input, which must go well, and returns its output.
func pipe(t *testing.T, in string, args ...string) (out string) {
	t.Helper()
	cmd := exec.Command(binary(), args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s%s", cmd, err, &stdout, &stderr)
	}
	return stdout.String()
}
