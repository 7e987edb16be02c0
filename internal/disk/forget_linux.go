package disk

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Forget takes pages of files out of the process's memory (MADV_DONTNEED, madvise(2)): those of the mappings that are chosen by their addresses, by
// what may be done there, as "r-xp", and by the file. What is used again comes back from the kernel's page cache. Only what nobody writes to may be
// chosen, and nobody may end the mapping meanwhile.
func Forget(chosen func(from, to uintptr, may, file string) bool) error {
	mapped, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mapped)) {
		var from, to uintptr
		var may, offset, device, inode string
		if _, err := fmt.Sscanf(line, "%x-%x %s %s %s %s", &from, &to, &may, &offset, &device, &inode); err != nil {
			return fmt.Errorf("/proc/self/maps: %w", err)
		}
		_, file, _ := strings.Cut(line, inode+" ")
		if !chosen(from, to, may, strings.Trim(file, " \n")) {
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
