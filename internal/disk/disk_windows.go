package disk

import (
	"errors"
	"io/fs"
	"os"
	"unsafe"

	"golang.org/x/sys/windows"
)

// NoFollow makes os.OpenFile refuse a link, where the system can.
const NoFollow = 0

// lockAt is the upper half of the offset of the byte that Lock locks. Windows keeps others from a locked byte, and no file is that long.
const lockAt = 1 << 30

// Lock locks a file for as long as it's open: for this open file alone, or shared with others. ErrLocked says that another one has it.
func Lock(f *os.File, shared bool) error {
	how := uint32(windows.LOCKFILE_FAIL_IMMEDIATELY)
	if !shared {
		how |= windows.LOCKFILE_EXCLUSIVE_LOCK
	}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how, 0, 1, 0, &windows.Overlapped{OffsetHigh: lockAt})
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrLocked
	}
	return err
}

// KeepLock keeps a file's lock until the process ends, also when the file is closed.
func KeepLock(f *os.File) {
	process, again := windows.CurrentProcess(), windows.Handle(0)
	_ = windows.DuplicateHandle(process, windows.Handle(f.Fd()), process, &again, 0, false, windows.DUPLICATE_SAME_ACCESS)
}

// Space is what the disk of a path has for this user, and has in all, in bytes.
func Space(path string) (free, total int64, err error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, 0, err
	}
	var f, t uint64
	err = windows.GetDiskFreeSpaceEx(name, &f, &t, nil)
	return int64(f), int64(t), err
}

// Owner is whom a file belongs to, where files have owners with numbers.
func Owner(fs.FileInfo) (uid int, known bool) { return 0, false }

// Map has a file's first bytes as memory to read, until it's undone. size isn't 0.
func Map(f *os.File, size int64) (b []byte, undo func(), err error) {
	mapping, err := windows.CreateFileMapping(windows.Handle(f.Fd()), nil, windows.PAGE_READONLY, 0, 0, nil)
	if err != nil {
		return nil, func() {}, err
	}
	at, err := windows.MapViewOfFile(mapping, windows.FILE_MAP_READ, 0, 0, uintptr(size))
	if err != nil {
		return nil, func() {}, errors.Join(err, windows.CloseHandle(mapping))
	}
	// The view is no memory of Go's, which go vet can't know of a number.
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), size), func() {
		_ = windows.UnmapViewOfFile(at)
		_ = windows.CloseHandle(mapping)
	}, nil
}

// MaxOpenFiles is how many files the process may have open, where that has a limit.
func MaxOpenFiles() (most uint64, limited bool) { return 0, false }
