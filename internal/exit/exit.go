// Package exit is how a command ends: its exit code, and the line that says why.
package exit

import (
	"fmt"
	"io"
	"strings"
)

// Exit codes.
const (
	OK          = 0
	Failure     = 1 // it couldn't start or do what it was asked for, or had to stop by itself
	Usage       = 2
	Forced      = 3   // a second signal
	Interrupted = 130 // before all was done: what shells say of a process that ctrl-C ended (128 + SIGINT)
)

// Why prints in one line why the program with a name ends, and returns the code.
func Why(stderr io.Writer, program string, code int, err error) int {
	fmt.Fprintf(stderr, "%s: %s\n", program, strings.Join(strings.Fields(err.Error()), " "))
	return code
}
