package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
)

// Where TestMain leaves the programs, as absolute paths.
var apiserverBinary, kubectlBinary string

// kubectlVersion is what kubectl says of itself. It's made from go.mod's version: unstamped builds can't parse their own.
var kubectlVersion string

func TestMain(m *testing.M) {
	if err := build(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// build builds both programs. The go command leaves alone what is up to date.
func build() error {
	bin, err := filepath.Abs("bin")
	if err != nil {
		return err
	}
	apiserverBinary, kubectlBinary = filepath.Join(bin, "apiserver-lite"), filepath.Join(bin, "kubectl")
	if _, err := program.Build("..", apiserverBinary, program.Race()...); err != nil {
		return err
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubectl").Output()
	if err != nil {
		return fmt.Errorf("which kubectl is it: %w", err)
	}
	kubectlVersion = "v1" + strings.TrimPrefix(strings.TrimSpace(string(module)), "v0") // v0.37.2 is kubectl 1.37.2
	_, err = program.Build("kubectl", kubectlBinary, "-ldflags=-X k8s.io/component-base/version.gitVersion="+kubectlVersion)
	return err
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, output)
	}
	return nil
}
