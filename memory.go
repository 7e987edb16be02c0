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

// A collection costs CPU by what is in use, whether much or little became garbage. With 12 MiB in use, Go collects after each 12 MiB, which a hundred
// creations of a Pod allocate. So no collection begins before the heap has leastHeap. A larger one grows by three quarters between two collections, where
// Go has it double: that's a tenth less memory for a hundredth more CPU. Where much is allocated at once, as by many clients that write, the heap grows by
// more, for as long as that lasts.
const (
	leastHeap = 64 << 20 // bytes
	growth    = 75       // percent
	// leastPause is how far two collections are apart, unless the heap would grow by more than mostBurst: with 100 MiB in use, as far as a hundred
	// thousand ConfigMaps take, a collection takes 40 ms of both processors.
	leastPause = 300 * time.Millisecond
	mostBurst  = 128 << 20 // bytes
	// calm is how long there was no collection when a heap that grew by more is collected, so that its memory goes back to the kernel.
	calm = time.Second

	unset     = 100 // percent, which is Go's own
	leastStep = 10  // percent. To set when the next collection begins stops the world for some 20 µs, and isn't worth less.
)

// collectLess sets when the garbage collector runs, unless GOGC says when. It's called when the server is ready: one that does nothing
// stays as small as it started.
func collectLess() {
	if os.Getenv("GOGC") == "" {
		collecting.Do(func() {
			c := &collector{percent: unset, looked: time.Now(), allocated: heap().allocated}
			c.afterEach(new(cycle))
		})
	}
}

var collecting sync.Once // per process

// collector sets GOGC's percentage after each collection.
type collector struct {
	mu        sync.Mutex  // guards the rest
	percent   int         // that GOGC has
	looked    time.Time   // after the last collection
	allocated uint64      // bytes, by then
	calm      *time.Timer // nil before the first collection
}

// cycle becomes garbage in each collection, after which its finalizer looks how large the heap is. It has more than the 16 bytes below
// which Go's tiny allocator puts several objects into one block, which the others would keep alive.
type cycle struct{ _ [3]uint64 }

// afterEach has the collector look after the next collection, and after each one that follows.
func (c *collector) afterEach(next *cycle) {
	runtime.SetFinalizer(next, func(next *cycle) {
		c.collected()
		c.afterEach(next)
	})
}

// collected looks at the heap after a collection.
func (c *collector) collected() {
	c.mu.Lock()
	defer c.mu.Unlock()
	h, now := heap(), time.Now()
	rate := float64(h.allocated-c.allocated) / max(now.Sub(c.looked), time.Millisecond).Seconds()
	c.looked, c.allocated = now, h.allocated
	c.set(percentFor(h.live, rate))
	if c.calm == nil {
		c.calm = time.AfterFunc(calm, c.calmed)
	} else {
		c.calm.Reset(calm)
	}
}

// calmed is called when there was no collection for a while. What is set then makes Go collect soon, if the heap has more.
func (c *collector) calmed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.set(percentFor(heap().live, 0))
}

// set sets GOGC's percentage, if it's worth it; mu must be held.
func (c *collector) set(percent int) {
	if percent > c.percent+leastStep || percent < c.percent-leastStep {
		debug.SetGCPercent(percent)
		c.percent = percent
	}
}

// percentFor returns GOGC's percentage for a heap of which so many bytes are in use, while so many bytes are allocated in a second.
func percentFor(live int, rate float64) int {
	if live <= 0 {
		return growth
	}
	return max(growth, (leastHeap-live)*100/live, int(min(rate*leastPause.Seconds(), mostBurst))*100/live)
}

// used is what runtime/metrics tells of the heap, in bytes.
type used struct {
	live      int    // what the last collection has left
	allocated uint64 // since the process began
}

func heap() used {
	read := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(read)
	return used{live: int(read[0].Value.Uint64()), allocated: read[1].Value.Uint64()}
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
