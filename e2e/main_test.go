// Package e2e tests the program from the outside: each test starts the real binary, talks HTTP to it,
// sends it signals, and looks at its exit code, its output and its files. It imports nothing of the server's.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
)

// binary is the program under test, built once.
var binary string

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "apiserver-lite-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "apiserver-lite")
	// Without the version control's stamp, which a clone that belongs to someone else can't have.
	args := []string{"build", "-buildvcs=false", "-o", binary}
	if raceDetector() {
		args = append(args, "-race")
	}
	if output, err := exec.Command("go", append(args, "..")...).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the server: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}

// raceDetector tells whether this test was built with -race. The server then is, too, and each test fails in which it
// reports a race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
