package conformance

import (
	"context"
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

// TestWriteKubeconfig: the banner's line for kubectl works as it is pasted, with and without a kubeconfig.
func TestWriteKubeconfig(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
	}{
		{"address", []string{"--ephemeral"}},
		{"address and certificate", []string{"--ephemeral", "--tls"}},
		{"certificate and token", []string{"--ephemeral", "--tls", "--token-file", "TOKENS"}},
		{"kubeconfig", []string{"--ephemeral", "--write-kubeconfig", "CONFIG"}},
		{"kubeconfig with certificate", []string{"--ephemeral", "--tls", "--write-kubeconfig", "CONFIG"}},
		{"kubeconfig with certificate and token", []string{"--ephemeral", "--tls", "--token-file", "TOKENS", "--write-kubeconfig", "CONFIG"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			home := t.TempDir()
			files := strings.NewReplacer("TOKENS", filepath.Join(home, "tokens"), "CONFIG", filepath.Join(home, "config"))
			if err := os.WriteFile(filepath.Join(home, "tokens"), []byte("secret-of-this-test"), 0o600); err != nil {
				t.Fatal(err)
			}
			var args []string
			for _, arg := range tc.args {
				args = append(args, files.Replace(arg))
			}
			s := start(t, args...)
			var line string
			eventually(t, "the banner has a line for kubectl", func(context.Context) bool {
				_, line, _ = strings.Cut(s.banner.String(), "\n  kubectl ")
				return strings.HasSuffix(line, "\n")
			})
			cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", "kubectl "+line)
			cmd.Env = []string{"PATH=" + filepath.Dir(kubectlBinary) + ":" + os.Getenv("PATH"), "HOME=" + home, "TOKEN=secret-of-this-test"}
			output, err := cmd.CombinedOutput()
			if err != nil || !strings.Contains(string(output), "kube-system") {
				t.Errorf("kubectl %s: %v\n%s", line, err, output)
			}
		})
	}
}
