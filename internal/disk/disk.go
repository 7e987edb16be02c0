// Package disk is what the program asks of files and disks in each system's own way: locks, links, space, owners, and files in memory.
package disk

import "errors"

// ErrLocked is returned when another open file has the lock.
var ErrLocked = errors.New("it is locked")
