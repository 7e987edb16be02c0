package e2e

import (
	"bytes"
	"net/http"
	"os/exec"
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
