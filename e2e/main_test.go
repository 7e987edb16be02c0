// Package e2e tests the program from the outside: each test starts the real binary, talks HTTP to it,
// sends it signals, and looks at its exit code, its output and its files. It imports nothing of the server's.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/internal/program"
)

var built *program.Program

// binary is the path of the program under test, which was built once.
func binary() string { return built.Path() }

func TestMain(m *testing.M) { os.Exit(build(m)) }

func build(m *testing.M) int {
	dir, err := os.MkdirTemp("", "apiserver-lite-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	// With the race detector each test fails in which the server reports a race.
	if built, err = program.Build("..", filepath.Join(dir, "apiserver-lite"), program.Race()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
