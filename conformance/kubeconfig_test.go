package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestKubeconfig executes the block of docs/install.md that makes a kubeconfig for a server with TLS and a token.
func TestKubeconfig(t *testing.T) {
	page, err := os.ReadFile("../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)<!-- kubeconfig: executed by conformance/kubeconfig_test.go -->\n```sh\n(.*?)```\n").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no such block")
	}
	s := startSecure(t)
	home := t.TempDir()
	// Paste it as it is: kubectl is the one that was built for these tests.
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", string(block[1]))
	cmd.Env = []string{
		"PATH=" + filepath.Dir(kubectlBinary) + ":" + os.Getenv("PATH"), "HOME=" + home, "KUBECONFIG=" + filepath.Join(home, "config"),
		"URL=" + s.url, "DATA=" + s.dataDir, "TOKEN=" + s.token,
	}
	output, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(output), "kube-system") {
		t.Errorf("the block ends with %v and prints\n%s", err, output)
	}
}
