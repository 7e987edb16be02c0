package etcd

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// keepSize is fallocate's FALLOC_FL_KEEP_SIZE.
const keepSize = 1

// allocate makes sure that writes to f between two offsets need no more space, without changing its size.
// File systems that can't do that are left as they are: there, the free space that is kept in reserve has
// to be enough.
func allocate(f *os.File, from, to int64) error {
	if from >= to {
		return nil
	}
	for {
		switch err := syscall.Fallocate(int(f.Fd()), keepSize, from, to-from); {
		case err == nil, errors.Is(err, errors.ErrUnsupported):
			return nil
		case !errors.Is(err, syscall.EINTR):
			return fmt.Errorf("allocate %d KiB for %s: %w", (to-from)>>10, f.Name(), err)
		}
	}
}
