// Package e2e tests the program from the outside: each test starts the real binary, talks HTTP to it,
// sends it signals, and looks at its exit code, its output and its files. It imports nothing of ours.
package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	if output, err := exec.Command("go", "build", "-buildvcs=false", "-o", binary, "..").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build the server: %v\n%s", err, output)
		return 1
	}
	return m.Run()
}
