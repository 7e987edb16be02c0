package conformance

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// kubectlVersion is what kubectl says of itself; unstamped builds can't parse their own version.
const kubectlVersion = "v1.37.2"

// Where TestMain leaves the programs, as absolute paths.
var apiserverBinary, kubectlBinary string

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
	args := []string{"build", "-o", apiserverBinary, "."}
	if raceDetector() {
		args = slices.Insert(args, 1, "-race")
	}
	if err := run("..", "go", args...); err != nil {
		return err
	}
	return run(".", "go", "build", "-ldflags=-X k8s.io/component-base/version.gitVersion="+kubectlVersion, "-o", kubectlBinary, "./kubectl")
}

// raceDetector tells whether this test binary was built with -race; the server is then, too.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func run(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, output)
	}
	return nil
}
