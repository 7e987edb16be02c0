package conformance

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// servers are those that clients in other languages talk to: their certificate and token come from the kubeconfig.
func servers(t *testing.T, test func(t *testing.T, s *apiserver, kubeconfig string)) {
	for name, args := range map[string][]string{"plain": nil, "TLS and a token": {"--tls", "--token-file", "TOKENS"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			tokens, kubeconfig := filepath.Join(dir, "tokens"), filepath.Join(dir, "config")
			if err := os.WriteFile(tokens, []byte("secret-of-this-test"), 0o600); err != nil {
				t.Fatal(err)
			}
			all := []string{"--write-kubeconfig", kubeconfig}
			for _, arg := range args {
				all = append(all, strings.Replace(arg, "TOKENS", tokens, 1))
			}
			s := start(t, all...)
			if args != nil {
				s.token, s.caFile = "secret-of-this-test", filepath.Join(s.dataDir, "tls.crt")
			}
			s.define()
			test(t, s, kubeconfig)
		})
	}
}

// runClient runs a client's program with a kubeconfig until it says that it's done. Where it asks for that, the server is
// restarted.
func runClient(t *testing.T, s *apiserver, kubeconfig string, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	var log bytes.Buffer
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := ""
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if last = lines.Text(); last == "restart" {
			s.restart()
			io.WriteString(stdin, "\n") // an error means that it has ended, as does Wait
		}
	}
	if err := cmd.Wait(); err != nil || last != "done" {
		t.Errorf("%v ended with %v after %q\n%s", cmd, err, last, log.String())
	}
}

// patient is a context for a program.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestNode runs @kubernetes/client-node. node/package-lock.json has its version; npm comes from Debian.
func TestNode(t *testing.T) {
	dir := filepath.Join("bin", "node")
	if err := installNode(dir); err != nil {
		t.Fatal(err)
	}
	servers(t, func(t *testing.T, s *apiserver, kubeconfig string) {
		cmd := exec.CommandContext(patient(t), "node", "test.mjs")
		cmd.Dir = dir
		runClient(t, s, kubeconfig, cmd)
	})
}

// installNode copies the program to a directory and installs what it needs there, unless that has been done.
func installNode(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	same := true
	for _, name := range []string{"package.json", "package-lock.json", ".npmrc", "test.mjs"} {
		content, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			return err
		}
		have, _ := os.ReadFile(filepath.Join(dir, name))
		if bytes.Equal(have, content) {
			continue
		}
		same = same && name == "test.mjs"
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", ".package-lock.json")); err == nil && same {
		return nil
	}
	if err := run(dir, "npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"); err != nil {
		return fmt.Errorf("this test needs node and npm, Debian's packages nodejs and npm: %w", err)
	}
	return nil
}

// pythonBinary is Debian's, which has the package, unless PYTHON names another one.
func pythonBinary() string { return cmp.Or(os.Getenv("PYTHON"), "/usr/bin/python3") }

// TestPython runs Python's kubernetes, Debian's package python3-kubernetes. PYTHON names another interpreter.
func TestPython(t *testing.T) {
	python := pythonBinary()
	if err := run(".", python, "-c", "import kubernetes"); err != nil {
		t.Fatalf("this test needs Python with kubernetes, Debian's package python3-kubernetes: %v", err)
	}
	servers(t, func(t *testing.T, s *apiserver, kubeconfig string) {
		runClient(t, s, kubeconfig, exec.CommandContext(patient(t), python, "python/test.py"))
	})
}
