// Package stack has the stack of a goroutine grow before a request needs it.
package stack

import "net/http"

// writeStack is the stack, in bytes, that a write may need.
const writeStack = 20 << 10

// Grow makes room on the stack before a write. A goroutine begins with a small stack. On the way down through the write it
// would double several times, and each time all frames so far are copied: a tenth of what the creation of a Pod costs. Reads
// go less deep, and a watch would keep what it doesn't need.
func Grow(r *http.Request) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		deepen(false)
	}
}

// deepen has the stack grow: its frame is as large as a write's frames together, and there must be room for all of it as soon as
// it's called. Nobody needs the bytes, and making them zero would cost a quarter of a microsecond.
//
//go:noinline
func deepen(needed bool) byte {
	if !needed {
		return 0
	}
	var frame [writeStack]byte
	return touch(&frame)
}

//go:noinline
func touch(frame *[writeStack]byte) byte { return frame[writeStack-1] }
