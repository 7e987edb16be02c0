package disk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// Flush waits until a stretch of a file has left memory, in bytes. It isn't sure to be there after a loss of power before the file was synced.
func Flush(f *os.File, at, n int64) error {
	err := unix.SyncFileRange(int(f.Fd()), at, n, unix.SYNC_FILE_RANGE_WAIT_BEFORE|unix.SYNC_FILE_RANGE_WRITE|unix.SYNC_FILE_RANGE_WAIT_AFTER)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ESPIPE) { // of a filesystem that can't
		return nil
	}
	return err
}
