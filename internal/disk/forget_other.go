//go:build !linux

package disk

// Forget does nothing where the kernel isn't Linux.
func Forget(func(from, to uintptr, may, file string) bool) error { return nil }
