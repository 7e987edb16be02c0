package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unmapCode takes the pages of the program's code out of the process's memory (MADV_DONTNEED, madvise(2)). Nobody writes to code, so
// the file still has each page as it was. It's not for data that are only read: where the program's address is chosen at its
// start, the loader wrote addresses into some of them.
func unmapCode() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mapped)) {
		var from, to uintptr
		var may string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &may); err != nil {
			return err
		}
		if may != "r-xp" || !strings.HasSuffix(line, " "+program+"\n") {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
