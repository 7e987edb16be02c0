package clients

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
)

// patience is how long a program may take on a machine that does much else.
const patience = 2 * time.Minute

// Where TestMain leaves the programs, as absolute paths.
var apiserverBinary, helmBinary, kubectlBinary string

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func build() error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	apiserverBinary, helmBinary = filepath.Join(bin, "apiserver-lite"), filepath.Join(bin, "helm")
	if _, err := program.Build("../..", apiserverBinary); err != nil {
		return err
	}
	if _, err := program.BuildPackage(".", "helm.sh/helm/v4/cmd/helm", helmBinary); err != nil {
		return err
	}
	kubectlBinary, err = oldKubectl(bin)
	return err
}

// oldKubectl returns Debian's kubectl of the version in versions.json: the one that is installed, or one that is unpacked into
// bin.
func oldKubectl(bin string) (string, error) {
	text, err := os.ReadFile("../versions.json")
	if err != nil {
		return "", err
	}
	var versions map[string]string
	if err := json.Unmarshal(text, &versions); err != nil {
		return "", fmt.Errorf("versions.json: %w", err)
	}
	oldest := versions["kubernetes-client"]
	unpacked := filepath.Join(bin, "kubernetes-client", "usr", "bin", "kubectl")
	for _, path := range []string{"/usr/bin/kubectl", unpacked} {
		if version, err := exec.Command(path, "version", "--client", "--short").Output(); err == nil && bytes.Contains(version, []byte("v"+oldest+".")) {
			return path, nil
		}
	}
	packages, err := os.MkdirTemp(bin, "deb")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(packages)
	if err := run(packages, "apt-get", "download", "-q", "kubernetes-client"); err != nil {
		return "", fmt.Errorf("kubectl %s is in Debian 12's package kubernetes-client: %w", oldest, err)
	}
	archives, err := filepath.Glob(filepath.Join(packages, "kubernetes-client_"+oldest+"*.deb"))
	if err != nil || len(archives) != 1 {
		return "", fmt.Errorf("no kubectl %s among %q, %v: it's in Debian 12", oldest, archives, err)
	}
	return unpacked, run(".", "dpkg", "-x", archives[0], filepath.Join(bin, "kubernetes-client"))
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, output)
	}
	return nil
}

// client runs a program that reads a kubeconfig.
type client struct {
	t       *testing.T
	program string
	home    string
}

// newClient starts a server for the test, and returns a client of it. flags are the server's.
func newClient(t *testing.T, program string, flags ...string) *client {
	t.Helper()
	c := &client{t: t, program: program, home: t.TempDir()}
	urlFile := filepath.Join(c.home, "url")
	var log bytes.Buffer
	server := exec.Command(apiserverBinary, append([]string{"--ephemeral", "--tls", "--listen=127.0.0.1:0", "--exit-with-parent",
		"--url-file=" + urlFile, "--write-kubeconfig=" + filepath.Join(c.home, "config")}, flags...)...)
	server.Stderr = &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil || t.Failed() {
			t.Errorf("the server ends with %v; its log:\n%s", err, log.String())
		}
	})
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(urlFile); err == nil {
			return c
		}
		if time.Since(begin) > patience {
			t.Fatal("the server isn't ready")
		}
	}
}

// call runs the program to its end.
func (c *client) call(stdin string, args ...string) (stdout, stderr string, err error) {
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, c.program, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.home, "KUBECONFIG=" + filepath.Join(c.home, "config"), "KUBE_EDITOR=sed -i s/size:.1/size:\\ 5/"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	err = cmd.Run()
	return strings.TrimSpace(out.String()), strings.TrimSpace(errs.String()), err
}

// step is one call.
type step struct {
	args  []string
	stdin string
	want  string // part of what it prints
	fails string // if set: it fails, and this is part of what it says
}

func args(words ...string) []string { return words }

// tell runs the steps in order, each as a subtest.
func (c *client) tell(steps []step) {
	for _, s := range steps {
		ok := c.t.Run(strings.Join(s.args, " "), func(t *testing.T) {
			stdout, stderr, err := c.call(s.stdin, s.args...)
			switch {
			case (err != nil) != (s.fails != ""):
				t.Errorf("ends with %v\n%s\n%s", err, stdout, stderr)
			case err != nil && !strings.Contains(stderr, s.fails):
				t.Errorf("says %q, want %q", stderr, s.fails)
			case err == nil && !strings.Contains(stdout, s.want):
				t.Errorf("prints\n%s\nwant\n%s\n%s", stdout, s.want, stderr)
			}
		})
		if !ok {
			return // what follows builds on it
		}
	}
}
