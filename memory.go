package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/disk"
)

// A small heap is collected often: with 12 MiB in use, Go collects after each 12 MiB, which a hundred creations of a Pod allocate. So no
// collection begins before the heap has leastHeap. A larger one grows by three quarters between two collections, where Go has it
// double: that's a tenth less memory for a hundredth more CPU.
const (
	leastHeap = 64 << 20 // bytes
	growth    = 75       // percent
	unset     = 100      // percent, which is Go's own
	leastStep = 10       // percent. To set when the next collection begins stops the world for some 20 µs, and isn't worth less.
)

// collectLess sets when the garbage collector runs, unless GOGC says when. It's called when the server is ready: one that does nothing
// stays as small as it started.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		collecting.Do(func() { afterEach(&cycle{percent: unset}) })
	}
}

var collecting sync.Once // per process

// cycle becomes garbage in each collection, after which its finalizer looks how large the heap is. It has more than the 16 bytes below
// which Go's tiny allocator puts several objects into one block, which the others would keep alive.
type cycle struct {
	percent int // that GOGC has
	_       [2]uint64
}

// percentFor returns GOGC's percentage for a heap of which so many bytes are in use.
func percentFor(live int) int {
	if live <= 0 {
		return growth
	}
	return max(growth, leastHeap*100/live-100)
}

// afterEach has c's finalizer run at the next collection, set GOGC's percentage, and arm itself again.
func afterEach(c *cycle) {
	runtime.SetFinalizer(c, func(c *cycle) {
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		percent := percentFor(int(live[0].Value.Uint64()))
		if percent > c.percent+leastStep || percent < c.percent-leastStep {
			debug.SetGCPercent(percent)
			c.percent = percent
		}
		afterEach(c)
	})
}

// afterStart is when the server has begun to do what it does all day.
const afterStart = time.Second

// forgetStart takes the program's code out of the process's memory once, a while after the start, which runs through 9 MB of code
// that nothing runs again. What does run again comes back from the kernel's page cache at once. The returned function calls it off.
func forgetStart() (stop func() bool) {
	return time.AfterFunc(afterStart, func() { _ = forgetCode() }).Stop // in vain, it's as large as without it
}

// forgetCode takes the pages of the program's code out of the process's memory. Nobody writes to code, so the file still has each page as it was. It's
// not for data that are only read: where the program's address is chosen at its start, the loader wrote addresses into some of them.
func forgetCode() error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	return disk.Forget(func(_, _ uintptr, may, file string) bool { return may == "r-xp" && file == program })
}
