//go:build !linux

package main

// unmapCode does nothing where the kernel isn't Linux.
func unmapCode() error { return nil }
