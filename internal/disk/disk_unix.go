//go:build unix

package disk

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// NoFollow makes os.OpenFile refuse a link, where the system can.
const NoFollow = syscall.O_NOFOLLOW

// Lock locks a file for as long as it's open: for this open file alone, or shared with others. ErrLocked says that another one has it.
func Lock(f *os.File, shared bool) error {
	how := syscall.LOCK_EX
	if shared {
		how = syscall.LOCK_SH
	}
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}

// KeepLock keeps a file's lock until the process ends, also when the file is closed.
func KeepLock(f *os.File) {
	if fd, err := syscall.Dup(int(f.Fd())); err == nil {
		syscall.CloseOnExec(fd)
	}
}

// Space is what the disk of a path has for this user, and has in all, in bytes.
func Space(path string) (free, total int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(path, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Bavail) * int64(st.Bsize), int64(st.Blocks) * int64(st.Bsize), nil
}

// Owner is whom a file belongs to, where files have owners with numbers.
func Owner(info fs.FileInfo) (uid int, known bool) {
	st, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, false
	}
	return int(st.Uid), true
}

// Map has a file's first bytes as memory to read, until it's undone. size isn't 0.
func Map(f *os.File, size int64) (b []byte, undo func(), err error) {
	b, err = syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	return b, func() { _ = syscall.Munmap(b) }, err
}

// MaxOpenFiles is how many files the process may have open, where that has a limit.
func MaxOpenFiles() (most uint64, limited bool) {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	return uint64(limit.Cur), err == nil
}
