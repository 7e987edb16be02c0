// Package exit is how a command ends: its exit code, and the line that says why.
package exit

import (
	"errors"
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

// coded is an error with an exit code.
type coded struct {
	error
	code int
}

func (c coded) Unwrap() error { return c.error }

// With returns an error for which a command ends with a code. It says what err says.
func With(code int, err error) error { return coded{err, code} }

// Code returns the exit code of a command that ended with an error, and whether the error has one. Without an error it's OK, and Failure for errors that have none.
func Code(err error) (code int, has bool) {
	var c coded
	switch {
	case err == nil:
		return OK, true
	case errors.As(err, &c):
		return c.code, true
	}
	return Failure, false
}

// Why prints in one line why the program with a name ends, and returns the code.
func Why(stderr io.Writer, program string, code int, err error) int {
	fmt.Fprintf(stderr, "%s: %s\n", program, strings.Join(strings.Fields(err.Error()), " "))
	return code
}
