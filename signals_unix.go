//go:build unix

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileSize has a write past the limit of a file's size fail, so that the error says so, instead of ending the process.
func ignoreFileSize() { signal.Ignore(syscall.SIGXFSZ) }
